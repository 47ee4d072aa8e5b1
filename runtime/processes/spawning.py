"""Starting a program: its pipes, its birth in a session of its own, and the system's refusals as typed errors.

Guarantees: either a `Child` with its pipes, which the taker owns, or a SpawnFailed and nothing left: no process, no
descriptor. The environment is the command's alone; of the runtime's descriptors it gets the pipes and nothing else.
A dead child stays a zombie until `reap`, so that its number, and its group's, cannot be given to a stranger.

It is done in the calling thread, by `subprocess` without `preexec_fn`, which is a vfork: about 1 ms, once in a pass of the
event loop at most. A worker thread
would have to be waited for when all are busy, and its end would count as the parent's death for the child. An
executable on a file system that hangs stalls the caller.
Elsewhere than on Linux there is no descriptor to watch a child by: a thread waits for it, and reaps it at its death.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import attrs
import trio

from proctor.runtime.processes.group import Group
from proctor.runtime.processes.pipes import OutputPipe, StdinPipe, output_pipe, stdin_pipe
from proctor.runtime.processes.private import open_private
from proctor.runtime.processes.process_errors import Context, SpawnFailed, Stage, spawn_refused

MARKER = "PROCTOR_MARKER"
"""The variable a marked process, and all it starts, carries in its environment."""

LAUNCH, SERVE = (
    f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import guard; guard.{function}()"
    for function in ("main", "serve")
)
"""The guard's program, and that of the one that forks guards: imported, it comes from its cached bytecode."""

Stream = Literal["pipe", "null", "inherit"] | Path
"""A pipe to us, /dev/null, the runtime's own, or a file that output is appended to."""


_ELSEWHERE: Mapping[Stream, int | None] = {"null": subprocess.DEVNULL, "inherit": None}


def _strings(value: Sequence[str]) -> tuple[str, ...]:
    if isinstance(value, str) or not value:
        raise ValueError(f"argv is {value!r}; give a sequence of strings, the program first")
    return tuple(value)


def _copy(value: Mapping[str, str]) -> Mapping[str, str]:
    return dict(value)


def _without_nul(
    _: object, attribute: attrs.Attribute[Any], value: Sequence[str] | Mapping[str, str]
) -> None:
    for text in [*value, *(value.values() if isinstance(value, Mapping) else ())]:
        if "\0" in text:
            raise ValueError(f"{attribute.name} contains a NUL byte, which the system does not allow")


@attrs.frozen
class Command:
    """A program to start: `argv`, the whole environment (nothing is inherited), the directory (None: the runtime's own).

    The program is looked up on the PATH of `env`. A stream set to "null" is /dev/null, to "inherit" the runtime's own,
    to a Path that file, made with mode 0600 and appended to; stdin is never the host's nor a file. Raises
    ValueError on an empty argv, a plain string as argv, or a NUL byte.
    """

    argv: tuple[str, ...] = attrs.field(converter=_strings, validator=_without_nul)
    env: Mapping[str, str] = attrs.field(converter=_copy, validator=_without_nul, repr=False)
    cwd: str | None = None
    stdin: Literal["pipe", "null"] = attrs.field(default="pipe", kw_only=True)
    stdout: Stream = attrs.field(default="pipe", kw_only=True)
    stderr: Stream = attrs.field(default="pipe", kw_only=True)


@attrs.define
class Ends:
    """Our ends of a child's pipes, None where there is none. `report` is where a guard writes what it started."""

    stdin: StdinPipe | None = None
    stdout: OutputPipe | None = None
    stderr: OutputPipe | None = None
    report: OutputPipe | None = None

    @property
    def piped(self) -> bool:
        """Whether there is a pipe at all."""
        return bool(self.stdin or self.stdout or self.stderr or self.report)

    def close(self) -> None:
        """Close them all; a second call does nothing."""
        for end in (self.stdin, self.stdout, self.stderr, self.report):
            if end is not None:
                end.close()


Status = tuple[int | None, int | None]
"""(exit code, None), or (None, signal), or (None, None) when somebody else reaped it."""

TRACED_PAUSE = 0.05

WATCHED_BY_DESCRIPTOR = sys.platform == "linux"
"""Whether a death can be looked for at any moment, and waited for by any task, without a thread."""


REPORT_LOOK, REPORT_LIMIT = 1.0, 60.0
"""Seconds between two looks at a guard that has not reported, and after which it is given up."""


@attrs.frozen
class Forked:
    """A child that was forked for us, with what `Child` needs of a `Popen`."""

    pid: int

    def poll(self) -> int | None:
        """The exit code by which it was reaped, None while it lives."""
        found, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if found else None

    def wait(self) -> int:
        """Reap it, and wait for its end where it lives."""
        with suppress(ChildProcessError):  # somebody else has reaped it, or the host ignores SIGCHLD
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return 0


class Child:
    """A process that is ours to reap. `pid` is also the number of its session and of its group."""

    __slots__ = ("_leading", "_news", "_pidfd", "_popen", "_readable", "pid")

    def __init__(self, popen: subprocess.Popen[bytes] | Forked) -> None:
        self.pid = popen.pid
        self._popen = popen
        # Safe against reuse of the number: the child is ours, and stays a zombie until `reap`.
        self._pidfd = os.pidfd_open(popen.pid) if WATCHED_BY_DESCRIPTOR else -1
        self._leading = self._readable = False
        self._news: trio.Event | None = None

    def peek(self) -> Status | None:
        """Its wait status, None while it lives. Before `reap` only."""
        return _peek(self.pid) if WATCHED_BY_DESCRIPTOR else _status(self._popen.poll())

    async def wait_dead(self) -> None:
        """Wait until there is news of it: look with `peek`, and wait again if it lives. For any number of tasks.

        Of several, one watches the descriptor and wakes the others when it is done or cancelled.
        """
        if not WATCHED_BY_DESCRIPTOR:
            # A limiter of its own: the default one has 40 slots, which children that live long would use up.
            await trio.to_thread.run_sync(self._popen.wait, limiter=trio.CapacityLimiter(1))
        elif self._leading:
            await self._follow()
        else:
            await self._lead()

    async def _follow(self) -> None:
        if self._news is None:
            self._news = trio.Event()
        await self._news.wait()

    async def _lead(self) -> None:
        self._leading = True
        try:
            if self._readable:  # dead, but a tracer has not let go of it, or they would not wait again
                await trio.sleep(TRACED_PAUSE)
            await trio.lowlevel.wait_readable(self._pidfd)
            self._readable = True
        except trio.ClosedResourceError:
            pass  # reaped already
        except OSError:
            await trio.sleep(TRACED_PAUSE)  # it cannot be watched just now; it is looked at instead
        finally:
            # In `finally`, for a cancelled leader too: the followers wake, and the first of them leads.
            self._leading = False
            if self._news is not None:
                self._news.set()
                self._news = None

    def reap(self) -> None:
        """Let go of it, dead; call once."""
        # Dead by now, so it does not block. It also keeps `Popen.__del__` from a ResourceWarning.
        self._popen.wait()
        if self._pidfd != -1:
            if self._leading:
                # Before the close: Trio would go on polling a number that the next `open` may get.
                trio.lowlevel.notify_closing(self._pidfd)
            os.close(self._pidfd)


_TURN: trio.lowlevel.RunVar[trio.Lock | None] = trio.lowlevel.RunVar("proctor.spawn", None)


async def spawn_in_turn(command: Command, *, guarded: bool = False) -> tuple[Child, Ends]:
    """`spawn`, once in a pass of the event loop at most; callers have their turns in the order in which they came.

    A start holds the loop, so many that are due together would hold it for their sum: here others run in between.
    """
    turn = _TURN.get()
    if turn is None:
        _TURN.set(turn := trio.Lock())
    async with turn:
        await trio.lowlevel.checkpoint_if_cancelled()  # nothing is started in a cancelled scope
        return spawn(command, guarded=guarded)


def spawn(command: Command, *, guarded: bool = False) -> tuple[Child, Ends]:
    """Start `command` in a session of its own, below a guard if `guarded`.

    Raises NotFound, NotExecutable, CwdMissing or another SpawnFailed, and then leaves nothing. What a guard could not
    start is known later, from `report`: its pid or `!ERRNO`.
    """
    ends, theirs = Ends(), list[int]()
    stage: Stage = "pipes"
    born = False
    try:
        child_ends = open_ends(ends, command, guarded, theirs)
        stage = "spawn"
        popen = _popen(command, child_ends)
        stage = "wait"
        child = watched(popen)
        born = True
    except OSError as error:
        raise _refused(error, command, {"stage": stage, "argv0": command.argv[0]}) from error
    finally:
        # The child has its copies. Kept open here, our own end would never see the end of file.
        for fd in theirs:
            os.close(fd)
        # With a child the taker owns the ends; without one no object is left that would close them.
        if not born:
            ends.close()
    return child, ends


async def wait_for_guard(
    report: OutputPipe, command: Command, context: Context, is_stopped: Callable[[], bool]
) -> int:
    """Wait until the guard has started the program and return the program's pid. `is_stopped`: whether the guard is now.

    Raises the SpawnFailed that `spawn` would have raised without a guard, and one when the guard stays stopped or does
    not report within `REPORT_LIMIT` seconds.
    """
    line = b""
    try:
        while data := await _receive_in_time(report, context, is_stopped):
            line += data
    except OSError as error:
        raise _refused(error, command, {**context, "stage": "guard"}) from error
    if line.startswith(b"!"):
        number = int(line[1:])
        refusal = OSError(number, os.strerror(number))
        raise _refused(refusal, command, {**context, "stage": "guard"}) from refusal
    # The end of file without a whole line: the guard died (a kill, a Python that does not start).
    if not line.endswith(b"\n"):
        raise SpawnFailed("the guard ended before the program was started; see its stderr", **context)
    return int(line)


async def _receive_in_time(report: OutputPipe, context: Context, is_stopped: Callable[[], bool]) -> bytes:
    stopped = 0
    for _ in range(int(REPORT_LIMIT / REPORT_LOOK)):
        with trio.move_on_after(REPORT_LOOK):
            return await report.receive()
        # a guard has nothing else to do than to report, so one that is stopped twice in a row was not only slow
        stopped = stopped + 1 if is_stopped() else 0
        if stopped == 2:
            raise SpawnFailed(
                "the guard was stopped (SIGSTOP) before it started the program; start it again", **context
            )
    raise SpawnFailed(
        f"the guard has not started the program within {REPORT_LIMIT:g} s; run fewer at once", **context
    )


def resident(pid: int) -> int | None:
    """Resident memory of a process in bytes; None where /proc does not show it."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def open_ends(ends: Ends, command: Command, guarded: bool, theirs: list[int]) -> dict[str, int]:
    """Open the pipes: our `ends`, and theirs by name, which are put in `theirs` to be closed. Raises OSError, SpawnFailed."""
    child_ends: dict[str, int] = {}
    if command.stdin == "pipe":
        ends.stdin, child_ends["stdin"] = stdin_pipe()
        theirs.append(child_ends["stdin"])
    if command.stdout == "pipe":
        ends.stdout, child_ends["stdout"] = output_pipe(
            wide=True
        )  # this one alone: a user's pipe memory is rationed
        theirs.append(child_ends["stdout"])
    if command.stderr == "pipe":
        ends.stderr, child_ends["stderr"] = output_pipe()
        theirs.append(child_ends["stderr"])
    for name, stream in (("stdout", command.stdout), ("stderr", command.stderr)):
        if isinstance(stream, Path):
            child_ends[name] = _append_to(stream, command)
            theirs.append(child_ends[name])
    if guarded:
        ends.report, child_ends["report"] = output_pipe()
        theirs.append(child_ends["report"])
    return child_ends


def _append_to(path: Path, command: Command) -> int:
    # O_APPEND: two processes that write to one file do not overwrite each other. O_NOCTTY: a terminal must
    # not become ours.
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK  # a FIFO without a reader refuses
    try:
        fd = open_private(path, flags)
    except OSError as error:
        text = f"its output cannot go to {str(path)!r}: {error.strerror}; name a file that can be written"
        raise SpawnFailed(text, stage="pipes", argv0=command.argv[0], cause=error) from error
    try:
        # The flag is shared with the child, and programs do not expect EAGAIN on their stdout.
        os.set_blocking(fd, True)
    except OSError:
        os.close(fd)
        raise
    return fd


def _popen(command: Command, child_ends: Mapping[str, int]) -> subprocess.Popen[bytes]:
    argv = command.argv
    report = child_ends.get("report")
    if report is not None:
        # -I and -S: neither PYTHON* variables nor a site package of the program's environment reach the
        # guard.
        argv = (sys.executable, "-I", "-S", "-c", LAUNCH, f"{os.getpid()}:{report}", *argv)
    return subprocess.Popen(
        argv,
        env=command.env,
        cwd=command.cwd,
        # Never the host's stdin: two readers of one terminal or pipe would each get a part.
        stdin=child_ends.get("stdin", subprocess.DEVNULL),
        stdout=child_ends.get("stdout", _ELSEWHERE.get(command.stdout)),
        stderr=child_ends.get("stderr", _ELSEWHERE.get(command.stderr)),
        pass_fds=() if report is None else (report,),
        # A session of its own: Ctrl-C at the terminal reaches the host alone, which then stops the child by
        # its ladder.
        start_new_session=True,
    )


def watched(popen: subprocess.Popen[bytes] | Forked) -> Child:
    """The child; killed and reaped where it cannot be watched. Raises OSError."""
    try:
        return Child(popen)
    except OSError:
        Group(
            popen.pid, guarded=False, note=lambda _: None
        ).sweep()  # it may have had the time to start others
        # Killed just before, so this returns soon; unreaped, the zombie would hold its number for the life of
        # the host.
        popen.wait()
        raise


def _peek(pid: int) -> Status | None:
    try:
        # WNOWAIT leaves the zombie, so that its number and its group's stay taken until the group has been
        # killed.
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return None, None  # somebody else reaped it, or the host ignores SIGCHLD: its status is lost
    except OSError:
        return None  # it cannot be asked just now, and will be asked again
    if found is None:
        return None
    return (found.si_status, None) if found.si_code == os.CLD_EXITED else (None, found.si_status)


def _status(code: int | None) -> Status | None:
    if code is None:
        return None
    return (code, None) if code >= 0 else (None, -code)


def _refused(error: OSError, command: Command, context: Context) -> SpawnFailed:
    return spawn_refused(error, cwd=command.cwd, path=command.env.get("PATH"), **context)
