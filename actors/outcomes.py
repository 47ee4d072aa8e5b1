"""Outcomes: one label for how a request ended, and what each label means. All of it is tables.

The label follows from three facts: what the CLI gave as the end of the turn, how its process ended, and who stopped it. The CLI's own
word wins over the exit status: `ENDINGS` first. Without one, `EXITS` gives the label by who stopped it and how the process
went. `OUTCOMES` says what the agent and its callers do about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

import attrs

from proctor.actors.delivery import Delivery
from proctor.protocols.vocabulary import HOST, Ending, Exited, TurnEnded, Usage
from proctor.runtime.error_facts import Fault
from proctor.runtime.exits import SIGNAL_NAMES, ExitReason, ExitStatus, Killed, Normal, Shutdown, quoted

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:  # the default of a type variable is for checkers, and of Python 3.13
    from typing import TypeVar

    T = TypeVar("T")

Outcome = Literal[
    "ok",
    "failed",
    "limited",
    "interrupted",
    "exhausted",
    "authentication",
    "configuration",
    "deadline",
    "stalled",
    "stopped",
    "killed",
    "killed_by_system",
    "crashed",
    "no_answer",
    "garbled",
]
Stopper = Literal["nobody", "owner", "deadline", "stall", "eof", "garbled", "recording", "kill"]
ExitClass = Literal["clean", "status", "signal", "sigkill"]
Reaction = Literal["go_on", "restart", "park", "fail"]
_HOW: tuple[ExitClass, ...] = ("clean", "status", "signal", "sigkill")

ENDINGS: Mapping[Ending, Outcome] = {
    "completed": "ok",
    "interrupted": "interrupted",
    "refused_start": "configuration",
    "authentication": "authentication",
    "limit": "limited",
    "overloaded": "failed",
    "api_error": "failed",
    "invalid_request": "failed",
    "prompt_too_long": "failed",
    "model_not_found": "configuration",
    "model_refused": "failed",
    "max_turns": "exhausted",
    "budget": "exhausted",
    "schema_unmet": "failed",
    "error": "failed",
}
"""The CLI's word → label."""

EXITS: Mapping[tuple[Stopper, ExitClass], Outcome] = {
    ("nobody", "clean"): "no_answer",
    ("nobody", "status"): "crashed",
    ("nobody", "signal"): "crashed",
    ("nobody", "sigkill"): "killed_by_system",
    **{("owner", how): "stopped" for how in _HOW},
    **{("deadline", how): "deadline" for how in _HOW},
    **{("stall", how): "stalled" for how in _HOW},
    **{("eof", how): "crashed" for how in _HOW},
    **{("garbled", how): "garbled" for how in _HOW},
    **{("recording", how): "failed" for how in _HOW},
    **{("kill", how): "killed" for how in _HOW},
}
"""Who stopped it x how the process went → label, where no turn ended."""


@attrs.frozen(kw_only=True)
class OutcomeFacts:
    """Facts of an outcome: the `reaction` of its agent (carry on, end as an abnormal exit, wait for the reset, or stay down
    as `failed`), and for those who called it the same facts that errors carry. Those of "ok" mean nothing but its statuses."""

    reaction: Reaction = "go_on"
    retryable: bool = False
    fault: Fault = "peer"
    http_status: int = 502
    exit_status: int = 1
    remedy: str = "see why it failed; then ask again, or ask for less at a time"


_RETRY = "ask again; if it fails in the same way, ask for less at a time"
_STOPPED = "ask again if the answer is still needed"

OUTCOMES: Mapping[Outcome, OutcomeFacts] = {
    "ok": OutcomeFacts(http_status=200, exit_status=0, remedy=""),
    "failed": OutcomeFacts(),
    "limited": OutcomeFacts(
        reaction="park",
        retryable=True,
        http_status=429,
        exit_status=75,
        remedy="ask again when the limit has reset, or ask another agent",
    ),
    "interrupted": OutcomeFacts(fault="caller", http_status=499, remedy=_STOPPED),
    "exhausted": OutcomeFacts(
        fault="caller",
        http_status=429,
        remedy="ask for less at a time, or allow it more turns or a larger budget",
    ),
    "authentication": OutcomeFacts(
        reaction="fail",
        fault="machine",
        http_status=401,
        remedy="log in to its command line as the user whom this server runs as, or have the server pass its key on",
    ),
    "configuration": OutcomeFacts(
        reaction="fail", fault="machine", remedy="check the model and the options of the agent"
    ),
    "deadline": OutcomeFacts(
        http_status=504,
        exit_status=124,
        remedy="ask again with a longer timeout, or ask for less at a time",
    ),
    "stalled": OutcomeFacts(reaction="restart", retryable=True, http_status=504, remedy=_RETRY),
    "stopped": OutcomeFacts(fault="machine", http_status=503, remedy=_STOPPED),
    "killed": OutcomeFacts(reaction="restart", fault="machine", http_status=503, remedy=_STOPPED),
    "killed_by_system": OutcomeFacts(
        reaction="restart",
        retryable=True,
        fault="machine",
        http_status=503,
        remedy="ask again with fewer agents at a time; the machine may be out of memory",
    ),
    "crashed": OutcomeFacts(reaction="restart", retryable=True, remedy=_RETRY),
    "no_answer": OutcomeFacts(reaction="restart", retryable=True, remedy=_RETRY),
    "garbled": OutcomeFacts(
        reaction="restart",
        remedy="check that its command line is of a version that proctor knows: proctor doctor",
    ),
}
"""Label → what it means. `proctor.attempted` repeats a run whose label or ending is `retryable`."""

_FAILED = OUTCOMES["failed"]
_REFUSED = attrs.evolve(_FAILED, fault="caller", http_status=422)

ENDING_FACTS: Mapping[Ending, OutcomeFacts] = {
    "overloaded": attrs.evolve(_FAILED, retryable=True, http_status=503, remedy="ask again in a while"),
    "api_error": attrs.evolve(_FAILED, retryable=True, remedy=_RETRY),
    "invalid_request": attrs.evolve(_REFUSED, remedy="change the request as the error says"),
    "prompt_too_long": attrs.evolve(_REFUSED, remedy="shorten the prompt, or begin a new session"),
    "model_refused": attrs.evolve(_REFUSED, remedy="word the request in another way"),
    "model_not_found": attrs.evolve(
        OUTCOMES["configuration"], http_status=404, remedy="name a model that the command line has"
    ),
}
"""The CLI's word → its facts, where they are more than those of its label."""


def facts_of_end(outcome: str | None, ending: str | None) -> OutcomeFacts | None:
    """The facts of a request that ended so: of the CLI's own word, else of the label. None for a label that is not known."""
    by_word = ENDING_FACTS.get(cast("Ending", ending))
    return by_word or OUTCOMES.get(cast("Outcome", outcome))


def exit_class(reason: ExitReason | None) -> ExitClass:
    """Class of a process exit in `EXITS`; None (it never ran) counts as a status."""
    match reason:
        case Normal() | Shutdown():
            return "clean"
        case Killed() | ExitStatus(signal=9):
            return "sigkill"
        case ExitStatus(signal=int()):
            return "signal"
        case _:
            return "status"


def label(ending: Ending | None, exit: ExitReason | None, by: Stopper = "nobody") -> Outcome:
    """The label of a request."""
    return ENDINGS[ending] if ending is not None else EXITS[by, exit_class(exit)]


@attrs.frozen(kw_only=True)
class Answer(Generic[T]):
    """The result of a request. `text` is the agent's final word ("" when there was none); `ok` asks the label alone.

    `usage` (tokens), `cost_usd` and `duration` (seconds) are None where the CLI gave none. `notes` records where
    the CLI's word and its exit disagree. `exit` and `stderr` (its end) are those of a process that ended with the
    request, None and "" while it lives.

    `value` is what a request's `schema` declared (`Answer[Invoice]` for `schema=Invoice`), None without one and where none
    came, which `ok` says; `structured_output` is the same as
    plain data. `attempts` counts those it took; cost, tokens and time are those of all of them, also where a process
    died in the midst of one. `total_cost_usd` is what the conversation has cost up to here, where the CLI reports it.
    `delivery` says how far the request came, with what had streamed; None where it is ok.
    """

    agent: str
    outcome: Outcome
    text: str = ""
    error: str | None = None
    ending: Ending | None = None
    detail: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    total_cost_usd: float | None = None
    duration: float | None = None
    model: str | None = None
    model_turns: int | None = None
    session_id: str | None = None
    structured_output: object = None
    value: T = None  # type: ignore[assignment]  # nothing came: `ok` is False, or nothing was asked for
    attempts: int = 1
    denied_tools: tuple[str, ...] = ()
    resets_at: float | None = None
    exit: ExitReason | None = None
    stderr: str = ""
    notes: tuple[str, ...] = ()
    delivery: Delivery | None = None

    @property
    def ok(self) -> bool:
        """True when the CLI reported that the turn completed."""
        return self.outcome == "ok"


def answer_of(agent: str, event: TurnEnded, resets_at: float | None = None) -> Answer:
    """The answer that a turn's end gives."""
    return Answer(
        agent=agent,
        outcome=label(event.ending, None),
        text=event.text or "",
        error=event.error,
        ending=event.ending,
        detail=event.detail,
        usage=event.usage,
        cost_usd=event.cost_usd,
        total_cost_usd=event.total_cost_usd,
        duration=event.duration,
        model=event.model,
        model_turns=event.model_turns,
        session_id=event.session_id,
        structured_output=event.structured_output,
        denied_tools=event.denied_tools,
        resets_at=resets_at if event.ending == "limit" else None,
    )


def exited_of(outcome: Outcome, exit: ExitReason | None, stderr: str, incarnation: int) -> Exited:
    """The last event of an incarnation, with the end of its stderr (2000 characters)."""
    status = exit if isinstance(exit, ExitStatus) else ExitStatus()
    name = None if status.signal is None else SIGNAL_NAMES.get(status.signal, str(status.signal))
    return Exited(HOST, None, outcome, status.code, name, stderr[-2000:], incarnation)


def with_stderr(exit: ExitReason | None, stderr: str) -> str:
    """Describe the exit of a process, with the end of its stderr behind it: evidence, which is not taken for the reason."""
    how = str(exit)
    return (
        how
        if isinstance(exit, ExitStatus) and exit.stderr
        else how + quoted(stderr.encode("utf-8", "replace"))
    )


def end_of(event: Exited) -> str:
    """Describe the exit of a process to a person: its signal or its exit status, and as evidence the end of its stderr."""
    how = "its process ended"
    if event.signal is not None:
        how = f"it was killed by {event.signal}"
    elif event.code is not None:
        how = f"{how} with exit status {event.code}"
    return how + quoted(event.stderr.encode("utf-8", "replace"))
