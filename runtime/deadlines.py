"""Ends calls whose time is up: one task per tree, instead of a cancel scope per call.

Guarantees: a call is expired at its deadline or as soon after as the loop runs, unless it was settled before. A
scope per call costs as much as half the call, so deadlines wait in lanes, one per time-out in use, and one scope
sleeps until the earliest. Time goes forward, so appending keeps a lane sorted; a deadline that does not fit (one
that was taken over from another call, or waited for room) goes into a heap, as does all above `LANES` time-outs.

Settled calls fall off the front of their lane when the next is appended, and off all lanes when the scope wakes:
it may wake once for a call that was settled meanwhile, and then sleeps until the next that is not. Those behind a
front that waits stay until they outnumber the others, so memory is bounded by the calls that wait.

`run` belongs to the root supervisor, and lives as long as anything in the tree can answer.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from itertools import count
from typing import Protocol

import trio

LANES = 16
SLACK = 1024


def until(timeout: float | None) -> float:
    """The instant `timeout` seconds from now, on Trio's clock; infinity for None."""
    return math.inf if timeout is None else trio.current_time() + timeout


def left(deadline: float) -> float | None:
    """The seconds until this instant, at least 0; None for infinity."""
    return None if deadline == math.inf else max(0.0, deadline - trio.current_time())


class Timed(Protocol):
    """What has a deadline: a call. `settled` says that it does not matter any more."""

    deadline: float
    settled: bool

    def expire(self) -> None:
        """Its time is up. Changes nothing if it is settled."""


class Deadlines:
    """The deadlines of one tree's calls."""

    def __init__(self) -> None:
        self._lanes: dict[float, deque[Timed]] = {}
        self._heap: list[tuple[float, int, Timed]] = []
        self._numbers = count()
        self._limit = SLACK
        self._scope = trio.CancelScope()
        self._next = math.inf

    def __len__(self) -> int:
        """How many are held, settled ones included."""
        return sum(self._sizes())

    def add(self, call: Timed, timeout: float) -> None:
        """Expire `call` at its deadline, which is `timeout` seconds after some moment up to now."""
        deadline = call.deadline
        lane = self._lanes.get(timeout)
        if lane is None:
            lane = self._lane(timeout)
        while lane and lane[0].settled:
            lane.popleft()
        if lane is None or (lane and lane[-1].deadline > deadline):
            self._add_odd(call)
        else:
            lane.append(call)
            if len(lane) > self._limit:
                self._forget_settled()
        if deadline < self._next:
            self._next = self._scope.deadline = deadline

    def _add_odd(self, call: Timed) -> None:
        heapq.heappush(self._heap, (call.deadline, next(self._numbers), call))
        if len(self._heap) > self._limit:
            self._forget_settled()

    def _lane(self, timeout: float) -> deque[Timed] | None:
        if len(self._lanes) >= LANES:
            self._forget_settled()
        return self._lanes.setdefault(timeout, deque()) if len(self._lanes) < LANES else None

    def _forget_settled(self) -> None:
        kept = {
            timeout: deque(call for call in lane if not call.settled) for timeout, lane in self._lanes.items()
        }
        self._lanes = {timeout: lane for timeout, lane in kept.items() if lane}
        self._heap = [entry for entry in self._heap if not entry[2].settled]
        heapq.heapify(self._heap)
        self._limit = 2 * max(self._sizes()) + SLACK

    def _sizes(self) -> list[int]:
        return [len(self._heap), *(len(lane) for lane in self._lanes.values())]

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Expire calls until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._next) as self._scope:
                await trio.sleep_forever()
            self._expire(trio.current_time())

    def _expire(self, now: float) -> None:
        for lane in self._lanes.values():
            while lane and (lane[0].settled or lane[0].deadline <= now):
                lane.popleft().expire()
        while self._heap and (self._heap[0][2].settled or self._heap[0][0] <= now):
            heapq.heappop(self._heap)[2].expire()
        fronts = [lane[0].deadline for lane in self._lanes.values() if lane]
        self._next = min(fronts + [entry[0] for entry in self._heap[:1]], default=math.inf)
