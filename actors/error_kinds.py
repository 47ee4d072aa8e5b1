"""Who must act on an error, and what is done about it. Both are tables.

An error that wraps another is judged by the innermost that a table knows: a `CompletionError` by its provider's, that by
its agent's. An answer that is none is judged by its outcome, one that failed by the CLI's own word for why, a call that the
system refused by whether something had run out (`runtime.shortage`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, cast

from proctor.actors import errors as e
from proctor.actors.outcomes import Outcome
from proctor.protocols.vocabulary import Ending
from proctor.runtime.errors import ActorExited, CallTimeout, MailboxFull
from proctor.runtime.exits import NoProc, RuntimeFault
from proctor.runtime.processes.process_errors import NotExecutable, NotFound, ProcessError
from proctor.runtime.processes.shortage import shortage_of

Fault = Literal["transient", "configuration", "user", "system"]
Response = Literal["retry", "refuse_start", "return", "report"]

RESPONSES: Mapping[Fault, Response] = {
    "transient": "retry",
    "configuration": "refuse_start",
    "user": "return",
    "system": "report",
}
"""Whose fault → what is done: again by the policy, no start at all, back to the caller, or logged, counted and back."""

ERRORS: Mapping[type[BaseException], Fault] = {
    e.AskInterrupted: "transient",
    e.AskNotSent: "transient",
    e.AskTimeout: "transient",
    e.BadOption: "user",
    e.BudgetExceeded: "user",
    e.ConfigRefused: "configuration",
    e.ContextMissing: "user",
    e.FleetFaults: "configuration",
    e.GreetingTimeout: "transient",
    e.MaybeExecuted: "system",  # what it did before is unknown: repeating it is the caller's to decide
    e.NoPlace: "transient",
    e.NotExecutable: "configuration",
    e.NotExecuted: "transient",
    e.NotInstalled: "configuration",
    e.RecordingFailed: "system",
    e.SchemaUnmet: "user",
    e.ServerLost: "transient",
    e.SessionOwned: "user",
    e.StartKilled: "transient",
    e.StartRefused: "configuration",
    e.TransportMisuse: "user",
    e.NoSuchProvider: "user",
    e.Unresponsive: "transient",
    e.UnsupportedPayload: "user",
    e.VersionCheckFailed: "configuration",
    ActorExited: "transient",
    CallTimeout: "transient",
    MailboxFull: "transient",
    NoProc: "system",
    NotExecutable: "configuration",
    NotFound: "configuration",
    ProcessError: "system",
    RuntimeFault: "system",
    e.AgentError: "system",
}
"""Type of an error → whose fault; the nearest of its bases counts."""

OUTCOMES: Mapping[Outcome, Fault] = {
    "failed": "system",
    "limited": "transient",
    "interrupted": "user",
    "exhausted": "user",
    "authentication": "configuration",
    "configuration": "configuration",
    "deadline": "transient",
    "stalled": "transient",
    "stopped": "user",
    "killed": "user",
    "killed_by_system": "transient",
    "crashed": "system",
    "no_answer": "system",
    "garbled": "system",
}
"""Label of an answer that is none → whose fault."""

ENDINGS: Mapping[Ending, Fault] = {
    "overloaded": "transient",
    "api_error": "transient",
    "invalid_request": "user",
    "prompt_too_long": "user",
    "model_refused": "user",
    "schema_unmet": "system",
}
"""The CLI's word, where it tells more than the label."""


def fault_of(error: BaseException) -> Fault:
    """Whose fault it is; what no table knows is the system's."""
    found: Fault = "system"
    for each in chain(error):
        found = _own_fault(each) or found
    return found


def is_transient(error: BaseException) -> bool:
    """Whether it is nobody's fault and passes. Whether to ask again then is the caller's to decide; what proctor itself
    repeats is the table `errors.RETRYABLE`, which holds back where something may have been carried out."""
    return RESPONSES[fault_of(error)] == "retry"


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and the causes behind it."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__


def _own_fault(error: BaseException) -> Fault | None:
    if isinstance(error, e.ProviderError):
        by_word = ENDINGS.get(cast("Ending", error.ending))
        return by_word or OUTCOMES.get(cast("Outcome", error.outcome))
    if isinstance(error, e.CompletionError):
        return None
    if isinstance(error, OSError | ProcessError) and shortage_of(error) is not None:
        return "transient"
    return next((ERRORS[kind] for kind in type(error).__mro__ if kind in ERRORS), None)
