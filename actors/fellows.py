"""What the agents of one tree share: their accounts, the tree's budget, and the order in which they come back.

Made by whoever opens the tree and found by its agents through their context, so that two trees in one program know
nothing of each other (R006). An agent of a tree that was opened without one is alone.
"""

from __future__ import annotations

from contextvars import ContextVar
from random import Random

import trio

from proctor.actors.accounts import Account
from proctor.actors.budgets import Budget, Spending

FELLOWS: ContextVar[Fellows | None] = ContextVar("proctor.fellows", default=None)


class Fellows:
    """`budget` is for all of them together. `stagger`: seconds between two that come back after a mass restart.
    `changes` counts what was told to those who wait."""

    def __init__(
        self, *, budget: Budget | None = None, stagger: float = 0.0, seed: int | None = None
    ) -> None:
        self.spending = None if budget is None else Spending(budget, "the tree")
        self._random = Random(seed)
        self._accounts: dict[str, Account] = {}
        self.changes = 0
        self._lot = trio.lowlevel.ParkingLot()
        self._stagger = stagger
        self._place = 0.0

    def account(self, name: str) -> Account:
        """The account of this name."""
        if name not in self._accounts:
            self._accounts[name] = Account(name, self._random)
        return self._accounts[name]

    def tell(self) -> None:
        """Something has changed that others wait for."""
        self.changes += 1
        self._lot.unpark_all()

    async def told(self, seconds: float, changes: int) -> None:
        """Wait so many seconds, or until there were more changes than that."""
        with trio.move_on_after(seconds):
            while self.changes == changes:
                await self._lot.park()

    def place(self, now: float) -> float:
        """When the next that comes back may be asked something, on the same clock as `now`."""
        place = max(now, self._place)
        self._place = place + self._stagger
        return place


def current_fellows() -> Fellows:
    """Those of the tree around this task; alone outside of one."""
    return FELLOWS.get() or Fellows()
