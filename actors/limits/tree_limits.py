"""What the agents of one tree share: their accounts, the account book, and the order in which they come back.

Made by whoever opens the tree and found by its agents through their context, so that two trees in one program know
nothing of each other (R006). An agent of a tree that was opened without one is alone.
"""

from __future__ import annotations

from contextvars import ContextVar
from random import Random

from proctor.actors.limits.account_book import AccountBook, Changes
from proctor.actors.limits.usage_limit import UsageLimit
from proctor.actors.plan.budgets import Budget

TREE_LIMITS: ContextVar[TreeLimits | None] = ContextVar("proctor.fellows", default=None)


class TreeLimits:
    """`budget` is for all of them together. `stagger`: seconds between two that come back after a mass restart."""

    def __init__(
        self, *, budget: Budget | None = None, stagger: float = 0.0, seed: int | None = None
    ) -> None:
        self.book = AccountBook(budget=budget, whose="the tree")
        self._random = Random(seed)
        self._accounts: dict[str, UsageLimit] = {}
        self._stagger = stagger
        self._place = 0.0

    @property
    def changes(self) -> Changes:
        """What those wait for who may not go on yet."""
        return self.book.changes

    def account(self, name: str) -> UsageLimit:
        """The account of this name."""
        if name not in self._accounts:
            self._accounts[name] = UsageLimit(name, self._random)
        return self._accounts[name]

    def place(self, now: float) -> float:
        """When the next that comes back may be asked something, on the same clock as `now`."""
        place = max(now, self._place)
        self._place = place + self._stagger
        return place


def current_tree_limits() -> TreeLimits:
    """Those of the tree around this task; alone outside of one."""
    return TREE_LIMITS.get() or TreeLimits()
