"""What the turns within the sessions of one agent may spend: its own budget, and the tree's that they share with all.

A turn is refused before it begins while a budget that does more than warn is spent: a client is told when to come back,
and keeps no place in the line meanwhile. The agent's own budget is counted for its sessions apart from the agent.
"""

from __future__ import annotations

import logging
import math

import trio

from proctor.actors.budgets import Spending
from proctor.actors.fellows import current_fellows
from proctor.actors.gateways.http.problems import problem
from proctor.actors.plan import Plan
from proctor.protocols.vocabulary import TurnEnded

_log = logging.getLogger("proctor.http")


class Purse:
    """That of the agent whose `plan` this is, called `name`. To be asked within the block of the tree's supervisor."""

    def __init__(self, name: str, plan: Plan) -> None:
        self._name = name
        budget = plan.conduct.budget
        self._own = None if budget is None else Spending(budget, f"sessions of {name}")

    def check(self) -> None:
        """Raises `Problem` while a budget is spent."""
        now = trio.current_time()
        for spending in self._spendings():
            seconds = 0.0 if spending.budget.then == "warn" else spending.frees_in(now)
            if seconds > 0:
                remedy = "ask again when its window has freed"
                headers = {"retry-after": str(math.ceil(seconds))}
                raise problem(429, "budget-spent", spending.text(now), remedy, headers=headers)

    def pay(self, end: TurnEnded) -> None:
        """A turn has ended; what is to be said of its cost goes to the log."""
        now = trio.current_time()
        for spending in self._spendings():
            for alarm in spending.spend(end.cost_usd, now):
                facts = {"event": alarm, "agent": self._name}
                _log.warning("%s: %s", alarm, spending.text(now), extra=facts)

    def _spendings(self) -> list[Spending]:
        return [spending for spending in (self._own, current_fellows().spending) if spending is not None]
