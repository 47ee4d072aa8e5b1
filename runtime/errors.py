"""The errors of the runtime, one flat family per who must act.

`SupervisionError` is for code that manages children, `DeliveryError` for code that sends messages. Each keeps
its facts as attributes; the text says what, the value, and what would have been right. `NoProc` stands with
the exit reasons, being both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from proctor.runtime.addresses import AnyAddress, AnyRef
from proctor.runtime.error_facts import Fault, InvalidInput, ProgramMistake
from proctor.runtime.exits import Crash, DeliveryError, ExitReason, RuntimeFault, quoted


class SupervisionError(RuntimeFault):
    """A request to a supervisor that it refuses or that failed."""

    fault: Fault = "caller"
    http_status = 409
    exit_status = 1
    remedy = "see what it says, and what the supervisor does at the moment"


_SHOWN = 100
"""Characters of a value that are shown: a spec in the place of another thing has thousands."""


class InvalidSpec(InvalidInput, SupervisionError, ValueError):
    """A child spec or a flag with a value that is not allowed; nothing was started."""

    remedy = "correct the value that it names"

    def __init__(self, field: str, value: object, accepted: str, *, of: str | None = None) -> None:
        where, shown = f" of {of!r}" if of else "", repr(value)
        if len(shown) > _SHOWN:
            shown = f"{shown[: _SHOWN - 3]}..."
        super().__init__(f"{field}{where} is {shown}: expected {accepted}")
        self.field, self.value, self.accepted, self.of = field, value, accepted, of


class StartError(SupervisionError):
    """A child could not start. `reason` is how its start ended; a crash is also the `__cause__`."""

    fault: Fault = "peer"
    http_status = 502
    remedy = "see why it did not start; mend that and start it again"

    def __init__(self, id: str, reason: ExitReason) -> None:
        super().__init__(f"child {id!r} did not start: {reason}")
        self.id, self.reason = id, reason
        self.__cause__ = reason.error if isinstance(reason, Crash) else None


class StartTimeout(RuntimeFault):
    """The child was not ready within its `start_timeout`, in seconds; `stderr` is a program's last words."""

    retryable = True
    fault: Fault = "peer"
    http_status = 504
    exit_status = 1
    remedy = "see why it was slow, or allow it a longer start_timeout"

    def __init__(self, seconds: float, stderr: bytes = b"") -> None:
        super().__init__(f"not ready within {seconds:g} s{quoted(stderr)}")
        self.seconds, self.stderr = seconds, stderr


class WatchdogTimeout(RuntimeFault):
    """A ready child did not beat within its `watchdog`, in seconds; it was stopped for that."""

    retryable = True
    fault: Fault = "peer"
    http_status = 504
    exit_status = 1
    remedy = "see why it was silent, or allow it a longer watchdog"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no beat within {seconds:g} s")
        self.seconds = seconds


class ProbeFailed(RuntimeFault):
    """A ready child failed its liveness probe so many times in a row; the last `error` is the `__cause__`."""

    retryable = True
    fault: Fault = "peer"
    http_status = 502
    exit_status = 1
    remedy = "see why its probe failed"

    def __init__(self, failures: int, error: BaseException) -> None:
        super().__init__(f"the liveness probe failed, {failures} in a row: {error!r}")
        self.failures, self.error = failures, error
        self.__cause__ = error


class AlreadyStarted(StartError):
    """Somebody alive holds the id or the name; `ref` is the holder."""

    fault: Fault = "caller"
    http_status = 409
    remedy = "use the one that runs, or take another id"

    def __init__(self, id: str, ref: AnyRef) -> None:
        SupervisionError.__init__(self, f"child {id!r} is already started: {ref}")
        self.id, self.ref, self.reason = id, ref, Crash(self)


class AlreadyPresent(SupervisionError):
    """The id is held by a child that is down: restart it or delete it first."""

    remedy = "restart it, or delete it first"

    def __init__(self, id: str) -> None:
        super().__init__(f"child {id!r} is already present, though not running: restart or delete it")
        self.id = id


class NotFound(SupervisionError):
    """No child has this id."""

    http_status = 404
    remedy = "use the id of a child; a temporary child is forgotten when it ends"

    def __init__(self, id: str) -> None:
        super().__init__(f"no child {id!r}")
        self.id = id


class MaxChildren(SupervisionError):
    """The dynamic supervisor has as many children as it may have; nothing was started."""

    retryable = True
    fault: Fault = "machine"
    http_status = 503
    remedy = "ask again when a child has ended, or raise max_children"

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(f"supervisor {path!r} has {limit} children, which is its max_children")
        self.path, self.limit = path, limit


class Running(SupervisionError):
    """The child runs; what was asked needs it down."""

    remedy = "stop it first, or restart it"

    def __init__(self, id: str) -> None:
        super().__init__(f"child {id!r} is running: terminate it first")
        self.id = id


class Restarting(SupervisionError):
    """A restart of the child is due; the request needs it down."""

    remedy = "wait until it runs, or stop it first"

    def __init__(self, id: str) -> None:
        super().__init__(f"child {id!r} is restarting: terminate it first")
        self.id = id


class WouldDeadlock(ProgramMistake, SupervisionError):
    """A child asked a supervisor that is waiting for that very child to start or to stop, or waits for the end of
    one that cannot end before it."""

    remedy = "ask from another task"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"deadlock: supervisor {path!r} waits for the calling actor; call it from another task"
        )
        self.path = path


class MaxRestartsExceeded(ExceptionGroup[Exception]):
    """A root supervisor gave up. The crashes inside the window are its exceptions.

    A crash by what is no `Exception` is there as an `ActorExited` with it as the `__cause__`.
    """

    retryable: bool = False
    fault: Fault = "peer"
    http_status: int = 502
    exit_status: int = 1
    remedy: str = "see the crashes in it; mend what is wrong and start it again"
    path: str

    @classmethod
    def of(cls, path: str, reasons: Sequence[ExitReason], limit: str) -> Self:
        """The error for these exit `reasons`, those inside the window; `limit` says what was exceeded."""
        made = cls(f"supervisor {path!r} gave up: {limit}", [_exception(reason) for reason in reasons])
        made.path = path
        return made

    def derive(self, excs: Sequence[Exception], /) -> MaxRestartsExceeded:  # type: ignore[override]
        """The same failure with other exceptions, for `split` and `subgroup`."""
        made = MaxRestartsExceeded(self.message, excs)
        made.path = self.path
        return made


def _exception(reason: ExitReason) -> Exception:
    if not isinstance(reason, Crash):
        return ActorExited(None, reason)
    if isinstance(reason.error, Exception):
        return reason.error
    stand_in = ActorExited(None, reason)  # an ExceptionGroup holds no other
    stand_in.__cause__ = reason.error
    return stand_in


class ActorExited(DeliveryError):
    """The target ended before it answered; `reason` is why."""

    remedy = "ask again: the actor ended before it answered"

    def __init__(self, target: AnyAddress | None, reason: ExitReason) -> None:
        super().__init__(f"{target or 'the actor'} ended: {reason}")
        self.target, self.reason = target, reason


class ActorRestarting(ActorExited):
    """The target ended before it began with this, and keeps its mailbox: safe to repeat, best by `wait_for`."""

    def __init__(self, target: AnyAddress | None, reason: ExitReason) -> None:
        DeliveryError.__init__(self, f"{target or 'the actor'} ended before it handled the message: {reason}")
        self.target, self.reason = target, reason


class CallTimeout(DeliveryError):
    """No answer within `timeout` seconds; the callee was not interrupted and may still act.

    `cycle` has the paths of the actors that waited for each other, each for the next, where that is why; else it is empty.
    """

    remedy = "ask again: the actor did not reply in time"

    def __init__(self, target: AnyAddress, timeout: float, cycle: tuple[str, ...] = ()) -> None:
        why = f": deadlock, each waited for the next: {' > '.join(cycle)}" if cycle else ""
        super().__init__(f"no answer from {target} within {timeout:g} s{why}")
        self.target, self.timeout, self.cycle = target, timeout, cycle


class TaskTimeout(RuntimeFault):
    """A task of a stream took longer than the `timeout`, in seconds, that each may take."""

    fault: Fault = "peer"
    http_status = 504
    exit_status = 1
    remedy = "allow a longer timeout, or give it less to do"

    def __init__(self, target: AnyAddress, timeout: float) -> None:
        super().__init__(f"{target} was not done within {timeout:g} s")
        self.target, self.timeout = target, timeout


class ResultTaken(ProgramMistake, RuntimeFault):
    """The result of a task was delivered already, or is waited for by another; it is delivered once."""

    def __init__(self, target: AnyAddress) -> None:
        super().__init__(f"the result of {target} was delivered already, or another task waits for it")
        self.target = target


class NoPartitions(RuntimeFault):
    """A partition supervisor was resized to none: no key leads anywhere."""

    fault: Fault = "machine"
    http_status = 503
    exit_status = 1
    remedy = "resize it first"

    def __init__(self, path: str) -> None:
        super().__init__(f"partition supervisor {path!r} has no partitions: resize it first")
        self.path = path


class NotInTrio(ProgramMistake, RuntimeError):
    """Something of proctor was awaited where no Trio loop runs, as in an asyncio program; `what` is that."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is for Trio: in an asyncio program use proctor.aio, in plain code proctor.sync, or run it by proctor.run"
        )
        self.what = what


class CallingSelf(ProgramMistake, DeliveryError):
    """An actor called itself from its own handler."""

    def __init__(self, target: AnyAddress) -> None:
        super().__init__(f"{target} called itself: the call could never return")
        self.target = target


class MailboxFull(DeliveryError):
    """The mailbox of the target is full and its `overflow` does not wait."""

    remedy = "ask again when it has handled what it has"

    def __init__(self, target: AnyAddress) -> None:
        super().__init__(f"the mailbox of {target} is full")
        self.target = target


class PoolOverloaded(DeliveryError):
    """A pool at its `max_queued`: nothing was sent, or what was queued for the longest was dropped."""

    remedy = "ask again later, or give it more partitions"

    def __init__(self, path: str, queued: int, limit: int) -> None:
        super().__init__(
            f"pool {path!r} has {queued} messages queued, and {limit} is its max_queued: repeat later, or give it "
            "more partitions"
        )
        self.path, self.queued, self.limit = path, queued, limit


class NoMailbox(ProgramMistake, DeliveryError):
    """The target takes no messages: a supervisor, or a child that is a plain function."""

    def __init__(self, target: AnyAddress) -> None:
        super().__init__(f"{target} takes no messages")
        self.target = target


class UnknownMessage(ProgramMistake, DeliveryError):
    """An actor got a message it has no handler for."""

    def __init__(self, target: AnyAddress, kind: str, msg: object) -> None:
        super().__init__(f"{target} does not handle this {kind}: {msg!r}")
        self.target, self.kind, self.msg = target, kind, msg


class AlreadyRegistered(RuntimeFault):
    """The name has a live holder, `ref`."""

    fault: Fault = "caller"
    http_status = 409
    exit_status = 1
    remedy = "take another name, or stop its holder"

    def __init__(self, name: str, ref: AnyRef) -> None:
        super().__init__(f"the name {name!r} is held by {ref}")
        self.name, self.ref = name, ref


class StreamError(RuntimeFault):
    """A stream that its producer ended with an error on purpose; `value` is what the producer passed to `fail`."""

    fault: Fault = "peer"
    http_status = 502
    exit_status = 1
    remedy = "see what it says"

    def __init__(self, value: object) -> None:
        super().__init__(f"the stream failed: {value!r}")
        self.value = value


class StreamClosed(RuntimeFault):
    """The consumer of a stream is gone, or the stream has ended: nothing can be sent any more."""

    fault: Fault = "peer"
    http_status = 502
    exit_status = 1
    remedy = "open another stream"

    def __init__(self) -> None:
        super().__init__("the stream is closed")
