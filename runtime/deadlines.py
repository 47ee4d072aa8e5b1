"""Ends calls whose time is up: one task per tree, instead of a cancel scope per call.

Guarantees: a call is expired at its deadline or as soon after as the loop runs, unless it was settled before. A
scope per call costs as much as half the call, so deadlines wait in a heap, and one scope sleeps until the
earliest. Settled calls stay in the heap until they are due or until they outnumber the others.

`run` belongs to the root supervisor, and lives as long as anything in the tree can answer.
"""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from proctor.runtime.calls import Call

SLACK = 1024


class Deadlines:
    """The deadlines of one tree's calls."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Call]] = []
        self._numbers = count()
        self._limit = SLACK
        self._scope = trio.CancelScope()
        self._next = math.inf

    def add(self, call: Call) -> None:
        """Expire `call` at its deadline."""
        heapq.heappush(self._heap, (call.deadline, next(self._numbers), call))
        if call.deadline < self._next:
            self._next = self._scope.deadline = call.deadline
        if len(self._heap) > self._limit:
            self._forget_settled()

    def _forget_settled(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].settled]
        heapq.heapify(self._heap)
        self._limit = 2 * len(self._heap) + SLACK

    async def run(self) -> None:
        """Expire calls until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._next) as self._scope:
                await trio.sleep_forever()
            self._expire(trio.current_time())

    def _expire(self, now: float) -> None:
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].settled):
            heapq.heappop(self._heap)[2].expire()
        self._next = self._heap[0][0] if self._heap else math.inf
