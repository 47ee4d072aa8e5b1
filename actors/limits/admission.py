"""Admission: whether an agent may send its next prompt now, and if not, why and until when.

Three limits are checked, before each prompt and never within a turn: budgets, the stagger of restarts, and the account's
usage limit. The usage limit comes last, because asking it takes a place in its queue.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import attrs
import trio

from proctor.actors.durations import format_moment
from proctor.actors.limits.spend_limits import SpendLimits, spend_limits_of
from proctor.actors.limits.tree_limits import TreeLimits
from proctor.actors.limits.usage_limit import UsageLimit, seconds_to_reset
from proctor.actors.plan.account_id import account_of
from proctor.actors.plan.budgets import Alarm
from proctor.actors.plan.plan import Plan
from proctor.protocols.vocabulary import Exited, Notice, TurnEnded


@attrs.frozen
class Delay:
    """Why the next prompt may not be sent now.

    Ask again in `seconds`, or when a limit changes (`changes` counts the changes so far); infinite: only then. `until` is that
    time, None if it is unknown. With `ends_agent` a spent budget ends the agent, and waiting does not help."""

    why: str
    seconds: float
    changes: int
    ends_agent: bool = False

    @property
    def until(self) -> float | None:
        """In Unix seconds."""
        return None if math.isinf(self.seconds) else time.time() + self.seconds

    @property
    def text(self) -> str:
        """The reason and the time as text."""
        at = self.until
        return self.why if at is None else f"{self.why}; until {format_moment(at, time.time())}"


class Admission:
    """The limits of one agent; `agent` is its path in the tree. With `waits=False` usage limits do not delay it."""

    def __init__(
        self, agent: str, tree: TreeLimits, account: UsageLimit, limits: SpendLimits, *, waits: bool
    ) -> None:
        self._agent = agent
        self._tree = tree
        self._changes = tree.changes
        self._account = account
        self._limits = limits
        self._waits = waits
        self._back = -math.inf

    def on_restart(self) -> None:
        """Take the next place among the agents that restart now."""
        self._back = self._tree.next_start(trio.current_time())

    def check(self, *, nested: bool = False) -> Delay | None:
        """Whether the agent may send its next prompt now: None if it may, else why not and until when.

        None reserves what the turn may cost. `nested`: a running turn waits for this one.
        """
        if self._limits.bounded and (spent := self._limits.spent("escalate")) is not None:
            return Delay(*spent, self._changes.count, ends_agent=True)
        return self.delay(nested=nested)

    def delay(self, *, nested: bool = False) -> Delay | None:
        """As `check`, for a request that was admitted before: a budget that ends the agent does not end it now."""
        now, changes = trio.current_time(), self._changes.count
        if self._limits.bounded:
            if (spent := self._limits.spent("park")) is not None:
                return Delay(*spent, changes)
            # a turn that waits for this one can never make room for it
            if not nested and (why := self._limits.under_way()) is not None:
                return Delay(why, math.inf, changes)
        if now < self._back:
            return Delay("waiting while other agents restart", self._back - now, changes)
        seconds = self._account.enter(self._agent, now) if self._waits else 0.0
        if seconds == 0:
            if self._limits.bounded:
                self._limits.reserve(self._agent)
            return None
        why = "waiting for another agent to try" if math.isinf(seconds) else "usage limit of"
        return Delay(f"{why} the account {self._account.name}", seconds, changes)

    async def wait(self, delay: Delay) -> None:
        """Wait until it is worth asking again."""
        await self._changes.wait(delay.seconds, delay.changes)

    def limited(self, resets_at: float) -> bool:
        """Record that the usage limit was hit and resets at `resets_at` (Unix seconds). False for an implausible time."""
        if (seconds := until_reset(resets_at)) is None:
            return False
        self._account.limited(seconds, trio.current_time())
        self._changes.tell()
        return True

    def passed(self) -> None:
        """Record that the account has accepted the prompt."""
        if self._account.passed(self._agent, trio.current_time()):
            self._changes.tell()

    def leave(self) -> None:
        """Give up its place: it has no request now."""
        self.settle()
        if self._account.left(self._agent):
            self._changes.tell()

    def take(self, event: TurnEnded | Exited | Notice) -> Iterator[tuple[Alarm, str]]:
        """Count the costs of an event. Yields the alarms that are due."""
        return self._limits.take(event)

    def settle(self) -> None:
        """Release the budget that was reserved for its turn."""
        self._limits.settle(self._agent)


def admission_for(plan: Plan, path: str, tree: TreeLimits) -> Admission:
    """The limits of the agent at this path of the tree."""
    limits = spend_limits_of(plan, tree.book)
    return Admission(path, tree, tree.account(account_of(plan)), limits, waits=plan.conduct.park)


def until_reset(resets_at: float) -> float | None:
    """The seconds from now to a limit's reset (Unix seconds); None for an implausible time."""
    return seconds_to_reset(resets_at, time.time())
