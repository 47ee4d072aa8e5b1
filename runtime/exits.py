"""Why an incarnation ended: one value per incarnation, final.

Clean are `Normal` and `Shutdown`; everything else is abnormal, `Killed` included. Rules look at the kind
alone, the `detail` of a `Shutdown` only informs. `NoProc` is the one reason that is also an error: a monitor
reports it, a call raises it. Nothing here waits or knows what a task is.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Self, TypeAlias

import attrs

from proctor.runtime.error_facts import Fault

# numbers on which Linux and macOS agree; the others print as numbers
SIGNAL_NAMES: Mapping[int, str] = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
}

STDERR_SHOWN = 300
"""Bytes of stderr that the text of an `ExitStatus` ends with."""

_COMPARED = 1000
"""Names that `NoProc` looks through for the one that was perhaps meant."""


@attrs.frozen
class Normal:
    """The body returned, or a process ended with an accepted status."""

    def __str__(self) -> str:
        return "normal"


@attrs.frozen
class Shutdown:
    """Ended on request, or on purpose by `raise Exit(Shutdown(...))`. `detail` only informs."""

    detail: str | None = None

    def __str__(self) -> str:
        return "shutdown" if self.detail is None else f"shutdown ({self.detail})"


@attrs.frozen
class FinalShutdown(Shutdown):
    """Ended on purpose, and not to be restarted, whatever its restart kind; raised as `DoNotRestart`.

    `cause` is the text of the error that `DoNotRestart` was raised from. Not the error: its traceback would be held as
    long as the spec.
    """

    cause: str | None = None

    def __str__(self) -> str:
        why = _joined(self.detail, self.cause)
        return "shutdown, not to be restarted" + (f" ({why})" if why else "")


@attrs.frozen
class TreeShutdown(Shutdown):
    """Ended on purpose, and every supervisor above it is to end too; raised as `TerminateTree`.

    `path` is the child that raised it, filled in by its supervisor; `cause` is as in `FinalShutdown`.
    """

    cause: str | None = None
    path: str | None = None

    def __str__(self) -> str:
        why = _joined(self.detail, self.cause)
        by = "" if self.path is None else f" by {self.path!r}"
        return f"shutdown of the tree{by}" + (f" ({why})" if why else "")


def _joined(detail: str | None, cause: str | None) -> str:
    return ": ".join(text for text in (detail, cause) if text)


@attrs.frozen
class Killed:
    """Ended by force, without its `terminate` hook."""

    def __str__(self) -> str:
        return "killed"


@attrs.frozen
class Crash:
    """An exception left the body. An exception group is one crash, kept whole."""

    error: BaseException

    def __str__(self) -> str:
        return f"crash: {self.error!r}"


@attrs.frozen
class ExitStatus:
    """The end of an operating system process: an exit `code`, or the number of the `signal` that killed it.

    `stderr` is the last of its output there, where that was read; it tells why, and two ends are equal without it.
    """

    code: int | None = None
    signal: int | None = None
    stderr: bytes = attrs.field(default=b"", kw_only=True, eq=False, repr=False)

    def __str__(self) -> str:
        return self._how + quoted(self.stderr)

    @property
    def _how(self) -> str:
        if self.signal is not None:
            return f"killed by {SIGNAL_NAMES.get(self.signal, f'signal {self.signal}')}"
        return f"exit status {self.code}"


def quoted(stderr: bytes) -> str:
    """The end of `stderr`, for the end of a text; nothing if it says nothing."""
    last = stderr.strip()[-STDERR_SHOWN:].decode("utf-8", "replace")
    return f"; stderr ends {last!r}" if last else ""


class RuntimeFault(Exception):
    """The base class of the runtime's errors, and the facts of those whose class says nothing else."""

    retryable: bool = False
    fault: Fault = "us"
    http_status: int = 500
    exit_status: int = 70
    remedy: str = "report it: this is a fault of proctor or of the program that uses it"


class DeliveryError(RuntimeFault):
    """A message, `msg`, that did not reach its target, or got no answer; `None` where there was no message."""

    retryable = True
    fault: Fault = "peer"
    http_status = 503
    exit_status = 1
    remedy = "ask again when the actor runs"

    msg: object = None

    def carrying(self, msg: object) -> Self:
        """The same error, with the message that it is about."""
        self.msg = msg
        return self


class NoProc(DeliveryError):
    """There is no such actor: it had ended before, or never existed. Any two are equal.

    `target` is what was addressed, where that is known; `known` are the names that exist, of which the text has the
    one that was perhaps meant (not among more than a thousand). `delivery` is
    filled in by the sender of a request: how far that came.
    """

    remedy = "wait until it runs, or start it"
    delivery: Any = None

    def __init__(self, target: object = None, known: Collection[str] = ()) -> None:
        super().__init__("no such actor" if target is None else f"no such actor: {target}")
        self.target = target
        # kept as they are now, because the tree may be gone when it is read; compared then, because few read it
        self._known = tuple(known) if len(known) <= _COMPARED else ()

    def __str__(self) -> str:
        meant, text = str(self.target), super().__str__()
        match [name for name in difflib.get_close_matches(meant, self._known, 1) if name != meant]:
            case [near]:
                return f"{text} (did you mean {near!r}?)"
            case _:
                return text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoProc)

    def __hash__(self) -> int:
        return hash(NoProc)


ExitReason: TypeAlias = Normal | Shutdown | Killed | Crash | ExitStatus | NoProc


class Exit(Exception):
    """Raised by a body that ends itself with a reason on purpose: `raise Exit(Shutdown("done"))`."""

    def __init__(self, reason: ExitReason) -> None:
        super().__init__(reason)
        self._reason = reason

    @property
    def reason(self) -> ExitReason:
        """The reason with which the body ends."""
        return self._reason


class DoNotRestart(Exit):
    """Raised by a child that is not to be restarted, whatever its restart kind: `raise DoNotRestart("bad key")`.

    It ends with `FinalShutdown`. `raise ... from error` puts the text of `error` into the reason.
    """

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(FinalShutdown(detail))
        self.detail = detail

    @property
    def reason(self) -> FinalShutdown:
        """The reason with which the child ends."""
        return FinalShutdown(self.detail, _text_of(self.__cause__))


class TerminateTree(Exit):
    """Raised by a child to end its whole tree: `raise TerminateTree("disk full")`.

    Its supervisor stops the other children and ends with the same `TreeShutdown`, as does every supervisor above; the
    root raises `TerminateTree`, with the `path` of the child.
    """

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(TreeShutdown(detail))
        self.detail = detail

    @property
    def reason(self) -> TreeShutdown:
        """The reason with which the child, and then each supervisor above it, ends."""
        return TreeShutdown(self.detail, _text_of(self.__cause__))


class TreeTerminated(TerminateTree):
    """The error that a root raises for a child's `TerminateTree`: with the `path` of that child and its `reason`."""

    def __init__(self, reason: TreeShutdown) -> None:
        super().__init__(reason.detail)
        self._ended = reason
        why = _joined(reason.detail, reason.cause)
        # the base class took only the detail; the text of an exception comes from its args
        self.args = (f"the tree was ended by {reason.path!r}" + (f": {why}" if why else ""),)

    @property
    def path(self) -> str | None:
        """The child that raised it."""
        return self._ended.path

    @property
    def reason(self) -> TreeShutdown:
        """The reason with which the child and each supervisor above it ended."""
        return self._ended


def _text_of(cause: BaseException | None) -> str | None:
    return None if cause is None else repr(cause)


def is_clean(reason: ExitReason) -> bool:
    """Whether `reason` is one after which a transient child stays down (`Normal`, `Shutdown`)."""
    return isinstance(reason, Normal | Shutdown)


def raised_above(reason: ExitReason, path: str) -> TreeShutdown:
    """The reason of a supervisor whose child at `path` ends the tree with `reason`."""
    if isinstance(reason, TreeShutdown):
        # the path stays that of the child which raised it, on the way through every supervisor above
        return reason if reason.path is not None else attrs.evolve(reason, path=path)
    return TreeShutdown(str(reason), path=path)


def without_directive(reason: ExitReason) -> ExitReason:
    """The reason for another actor that ends because of this end: what is not to be restarted is the first one only."""
    return Shutdown(reason.detail) if isinstance(reason, FinalShutdown | TreeShutdown) else reason


def normalised(reason: ExitReason) -> ExitReason:
    """The reason as it is recorded: exit status 0 is `Normal`, and a body cannot end as `NoProc`."""
    # NoProc says that there is no such actor; as the end of one that existed it would mislead its monitors
    if isinstance(reason, NoProc):
        return Crash(reason)
    # equal whatever stderr holds: that field takes no part in the comparison
    return Normal() if reason == ExitStatus(0) else reason
