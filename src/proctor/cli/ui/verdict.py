"""The line that tells a user how a request ended, or why a command did not start."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.actors.outcomes import Answer, Outcome
from proctor.cli.exit_status import status_of
from proctor.cli.ui.output import Output
from proctor.cli.ui.text import WHOLE, last_line, one_line, printable, until

PHRASES: Mapping[Outcome, str] = {
    "ok": "answered",
    "failed": "failed",
    "limited": "is parked on a usage limit",
    "interrupted": "was interrupted",
    "exhausted": "used up its turns or its budget",
    "authentication": "is not logged in",
    "configuration": "cannot work as configured",
    "deadline": "did not finish in time",
    "stalled": "stopped responding",
    "stopped": "was stopped",
    "killed": "was killed",
    "killed_by_system": "was killed by the system",
    "crashed": "crashed",
    "no_answer": "ended without an answer",
    "garbled": "stopped following its protocol and was stopped",
}
"""Outcome of a request → what the user reads about the agent."""


def phrase_of(outcome: str) -> str:
    """The phrase for an outcome; the label itself when this version does not know it."""
    return next((phrase for name, phrase in PHRASES.items() if name == outcome), outcome)


def verdict(answer: Answer, now: float) -> str:
    """One line about the end of a request: the agent, the outcome and the reason. `now` in Unix seconds."""
    phrase = f"{answer.agent} {PHRASES[answer.outcome]}"
    if answer.outcome == "limited":
        return f"{phrase} {until(answer.resets_at, now)}"
    why = reason(answer)
    return f"{phrase}: {why}" if why else phrase


def reason(answer: Answer) -> str:
    """The reason for an outcome: the CLI's own text, else its exit status and the end of its stderr."""
    if answer.ok or answer.outcome == "deadline":
        return ""
    if answer.ending is not None:
        return one_line(answer.error or answer.detail or "", WHOLE)
    parts = [str(answer.exit) if answer.exit is not None else "", last_line(answer.stderr)]
    return one_line("; ".join(part for part in parts if part), WHOLE)


async def report(error: Exception, errors: Output) -> int:
    """Write an error that prevented a start to `errors`, line by line; returns the exit status."""
    for line in str(error).splitlines():
        await errors.say(printable(line))
    return status_of(error)
