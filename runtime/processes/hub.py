"""One epoll for the output of all processes of a run: each pipe is registered once, and one task reads those that are ready.

Where each pipe has a task that waits for it, an event that comes alone costs a registration with the kernel, a step of the
loop and a switch to a task whose memory has gone cold. Here a step of the loop serves all that are ready.

Guarantees: a reader is called when there may be something to read, in the context of the task that watches; it must neither wait
nor raise. What it leaves unread is reported again. In a step no more than `STEP_READERS` are called and `STEP_BYTES` read, and no
reader is called after `STEP_SECONDS`; those that are left come first in the next: a process that floods delays the others by one
read of its own. After `Hub.forget` a reader is not called again. The epoll and its task are there while something is watched.

A descriptor has to be forgotten before it is closed: a copy of it in a process that was forked meanwhile would keep it registered.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter

import trio

STEP_READERS = 64
"""Readers called in one step of the loop: some milliseconds, where each has one event."""

STEP_BYTES = 256 * 1024
"""Bytes read in one step of the loop, but for the last reader's own."""

STEP_SECONDS = 0.005
"""Seconds after which no further reader is called in a step: what an agent does about an event may be to open files."""

REFUSED_PAUSE = 0.05
"""Seconds between two looks while the system refuses to watch the epoll."""

Reader = Callable[[], int]
"""Reads once, and returns how many bytes that were."""


class Hub:
    """The descriptors that are watched in this run; made by `watch` only."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Reader] = {}
        self._left: Sequence[int] = ()

    def add(self, fd: int, reader: Reader) -> None:
        """Call `reader` from now on. Raises OSError when the system refuses."""
        self._epoll.register(fd, select.EPOLLIN)
        self._readers[fd] = reader

    def forget(self, fd: int) -> None:
        """Call its reader no more."""
        # an event of this step that is still in hand finds no reader then
        del self._readers[fd]
        with suppress(OSError):  # somebody else has closed it, which took it out
            self._epoll.unregister(fd)
        self.close_unused()

    def close_unused(self) -> None:
        """Give the epoll back where nothing is watched; its task ends by that."""
        if self._readers or self._epoll.closed:
            return
        # wakes `serve`, which would else wait on a number that the next open file gets
        trio.lowlevel.notify_closing(self._epoll)
        self._epoll.close()
        _HUB.set(None)

    async def serve(self) -> None:
        """Call the readers of what is ready, until nothing is watched any more."""
        with suppress(trio.ClosedResourceError):
            while not self._epoll.closed:
                try:
                    await trio.lowlevel.wait_readable(self._epoll)
                except OSError:  # it cannot be watched just now; it is looked at instead, as an error would end the whole run
                    await trio.sleep(REFUSED_PAUSE)
                if not self._epoll.closed:  # between the wake and now
                    self._step()

    def _step(self) -> None:
        # those left over before any new event: else the same first readers would always win
        ready = self._left or [fd for fd, _ in self._epoll.poll(0, STEP_READERS)]
        readers, room, self._left, began = self._readers, STEP_BYTES, (), perf_counter()
        for done, fd in enumerate(ready, 1):
            # one that was called before may have had it closed, and even opened again: then there is nothing to read
            if (reader := readers.get(fd)) is not None:
                room -= reader()
            # checked after the read: one reader is always served, however little room a step has
            if room <= 0 or perf_counter() - began > STEP_SECONDS:
                self._left = ready[done:]
                return


_HUB: trio.lowlevel.RunVar[Hub | None] = trio.lowlevel.RunVar("proctor.hub", default=None)


def watch(fd: int, reader: Reader) -> Hub | None:
    """Have `reader` called in the context of this task whenever `fd` can be read; None where the platform has no epoll or
    refuses, and the caller has to wait for it by itself."""
    if not hasattr(select, "epoll"):
        return None
    hub, made = _HUB.get(), False
    try:
        if hub is None:
            hub, made = Hub(), True
        # what an agent starts while it takes its output runs where the agent runs, with its variables
        hub.add(fd, partial(trio.lowlevel.current_task().context.run, reader))
    except OSError:
        # out of descriptors, or of the user's epoll watches: the caller waits by Trio's own epoll
        if hub is not None:
            hub.close_unused()
        return None
    if made:
        _HUB.set(hub)
        # it serves every nursery of the run, so none of them can own it; it ends with the last descriptor
        trio.lowlevel.spawn_system_task(hub.serve, name="the hub of pipes")  # noqa: TID251
    return hub
