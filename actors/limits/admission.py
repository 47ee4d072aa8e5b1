"""Admission: whether an agent may send its next prompt now, and if not, why and until when.

Four limits are checked, before each prompt and never within a turn: the operator's hold, budgets, the stagger of restarts, and the
account's usage limit. The usage limit comes last, because asking it takes a place in its queue. `TreeLimits` has what the agents of one
tree share; it is set in the context by the function that opens the tree, so that two trees in one program are independent. An agent
outside of such a tree shares nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from operator import ne
from random import Random

import attrs
import trio
from trio_util import AsyncValue

from proctor.actors.durations import format_moment
from proctor.actors.limits.account_book import AccountBook
from proctor.actors.limits.overrides import Overrides
from proctor.actors.limits.spend_limits import SpendLimits, spend_limits_of, windows_of
from proctor.actors.plan.account_id import account_of
from proctor.actors.plan.budgets import Alarm, Budget, Spending
from proctor.actors.plan.plan import Plan
from proctor.protocols.vocabulary import Exited, Notice, TurnEnded

TREE_LIMITS: ContextVar[TreeLimits | None] = ContextVar("proctor.fellows", default=None)

MARGIN = 1.0
"""Seconds after a limit's reset before an agent asks again."""
SPREAD = 1.0
"""Seconds over which chance spreads the first attempts."""
STEP = 1.0
"""Seconds, by half more or less, between two that go on."""
MAX_RESET_AHEAD = 30 * 86400.0
"""Seconds ahead up to which a limit's reset is plausible."""
DAY = 86400.0
MAX_RESET_PAST = 60.0
"""Seconds that a limit's reset may have passed when it is reported."""


def seconds_to_reset(moment: float, now: float) -> float | None:
    """The seconds to a limit's reset, both in Unix seconds; None for an implausible time: more than thirty days ahead, or
    long past, after which the limit would be met again at once, time after time."""
    left = moment - now
    return max(0.0, left) if -MAX_RESET_PAST <= left <= MAX_RESET_AHEAD else None


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


class UsageLimit:
    """The usage limit of one account, shared by the agents of a tree that use it. `name` is for a person.

    The agent that hits the limit closes the account for all until its reset. Then one agent, chosen at random, tries; the others
    wait for the result, and go on in steps once it succeeds.

        open ─limited→ closed ─time→ trying (one) ─passed→ easing (one after the other) ─all gone→ open
                         ↑───────────limited─┘  └─left→ trying (another)

    `enter` decides in one step, so two agents never both try. Times are seconds of one clock, given by the caller; an agent
    is any string that stays the same.
    """

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self._random = random
        self._closed = -math.inf
        self._trial = False
        self._trying: str | None = None
        self._next = -math.inf
        self._places: dict[str, float] = {}

    def enter(self, agent: str, now: float) -> float:
        """0.0: go. Else the seconds after which to ask again; `math.inf` while another agent tries."""
        # The one that tries asks again before it has its answer.
        if self._trying == agent:
            return 0.0
        if now < self._closed:
            return self._closed - now + self._random.uniform(0, SPREAD)
        if self._trial:
            if self._trying is not None:
                return math.inf
            self._trying = agent
            return 0.0
        if agent not in self._places:
            if now >= self._next:
                return 0.0
            self._places[agent] = self._next
            self._next += self._step()
        left = self._places[agent] - now
        if left <= 0:
            del self._places[agent]
        return max(0.0, left)

    def resets_in(self, now: float) -> float:
        """The seconds until it resets; 0.0 while it is not known to hold anybody back."""
        return max(0.0, self._closed - now)

    def limited(self, seconds: float, now: float) -> None:
        """The limit was hit, and resets in so many seconds."""
        self._closed = max(self._closed, now + seconds + MARGIN)
        self._trial, self._trying = True, None
        # Places of an earlier easing mean nothing behind a new limit.
        self._places.clear()

    def passed(self, agent: str, now: float) -> bool:
        """The account has taken a prompt of this agent. True when that frees the others."""
        if self._trying != agent:
            return False
        self._trial, self._trying = False, None
        # The others follow in steps: all at once would hit the limit again.
        self._next = now + self._step()
        return True

    def left(self, agent: str) -> bool:
        """The agent has no request any more. True when that lets another one try."""
        # Its place is not given again: those behind it keep theirs.
        self._places.pop(agent, None)
        if self._trying != agent:
            return False
        self._trying = None
        return True

    def _step(self) -> float:
        return STEP * self._random.uniform(0.5, 1.5)


class TreeLimits:
    """The limits of a tree. `budget` is for all its agents; `stagger`: seconds between first prompts after a mass restart."""

    def __init__(
        self, *, budget: Budget | None = None, stagger: float = 0.0, seed: int | None = None
    ) -> None:
        self.book = AccountBook(budget=budget, whose="the tree")
        self.overrides = Overrides(self.changed)
        self.keep_reset: Callable[[str, float], None] | None = None
        """Keeps when the usage limit of an account ends (Unix seconds) for the next host."""
        self._budget = budget
        self._plans: dict[str, tuple[Plan, SpendLimits]] = {}
        self._random = Random(seed)
        self._accounts: dict[str, UsageLimit] = {}
        self._stagger = stagger
        self._place = 0.0

    @property
    def changes(self) -> AsyncValue[int]:
        """The count that delayed agents wait for: it is raised when a limit has changed."""
        return self.book.changes

    def changed(self) -> None:
        """Put what an operator has decided into effect, and wake the delayed agents."""
        self.book.budget = self.overrides.budget_of("", self._budget)
        for place, (plan, limits) in self._plans.items():
            limits.bind(windows_of(plan.name, self.budget_of(place), self.book))
        self.changes.value += 1

    def spend_limits(self, place: str, plan: Plan) -> SpendLimits:
        """The spending limits of the agent at this place below the root, which an operator may change."""
        limits = spend_limits_of(plan, self.book)
        self._plans[place] = (plan, limits)
        limits.bind(windows_of(plan.name, self.budget_of(place), self.book))
        return limits

    def budget_of(self, place: str) -> Budget | None:
        """The budget of an agent's own, "" for that of the tree. Raises KeyError for an agent that has not started yet."""
        return self.overrides.budget_of(place, self._written(place))

    def spending_of(self, place: str) -> Spending | None:
        """What was spent under that budget, None without one. Raises KeyError as `budget_of` does."""
        if (budget := self.budget_of(place)) is None:
            return None
        return (
            next(self.book.windows()) if not place else self.book.window(self._plans[place][0].name, budget)
        )

    async def set_budget(self, place: str, usd: float, period: float | None) -> None:
        """Change that budget, or give one to who has none; what is parked for it goes on if it may. Without a `period` (seconds) it stays, or is a day.
        Raises `BadOption`, KeyError as `budget_of` does, and `StoreError` where the change holds for this host only."""
        written, now = self._written(place), self.budget_of(place)
        period = period or (DAY if now is None else now.period)
        await self.overrides.set_budget(place, Budget(usd, period), written)

    async def remove_budget(self, place: str) -> None:
        """Remove that budget, and what was spent under it; what is parked for it goes on. Does nothing where there is none. Raises KeyError and
        `StoreError` as `set_budget` does."""
        if (spending := self.spending_of(place)) is not None:
            # else a later budget would begin with what running turns hold of this one
            self.book.forget(spending)
            await self.overrides.set_budget(place, None, self._written(place))

    def _written(self, place: str) -> Budget | None:
        return self._budget if not place else self._plans[place][0].conduct.budget

    def restore_resets(self, resets: Mapping[str, float]) -> None:
        """Take over the usage limits that an earlier host has met: when each ends (Unix seconds), by account."""
        for name, resets_at in resets.items():
            if (seconds := until_reset(resets_at)) is not None and seconds > 0:
                self.account(name).limited(seconds, trio.current_time())

    def account(self, name: str) -> UsageLimit:
        """The usage limit of the account of this name."""
        if name not in self._accounts:
            self._accounts[name] = UsageLimit(name, self._random)
        return self._accounts[name]

    def in_force(self, now: float) -> Iterator[tuple[str, float, str]]:
        """The limits that hold agents back now: the name of each, the seconds that it has left, and the reason as text."""
        for account in self._accounts.values():
            if (seconds := account.resets_in(now)) > 0:
                yield account.name, seconds, f"usage limit of the account {account.name}"
        for spending in self.book.spendings():
            if spending.budget.then != "warn" and (seconds := spending.frees_in(now)) > 0:
                yield spending.whose, seconds, spending.text(now)

    def next_start(self, now: float) -> float:
        """When the next restarted agent may send its prompt, on the clock of `now`."""
        place = max(now, self._place)
        self._place = place + self._stagger
        return place


class Admission:
    """The limits of one agent; `agent` is its path in the tree. With `waits=False` usage limits do not delay it."""

    def __init__(
        self, agent: str, tree: TreeLimits, account: UsageLimit, limits: SpendLimits, *, waits: bool
    ) -> None:
        self._agent = agent
        self._place = agent.partition("/")[2]
        self._tree = tree
        self._changes = tree.changes
        self._account = account
        self._limits = limits
        self._waits = waits
        self._back = -math.inf

    def on_restart(self) -> None:
        """Take the next place among the agents that restart now."""
        self._back = self._tree.next_start(trio.current_time())

    def admit(self, *, nested: bool = False, again: bool = False) -> Delay | None:
        """None if the agent may send its next prompt now, else why not and until when.

        None reserves what the turn may cost. `nested`: a running turn waits for this one. `again`: the request was delayed
        before; a budget that ends the agent does not end it then.
        """
        # The count first: a change after it wakes the wait that may follow.
        now, changes = trio.current_time(), self._changes.value
        overrides = self._tree.overrides
        # looked at before it is asked: hardly any prompt meets a hold
        if self._place in overrides.holds and (hold := overrides.hold_of(self._place)) is not None:
            return Delay(hold.why, hold.seconds, changes)
        if self._limits.bounded:
            # Escalation first: an agent that has to end must not be parked before.
            if not again and (spent := self._limits.spent("escalate")) is not None:
                return Delay(*spent, changes, ends_agent=True)
            if (spent := self._limits.spent("park")) is not None:
                return Delay(*spent, changes)
            # a turn that waits for this one can never make room for it
            if not nested and (why := self._limits.under_way()) is not None:
                return Delay(why, math.inf, changes)
        if now < self._back:
            return Delay("waiting while other agents restart", self._back - now, changes)
        # Last, since it takes a place in the queue of the account.
        seconds = self._account.enter(self._agent, now) if self._waits else 0.0
        if seconds == 0:
            if self._limits.bounded:
                self._limits.reserve(self._agent)
            return None
        why = "waiting for another agent to try" if math.isinf(seconds) else "usage limit of"
        return Delay(f"{why} the account {self._account.name}", seconds, changes)

    async def wait(self, delay: Delay) -> None:
        """Wait until it is worth asking again."""
        with trio.move_on_after(delay.seconds):
            await self._changes.wait_value(partial(ne, delay.changes))

    def limited(self, resets_at: float) -> bool:
        """Record that the usage limit was hit and resets at `resets_at` (Unix seconds). False for an implausible time."""
        if (seconds := until_reset(resets_at)) is None:
            return False
        # Before the others are woken: they look at the account at once.
        self._account.limited(seconds, trio.current_time())
        if self._tree.keep_reset is not None:
            self._tree.keep_reset(self._account.name, resets_at)
        self._changes.value += 1
        return True

    def passed(self) -> None:
        """Record that the account has accepted the prompt."""
        if self._account.passed(self._agent, trio.current_time()):
            self._changes.value += 1

    def leave(self) -> None:
        """Give up its place: it has no request now."""
        self.settle()
        if self._account.left(self._agent):
            self._changes.value += 1

    def take(self, event: TurnEnded | Exited | Notice) -> Iterator[tuple[Alarm, str]]:
        """Count the costs of an event. Yields the alarms that are due."""
        return self._limits.take(event)

    def settle(self) -> None:
        """Release the budget that was reserved for its turn."""
        self._limits.settle(self._agent)


def current_tree_limits() -> TreeLimits:
    """The limits of the tree around this task; new ones outside of a tree."""
    return TREE_LIMITS.get() or TreeLimits()


def admission_for(plan: Plan, path: str, tree: TreeLimits) -> Admission:
    """The limits of the agent at this path of the tree."""
    limits = tree.spend_limits(path.partition("/")[2], plan)
    return Admission(path, tree, tree.account(account_of(plan)), limits, waits=plan.conduct.park)


def until_reset(resets_at: float) -> float | None:
    """The seconds from now to a limit's reset (Unix seconds); None for an implausible time."""
    return seconds_to_reset(resets_at, time.time())
