"""One label for how a request ended, and what the agent does about it. Both are tables.

The label follows from three facts: what the CLI said ended the turn, how its process ended, and who stopped it. The
CLI's own word wins over the exit status (L31): `ENDINGS` first. Without one, `EXITS` tells from who stopped it and
how the process went (L32). `REACTIONS` says what restarts, what parks, and what no restart would heal (L36-L38).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal

import attrs

from proctor.actors.delivery import Delivery
from proctor.protocols.vocabulary import HOST, Ending, Exited, TurnEnded, Usage
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
"""What the CLI said → label."""

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

REACTIONS: Mapping[Outcome, Reaction] = {
    "ok": "go_on",
    "failed": "go_on",
    "limited": "park",
    "interrupted": "go_on",
    "exhausted": "go_on",
    "authentication": "fail",
    "configuration": "fail",
    "deadline": "go_on",
    "stalled": "restart",
    "stopped": "go_on",
    "killed": "restart",
    "killed_by_system": "restart",
    "crashed": "restart",
    "no_answer": "restart",
    "garbled": "restart",
}
"""Label → what the agent does: carry on, end as an abnormal exit, wait for the reset, or stay down as `failed`."""


def exit_class(reason: ExitReason | None) -> ExitClass:
    """How a process went, as the table has it; None (it never ran) counts as a status."""
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
    """How a request ended. `text` is the agent's final word ("" when there was none); `ok` asks the label alone.

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
        """True when the CLI said that the turn completed."""
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
    """How a process ended, with the end of its stderr behind it: evidence, which is not taken for the reason."""
    how = str(exit)
    return (
        how
        if isinstance(exit, ExitStatus) and exit.stderr
        else how + quoted(stderr.encode("utf-8", "replace"))
    )


def end_of(event: Exited) -> str:
    """How a process ended, for a person: its signal or its exit status, and as evidence the end of its stderr."""
    how = "its process ended"
    if event.signal is not None:
        how = f"it was killed by {event.signal}"
    elif event.code is not None:
        how = f"{how} with exit status {event.code}"
    return how + quoted(event.stderr.encode("utf-8", "replace"))
