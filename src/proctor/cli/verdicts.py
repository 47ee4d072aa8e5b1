"""Results for the shell and for a person: the exit status, and one line of text."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.actors.error_kinds import facts_of
from proctor.actors.outcomes import OUTCOMES, Answer, Outcome
from proctor.cli.ui.output import Output
from proctor.cli.ui.text import WHOLE, last_line, one_line, printable, until
from proctor.runtime.errors import StartError
from proctor.runtime.exits import Crash

PHRASES: Mapping[Outcome, str] = {
    "ok": "answered",
    "failed": "failed",
    "limited": "is parked on a usage limit",
    "interrupted": "was interrupted",
    "exhausted": "used up its turns or its budget",
    "authentication": "is not logged in",
    "configuration": "cannot work as configured",
    "deadline": "did not finish in time",
    "stalled": "gave no sign of life",
    "stopped": "was stopped",
    "killed": "was killed",
    "killed_by_system": "was killed by the system",
    "crashed": "crashed",
    "no_answer": "ended without an answer",
    "garbled": "no longer spoke its protocol and was stopped",
}
"""How a request ended → what is said of the agent."""


def status_of(ended: Outcome | Exception) -> int:
    """The exit status of a command whose request ended so, or that an error kept from its work."""
    if isinstance(ended, Exception):
        return facts_of(ended).exit_status
    return OUTCOMES[ended].exit_status


async def refused(error: Exception, errors: Output) -> int:
    """Tell what kept a command from starting, line by line, and give the exit status."""
    for line in str(error).splitlines():
        await errors.say(printable(line))
    return status_of(error)


def innermost(error: StartError) -> Exception:
    """What a start failed of, through every supervisor that passed it on."""
    cause = error.reason.error if isinstance(error.reason, Crash) else error
    if isinstance(cause, StartError) and cause is not error:
        return innermost(cause)
    return cause if isinstance(cause, Exception) else error


def verdict(answer: Answer, now: float) -> str:
    """One line about the end of a request: who, what and why. `now` in Unix seconds."""
    said = f"{answer.agent} {PHRASES[answer.outcome]}"
    if answer.outcome == "limited":
        return f"{said} {until(answer.resets_at, now)}"
    why = reason(answer)
    return f"{said}: {why}" if why else said


def reason(answer: Answer) -> str:
    """Why a request ended as it did: the CLI's own words, else its exit and the end of its stderr."""
    if answer.ok or answer.outcome == "deadline":
        return ""
    if answer.ending is not None:
        return one_line(answer.error or answer.detail or "", WHOLE)
    parts = [str(answer.exit) if answer.exit is not None else "", last_line(answer.stderr)]
    return one_line("; ".join(part for part in parts if part), WHOLE)


def said_of(outcome: str) -> str:
    """What is said of an agent that ended so; the label itself when this version does not know it."""
    return next((words for name, words in PHRASES.items() if name == outcome), outcome)
