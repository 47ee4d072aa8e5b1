"""What stands between an agent and its next prompt: a spent budget, a restart of many at once, a usage limit.

Asked before each prompt and never in the middle of a turn. The account comes last: whoever is held by something else
takes no place among those who wait for it.
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
    """Why there is no prompt now. To be asked again in `seconds` (infinite: when something changes); `until` is that
    moment, None when nobody knows. `changes` is how many others had been told of then."""

    why: str
    seconds: float
    changes: int

    @property
    def until(self) -> float | None:
        """In Unix seconds."""
        return None if math.isinf(self.seconds) else time.time() + self.seconds

    @property
    def text(self) -> str:
        """For a person."""
        at = self.until
        return self.why if at is None else f"{self.why}; until {format_moment(at, time.time())}"


class Admission:
    """The gate of one agent; `agent` is its path in the tree. With `waits=False` usage limits do not hold it."""

    def __init__(
        self, agent: str, fellows: TreeLimits, account: UsageLimit, limits: SpendLimits, *, waits: bool
    ) -> None:
        self._agent = agent
        self._fellows = fellows
        self._account = account
        self._limits = limits
        self._waits = waits
        self._back = -math.inf

    def come_back(self) -> None:
        """The agent has a new process: it takes its place among all that come back now."""
        self._back = self._fellows.place(trio.current_time())

    def hold(self, *, nested: bool = False) -> Delay | None:
        """What keeps the agent from a prompt now. None lets it go, and it is expected to ask its prompt at once; it holds what
        that may cost from here on. `nested`: a turn under way waits for this one."""
        now, changes = trio.current_time(), self._fellows.changes.count
        if (spent := self._limits.spent("park")) is not None:
            return Delay(*spent, changes)
        if not nested and (why := self._limits.under_way()) is not None:
            return Delay(why, math.inf, changes)
        if now < self._back:
            return Delay("waiting while other agents restart", self._back - now, changes)
        seconds = self._account.enter(self._agent, now) if self._waits else 0.0
        if seconds == 0:
            self._limits.reserve(self._agent)
            return None
        why = "waiting for another agent to try" if math.isinf(seconds) else "usage limit of"
        return Delay(f"{why} the account {self._account.name}", seconds, changes)

    async def wait(self, hold: Delay) -> None:
        """Until it is worth asking again."""
        await self._fellows.changes.wait(hold.seconds, hold.changes)

    def limited(self, resets_at: float) -> bool:
        """The agent ran into the limit, which resets then (Unix seconds). False when that is not to be believed."""
        if (seconds := until_reset(resets_at)) is None:
            return False
        self._account.limited(seconds, trio.current_time())
        self._fellows.changes.tell()
        return True

    def passed(self) -> None:
        """The account has taken its prompt."""
        if self._account.passed(self._agent, trio.current_time()):
            self._fellows.changes.tell()

    def leave(self) -> None:
        """It asks for nothing now."""
        self.settle()
        if self._account.left(self._agent):
            self._fellows.changes.tell()

    def take(self, event: TurnEnded | Exited | Notice) -> Iterator[tuple[Alarm, str]]:
        """Count what an event tells. The alarms that are due."""
        return self._limits.take(event)

    def settle(self) -> None:
        """Its turn has ended, or will not be: it holds nothing of a budget any more."""
        self._limits.settle(self._agent)

    def overdrawn(self) -> str | None:
        """The account of a budget that is spent and ends its agent, None when there is none."""
        spent = self._limits.spent("escalate")
        return None if spent is None else spent[0]


def admission_for(plan: Plan, path: str, fellows: TreeLimits) -> Admission:
    """The gate of the agent that stands at this path."""
    limits = spend_limits_of(plan, fellows.book)
    return Admission(path, fellows, fellows.account(account_of(plan)), limits, waits=plan.conduct.park)


def until_reset(resets_at: float) -> float | None:
    """The seconds from now to a limit's reset (Unix seconds); None where that is not to be believed."""
    return seconds_to_reset(resets_at, time.time())
