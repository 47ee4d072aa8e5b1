"""The timers of one tree: one task for all of them, started with the first.

Guarantees: an alarm rings at its time or as soon after as the loop runs, unless it is over by then. A task that woke in
the same moment goes first: after a stall of the whole loop no task is judged late that only had no turn.

Alarms that are over and stand behind one that is not are dropped in bulk when they have doubled what is held, so that
memory is bounded by the alarms that were pending at once, however far off their time.

Rings never wait, and run in the root supervisor's task of that name, which lives as long as anything in the tree.

Not here: deadlines of calls (`deadlines`), which come by the thousand and are nearly always settled before.
"""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import Protocol

import trio

from proctor.runtime.messaging.lateness import seconds_late

SLACK = 64


class Alarm(Protocol):
    """Something that has its time."""

    @property
    def over(self) -> bool:
        """Whether it has no effect any more."""
        ...

    def ring(self) -> None:
        """Its time has come. Must not wait or raise."""


class Timers:
    """The alarms of one tree. `nursery` is where their task runs, set by the root."""

    nursery: trio.Nursery

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._numbers = count()
        self._scope = trio.CancelScope()
        self._runs = False
        self._limit = SLACK

    def __len__(self) -> int:
        """The number of timers held, some that are over included."""
        return len(self._heap)

    def at(self, time: float, alarm: Alarm) -> None:
        """Ring `alarm` at `time`, in seconds of the run's clock."""
        heapq.heappush(self._heap, (time, next(self._numbers), alarm))
        if (
            len(self._heap) > self._limit
        ):  # doubled since the last sweep, so a sweep costs each alarm a constant share
            self._forget_those_over()
        if not self._runs:
            self._runs = True
            self.nursery.start_soon(self._run, name="timers")
        self._scope.deadline = self._next()

    def judge_at(self, time: float, alarm: Alarm) -> None:
        """Ring an alarm that is the end of somebody's time: at the second look at the clock (`lateness`)."""
        self.at(time, _SecondLook(self, time, alarm))

    def _forget_those_over(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].over]
        heapq.heapify(self._heap)
        self._limit = 2 * len(self._heap) + SLACK

    def _next(self) -> float:
        while self._heap and self._heap[0][2].over:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    @trio.lowlevel.enable_ki_protection
    async def _run(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._next()) as self._scope:
                await trio.sleep_forever()
            await trio.lowlevel.checkpoint()  # tasks that woke in the same pass go first
            self._ring_until(trio.current_time())

    def _ring_until(self, now: float) -> None:
        while self._next() <= now:
            heapq.heappop(self._heap)[2].ring()


class _SecondLook:
    """The first look at the clock that was `due` for `alarm`: rings it at the second."""

    def __init__(self, timers: Timers, due: float, alarm: Alarm) -> None:
        self._timers, self._due, self._alarm = timers, due, alarm

    @property
    def over(self) -> bool:
        """Whether the alarm is."""
        return self._alarm.over

    def ring(self) -> None:
        """Look again, by as much later as this look is late."""
        self._timers.at(trio.current_time() + seconds_late(self._due), self._alarm)
