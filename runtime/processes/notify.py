"""Readiness by a notify socket, the protocol of `sd_notify(3)`, for programs that speak it.

Guarantees: the socket stands in a folder of its own, mode 0700, gone with the incarnation. A message counts only when
its sender, as the kernel names it, is of the process's own session or descends from the process; of a sender that has
already ended this cannot be checked, and the folder's mode has to do, as where the kernel names no sender (not
Linux). Descriptors that come with a message are not taken. A message that makes no sense changes nothing.

`READY=1` is `started`, and later ready again; `STOPPING=1` and `RELOADING=1` not ready for now; `WATCHDOG=1` a beat;
`EXTEND_TIMEOUT_USEC=` more time to start; `STATUS=` is on `Process.status`. Other fields are ignored.
Where the spec has a watchdog, WATCHDOG_USEC tells the program.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager

import attrs
import trio
import trio.socket

from proctor.runtime.processes.ledger import make_folder
from proctor.runtime.processes.process import Process
from proctor.runtime.processes.procfs import stat_of
from proctor.runtime.processes.readiness import OutputName, Watch
from proctor.runtime.processes.spawning import Command
from proctor.runtime.task_status import ChildStatus

MESSAGE_LIMIT = 4096
_CREDENTIALS = struct.Struct("3i")
_NAMED = sys.platform == "linux"


@attrs.frozen
class Notify:
    """Ready once it sends `READY=1` on the socket that its environment names as NOTIFY_SOCKET.

    `watchdog`, in seconds, is passed to the program as WATCHDOG_USEC; `process` fills in that of its spec.
    """

    watchdog: float | None = None

    @property
    def outputs(self) -> frozenset[OutputName]:
        """None."""
        return frozenset()

    @contextmanager
    def watch(self, command: Command, report: ChildStatus) -> Generator[Watch]:
        """Watch one start."""
        with _temporary_folder() as folder:
            path = os.path.join(folder, "notify")
            with trio.socket.from_stdlib_socket(_bound(path)) as bound:
                hearing = _Hearing(bound, report)
                env = {"NOTIFY_SOCKET": path}
                if self.watchdog is not None:
                    env["WATCHDOG_USEC"] = str(round(self.watchdog * 1_000_000))
                yield Watch(env=env, until_ready=hearing.until_ready, afterwards=hearing.afterwards)


@contextmanager
def _temporary_folder() -> Generator[str]:
    folder = make_folder("proctor-")
    try:
        yield str(folder)
    finally:
        # What cannot be removed is still in the ledger, and the next sweep tries again.
        shutil.rmtree(folder, ignore_errors=True)


def _bound(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        if _NAMED:
            # Before the bind: a message that came earlier would have no sender.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        made.bind(path)
        # bind() makes the socket by the umask, which may let others of the machine in.
        os.chmod(path, 0o600)
    except OSError:
        made.close()
        raise
    return made


class _Hearing:
    def __init__(self, bound: trio.socket.SocketType, report: ChildStatus) -> None:
        self._socket = bound
        self._report = report
        self._ready = False

    async def until_ready(self, process: Process) -> None:
        while not self._ready:
            self._take(process, await self._next(process), self._before)

    async def afterwards(self, process: Process) -> None:
        while True:
            self._take(process, await self._next(process), self._after)

    def _take(self, process: Process, fields: Mapping[str, str], change: Callable[[str, str], None]) -> None:
        process.status = fields.get("STATUS", process.status)
        for name, value in fields.items():
            change(name, value)

    def _before(self, name: str, value: str) -> None:
        match name, value:
            case "READY", "1":
                self._ready = True
            case "EXTEND_TIMEOUT_USEC", number if number.isdecimal():
                self._report.extend(int(number) / 1_000_000)
            case _:
                pass

    def _after(self, name: str, value: str) -> None:
        match name, value:
            case "READY", "1":
                self._report.ready(True)
            case (("STOPPING" | "RELOADING"), "1"):
                self._report.ready(False)
            case "WATCHDOG", "1":
                self._report.beat()
            case _:
                pass

    async def _next(self, process: Process) -> Mapping[str, str]:
        room = socket.CMSG_SPACE(_CREDENTIALS.size)  # and none for descriptors: the kernel drops them
        while True:
            data, named, flags, _ = await self._socket.recvmsg(MESSAGE_LIMIT, room)
            # A message cut short could end in half a field, such as `READY=1` of `READY=10`.
            if not flags & socket.MSG_TRUNC and _is_its_own(named, process.pid):
                lines = data.decode("utf-8", "replace").splitlines()
                return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _is_its_own(named: Iterable[tuple[int, int, bytes]], leader: int) -> bool:
    if not _NAMED:
        return True
    for level, kind, data in named:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return belongs(_CREDENTIALS.unpack(data)[0], leader)
    return False


def belongs(pid: int, leader: int) -> bool:
    """Whether `pid` is of the session `leader` leads, descends from it, or has ended, so that this cannot be checked."""
    try:
        if os.getsid(pid) == leader:
            return True
    except ProcessLookupError:
        return True
    # a child with a session of its own (setsid) is still found by its parents
    while pid not in (0, leader):
        if (stat := stat_of(pid)) is None:
            return True
        pid = stat.parent
    return pid == leader
