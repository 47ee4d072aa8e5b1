"""One function over many items, each item a task of its own.

Guarantees: an item is taken when there is room for it, and its room is free again when its outcome has been handed
out; so no more than `max_concurrency` items are ever between the source and the consumer, running or done. Items are
started in order. Whatever ends the block ends the tasks that are left, and waits for that, before it is left.

What ends the caller (an item's crash if linked, its time-out under "exit", an error of the source, a start that is
refused) cancels the block and is raised from it, once and bare; an error of the block's own comes first.

Invariants: outcome k is in `_done` from its item's end until it is handed out; `_given` is the next k. k numbers the
items if ordered, else the ends.

Not here: starting one task, and its result (`task`).
"""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
)
from typing import Generic, Self, TypeVar

import attrs
import trio

from proctor.runtime.errors import TaskTimeout
from proctor.runtime.exits import Crash, ExitReason, Normal
from proctor.runtime.messaging import until
from proctor.runtime.protected import protected_context
from proctor.runtime.spec import StreamOptions
from proctor.runtime.supervision.task import Task

Item = TypeVar("Item")
T = TypeVar("T")


@attrs.frozen
class TaskResult(Generic[T]):
    """The return value of the function for an item."""

    value: T


@attrs.frozen
class TaskExit(Generic[Item]):
    """An item whose task ended otherwise; a time-out is `Crash(TaskTimeout(...))`."""

    item: Item
    reason: ExitReason


class TaskStream(Generic[Item, T]):
    """An async iterator over the outcomes of tasks, `TaskResult` or `TaskExit`. For one consumer."""

    def __init__(
        self,
        start: Callable[[Item], Awaitable[Task[T]]],
        source: _Source[Item],
        options: StreamOptions,
        linked: bool,
    ) -> None:
        self._start, self._source = start, source
        self._options, self._linked = options, linked
        self._room = trio.Semaphore(options.max_concurrency)
        self._done: dict[int, TaskResult[T] | TaskExit[Item]] = {}
        self._taken = self._ended = self._given = 0
        self._exhausted = False
        self._news = trio.Event()
        self.error: Exception | None = None
        self.block = trio.CancelScope()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TaskResult[T] | TaskExit[Item]:
        # Outcomes at hand must not starve the tasks that make them.
        await trio.lowlevel.checkpoint()
        while self._given not in self._done:
            if self._exhausted and self._given == self._taken:
                raise StopAsyncIteration
            self._news = trio.Event()
            await self._news.wait()
        outcome = self._done.pop(self._given)
        self._given += 1
        # Only now: room counts what is between source and consumer, done or not.
        self._room.release()
        return outcome

    async def feed(self, nursery: trio.Nursery) -> None:
        """Take items and start their tasks, watched in `nursery`, until there are no more."""
        try:
            await self._feed(nursery)
        except Exception as error:  # noqa: BLE001  # the owner's items, and a start that was refused: raised from the block
            self._fail(error)

    async def _feed(self, nursery: trio.Nursery) -> None:
        try:
            while True:
                # Room before the item: an item taken without room would be lost by a cancellation.
                await self._room.acquire()
                try:
                    item = await anext(self._source)
                except StopAsyncIteration:
                    break
                nursery.start_soon(self._watch, await self._start(item), item, self._taken)
                self._taken += 1
        finally:
            # Also when cancelled: a generator of the owner may hold a file or a connection.
            await self._source.aclose()
        self._exhausted = True
        self._news.set()

    async def _watch(self, task: Task[T], item: Item, position: int) -> None:
        limit = self._options.timeout
        try:
            with trio.CancelScope(deadline=until(limit)):
                await task.wait_ended()
            await self._settle(task, item, position)
        finally:
            # Whatever ends this watch must not leave its task running.
            await task.dismiss()

    async def _settle(self, task: Task[T], item: Item, position: int) -> None:
        reason, late = task.ref.exit_reason, TaskTimeout(task.ref, self._options.timeout or 0.0)
        if reason is None and self._options.on_timeout == "exit":
            self._fail(late)
        elif reason is None:
            await task.shutdown("brutal_kill")
            self._put(TaskExit(item, Crash(late)), position)
        elif isinstance(reason, Normal):
            self._put(TaskResult(task.take()), position)
        elif self._linked:
            self._fail(task.failure())
        else:
            self._put(TaskExit(item, reason), position)

    def _put(self, outcome: TaskResult[T] | TaskExit[Item], position: int) -> None:
        self._done[position if self._options.ordered else self._ended] = outcome
        self._ended += 1
        self._news.set()

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        self.block.cancel(reason=repr(error))

    def close(self) -> None:
        """Hand out nothing more."""
        self._exhausted, self._taken = True, self._given
        self._done.clear()
        self._news.set()


class _Source(Generic[Item]):
    """Items from an iterable of either kind, one at a time; a generator is closed with it."""

    def __init__(self, items: Iterable[Item] | AsyncIterable[Item]) -> None:
        self._items: AsyncIterator[Item] | Iterator[Item]
        self._items = aiter(items) if isinstance(items, AsyncIterable) else iter(items)

    async def __anext__(self) -> Item:
        if isinstance(self._items, AsyncIterator):
            return await anext(self._items)
        try:
            return next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        items: object = self._items
        if inspect.isasyncgen(items):
            await items.aclose()
        elif inspect.isgenerator(items):
            items.close()


@protected_context
async def open_task_stream(
    start: Callable[[Item], Awaitable[Task[T]]],
    items: Iterable[Item] | AsyncIterable[Item],
    options: StreamOptions,
    *,
    linked: bool,
) -> AsyncGenerator[TaskStream[Item, T], None]:
    """Have `start` begin the task of each of `items`, for the length of an `async with`. For task supervisors."""
    stream = TaskStream(start, _Source(items), options, linked)
    error: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.feed, nursery)
        try:
            with stream.block:
                yield stream
        except Exception as raised:  # noqa: BLE001  # raised again below, outside the nursery's group
            error = raised
        finally:
            stream.close()
        nursery.cancel_scope.cancel(reason="the stream was left")
    error = error or stream.error
    if error is not None:
        raise error
