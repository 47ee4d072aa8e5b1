"""Ends calls whose time is up: one task per tree, instead of a cancel scope per call.

Guarantees: a call is expired at its deadline, or after a stall of the loop when those that it held up have had their turn
(`lateness`), unless it was settled before. A settled call is not held: it takes itself out, so that nothing keeps its
message and its answer until a deadline that does not matter any more. Adding one and taking it out cost the same however
many others wait, and whatever their time-outs.

A scope per call costs as much as half the call, so deadlines wait in lanes, one per time-out in use, and one scope
sleeps until the earliest. Time goes forward, so appending keeps a lane sorted; a deadline that does not fit (of a call
that waited for room) goes into a heap, as do those of time-outs for which there is no lane: there are at most `LANES`,
and one that is empty makes way.

The scope may wake once for a call that was settled meanwhile, and then sleeps until the next that is not.

`run` belongs to the root supervisor, and lives as long as anything in the tree can answer.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from itertools import count
from typing import Protocol, TypeAlias

import trio

from proctor.runtime.messaging.lateness import catch_up

LANES = 16
SLACK = 64


def until(timeout: float | None) -> float:
    """The instant `timeout` seconds from now, on Trio's clock; infinity for None."""
    return math.inf if timeout is None else trio.current_time() + timeout


def left(deadline: float) -> float | None:
    """The seconds until this instant, at least 0; None for infinity."""
    return None if deadline == math.inf else max(0.0, deadline - trio.current_time())


class Timed(Protocol):
    """Something with a deadline: a call."""

    deadline: float

    def expire(self) -> None:
        """Its time is up."""


class Holder(Protocol):
    """The place of one deadline."""

    def pop(self, call: Timed, default: None, /) -> object:
        """Take `call` out; nothing happens if it is not held."""


# ordered, not plain, dictionaries: the front of a plain one is found by passing all that was taken out before it
Lane: TypeAlias = OrderedDict[Timed, None]


class Deadlines:
    """The deadlines of one tree's calls."""

    def __init__(self) -> None:
        self._lanes: dict[float, Lane] = {}
        self._odd = Heap()
        self._scope = trio.CancelScope()
        self._next = math.inf

    def __len__(self) -> int:
        """The number of deadlines held."""
        return len(self._odd) + sum(map(len, self._lanes.values()))

    def add(self, call: Timed, timeout: float) -> Holder:
        """Expire `call` at its deadline, which is `timeout` seconds from now, unless it is taken out before."""
        lane = self._lanes.get(timeout)
        if lane is None:
            lane = self._make_lane(timeout)
            if lane is None:
                return self.add_late(call)
        lane[call] = None
        # most calls end behind the earliest deadline: they do not touch Trio's own heap of deadlines
        if call.deadline < self._next:
            self._next = self._scope.deadline = call.deadline
        return lane

    def add_late(self, call: Timed) -> Holder:
        """Expire `call` at its deadline, whatever moment that was counted from, unless it is taken out before."""
        self._odd.push(call)
        if call.deadline < self._next:
            self._next = self._scope.deadline = call.deadline
        return self._odd

    def _make_lane(self, timeout: float) -> Lane | None:
        if len(self._lanes) >= LANES:
            # one lane is looked at each time: to look at all would cost every call with a time-out of its own so much
            oldest = next(iter(self._lanes))
            lane = self._lanes.pop(oldest)
            if lane:
                self._lanes[oldest] = lane
                return None
        made = self._lanes[timeout] = Lane()
        return made

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Expire calls until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._next) as self._scope:
                await trio.sleep_forever()
            # read before the others have their turn: a call made meanwhile is not judged by this wake-up
            now = trio.current_time()
            await catch_up(self._next)  # what is answered meanwhile is settled
            self._expire(now)

    def _expire(self, now: float) -> None:
        for lane in self._lanes.values():
            while lane and next(iter(lane)).deadline <= now:
                lane.popitem(last=False)[0].expire()
        while self._odd.earliest() <= now:
            self._odd.take().expire()
        fronts = [next(iter(lane)).deadline for lane in self._lanes.values() if lane]
        self._next = min([self._odd.earliest(), *fronts])


class Heap:
    """Calls by their deadlines. Those taken out leave places that are dropped when they outnumber the others."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._calls: dict[int, Timed] = {}
        self._numbers: dict[Timed, int] = {}
        self._count = count()

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def places(self) -> int:
        """The number of entries in use, by calls or by removed ones."""
        return len(self._heap)

    def push(self, call: Timed) -> None:
        """Hold `call`."""
        number = next(self._count)  # breaks ties, since calls have no order
        self._calls[number], self._numbers[call] = call, number
        heapq.heappush(self._heap, (call.deadline, number))

    def pop(self, call: Timed, default: None, /) -> object:
        """Take `call` out; nothing happens if it is not held."""
        number = self._numbers.pop(call, None)
        if number is None:
            return default
        del self._calls[number]
        # not out of the middle of the heap, which costs its whole length: swept when most of it is over
        if len(self._heap) > 2 * len(self._calls) + SLACK:
            self._heap = [entry for entry in self._heap if entry[1] in self._calls]
            heapq.heapify(self._heap)
        return call

    def earliest(self) -> float:
        """The first deadline, infinity if there is none."""
        while self._heap and self._heap[0][1] not in self._calls:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def take(self) -> Timed:
        """Take out the call of the first deadline."""
        call = self._calls.pop(heapq.heappop(self._heap)[1])
        del self._numbers[call]
        return call
