"""The usage limit of one account, shared by the agents of a tree that use it.

The agent that hits the limit closes the account for all until its reset. Then one agent, chosen at random, tries; the others wait
for the result, and go on in steps once it succeeds.

    open ─limited→ closed ─time→ trying (one) ─passed→ easing (one after the other) ─all gone→ open
                     ↑───────────limited─┘  └─left→ trying (another)

`enter` decides in one step, so two agents never both try. Times are seconds of one clock, given by the caller.
"""

from __future__ import annotations

import math
from random import Random

MARGIN = 1.0
"""Seconds after a limit's reset before anybody asks again."""
SPREAD = 1.0
"""Seconds over which chance spreads the first attempts."""
STEP = 1.0
"""Seconds, by half more or less, between two that go on."""
MAX_RESET_AHEAD = 30 * 86400.0
"""Seconds ahead up to which a limit's reset is believed."""
MAX_RESET_PAST = 60.0
"""Seconds that a limit's reset may have passed when it is heard of."""


def seconds_to_reset(moment: float, now: float) -> float | None:
    """How long it is to a limit's reset, both in Unix seconds; None for a time that is not to be believed: more than
    thirty days ahead, or long past, after which the limit would be met again at once, time after time."""
    left = moment - now
    return max(0.0, left) if -MAX_RESET_PAST <= left <= MAX_RESET_AHEAD else None


class UsageLimit:
    """`name` is for a person. Agents are told apart by any string that stays theirs."""

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self._random = random
        self._closed = -math.inf
        self._trial = False
        self._trying: str | None = None
        self._next = -math.inf
        self._places: dict[str, float] = {}

    def enter(self, agent: str, now: float) -> float:
        """0.0: go. Else the seconds after which to ask again; `math.inf` when somebody else's word is awaited."""
        if self._trying == agent:
            return 0.0
        if now < self._closed:
            return self._closed - now + self._random.uniform(0, SPREAD)
        if self._trial:
            return self._try(agent)
        return self._ease(agent, now)

    def _try(self, agent: str) -> float:
        if self._trying is not None:
            return math.inf
        self._trying = agent
        return 0.0

    def _ease(self, agent: str, now: float) -> float:
        if agent not in self._places:
            if now >= self._next:
                return 0.0
            self._places[agent] = self._next
            self._next += self._step()
        left = self._places[agent] - now
        if left <= 0:
            del self._places[agent]
        return max(0.0, left)

    def limited(self, seconds: float, now: float) -> None:
        """The limit was hit, and resets in so many seconds."""
        self._closed = max(self._closed, now + seconds + MARGIN)
        self._trial, self._trying = True, None
        self._places.clear()

    def passed(self, agent: str, now: float) -> bool:
        """The account has taken a prompt of this agent. True when that frees the others."""
        if self._trying != agent:
            return False
        self._trial, self._trying = False, None
        self._next = now + self._step()
        return True

    def left(self, agent: str) -> bool:
        """The agent asks for nothing any more. True when that lets another one try."""
        self._places.pop(agent, None)
        if self._trying != agent:
            return False
        self._trying = None
        return True

    def _step(self) -> float:
        return STEP * self._random.uniform(0.5, 1.5)
