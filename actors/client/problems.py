"""Problems of the HTTP API as the errors that a local call raises."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.actors.agent.stored_requests import KeyReused
from proctor.actors.delivery import Delivery
from proctor.actors.errors import (
    AgentError,
    AskInterrupted,
    AskNotSent,
    AskTimeout,
    BadOption,
    BudgetExceeded,
    MaybeExecuted,
    NotExecuted,
    SessionBusy,
)
from proctor.actors.store.backend import StoreError
from proctor.runtime.errors import NotFound, Running, StartError, SupervisionError
from proctor.runtime.exits import SIGNAL_NAMES, ExitStatus, NoProc


class RemoteError(AgentError):
    """An error of a host that has no class of its own; `kind` is the stable name of its problem, `status` that of HTTP."""

    remedy = "see what the host says"

    def __init__(self, kind: str, status: int, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.status = status


KINDS: Mapping[str, type[Exception]] = {
    "deadline-unsent": AskNotSent,
    "deadline": AskInterrupted,
    "maybe-executed": MaybeExecuted,
    "not-executed": NotExecuted,
    "no-new-work": NotExecuted,
    "budget-spent": BudgetExceeded,
    "in-use": SessionBusy,
    "running": Running,
    "forgotten": NotFound,
    "not-started": StartError,
    "refused": SupervisionError,
    "key-reused": KeyReused,
    "not-kept": StoreError,
    "not-possible": BadOption,
    "not-running": NoProc,
    "no-such-agent": NoProc,
}
"""The stable name of a problem → the error of a local call."""


def error_of(record: Mapping[str, Any], agent: str) -> Exception:
    """The error for the record of a problem of this agent."""
    name, text = record["type"].rpartition(":")[2], record["detail"]
    if (kind := KINDS.get(name)) is None:
        return RemoteError(name, record["status"], text)
    if kind is NoProc:
        return NoProc(agent)
    # Not by its constructor: the text is that of the host.
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    own: dict[str, Any] = {"id": agent} if issubclass(kind, SupervisionError) else {}
    if issubclass(kind, NotExecuted | MaybeExecuted | AskTimeout):
        own = {"delivery": delivery_of_record(record.get("delivery"))}
    vars(error).update(_FACTS.get(kind, {}), **own)
    return error


_FACTS: Mapping[type[Exception], Mapping[str, Any]] = {
    AskInterrupted: {"seconds": 0.0, "acknowledged": False},
    AskNotSent: {"seconds": 0.0},
    MaybeExecuted: {"partial": (), "outcome": "crashed"},
    BudgetExceeded: {"account": "", "seconds": None},
    BadOption: {"faults": ()},
    StoreError: {"place": "", "why": ""},
}
"""The attributes of an error that its host does not send."""


def delivery_of_record(record: Mapping[str, Any] | None) -> Delivery | None:
    """The delivery of a record."""
    if record is None:
        return None
    code, name = record["code"], record["signal"]
    number = next((number for number, known in SIGNAL_NAMES.items() if known == name), None)
    exit = None if code is None and name is None else ExitStatus(code, number)
    return Delivery(
        sent=record["sent"],
        stage=record["stage"],
        elapsed=record["elapsed"],
        pid=record["pid"],
        exit=exit,
        text=record["text"],
        stderr=record["stderr"],
        recording=None if record["recording"] is None else Path(record["recording"]),
        session_id=record["session_id"],
        truncated=tuple(record["truncated"]),
    )
