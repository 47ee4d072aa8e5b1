"""What an end means to the shell, and the one line that tells a person. Two tables."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.actors.errors import AgentError, BadOption, FleetFaults, NotExecutable, NotInstalled
from proctor.actors.outcomes import Answer, Outcome
from proctor.actors.scripted import ScriptError
from proctor.cli.codes import DEADLINE, FAILED, LIMITED, NOT_INSTALLED, OK, USAGE
from proctor.cli.ui.output import Output
from proctor.cli.ui.text import WHOLE, last_line, one_line, printable, until
from proctor.runtime.errors import StartError
from proctor.runtime.exits import Crash

OUTCOMES: Mapping[Outcome, tuple[int, str]] = {
    "ok": (OK, "answered"),
    "failed": (FAILED, "failed"),
    "limited": (LIMITED, "is parked on a usage limit"),
    "interrupted": (FAILED, "was interrupted"),
    "exhausted": (FAILED, "used up its turns or its budget"),
    "authentication": (FAILED, "is not logged in"),
    "configuration": (FAILED, "cannot work as configured"),
    "deadline": (DEADLINE, "did not finish in time"),
    "stalled": (FAILED, "gave no sign of life"),
    "stopped": (FAILED, "was stopped"),
    "killed": (FAILED, "was killed"),
    "killed_by_system": (FAILED, "was killed by the system"),
    "crashed": (FAILED, "crashed"),
    "no_answer": (FAILED, "ended without an answer"),
    "garbled": (FAILED, "no longer spoke its protocol and was stopped"),
}
"""How a request ended → exit status, and what is said of the agent."""

ERRORS: Mapping[type[Exception], int] = {
    BadOption: USAGE,
    FleetFaults: USAGE,
    ScriptError: USAGE,
    NotInstalled: NOT_INSTALLED,
    NotExecutable: NOT_INSTALLED,
    AgentError: FAILED,
}
"""What kept a run from starting → exit status; the first that fits."""


def status_of(error: Exception) -> int:
    """The exit status of an error that is told in one line."""
    return next((status for kind, status in ERRORS.items() if isinstance(error, kind)), FAILED)


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
    said = f"{answer.agent} {OUTCOMES[answer.outcome][1]}"
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
    return next((words for name, (_, words) in OUTCOMES.items() if name == outcome), outcome)
