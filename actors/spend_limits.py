"""The budgets that apply to one agent: its own and its tree's."""

from __future__ import annotations

from collections.abc import Iterator

import trio

from proctor.actors.budgets import Alarm, Budget, Spending, Then
from proctor.actors.fellows import Fellows


class SpendLimits:
    """All budgets of one agent. `budget` is its own, named `whose` in messages; the tree's budget is in `fellows`."""

    def __init__(self, budget: Budget | None, whose: str, fellows: Fellows) -> None:
        own = None if budget is None else Spending(budget, whose)
        self._spendings = tuple(spending for spending in (own, fellows.spending) if spending is not None)

    def spend(self, usd: float | None) -> Iterator[tuple[Alarm, str]]:
        """Record the cost of a turn in US dollars (None: unknown). Yields each alarm with its text."""
        now = trio.current_time()
        for spending in self._spendings:
            for alarm in spending.spend(usd, now):
                yield alarm, spending.text(now)

    def spent(self, *then: Then) -> tuple[str, float] | None:
        """The text of a spent budget whose action is in `then`, and the seconds until it frees; None without one."""
        now = trio.current_time()
        for spending in self._spendings:
            if spending.budget.then in then and (seconds := spending.frees_in(now)) > 0:
                return spending.text(now), seconds
        return None
