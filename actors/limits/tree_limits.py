"""The limits that the agents of one tree share: usage limits by account, the account book, the stagger of restarts.

Set in the context by the function that opens the tree, so that two trees in one program are independent. An agent
outside of such a tree shares nothing.
"""

from __future__ import annotations

from contextvars import ContextVar
from random import Random

from proctor.actors.limits.account_book import AccountBook, Changes
from proctor.actors.limits.usage_limit import UsageLimit
from proctor.actors.plan.budgets import Budget

TREE_LIMITS: ContextVar[TreeLimits | None] = ContextVar("proctor.fellows", default=None)


class TreeLimits:
    """The limits of a tree. `budget` is for all its agents; `stagger`: seconds between first prompts after a mass restart."""

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
        """The signal that delayed agents wait for."""
        return self.book.changes

    def account(self, name: str) -> UsageLimit:
        """The usage limit of the account of this name."""
        if name not in self._accounts:
            self._accounts[name] = UsageLimit(name, self._random)
        return self._accounts[name]

    def next_start(self, now: float) -> float:
        """When the next restarted agent may send its prompt, on the clock of `now`."""
        place = max(now, self._place)
        self._place = place + self._stagger
        return place


def current_tree_limits() -> TreeLimits:
    """The limits of the tree around this task; new ones outside of a tree."""
    return TREE_LIMITS.get() or TreeLimits()
