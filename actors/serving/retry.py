"""Which runs are repeated, by tables, and the one policy that repeats them (R119, Q06).

An error is judged by its type (`errors.is_retryable`), an answer by its label and, where the CLI said why, by that.
Repeated is what the next process may well get through: an overloaded model, a process that crashed or fell silent. Never
repeated: a login, a setting, a missing program, a request that is itself the fault, output that could not be read (the
same bytes read the same), and what somebody has stopped. A usage limit is not tried against: it is waited out.

Only whole runs are repeated, not streams, whose events have been handed out. Whoever asks for it says with that that a run
which was cut off may be carried out twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Protocol

import attrs

from proctor.actors.errors import AgentError, is_retryable
from proctor.actors.expense import Expense
from proctor.actors.limits.admission import until_reset
from proctor.actors.limits.usage_limit import MARGIN
from proctor.actors.outcomes import Answer, Outcome
from proctor.actors.runs import DEADLINE
from proctor.protocols.vocabulary import Ending
from proctor.runtime.processes.process_errors import ProcessError
from proctor.runtime.retry import Again, Retry, repeated

REPEATED: Mapping[Outcome, bool] = {
    "ok": False,
    "failed": False,
    "limited": False,
    "interrupted": False,
    "exhausted": False,
    "authentication": False,
    "configuration": False,
    "deadline": False,
    "stalled": True,
    "stopped": False,
    "killed": False,
    "killed_by_system": True,
    "crashed": True,
    "no_answer": True,
    "garbled": False,
}
"""Label of an answer → whether the run is repeated, where its turn did not end with a word of `PASSING`."""

PASSING: frozenset[Ending] = frozenset(("overloaded", "api_error"))
"""Ends of a turn that the next one may not have."""


def judge(came: object) -> Again | None:
    """Whether a run that came to this, an `Answer` or an error, is repeated."""
    match came:
        case Answer(outcome="limited", resets_at=float() | int() as resets_at):
            seconds = until_reset(resets_at)
            return None if seconds is None else Again("usage limit", seconds + MARGIN)
        case Answer() if REPEATED[came.outcome] or came.ending in PASSING:
            return Again(f"{came.outcome}: {came.error or came.ending}")
        case Exception() if is_retryable(came):
            return Again(f"{type(came).__name__}: {came}")
        case _:
            return None


RETRY = Retry(judge=judge, on=(AgentError, ProcessError))
"""At most three attempts, 0.5 s to 30 s apart."""


class Attempt(Protocol):
    """One run, such as `partial(proctor.ask, agent, prompt)` or `partial(pool.run, agent, prompt)`."""

    async def __call__(self, *, timeout: float | None) -> Answer: ...


async def attempted(
    attempt: Attempt,
    retry: Retry = RETRY,
    *,
    name: str = "run",
    timeout: float | None = DEADLINE,
    chance: Random | None = None,
) -> Answer:
    """Run, and run again as `retry` says. `timeout` (300 s, None for none) is for all attempts and the waits together.

    Returns the last answer, whatever its outcome, or raises what the last attempt raised; cost, tokens and time are those of
    all answers. `name` is for the log.
    """
    tries = _Tries(attempt)
    last = await repeated(tries.once, retry, name=name, timeout=timeout, chance=chance or Random())
    return attrs.evolve(tries.expense.applied_to(last), attempts=tries.attempts)


class _Tries:
    """The attempts so far, and what they have taken."""

    def __init__(self, attempt: Attempt) -> None:
        self.expense = Expense()
        self.attempts = 0
        self._attempt = attempt

    async def once(self, left: float | None) -> Answer:
        """One more."""
        answer = await self._attempt(timeout=left)
        self.expense.add(answer)
        self.attempts += answer.attempts
        return answer
