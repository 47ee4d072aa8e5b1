"""Retries of whole runs, by one policy.

What is repeated says `retryable` of the error, or of the label or ending of the answer (`actors.outcomes`). A usage limit is waited out.
Streams are not repeated, because their events have been handed out. Asking for retries permits that a run which was cut off is
carried out twice.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

import attrs

from proctor.actors.error_kinds import is_retryable
from proctor.actors.errors import AgentError
from proctor.actors.expense import Expense
from proctor.actors.limits.admission import MARGIN, until_reset
from proctor.actors.outcomes import Answer, facts_of_end
from proctor.actors.runs import DEADLINE
from proctor.runtime.exits import DeliveryError
from proctor.runtime.processes import ProcessError
from proctor.runtime.retry import Again, Retry, repeated
from proctor.runtime.trio_only import check_in_trio


def judge(came: object) -> Again | None:
    """Whether a run that came to this, an `Answer` or an error, is repeated."""
    match came:
        case Answer(outcome="limited", resets_at=float() | int() as resets_at):
            seconds = until_reset(resets_at)
            return None if seconds is None else Again("usage limit", seconds + MARGIN)
        case Answer(outcome="limited"):
            return None  # it does not say until when
        case Answer() if (facts := facts_of_end(came.outcome, came.ending)) is not None and facts.retryable:
            return Again(f"{came.outcome}: {came.error or came.ending}")
        case Exception() if is_retryable(came):
            return Again(f"{type(came).__name__}: {came}")
        case _:
            return None


RETRY = Retry(judge=judge, on=(AgentError, DeliveryError, ProcessError))
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
    check_in_trio("proctor.attempted")
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
