"""The bound on starts of agents in progress, in one run of the event loop.

More command lines at once than the cores can start only delay each other, until their greetings time out. A start holds a slot
from before its process is spawned until its greeting, at most `HOLD_TIME`: silent command lines delay the others only that long.
Slots are taken in order of arrival. The greeting's clock begins after the wait for one.
"""

from __future__ import annotations

import os
from typing import Self

import trio

STARTS_PER_CORE = 16
HOLD_TIME = 5.0
"""The most seconds for which a start holds its slot."""

_LIMITER: trio.lowlevel.RunVar[trio.CapacityLimiter | None] = trio.lowlevel.RunVar("proctor.starts", None)


_TURN: trio.lowlevel.RunVar[trio.Lock | None] = trio.lowlevel.RunVar("proctor.opening", None)


def opening_turn() -> trio.Lock:
    """Held while an agent opens its files, which takes milliseconds: the agents of a tree would all do so in one pass of the loop, and
    the lock gives each a pass of its own."""
    turn = _TURN.get()
    if turn is None:
        _TURN.set(turn := trio.Lock())
    return turn


class StartSlot:
    """A slot for one start in progress, held from `take` until `release` or the end of its block."""

    def __init__(self, limiter: trio.CapacityLimiter) -> None:
        self._limiter: trio.CapacityLimiter | None = limiter

    @classmethod
    async def take(cls) -> Self:
        """Take a slot, behind the starts that wait for one."""
        limiter = _LIMITER.get()
        if limiter is None:
            _LIMITER.set(limiter := trio.CapacityLimiter(STARTS_PER_CORE * usable_cores()))
        slot = cls(limiter)
        await limiter.acquire_on_behalf_of(slot)
        return slot

    async def release_after(self, greeted: trio.Event) -> None:
        """Release it at the greeting, or after `HOLD_TIME`."""
        with trio.move_on_after(HOLD_TIME):
            await greeted.wait()
        self.release()

    def release(self) -> None:
        """Release it at once. A second call does nothing."""
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            limiter.release_on_behalf_of(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.release()


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
