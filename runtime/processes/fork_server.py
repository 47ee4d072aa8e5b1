"""The fork server of a host: one small process that forks the guards, so that none but the first takes an interpreter's start.

Guarantees: what `ForkServer.spawn` returns is a child of ours like one that we have started, with its own exit status, in a session
of its own, below this host's marker. Where it returns None nothing is left, and the caller starts the guard by itself, who then
also gets the error: for the first guard of a host, since many hosts start one only; where the kernel, the architecture or
the machine refuses; when the server was killed, is stopped or does not answer. A server that failed is replaced; after
`CHANCES` failures there is none any more.

The server dies with the host. `close` kills it and reaps what it may have forked without saying so; the ledger that owns it
does that when its block is left. It asks for one guard at a time, shielded, as a guard must not be forked for a task that is
gone; for at most twice its `patience`.

A guard has the streams, the environment, the directory, the limits and the umask that one started now would have. It has the
scheduling, the capabilities and the restrictions (seccomp, Landlock) that the host had at its second guarded start.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

import trio

from proctor.runtime.processes.spawning import (
    MARKER,
    SERVE,
    Child,
    Command,
    Ends,
    Forked,
    open_ends,
    watched,
)

SYS_CLONE: Mapping[str, int] = {"x86_64": 56, "aarch64": 220}
"""The number of the call, by machine: where its arguments have the same order, and all but the flags are zero."""
CHANCES = 3
_REQUEST_LIMIT = 64 * 1024
_RECORD = 64
_LONGEST_MARKER = 256


class ForkServer:
    """Forks guards, from the second on. `new_marker` gives the server's own marker, `note` its number to the ledger. A server that
    does not answer within `patience` seconds is killed; its interpreter starts within them, too."""

    def __init__(
        self, new_marker: Callable[[str], str], note: Callable[[int, str], None], patience: float = 10.0
    ) -> None:
        self.patience = patience
        self._new_marker, self._note = new_marker, note
        self._turn = trio.Lock()
        self._popen: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._identity: object = None
        self._starts = self._failures = 0
        self._clone = SYS_CLONE.get(os.uname().machine) if sys.maxsize > 2**32 else None

    async def spawn(self, command: Command) -> tuple[Child, Ends] | None:
        """Start `command` below a guard; None where the caller is to do that by itself. Raises SpawnFailed."""
        self._starts += 1
        if self._starts == 1 or self._clone is None or self._failures == CHANCES:
            return None
        # One at a time: an answer belongs to the last request, and a start holds the loop for a moment.
        async with self._turn:
            await trio.lowlevel.checkpoint_if_cancelled()  # nothing is started in a cancelled scope
            with trio.CancelScope(shield=True):
                try:
                    return await self._spawn(command)
                except OSError:
                    self._failures += 1
                    self.close()
        return None

    async def _spawn(self, command: Command) -> tuple[Child, Ends] | None:
        ends, theirs, child = Ends(), list[int](), None
        try:
            pipes = open_ends(ends, command, True, theirs)
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            theirs.append(null)
            streams = [pipes.get("stdin", null)]
            for fd, name, stream in ((1, "stdout", command.stdout), (2, "stderr", command.stderr)):
                streams.append(pipes.get(name, fd if stream == "inherit" else null))
            request = _request(command)
            if len(request) <= _REQUEST_LIMIT:
                server = self._running()
                socket.send_fds(server, [request], [*streams, pipes["report"]], socket.MSG_NOSIGNAL)
                forked = await self._answer(server)
                child = None if forked is None else watched(forked)
        finally:
            # as where a guard is started by itself
            for fd in theirs:
                os.close(fd)
            if child is None:
                ends.close()
        return None if child is None else (child, ends)

    async def _answer(self, server: socket.socket) -> Forked | None:
        """The guard; None when it could not become one. Raises OSError when the server fails."""
        record = b""
        for _ in range(2):
            with trio.move_on_after(self.patience) as late:
                await trio.lowlevel.wait_readable(server)
                record = server.recv(_RECORD)
            if not late.cancelled_caught:
                break
            # It is stopped, or in great need. A guard that it has forked still answers, or has ended with it.
            self._kill()
        if not record:
            raise ConnectionResetError("the fork server has ended")
        pid, number = map(int, record.split())
        if pid == 0:
            raise OSError(number, os.strerror(number))
        if number == 0:
            return Forked(pid)
        Forked(pid).wait()  # it has nothing more to do than to end
        return None

    def _running(self) -> socket.socket:
        # A host that has changed its user must not have guards of the user before.
        identity = os.getpid(), os.getresuid(), os.getresgid(), os.getgroups()
        if self._socket is not None and identity != self._identity:
            self.close()
        if self._socket is None:
            self._identity = identity
            self._socket = self._start()
        return self._socket

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        marker = self._new_marker("guards")
        try:
            ours.setblocking(False)
            with theirs:
                numbers = (os.getpid(), theirs.fileno(), self._clone)
                self._popen = subprocess.Popen(
                    (sys.executable, "-I", "-S", "-c", SERVE, *map(str, numbers)),
                    # room for the marker of each guard, which takes the place of this one
                    env={MARKER: marker, "PROCTOR_ROOM": "-" * _LONGEST_MARKER},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except OSError:
            ours.close()
            raise
        self._note(self._popen.pid, marker)
        return ours

    def close(self) -> None:
        """Kill the server, if there is one, and reap it with what it left in its group."""
        server, self._socket = self._socket, None
        if server is not None:
            trio.lowlevel.notify_closing(server)
            server.close()  # by which it ends where it cannot be killed
            self._kill()

    def _kill(self) -> None:
        popen, self._popen = self._popen, None
        # The group has the guards, too, that have not got as far as a session of their own.
        if popen is None or not (_killed(os.killpg, popen.pid) or _killed(os.kill, popen.pid)):
            return  # Not waited for: it is another user's since this host has changed its own.
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-popen.pid, 0)
        popen.wait()


def _killed(kill: Callable[[int, int], None], pid: int) -> bool:
    try:
        kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _request(command: Command) -> bytes:
    directory = os.path.join(os.getcwd(), command.cwd or "")
    marker = command.env.get(MARKER)
    shown = "" if marker is None else f"{MARKER}={marker}"
    variables = [f"{name}={value}" for name, value in command.env.items()]
    return os.fsencode("\0".join((directory, shown, str(len(variables)), *variables, *command.argv)))
