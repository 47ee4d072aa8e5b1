"""What an operator has decided about the agents of a tree: which are held back, which stay down, and what they may spend.

An agent is known by its place below the root. Where the tree has a store the decisions are kept there, so they outlive its host.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping

import attrs
import msgspec
import trio

from proctor.actors.plan.budgets import Budget
from proctor.protocols.lenient import decoded_or

HOLD, STOPPED, BUDGET = "hold", "stopped", "budget"
"""The facts in which a store keeps them."""

Keep = Callable[[str, str, str | None], Awaitable[None]]
"""Keeps a fact of an agent under a name; None removes it. Raises `StoreError`."""


class Hold(msgspec.Struct, frozen=True):
    """An agent is held back: it begins no turn, before `until` (Unix seconds) or until it is let go. `since` is on Trio's clock."""

    reason: str
    until: float | None = None
    since: float = msgspec.field(default_factory=trio.current_time)

    @property
    def why(self) -> str:
        """It as text."""
        return f"by the operator: {self.reason}" if self.reason else "by the operator"

    @property
    def seconds(self) -> float:
        """How long it still lasts."""
        return math.inf if self.until is None else max(0.0, self.until - time.time())


class ChangedBudget(msgspec.Struct, frozen=True):
    """A budget as it was changed: dollars and seconds, no dollars for one that was removed. `written`: those of the budget that it was changed from,
    as the agent's options have it."""

    usd: float | None
    period: float
    written: tuple[float, float] | None = None


class Overrides:
    """The decisions about the agents of one tree. `on_change` is called after each one.

    A decision holds at once. Where it cannot be kept, what takes it raises `StoreError`, and it holds until this host ends.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.holds: dict[str, Hold] = {}
        """The holds by agent, also those that have ended by themselves."""
        self._stopped: set[str] = set()
        self._budgets: dict[str, ChangedBudget] = {}
        self._keep: Keep | None = None

    def restore(self, facts: Mapping[str, Mapping[str, str]], keep: Keep) -> None:
        """Take over what an earlier host has kept, by agent and name, and keep what comes with `keep`."""
        self._keep = keep
        for agent, kept in facts.items():
            if HOLD in kept:
                self.holds[agent] = _read(kept[HOLD])
            if STOPPED in kept:
                self._stopped.add(agent)
            # one that cannot be read is as one that was not changed
            if BUDGET in kept and (changed := decoded_or(None, ChangedBudget, kept[BUDGET].encode())):
                self._budgets[agent] = changed
        self._on_change()

    def hold_of(self, agent: str) -> Hold | None:
        """The hold of an agent that is held back now."""
        hold = self.holds.get(agent)
        return None if hold is None or hold.seconds == 0 else hold

    def is_stopped(self, agent: str) -> bool:
        """Whether an agent stays down until somebody starts it."""
        return agent in self._stopped

    def budget_of(self, agent: str, written: Budget | None) -> Budget | None:
        """The budget of an agent, "" for the tree, in place of the one that is `written` in its options. A change is over when that is written anew."""
        changed = self._budgets.get(agent)
        if changed is None or changed.written != _facts(written):
            return written
        if changed.usd is None:
            return None
        if written is None:
            return Budget(changed.usd, changed.period)
        return attrs.evolve(written, usd=changed.usd, period=changed.period)

    async def set_budget(self, agent: str, budget: Budget | None, written: Budget | None) -> None:
        """Change the budget of an agent, "" for the tree, from the one that is `written` in its options; None removes it."""
        usd, period = (None, 0.0) if budget is None else (budget.usd, budget.period)
        self._budgets[agent] = changed = ChangedBudget(usd, period, _facts(written))
        await self._changed(agent, BUDGET, msgspec.json.encode(changed).decode())

    async def hold(self, agent: str, reason: str, until: float | None) -> None:
        """Hold an agent back. A later hold replaces an earlier one."""
        self.holds[agent] = hold = Hold(reason, until)
        await self._changed(
            agent, HOLD, msgspec.json.encode({"reason": hold.reason, "until": hold.until}).decode()
        )

    async def release(self, agent: str) -> None:
        """Let an agent go."""
        if self.holds.pop(agent, None) is not None:
            await self._changed(agent, HOLD, None)

    async def stop(self, agent: str) -> None:
        """Keep an agent down, also when its supervisor would start it."""
        if agent not in self._stopped:
            self._stopped.add(agent)
            await self._changed(agent, STOPPED, "")

    async def start(self, agent: str) -> None:
        """Let an agent be started again."""
        if agent in self._stopped:
            self._stopped.remove(agent)
            await self._changed(agent, STOPPED, None)

    async def _changed(self, agent: str, name: str, value: str | None) -> None:
        self._on_change()
        if self._keep is not None:
            await self._keep(agent, name, value)


def _facts(budget: Budget | None) -> tuple[float, float] | None:
    return None if budget is None else (budget.usd, budget.period)


def _read(text: str) -> Hold:
    try:
        return msgspec.json.decode(text, type=Hold)
    except msgspec.DecodeError:
        # held all the same: to let it go is the operator's
        return Hold("its record in the store cannot be read")
