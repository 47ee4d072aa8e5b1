"""Budgets: the limit on spending in a sliding window of time, and the sums so far. Nothing here waits.

Guarantees: a cost counts for `period` seconds after it was reported. A window over its budget gives one alarm for each
period, and so does one near it. A turn whose cost the CLI did not report is counted as such, never as nothing.
Memory is bounded: costs reported within a thousandth of the period are one entry, with the time of the first. A turn
under way holds what it may cost, until it is settled.

Not here: what an agent does about it (`gate`, `agent`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

import attrs

from proctor.actors.plan.option_checks import OptionRule, field_rule, is_number, one_of

Then = Literal["park", "escalate", "warn"]
Alarm = Literal["budget_near", "budget_exceeded", "cost_unknown"]
"""The codes of the notices, each at most once in a period."""

_GRAIN = 1000


_ABOVE_0 = field_rule(
    OptionRule("a number above 0", lambda value: is_number(value) and 0 < value < math.inf), "a budget"
)
_SHARE = field_rule(
    OptionRule("a share above 0 and up to 1", lambda value: is_number(value) and 0 < value <= 1), "a budget"
)


@attrs.frozen
class Budget:
    """At most `usd` US dollars in any `period` (seconds). From `warn` of it on a notice says so.

    Once it is spent: `park` holds back prompts until the window frees, `escalate` ends the agent with
    `BudgetExceeded`, which its supervisor takes for a crash, `warn` only tells. A turn that runs is never cut: what is spent
    above `usd` is of turns that ran already when it was reached. Raises `BadOption`.
    """

    usd: float = attrs.field(validator=_ABOVE_0)
    period: float = attrs.field(validator=_ABOVE_0)
    warn: float = attrs.field(default=0.8, validator=_SHARE, kw_only=True)
    then: Then = attrs.field(
        default="park", validator=field_rule(one_of(*get_args(Then)), "a budget"), kw_only=True
    )


@attrs.frozen
class _Reserve:
    """The amount that a turn under way held when it began, and the kind of its command line."""

    kind: str
    usd: float


@attrs.define
class _Entry:
    at: float
    usd: float


class Spending:
    """The spending under a budget; `whose` names it in texts. Times are seconds on one clock."""

    def __init__(self, budget: Budget, whose: str) -> None:
        self.budget = budget
        self.whose = whose
        self.unknown = 0
        self.dearest: dict[str, float] = {}
        """What the dearest turn of each kind of command line has cost."""
        self._entries: deque[_Entry] = deque()
        self._alarmed_at: dict[Alarm, float] = {}
        self._reserved: dict[object, _Reserve] = {}

    def entries(self, now: float) -> list[tuple[float, float]]:
        """When how much was spent, of what is in the window."""
        # Drops what has left the window.
        self.spent(now)
        return [(entry.at, entry.usd) for entry in self._entries]

    def recall(
        self, spent: Sequence[tuple[float, float]], unknown: int, dearest: Mapping[str, float]
    ) -> None:
        """Add what was spent in another life of the host; the times in order, on this one's clock."""
        self._entries.extend(_Entry(at, usd) for at, usd in spent)
        self.unknown = unknown
        self.dearest.update(dearest)

    # -- turns under way

    def has_room(self, now: float) -> bool:
        """Whether less than the budget is spent or held by turns under way."""
        return self.spent(now) + self._held() < self.budget.usd

    def reserve(self, turn: object, kind: str, most: float | None, now: float) -> None:
        """A turn begins: it holds what it may cost. `most` is what it costs at most where that is known."""
        rest = max(0.0, self.budget.usd - self.spent(now) - self._held())
        unknown = rest if most is None else min(rest, most)
        self._reserved[turn] = _Reserve(kind, self.dearest.get(kind, unknown))

    def _held(self) -> float:
        # one that has turned out dearer than all before it speaks for those that run, too: they began at a price
        # which is known by now to be too low
        reserved = self._reserved.values()
        return math.fsum(max(reserve.usd, self.dearest.get(reserve.kind, 0.0)) for reserve in reserved)

    def settle(self, turn: object) -> bool:
        """A turn has ended, or never began. Whether it held anything."""
        return self._reserved.pop(turn, None) is not None

    def learn(self, kind: str, usd: float | None) -> None:
        """A turn of this kind has cost so much (None: unknown)."""
        if usd is not None:
            self.dearest[kind] = max(usd, self.dearest.get(kind, 0.0))

    # -- what was spent

    def spend(self, usd: float | None, now: float) -> tuple[Alarm, ...]:
        """A turn has ended that cost so much (None: not reported). The alarms that are due."""
        if usd is None:
            self.unknown += 1
        elif usd > 0:
            self._add(usd, now)
        return tuple(alarm for alarm in self._due(usd, now) if self._first(alarm, now))

    def _add(self, usd: float, now: float) -> None:
        if self._entries and now - self._entries[-1].at < self.budget.period / _GRAIN:
            self._entries[-1].usd += usd
        else:
            self._entries.append(_Entry(now, usd))

    def _due(self, usd: float | None, now: float) -> Iterator[Alarm]:
        spent = self.spent(now)
        if usd is None:
            yield "cost_unknown"
        if spent >= self.budget.usd:
            yield "budget_exceeded"
        elif spent >= self.budget.usd * self.budget.warn:
            yield "budget_near"

    def _first(self, alarm: Alarm, now: float) -> bool:
        if now - self._alarmed_at.get(alarm, -math.inf) < self.budget.period:
            return False
        self._alarmed_at[alarm] = now
        return True

    def spent(self, now: float) -> float:
        """US dollars in the window that ends now."""
        while self._entries and now - self._entries[0].at >= self.budget.period:
            self._entries.popleft()
        # `fsum`: a sum of many small costs would drift.
        return math.fsum(entry.usd for entry in self._entries)

    def frees_in(self, now: float) -> float:
        """Seconds until less than the budget is in the window; 0 when that is so now."""
        over = self.spent(now) - self.budget.usd
        seconds = 0.0
        for entry in self._entries:
            if over < 0:
                break
            over -= entry.usd
            seconds = entry.at + self.budget.period - now
        return seconds

    def text(self, now: float) -> str:
        """The account for a person."""
        spent, budget = self.spent(now), self.budget
        unknown = f", and {self.unknown} turns of unknown cost" if self.unknown else ""
        return f"{self.whose} has spent ${spent:.4g} of ${budget.usd:g} in {budget.period:g} s{unknown}"
