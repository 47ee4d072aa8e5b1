"""The bridge as plain code sees it: calls that block, `with` blocks and `for` streams.

Ctrl-C, `timeout` and closing a generator cancel the Trio task and wait for its clean-up; a second Ctrl-C leaves at once. A call from the
thread of an event loop raises `WrongFace`, because it would wait for itself or stop the loop.
"""

from __future__ import annotations

import contextvars
import math
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import outcome
import trio

from proctor.bridge.adapters import END, as_is
from proctor.bridge.block import HostedBlock
from proctor.bridge.errors import WrongFace
from proctor.bridge.proxies import Proxy, bound, unwrapped
from proctor.bridge.pump import Pump
from proctor.bridge.trio_thread import Job, TrioThread, current_thread
from proctor.bridge.workers import in_thread

T = TypeVar("T")
V = TypeVar("V")
Wrap = Callable[[Any, TrioThread], T]

ENDS: contextvars.ContextVar[float] = contextvars.ContextVar("proctor.bridge.ends", default=math.inf)
"""The end of the innermost `timeout` block, on the monotonic clock."""


@contextmanager
def timeout(seconds: float) -> Generator[None]:
    """Every call of `proctor.sync` in this block raises TimeoutError when `seconds` have passed since its beginning; what it waits for is
    cancelled. Blocks can be nested: the first end counts."""
    token = ENDS.set(min(ENDS.get(), monotonic() + seconds))
    try:
        yield
    finally:
        ENDS.reset(token)


def check_may_block() -> None:
    """Raises `WrongFace` in the thread of an event loop."""
    if trio.lowlevel.in_trio_run():
        raise WrongFace(
            "proctor.sync would stop the Trio loop that runs here: await the same names of proctor"
        )
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        raise WrongFace(
            "proctor.sync would stop the asyncio loop that runs here: await the same names of proctor.aio"
        )


class _Wait:
    """A place for one outcome from the Trio thread, for one thread."""

    def __init__(self) -> None:
        self.outcome: outcome.Outcome[Any] | None = None
        # A lock and no condition: its `acquire` ends at Ctrl-C, and is the cheapest way to wait.
        self._lock = threading.Lock()
        self._lock.acquire()

    def done(self, result: outcome.Outcome[Any]) -> None:
        """In the Trio thread."""
        self.outcome = result
        self._lock.release()

    def settled(self, seconds: float = math.inf) -> outcome.Outcome[Any]:
        """Wait for it. Raises TimeoutError."""
        if self.outcome is None:
            came = self._lock.acquire(timeout=-1 if seconds == math.inf else max(0.0, seconds))
            if came:
                self._lock.release()  # for the next who looks
            elif self.outcome is None:
                raise TimeoutError("the time of the `timeout` block around this call has passed")
        assert self.outcome is not None
        return self.outcome

    def of(self, job: Job) -> outcome.Outcome[Any]:
        """Wait for the outcome of a job, which an interrupt and the end of its time cancel."""
        ends = ENDS.get()
        try:
            return self.settled(ends if ends == math.inf else ends - monotonic())
        except BaseException as error:
            job.cancel(f"its caller got {type(error).__name__}")
            self.settled()  # its clean-up; interrupted again, it is left to the Trio thread
            raise


def call(thread: TrioThread, function: Callable[..., Awaitable[V]], *args: Any, **kwargs: Any) -> V:
    """Await `function(*args, **kwargs)` in the Trio thread. Raises what it raises, `BridgeClosed`, and TimeoutError in a `timeout`."""
    check_may_block()
    wait = _Wait()
    job = thread.submit(wait.done, bound(function, args, kwargs))
    result = wait.of(job)
    job.apply()
    return result.unwrap()  # type: ignore[no-any-return]


def call_plain(thread: TrioThread, function: Callable[..., V], *args: Any, **kwargs: Any) -> V:
    """Call a plain function in the Trio thread."""
    made = bound(function, args, kwargs)

    async def called() -> V:
        value: V = made()
        return value

    return call(thread, called)


class Stream(Proxy[Any], Generic[T]):
    """Items from Trio, in order: `for`, or `batch()` for all that have come. For one thread at a time.

    At most `proctor.bridge.pump.WINDOW` items are read ahead of it.
    """

    _pump: Pump[Any] | None = None
    _news: threading.Semaphore
    _unread: deque[Any]

    def _item(self, item: Any) -> T:
        return cast("T", item)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._pump is None or not self._unread:
            self._more()
            if not self._unread:
                raise StopIteration
        return self._item(self._unread.popleft())

    def batch(self) -> list[T]:
        """All items that have come, waiting for at least one; empty at the end."""
        if self._pump is None or not self._unread:
            self._more()
        batch, self._unread = self._unread, deque()
        return [self._item(item) for item in batch]

    def _more(self) -> None:
        """Wait for items; none at the end. Raises the error that ended the source."""
        if self._pump is None:
            check_may_block()
            self._unread, self._news = deque(), threading.Semaphore(0)
            self._pump = Pump(self._thread, self._target, self._wake)
        pump = self._pump
        self._thread.check_process()
        while not pump.is_ready:
            pump.waiting = True
            # Looked at again: the pump may have put something there before it could see the flag.
            if not pump.is_ready:
                self._wait()
        self._unread = pump.take()
        # The end was noted before the look, or else it is found at the next call.
        if not self._unread:
            pump.check()

    def _wake(self) -> None:
        self._news.release()

    def _wait(self) -> None:
        ends = ENDS.get()
        if not self._news.acquire(timeout=None if ends == math.inf else max(0.0, ends - monotonic())):
            raise TimeoutError("the time of the `timeout` block around this loop has passed")

    def stop_reading(self) -> None:
        """Stop the task that reads ahead, and wait for its end. What has come can still be read. Nothing happens the second time."""
        pump = self._pump
        if pump is None or not self._thread.is_ours:
            return
        if pump.ended is None:
            pump.cancel()
        while pump.ended is None:
            self._news.acquire()

    def _drained(self) -> None:
        while self._pump is not None and self.batch():
            pass

    def __del__(self) -> None:
        if self._pump is not None and self._pump.ended is None:
            self._pump.cancel()


INTERRUPTS = (GeneratorExit, KeyboardInterrupt, SystemExit)
"""Errors of a body that cancel its block; others are raised in it."""


class Block(AbstractContextManager[T]):
    """An async context manager of Trio, for `with`. It may be entered once.

    A block that ends before its body, because its supervisor gave up, cannot interrupt plain code: calls in it fail, and leaving it raises.
    """

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
        self._entered, self._over = _Wait(), _Wait()
        self._value: T

    def __enter__(self) -> T:
        check_may_block()
        if self._block is not None:
            raise WrongFace("this block was entered already: make another one")
        thread = self._home or current_thread()
        self._block = HostedBlock(thread, self._manager, self._entered.done, self._over.done)
        try:
            result = self._entered.of(self._block.job)
        except BaseException:
            if isinstance(self._entered.outcome, outcome.Value):  # entered in the same moment
                self._over.settled()
            raise
        self._value = self._wrap(result.unwrap(), thread)
        self._block.apply(opened=True)
        return self._value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        block = self._block
        assert block is not None
        if not block.thread.is_ours:  # a fork that unwinds: the block is its parent's
            return None
        value: object = self._value
        if isinstance(value, Stream):
            value.stop_reading()  # pyright: ignore[reportUnknownMemberType]
        if isinstance(error, INTERRUPTS):
            block.cancel(f"its body ended with {type(error).__name__}")
        else:
            block.leave(error)
        # Not within a `timeout` around it: what it stops has times of its own.
        result = self._left(block)
        block.apply(opened=False)
        if isinstance(result, outcome.Value):
            return bool(result.value)
        raised = cast("outcome.Error", result).error
        if raised is error or isinstance(error, INTERRUPTS):
            return False
        raise raised

    def _left(self, block: HostedBlock) -> outcome.Outcome[Any]:
        try:
            return self._over.settled()
        except BaseException as error:
            block.job.cancel(f"its caller got {type(error).__name__}")
            self._over.settled()
            raise


class Opened(Proxy[Any]):
    """A proxy of an object that is an async context manager itself."""

    _block: Block[Any] | None = None

    def __enter__(self) -> Self:
        self._block = Block(self._thread, as_is, self._itself)
        self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._block is not None
        return self._block.__exit__(kind, error, trace)

    def _itself(self) -> Any:
        return self._target


hosted = in_thread
"""Makes a function of the caller one for Trio."""


def runner_of(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """The runner of a session: the method of a proxy as Trio has it, any other function where its caller is."""
    found: Callable[..., Awaitable[Any]] = unwrapped(function)
    return hosted(function) if found is function else found


class ModelReader:
    """Reads the stream of a model of the caller, step by step, in a worker thread."""

    def __init__(self, make: Callable[[Any], Any], request: Any) -> None:
        self._make = make
        self._request = request
        self._stack = ExitStack()
        self._chunks: Any = None

    def open(self) -> None:
        """Open it: an iterable, or a context manager around one."""
        source = self._make(self._request)
        if hasattr(source, "__enter__"):
            source = self._stack.enter_context(source)
        elif hasattr(source, "close"):
            self._stack.callback(source.close)
        self._chunks = iter(source)

    def next(self) -> Any:
        """The next chunk, or `END`."""
        return next(self._chunks, END)

    def close(self) -> None:
        """Close it."""
        self._stack.close()
