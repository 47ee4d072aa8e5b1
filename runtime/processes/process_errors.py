"""The errors of an operating-system process, one type for each failure.

Every error carries `stage`, `argv0`, `pid` and `elapsed`, and its text repeats them, so that one log line is enough.
"""

from __future__ import annotations

import errno
import os
import shutil
from typing import Any, Literal, NotRequired, TypedDict, Unpack

from proctor.runtime.error_facts import Fault, ProgramMistake
from proctor.runtime.exits import ExitReason
from proctor.runtime.processes.shortage import remedy_of, shortage_of

Stage = Literal["ready", "pipes", "spawn", "guard", "wait", "stdin", "stdout", "stderr"]
"""Where it happened: preparing for its readiness, making the pipes, starting the program, hearing from its guard,
watching it, or on a pipe."""


class Context(TypedDict):
    """The facts that every error of a started process carries."""

    stage: Stage
    argv0: str
    pid: NotRequired[int | None]
    elapsed: NotRequired[float]


class ProcessError(Exception):
    """A failure of one process.

    `stage` says where, `argv0` is the program's name as given, `pid` the program's own, below a guard, too: None when it
    was not started or has no process of its own; `elapsed` is in seconds since the start (0.0 when nothing was started).
    `delivery` is filled in by the sender of a request: its record of how far that came.
    """

    retryable: bool = False
    fault: Fault = "machine"
    http_status: int = 502
    exit_status: int = 1
    remedy: str = "see the text: the process could not be run"
    delivery: Any = None

    def __init__(
        self, text: str, *, stage: Stage, argv0: str, pid: int | None = None, elapsed: float = 0.0
    ) -> None:
        self.stage = stage
        self.argv0 = argv0
        self.pid = pid
        self.elapsed = elapsed
        where = f"stage {stage}" if pid is None else f"stage {stage}, pid {pid}, after {elapsed:.2f} s"
        super().__init__(f"{argv0!r}: {text} ({where})")


class SpawnFailed(ProcessError):
    """The program did not start; `cause` is the system's error, or None when the guard went without a word."""

    retryable = True
    remedy = "see why it was refused; free what the machine lacks"

    def __init__(self, text: str, *, cause: OSError | None = None, **context: Unpack[Context]) -> None:
        super().__init__(text, **context)
        self.cause = cause
        # a cause that is no shortage will be there the next time, too
        self.retryable = self.retryable and (cause is None or shortage_of(cause) is not None)


class NotFound(SpawnFailed):
    """There is no such program, neither at the path given nor on the PATH of the command's environment."""

    retryable = False
    exit_status = 69
    remedy = "install the program, or give its full path"


class NotExecutable(SpawnFailed):
    """The file is there and cannot be run: its mode, its format, or a missing interpreter."""

    retryable = False
    exit_status = 69
    remedy = "set its mode, or install its interpreter"


class CwdMissing(SpawnFailed):
    """The working directory is not there or may not be entered."""

    retryable = False
    remedy = "create the directory, or name another"


class PortTaken(ProcessError):
    """`port` of `host`, by which a process was to show that it is ready, was answered before it was started."""

    remedy = "end what answers on the port, or name another port"

    def __init__(self, host: str, port: int, *, argv0: str) -> None:
        text = f"port {port} of {host} is already in use by another process; stop that process, or choose another port"
        super().__init__(text, stage="ready", argv0=argv0, pid=None, elapsed=0.0)
        self.host, self.port = host, port


class NoStdin(ProgramMistake, ProcessError):
    """The command was opened without a stdin pipe."""

    remedy = "open the command with a stdin pipe"


class NoStdout(ProgramMistake, ProcessError):
    """The command was opened without a stdout pipe."""

    remedy = "open the command with a stdout pipe"


class NoStderr(ProgramMistake, ProcessError):
    """The command was opened without a stderr pipe."""

    remedy = "open the command with a stderr pipe"


class StdinClosed(ProcessError):
    """stdin is closed: by us, by the process, or after a message that was cut short."""

    fault: Fault = "peer"
    remedy = "start the process again"


class PipeFailed(ProcessError):
    """The system refused to read or write a pipe of the process, by `stage`; `cause` is its error.

    Of stdin: nothing of the message was written, or stdin was closed behind the half of it. Of an output: what follows is
    lost, its pipe is closed."""

    remedy = "start the process again"

    def __init__(self, text: str, *, cause: OSError | None = None, **context: Unpack[Context]) -> None:
        super().__init__(text, **context)
        self.cause = cause


class ProcessGone(ProcessError):
    """The process has ended; `exit` is its reason, `stderr` the last bytes it wrote there so far."""

    retryable = True
    fault: Fault = "peer"
    remedy = "start the process again; its stderr may say why it ended"

    def __init__(self, text: str, *, reason: ExitReason, stderr: bytes, **context: Unpack[Context]) -> None:
        super().__init__(text, **context)
        self.exit = reason
        self.stderr = stderr


def stdin_refused(
    error: Exception, reason: ExitReason | None, stderr: bytes, context: Context
) -> ProcessGone | StdinClosed:
    """The error for a message that `error` kept from being written, to a process that has ended by `reason` or lives."""
    if reason is None:
        return StdinClosed(f"stdin is closed: {error}", **context)
    text = f"it has ended ({reason}), stdin is closed"
    return ProcessGone(text, reason=reason, stderr=stderr, **context)


def pipe_failed(cause: OSError, context: Context) -> PipeFailed:
    """The error for a pipe that the system did not read or write, because of `cause`."""
    stage = context["stage"]
    what = "a message was not written" if stage == "stdin" else f"{stage} cannot be read any more"
    text = f"{what}: {cause.strerror}; {remedy_of(cause, 'start the process again')}"
    return PipeFailed(text, cause=cause, **context)


def spawn_refused(
    error: OSError, *, cwd: str | None, path: str | None, **context: Unpack[Context]
) -> SpawnFailed:
    """The error for a start the system refused with `error`: the program, its file, its directory, or the rest.

    `path` is the PATH of the command's environment, None where it has none.
    """
    kind, text = _diagnosis(error, context["argv0"], cwd, path or os.defpath, context["stage"])
    return kind(text, cause=error, **context)


def _diagnosis(
    error: OSError, argv0: str, cwd: str | None, path: str, stage: Stage
) -> tuple[type[SpawnFailed], str]:
    if stage not in ("spawn", "guard"):
        return SpawnFailed, f"did not start: {error.strerror}; {remedy_of(error, 'try again')}"
    if cwd is not None and not (os.path.isdir(cwd) and os.access(cwd, os.X_OK)):
        return CwdMissing, f"cannot enter the directory {cwd!r}: {error.strerror}; create it or name another"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return _not_there(argv0, cwd, path)
    if error.errno in (errno.EACCES, errno.ENOEXEC):
        return NotExecutable, f"cannot be executed: {error.strerror}; give a program, or set its mode"
    remedy = remedy_of(error, "shorten its arguments or free what the machine lacks")
    return SpawnFailed, f"did not start: {error.strerror}; {remedy}"


def _not_there(argv0: str, cwd: str | None, path: str) -> tuple[type[SpawnFailed], str]:
    given_as_path = os.sep in argv0
    found = os.path.join(cwd or "", argv0) if given_as_path else shutil.which(argv0, path=path)
    if found is not None and os.path.exists(found):
        return (
            NotExecutable,
            f"{found!r} is there, but not the interpreter its first line names; install that",
        )
    where = "at that path" if given_as_path else f"on the PATH of its environment, {path!r}"
    return NotFound, f"there is no such program {where}; install it or give its full path"
