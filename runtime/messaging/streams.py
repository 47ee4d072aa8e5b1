"""A stream from one actor to one task, with credit.

Guarantees: the producer sends at most what the consumer granted: `demand` at the start, more each time half of
it has been consumed. What was sent before the end is received before the end, whichever way it ended.
Closing the consumer cancels the production and frees the buffer; the actor lives on.

Invariant: items buffered + items in the consumer's batch + credit never exceed `demand`.

Items cross tasks in batches: the iterator hands out what is there without a task switch.

Not here: several consumers of one stream; that is several streams.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVarTuple, Unpack

import trio

from proctor.runtime.errors import ActorExited, CallingSelf, StreamClosed, StreamError
from proctor.runtime.exits import DeliveryError
from proctor.runtime.messaging.endpoint import Endpoint, Findable
from proctor.runtime.messaging.notices import Down

Args = TypeVarTuple("Args")


class Sink:
    """The producing end, given to `handle_stream`. Items are sent until `end`, `fail` or the actor's exit."""

    def __init__(self, msg: object, endpoint: Endpoint, demand: int) -> None:
        self.msg = msg
        self.credit = demand
        self.error: BaseException | None = None
        self.ended = self.closed = False
        self._endpoint = endpoint
        self._items: deque[object] = deque()
        self._nursery: trio.Nursery | None = None
        self._scope: trio.CancelScope | None = None
        self._handler: trio.CancelScope | None = None
        self._granted = trio.Event()
        self._news = trio.Event()

    async def send(self, item: object) -> None:
        """Send one item, waiting for credit. Raises `StreamClosed` when the consumer is gone or it has ended."""
        await self.wait_credit()
        self.send_nowait(item)

    async def send_all(self, items: Iterable[object]) -> None:
        """Send items in order, waiting for credit as needed. Raises `StreamClosed`."""
        for item in items:
            if not self.credit:
                await self.wait_credit()
            self.send_nowait(item)

    def send_nowait(self, item: object) -> None:
        """Send one item. Raises `trio.WouldBlock` without credit, `StreamClosed` when the consumer is gone."""
        if self.closed or self.ended:
            raise StreamClosed
        if not self.credit:
            raise trio.WouldBlock
        self.credit -= 1
        self._items.append(item)
        self._news.set()  # costs next to nothing when it is set already: a batch is one wake-up

    async def wait_credit(self) -> None:
        """Wait until at least one item may be sent. Raises `StreamClosed`."""
        # With credit, items go out without a task switch; a cancelled producer stops here.
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.credit and not self.closed and not self.ended:
            self._granted = trio.Event()
            await self._granted.wait()
        if self.closed or self.ended:
            raise StreamClosed

    def end(self) -> None:
        """End the stream normally. A second end changes nothing."""
        self._finish(None)

    def fail(self, value: object) -> None:
        """End the stream with `StreamError(value)` at the consumer."""
        self._finish(StreamError(value))

    def produce(self, fn: Callable[[Unpack[Args]], Awaitable[object]], *args: *Args) -> None:
        """Go on in a task of the actor: `fn(*args)` is cancelled when the consumer closes or the actor ends.

        Its return ends the stream; `StreamError` raised in it fails the stream; any other exception is a crash
        of the actor. To be used once, within `handle_stream`.
        """
        if self._scope is not None or self._nursery is None:
            raise RuntimeError("call produce once, and within handle_stream")
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._produce, self._scope, fn, args)

    @property
    def producing(self) -> bool:
        """Whether a task sends the items."""
        return self._scope is not None

    async def _produce(
        self,
        scope: trio.CancelScope,
        fn: Callable[[Unpack[Args]], Awaitable[object]],
        args: tuple[*Args],
    ) -> None:
        if self.closed:  # between `produce` and the first step of this task
            return
        with scope:
            await self.contain(fn, *args)
        self.end()

    async def contain(self, fn: Callable[[Unpack[Args]], Awaitable[object]], *args: *Args) -> object:
        """Run `fn(*args)`; a `StreamError` in it ends the stream only, as does the consumer's close."""
        try:
            return await fn(*args)
        except StreamError as error:
            self._finish(error)
        except StreamClosed:
            if not self.closed:  # of another stream, or sent to after its own end: a fault of the actor
                raise
        return None

    def opened_in(self, nursery: trio.Nursery, handler: trio.CancelScope) -> None:
        """The actor begins to handle the stream: its hook runs in the scope `handler`, its tasks in `nursery`."""
        self._nursery, self._handler = nursery, handler

    def undelivered(self, endpoint: Endpoint, error: DeliveryError) -> None:
        """The request will not be handled."""
        endpoint.dead_letter(self.msg, str(error))
        self._finish(error.carrying(self.msg))

    def deliver(self, down: Down) -> None:
        """The actor ended."""
        self._finish(ActorExited(down.ref, down.reason).carrying(self.msg))

    def _finish(self, error: BaseException | None) -> None:
        if self.ended:
            return
        self.ended, self.error = True, error
        self._endpoint.watchers.pop(self, None)
        self._news.set()
        self._granted.set()

    def take_all(self) -> deque[object]:
        """All items sent and not yet taken."""
        taken, self._items = self._items, deque()
        return taken

    async def wait_news(self) -> None:
        """Wait until there are items or the end."""
        while not self._items and not self.ended:
            self._news = trio.Event()
            await self._news.wait()

    def grant(self, n: int) -> None:
        """Let the producer send `n` more items."""
        self.credit += n
        self._granted.set()

    def close(self) -> None:
        """The consumer is gone."""
        self.closed = True
        self._items.clear()
        self._granted.set()
        self._endpoint.watchers.pop(self, None)
        for scope in (self._scope, self._handler):
            if scope is not None:
                scope.cancel(reason="the consumer closed the stream")


class Stream:
    """The consuming end: `async with ref.stream(msg) as items: async for item in items`. For one task.

    Entering raises `NoProc`, `CallingSelf`, `MailboxFull` or `NoMailbox`; iterating ends normally, or raises
    `StreamError` or `ActorExited` after the items sent before.
    """

    def __init__(self, target: Findable, msg: object, demand: int) -> None:
        if demand < 1:
            raise ValueError(f"demand is {demand!r}: expected an int >= 1")
        self._target, self._msg, self._demand = target, msg, demand
        self._batch: deque[object] = deque()
        self._consumed = 0
        self._sink: Sink | None = None

    async def __aenter__(self) -> Self:
        # Cancelled, it has opened nothing.
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            self._sink = await self._open()
        except DeliveryError:  # in a loop of streams that are refused nothing else would let others run
            await trio.lowlevel.cancel_shielded_checkpoint()
            raise
        return self

    async def _open(self) -> Sink:
        endpoint = self._target.find()
        if endpoint is not None and endpoint.task is trio.lowlevel.current_task():
            raise CallingSelf(self._target).carrying(self._msg)
        if endpoint is None or not endpoint.accepting:
            raise self._target.missing().carrying(self._msg)
        sink = Sink(self._msg, endpoint, self._demand)
        endpoint.watchers[sink] = None  # before the wait for room, in which the actor may end
        queued = False
        try:
            await endpoint.deliver(sink)
            queued = True
        finally:
            if not queued:
                sink.close()
        if isinstance(sink.error, DeliveryError):
            raise sink.error
        return sink

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Let go of: the consumer may keep the stream object.
        self._batch.clear()
        if self._sink is not None:
            self._sink.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if not self._batch:
            self._batch = await self._receive()
        item = self._batch.popleft()
        self._account(1)
        return item

    async def receive_batch(self) -> list[Any]:
        """All items that are there, at least one. Raises `trio.EndOfChannel` at the normal end."""
        try:
            batch = self._batch or await self._receive()
        except StopAsyncIteration:
            raise trio.EndOfChannel from None
        self._batch = deque()
        self._account(len(batch))
        return list(batch)

    async def _receive(self) -> deque[object]:
        sink = self._sink
        if sink is None or sink.closed:
            raise trio.ClosedResourceError
        await trio.lowlevel.checkpoint_if_cancelled()
        await sink.wait_news()
        items = sink.take_all()
        if items:  # before the end is looked at: what was sent before it is received
            return items
        if sink.error is not None:
            raise sink.error
        raise StopAsyncIteration

    def _account(self, n: int) -> None:
        self._consumed += n
        # by halves: one grant for many items, and the producer has the other half to go on with meanwhile
        if self._sink is not None and self._consumed * 2 >= self._demand:
            self._sink.grant(self._consumed)
            self._consumed = 0
