"""Ends of requests as plain data, and back: what a caller got is what a later caller with the same key gets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from proctor.actors.delivery import Delivery, Sent
from proctor.actors.errors import (
    AgentError,
    AskInterrupted,
    AskNotSent,
    AskTimeout,
    MaybeExecuted,
    NotExecuted,
    delivery_of,
)
from proctor.actors.outcomes import Answer
from proctor.actors.store.records import StoredAnswer, StoredDelivery, StoredEnd, StoredError, StoredExit
from proctor.runtime.exits import ExitReason, ExitStatus, Killed, Normal, Shutdown


class KeptError(AgentError):
    """An error of an earlier request with the same key, of a class that is not kept; `kind` is its name."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


_KINDS: Mapping[str, type[MaybeExecuted | NotExecuted | AskTimeout]] = {
    kind.__name__: kind for kind in (MaybeExecuted, NotExecuted, AskInterrupted, AskNotSent)
}


def end_with_answer(answer: Answer) -> StoredEnd:
    """The end of a request that an agent answered, whatever the outcome."""
    given = _fields(answer, StoredAnswer)
    given |= {"exit": _exit(answer.exit), "delivery": _delivery(answer.delivery)}
    return StoredEnd(
        ended=time.time(),
        outcome=answer.outcome,
        sent="yes" if answer.delivery is None else answer.delivery.sent,
        text=answer.text or answer.error or "",
        cost_usd=answer.cost_usd,
        answer=StoredAnswer(**given),
    )


def end_with_error(error: Exception) -> StoredEnd:
    """The end of a request whose caller got an error."""
    delivery = delivery_of(error)
    sent: Sent = "no" if delivery is None else delivery.sent
    if isinstance(error, MaybeExecuted) and sent == "no":
        sent = "unknown"  # it says so itself
    plain = StoredError(
        kind=type(error).__name__,
        text=str(error),
        outcome=getattr(error, "outcome", ""),
        seconds=getattr(error, "seconds", None) or 0.0,
        acknowledged=getattr(error, "acknowledged", False),
        delivery=_delivery(delivery),
    )
    return StoredEnd(ended=time.time(), outcome=plain.kind, sent=sent, text=plain.text, error=plain)


def answer_of_end(end: StoredEnd) -> Answer:
    """The answer that was kept. Raises the error that was."""
    if end.answer is not None:
        kept = end.answer
        given = _fields(kept, StoredAnswer)
        given |= {"exit": _read_exit(kept.exit), "delivery": _read_delivery(kept.delivery)}
        return Answer(**given)
    assert end.error is not None
    raise _error(end.error)


def _error(kept: StoredError) -> AgentError:
    if (kind := _KINDS.get(kept.kind)) is None:
        return KeptError(kept.kind, kept.text)
    # Not by its constructor: the text is kept as the first caller read it.
    error = kind.__new__(kind)
    Exception.__init__(error, kept.text)
    error.delivery = _read_delivery(kept.delivery)
    for name in ("outcome", "seconds", "acknowledged"):
        setattr(error, name, getattr(kept, name))
    if isinstance(error, MaybeExecuted):
        error.partial = ()
    return error


def copy_of(error: Exception) -> Exception:
    """An equal error: one that is raised in several tasks would collect the frames of all of them."""
    # Not by `copy.copy`, which calls the constructor with the text alone.
    other = type(error).__new__(type(error))
    Exception.__init__(other, *error.args)
    vars(other).update(vars(error))
    other.__cause__ = error.__cause__
    return other


def _fields(source: object, kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in kind.__struct_fields__}


def _delivery(delivery: Delivery | None) -> StoredDelivery | None:
    if delivery is None:
        return None
    recording = None if delivery.recording is None else str(delivery.recording)
    given = _fields(delivery, StoredDelivery)
    given |= {"exit": _exit(delivery.exit), "recording": recording}
    return StoredDelivery(**given)


def _read_delivery(kept: StoredDelivery | None) -> Delivery | None:
    if kept is None:
        return None
    recording = None if kept.recording is None else Path(kept.recording)
    given = _fields(kept, StoredDelivery)
    given |= {"exit": _read_exit(kept.exit), "recording": recording}
    return Delivery(**given)


def _exit(exit: ExitReason | None) -> StoredExit | None:
    match exit:
        case None:
            return None
        case ExitStatus(code, signal):
            return StoredExit("ExitStatus", code, signal)
        case _:
            return StoredExit(type(exit).__name__, text=str(exit))


def _read_exit(kept: StoredExit | None) -> ExitReason | None:
    match kept:
        case None:
            return None
        case StoredExit("ExitStatus", code, signal):
            return ExitStatus(code, signal)
        case StoredExit("Normal"):
            return Normal()
        case StoredExit("Killed"):
            return Killed()
        case _:  # a crash, whose error is not kept
            return Shutdown(kept.text)
