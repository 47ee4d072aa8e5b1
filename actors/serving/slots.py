"""So many places, and a line of those who wait for one, in order (R121-R123).

Guarantees: never more than `limit` hold a place; who leaves the line, by its time or by a cancellation, has none; a place
given back twice is given back once. Closing sends the line away; who has a place keeps it.

Not here: what is done in a place.
"""

from __future__ import annotations

import math

import trio
from trio_util import RepeatedEvent

from proctor.actors.errors import PoolClosed, PoolFull, PoolTimeout


class Place:
    """One place, until `release`."""

    def __init__(self, places: Places) -> None:
        self._places: Places | None = places

    def release(self) -> None:
        """Give it back, at once. A second call does nothing."""
        places, self._places = self._places, None
        if places is not None:
            places.take_back(self)


class Places:
    """`limit` places; at most `queue` may wait. `name` is for the texts of errors."""

    def __init__(self, name: str, limit: int, queue: int) -> None:
        self.limit = limit
        self._name = name
        self._queue = queue
        self._limiter = trio.CapacityLimiter(limit)
        self._line: set[trio.CancelScope] = set()
        self._freed = RepeatedEvent()
        self.closed = False

    @property
    def used(self) -> int:
        """How many are held."""
        return int(self._limiter.borrowed_tokens)

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return self._limiter.statistics().tasks_waiting

    @property
    def full(self) -> bool:
        """Whether the next one has to wait."""
        return self.used >= self.limit or self.waiting > 0

    def take_nowait(self) -> Place | None:
        """A place if one is free and nobody waits."""
        place = Place(self)
        try:
            self._limiter.acquire_on_behalf_of_nowait(place)
        except trio.WouldBlock:
            return None
        return place

    async def take(self, timeout: float = math.inf) -> Place:
        """A place, after those who wait already. Raises `PoolFull` when the line is full, `PoolClosed` when it is sent
        away, and `PoolTimeout` when it takes longer than `timeout` seconds."""
        self.must_be_open()
        if self.full and self.waiting >= self._queue:
            raise PoolFull(self._name, self.waiting)
        place, ahead, began = Place(self), self.waiting, trio.current_time()
        with trio.move_on_after(max(0.0, timeout)) as scope:
            self._line.add(scope)
            try:
                await self._limiter.acquire_on_behalf_of(place)
            finally:
                self._line.discard(scope)
        if scope.cancelled_caught:
            elapsed = trio.current_time() - began
            self.must_be_open(elapsed)
            raise PoolTimeout(self._name, timeout, ahead=ahead, elapsed=elapsed)
        return place

    async def spare(self) -> Place:
        """A place that nobody else wants, as soon as there is one."""
        while (place := self.take_nowait()) is None:
            await self._freed.wait()
        return place

    def take_back(self, place: Place) -> None:
        """For `Place.release`."""
        self._limiter.release_on_behalf_of(place)
        self._freed.set()

    def must_be_open(self, elapsed: float = 0.0) -> None:
        """Raises `PoolClosed` when it is not, for a request that has waited for `elapsed` seconds."""
        if self.closed:
            raise PoolClosed(self._name, elapsed=elapsed)

    def close(self) -> None:
        """Send the line away, and whoever comes."""
        self.closed = True
        for scope in self._line:
            scope.cancel("the places were closed")

    def reopen(self) -> None:
        """Let them come again."""
        self.closed = False
