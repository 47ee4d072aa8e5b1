"""The bridge as an asyncio program sees it: awaitable calls, `async with` blocks and `async for` streams.

A cancelled call cancels its Trio task and waits for the clean-up of that, as `await` does anywhere; a second cancellation leaves at once.
A block whose supervisor gives up cancels the task that runs its body, as `asyncio.timeout` does, and raises the error in the place of the
cancellation. The loop is never held: every wait is a future.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import outcome
import trio

from proctor.bridge.adapters import END, as_is
from proctor.bridge.block import HostedBlock
from proctor.bridge.callers import LOOP, on_loop
from proctor.bridge.errors import WrongFace
from proctor.bridge.proxies import Proxy, bound, unwrapped
from proctor.bridge.pump import Pump
from proctor.bridge.trio_thread import Job, TrioThread, current_thread

T = TypeVar("T")
V = TypeVar("V")
Wrap = Callable[[Any, TrioThread], T]


def running_loop() -> asyncio.AbstractEventLoop:
    """The loop of the caller. Raises `WrongFace` outside of asyncio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        face = "proctor itself" if trio.lowlevel.in_trio_run() else "proctor.sync"
        raise WrongFace(f"proctor.aio is for asyncio, and no asyncio loop runs here: use {face}") from None


def _context(loop: asyncio.AbstractEventLoop) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(LOOP.set, loop)
    return context


class _Wait:
    """A place for one outcome from the Trio thread, for one task of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.outcome: outcome.Outcome[Any] | None = None
        self.loop = loop
        self._future: asyncio.Future[None] | None = None

    def done(self, result: outcome.Outcome[Any]) -> None:
        """In the Trio thread."""
        call_in(self.loop, self._settle, result)

    def _settle(self, result: outcome.Outcome[Any]) -> None:
        self.outcome = result
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def settled(self) -> outcome.Outcome[Any]:
        """Wait for it. May be called again after a cancellation."""
        while self.outcome is None:
            self._future = self.loop.create_future()
            await self._future
        return self.outcome

    async def of(self, job: Job) -> outcome.Outcome[Any]:
        """Wait for the outcome of a job, which a cancellation cancels."""
        try:
            return await self.settled()
        except asyncio.CancelledError:
            job.cancel("its asyncio task was cancelled")
            await self.settled()  # its clean-up; cancelled again, it is left to the Trio thread
            raise


def call_in(loop: asyncio.AbstractEventLoop, step: Callable[..., object], *args: Any) -> None:
    """Call in the loop, from another thread; nothing happens where the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(step, *args)


async def call(thread: TrioThread, function: Callable[..., Awaitable[V]], *args: Any, **kwargs: Any) -> V:
    """Await `function(*args, **kwargs)` in the Trio thread. Raises what it raises, and `BridgeClosed`."""
    loop = running_loop()
    wait = _Wait(loop)
    job = thread.submit(wait.done, bound(function, args, kwargs), _context(loop))
    result = await wait.of(job)
    job.apply()
    return result.unwrap()  # type: ignore[no-any-return]


async def call_plain(thread: TrioThread, function: Callable[..., V], *args: Any, **kwargs: Any) -> V:
    """Call a plain function in the Trio thread, without holding the loop."""
    made = bound(function, args, kwargs)

    async def called() -> V:
        value: V = made()
        return value

    return await call(thread, called)


class Stream(Proxy[Any], Generic[T]):
    """Items from Trio, in order: `async for`, or `batch()` for all that have come. For one task at a time.

    At most `proctor.bridge.pump.WINDOW` items are read ahead of it.
    """

    _pump: Pump[Any] | None = None
    _loop: asyncio.AbstractEventLoop
    _future: asyncio.Future[None] | None = None
    _unread: deque[Any]

    def _item(self, item: Any) -> T:
        return cast("T", item)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._pump is None or not self._unread:
            await self._more()
            if not self._unread:
                raise StopAsyncIteration
        return self._item(self._unread.popleft())

    async def batch(self) -> list[T]:
        """All items that have come, waiting for at least one; empty at the end."""
        if self._pump is None or not self._unread:
            await self._more()
        batch, self._unread = self._unread, deque()
        return [self._item(item) for item in batch]

    async def _more(self) -> None:
        """Wait for items; none at the end. Raises the error that ended the source."""
        if self._pump is None:
            self._loop, self._unread = running_loop(), deque()
            self._pump = _context(self._loop).run(Pump, self._thread, self._target, self._wake)
        pump = self._pump
        self._thread.check_process()
        while not pump.is_ready:
            self._future = self._loop.create_future()
            pump.waiting = True
            # Looked at again: the pump may have put something there before it could see the flag.
            if not pump.is_ready:
                await self._future
        self._unread = pump.take()
        # The end was noted before the look, or else it is found at the next call.
        if not self._unread:
            pump.check()

    def _wake(self) -> None:
        call_in(self._loop, self._woken)

    def _woken(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def stop_reading(self) -> None:
        """Stop the task that reads ahead, and wait for its end. What has come can still be read. Nothing happens the second time."""
        pump = self._pump
        if pump is None or not self._thread.is_ours:
            return
        if pump.ended is None:
            pump.cancel()
        while pump.ended is None:
            self._future = self._loop.create_future()
            await self._future

    async def _drained(self) -> None:
        while self._pump is not None and await self.batch():
            pass

    def __del__(self) -> None:
        if self._pump is not None and self._pump.ended is None:
            self._pump.cancel()


class Block(AbstractAsyncContextManager[T]):
    """An async context manager of Trio, for `async with`. It may be entered once, and left by another task."""

    def __init__(
        self,
        thread: TrioThread | None,
        wrap: Wrap[T],
        manager: Callable[..., AbstractAsyncContextManager[Any]],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self._home = thread
        self._wrap = wrap
        self._manager = bound(manager, args, kwargs)
        self._block: HostedBlock | None = None
        self._entered: _Wait
        self._over: _Wait
        self._value: T
        self._body: asyncio.Task[Any] | None = None
        self._interrupted = False
        self._cancelling = 0

    async def __aenter__(self) -> T:
        loop = running_loop()
        if self._block is not None:
            raise WrongFace("this block was entered already: make another one")
        thread = self._home or current_thread()
        self._entered, self._over = _Wait(loop), _Wait(loop)
        context = _context(loop)
        self._block = context.run(HostedBlock, thread, self._manager, self._entered.done, self._ended)
        result = await self._entering(self._block)
        self._value = self._wrap(result.unwrap(), thread)
        self._block.apply(opened=True)
        self._body = asyncio.current_task()
        self._cancelling = 0 if self._body is None else self._body.cancelling()
        if self._over.outcome is not None:
            self._interrupt()
        return self._value

    async def _entering(self, block: HostedBlock) -> outcome.Outcome[Any]:
        try:
            return await self._entered.of(block.job)
        except asyncio.CancelledError:
            entered = self._entered.outcome
            if isinstance(
                entered, outcome.Value
            ):  # entered in the same moment: its end comes as that of a block
                await self._over.settled()
            raise

    def _ended(self, result: outcome.Outcome[Any]) -> None:
        """In the Trio thread."""
        self._over.done(result)
        if self._block is not None and not self._block.is_left:
            call_in(self._entered.loop, self._interrupt)

    def _interrupt(self) -> None:
        """The block has ended before its body: cancel the body, whose task finds the error when it leaves."""
        body = self._body
        if body is not None and not body.done() and not self._interrupted:
            self._interrupted = True
            body.cancel("the block of proctor has ended")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        block = self._block
        assert block is not None
        if not block.thread.is_ours:  # a fork that unwinds: the block is its parent's
            return None
        body, self._body = self._body, None
        value: object = self._value
        if isinstance(value, Stream):
            await value.stop_reading()  # pyright: ignore[reportUnknownMemberType]
        if isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt | SystemExit):
            block.cancel(f"its body ended with {type(error).__name__}")
        else:
            block.leave(error)
        result = await self._over.of(block.job)
        block.apply(opened=False)
        ours = self._interrupted and isinstance(error, asyncio.CancelledError)
        if self._interrupted and body is not None and body.uncancel() > self._cancelling:
            ours = False  # somebody else has cancelled it too, and has to see that
        return _judged(result, error, ours=ours)


def _judged(result: outcome.Outcome[Any], error: BaseException | None, *, ours: bool) -> bool:
    """Whether the error of the body is swallowed. Raises what the manager raises in its place."""
    if isinstance(result, outcome.Value):
        return bool(result.value)
    raised = cast("outcome.Error", result).error
    cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt | SystemExit)
    if raised is error or (cancelled and not ours):
        return False
    raise raised


class Opened(Proxy[Any]):
    """A proxy of an object that is an async context manager itself."""

    _block: Block[Any] | None = None

    async def __aenter__(self) -> Self:
        self._block = Block(self._thread, as_is, self._itself)
        await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._block is not None
        return await self._block.__aexit__(kind, error, trace)

    def _itself(self) -> Any:
        return self._target


hosted = on_loop
"""Makes a function of the caller one for Trio."""


def runner_of(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The runner of a session: the method of a proxy as Trio has it, any other function where its caller is."""
    found: Callable[..., Awaitable[Any]] = unwrapped(function)
    return hosted(function) if found is function else found


class ModelReader:
    """Reads the stream of a model of the caller, step by step, in the caller's loop."""

    def __init__(self, make: Callable[[Any], Any], request: Any) -> None:
        self._make = make
        self._request = request
        self._stack = AsyncExitStack()
        self._chunks: Any = None

    async def open(self) -> None:
        """Open it: a generator, a coroutine of one, or a context manager around one."""
        source = self._make(self._request)
        if hasattr(source, "__await__"):
            source = await source
        if hasattr(source, "__aenter__"):
            source = await self._stack.enter_async_context(source)
        elif hasattr(source, "aclose"):
            await self._stack.enter_async_context(aclosing(source))
        self._chunks = aiter(source)

    async def next(self) -> Any:
        """The next chunk, or `END`."""
        return await anext(self._chunks, END)

    async def close(self) -> None:
        """Close it."""
        await self._stack.aclose()
