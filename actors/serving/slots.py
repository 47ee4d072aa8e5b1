"""A bounded number of slots and a first-come, first-served queue for them.

Never more than `limit` slots are held. A request that leaves the queue, by timeout or cancellation, holds none. Releasing a slot
twice releases it once. Closing ends the wait of everything in the queue; slots that are held stay held.
"""

from __future__ import annotations

import math

import trio
from trio_util import RepeatedEvent

from proctor.actors.errors import PoolClosed, PoolFull, PoolTimeout


class Slot:
    """One slot of `Slots`, held until `release`."""

    def __init__(self, slots: Slots) -> None:
        self._slots: Slots | None = slots

    def release(self) -> None:
        """Release it at once. A second call does nothing."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.take_back(self)


class Slots:
    """`limit` slots; at most `queue` requests may wait. `name` is for the texts of errors."""

    def __init__(self, name: str, limit: int, queue: int) -> None:
        self.limit = limit
        self._name = name
        self._queue = queue
        self._limiter = trio.CapacityLimiter(limit)
        self._queued: set[trio.CancelScope] = set()
        self._freed = RepeatedEvent()
        self.closed = False

    @property
    def used(self) -> int:
        """Number of slots that are held."""
        return int(self._limiter.borrowed_tokens)

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return self._limiter.statistics().tasks_waiting

    @property
    def full(self) -> bool:
        """Whether the next one has to wait."""
        return self.used >= self.limit or self.waiting > 0

    def take_nowait(self) -> Slot | None:
        """Take a slot if one is free and the queue is empty."""
        slot = Slot(self)
        try:
            # On behalf of the slot, not of the task: another task may release it.
            self._limiter.acquire_on_behalf_of_nowait(slot)
        except trio.WouldBlock:
            return None
        return slot

    async def take(self, timeout: float = math.inf) -> Slot:
        """Take a slot, behind the requests in the queue. Raises `PoolFull` when the queue is full, `PoolClosed` when it is
        closed, and `PoolTimeout` after `timeout` seconds."""
        self.must_be_open()
        if self.full and self.waiting >= self._queue:
            raise PoolFull(self._name, self.waiting)
        slot, ahead, began = Slot(self), self.waiting, trio.current_time()
        with trio.move_on_after(max(0.0, timeout)) as scope:
            self._queued.add(scope)
            try:
                await self._limiter.acquire_on_behalf_of(slot)
            finally:
                self._queued.discard(scope)
        if scope.cancelled_caught:
            elapsed = trio.current_time() - began
            # Closing cancels the same scope as the time-out, so it is looked at first.
            self.must_be_open(elapsed)
            raise PoolTimeout(self._name, timeout, ahead=ahead, elapsed=elapsed)
        return slot

    async def spare(self) -> Slot:
        """Take a slot that no request waits for, as soon as there is one."""
        # Never from within the queue: a warm process must not take a slot before a request.
        while (slot := self.take_nowait()) is None:
            await self._freed.wait()
        return slot

    def take_back(self, slot: Slot) -> None:
        """For `Slot.release`."""
        self._limiter.release_on_behalf_of(slot)
        self._freed.set()

    def must_be_open(self, elapsed: float = 0.0) -> None:
        """Raise `PoolClosed` when it is closed, for a request that has waited for `elapsed` seconds."""
        if self.closed:
            raise PoolClosed(self._name, elapsed=elapsed)

    def close(self) -> None:
        """Refuse the queue, and every later request."""
        self.closed = True
        for scope in self._queued:
            scope.cancel("the slots were closed")

    def reopen(self) -> None:
        """Admit requests again."""
        self.closed = False
