"""A stream across the bridge: one task reads it in the Trio thread, another thread takes what has come, all of it at once.

Guarantees: items come in order, then the end or the error; at most `WINDOW` items are read that were not taken, so a slow reader stops
the producer; the reader is woken once for a batch, however many items come until it runs. The reader and the task share two counters and
two flags and no lock: each side writes first and looks afterwards, so none of the two can miss the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

import outcome
import trio

from proctor.bridge.trio_thread import Job, TrioThread

T = TypeVar("T")

WINDOW = 1024
"""Items that are read ahead of their reader, at most."""


class Pump(Generic[T]):
    """Reads `source` as soon as it is made. `wake` is called in the Trio thread when something has come for a reader that waits."""

    def __init__(
        self, thread: TrioThread, source: AsyncIterator[T], wake: Callable[[], None], window: int = WINDOW
    ) -> None:
        self.ended: outcome.Outcome[None] | None = None
        """How the source has ended, for the reader when it has taken all items."""
        self.waiting = False
        """Whether the reader waits; set by it before it looks for the last time."""
        self._items: deque[T] = deque()
        self._source = source
        self._wake = wake
        self._window = window
        self._read = self._taken = 0
        self._cancelled = False
        self._full: trio.Event | None = None
        self._thread = thread
        self._job: Job = thread.submit(self._end, self._pump)

    def take(self) -> deque[T]:
        """All items that have come, perhaps none. For the reader, as `cancel`."""
        items = self._items
        batch: deque[T] = deque()
        while items:
            batch.append(items.popleft())
        self._taken += len(batch)
        full = self._full
        if full is not None:
            self._thread.soon(full.set)
        return batch

    @property
    def is_ready(self) -> bool:
        """Whether `take` gives something, or the end is known."""
        return bool(self._items) or self.ended is not None

    def check(self) -> None:
        """Raise the error that ended the source, each time."""
        if isinstance(self.ended, outcome.Error) and not self._cancelled:
            raise self.ended.error

    def cancel(self) -> None:
        """Stop reading. The end comes when the source has been left."""
        self._cancelled = True
        self._job.cancel("the reader has left")

    async def _pump(self) -> None:
        append, wake = self._items.append, self._wake
        async for item in self._source:
            append(item)
            self._read += 1
            if self.waiting:
                self.waiting = False
                wake()
            if self._read - self._taken >= self._window:
                await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        while True:
            # The event first, then the look: a reader that takes after the look finds the event.
            self._full = trio.Event()
            if self._read - self._taken < self._window:
                break
            await self._full.wait()
        self._full = None

    def _end(self, result: outcome.Outcome[None]) -> None:
        self.ended = result
        self.waiting = False
        self._wake()
