"""A thread that runs a Trio loop, and calls that other threads submit to it.

Guarantees:
  a call that was accepted ends exactly once, in `done`, on every path: also when its thread stops or fails
  a call runs in a copy of its caller's context variables, and what it changed in them can be applied to the caller's (`Job.apply`)
  `close` ends everything in order: blocks that are open are left, so supervisors stop their children by their own rules
  the end of the program closes every open thread, so that the interpreter's exit waits for no runtime and leaves no process

Not here: waiting for a call, which each face does in its own way.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, cast

import outcome
import trio

from proctor.bridge.errors import BridgeClosed, BridgeError, WrongFace

Done = Callable[["outcome.Outcome[Any]"], None]

CURRENT: contextvars.ContextVar[TrioThread | None] = contextvars.ContextVar("proctor.bridge", default=None)
"""The thread that a `with` block has chosen; None for the one of the process."""


class Job:
    """One submitted call. `before` is the context that it began with, `after` that of its end."""

    __slots__ = ("_done", "_thread", "after", "before", "fn", "scope")

    def __init__(
        self, thread: TrioThread, done: Done, fn: Callable[[], Awaitable[Any]], context: contextvars.Context
    ) -> None:
        self._thread = thread
        self._done = done
        self.fn = fn
        self.before = context
        self.after: contextvars.Context | None = None
        self.scope = trio.CancelScope()

    def cancel(self, reason: str) -> None:
        """Cancel it, from any thread. It still ends in `done`, after its clean-up."""
        self._thread.soon(self.scope.cancel, reason)

    def settle(self, result: outcome.Outcome[Any]) -> None:
        """End it. Nothing happens the second time."""
        if self._thread.forget(self):
            self._done(result)

    def apply(self) -> None:
        """Give the caller's context the variables that the call has changed."""
        if self.after is None:
            return
        before = self.before
        for variable, value in self.after.items():
            if before.get(variable, before) is not value:
                variable.set(value)

    async def run(self) -> None:
        """Make the call, in the Trio thread."""
        result: outcome.Outcome[Any] = outcome.Error(BridgeError("its caller has left"))
        try:
            with self.scope:
                result = outcome.Value(await self.fn())
        except trio.Cancelled:
            raise  # the thread is being closed, which settles what is left
        except BaseException as error:  # noqa: BLE001  # the caller's: it is raised there, whatever it is
            result = outcome.Error(_without_cancelled(error))
        self.after = contextvars.copy_context()
        self.settle(result)


def _without_cancelled(error: BaseException) -> BaseException:
    """The part of an error that may leave Trio."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return group.split(trio.Cancelled)[1] or BridgeClosed("the Trio thread is being closed")


class TrioThread:
    """A thread with a Trio loop. `with TrioThread():` starts one, and makes it that of the block; without any there is one for the process.

    `async with` does the same in an asyncio program. Leaving the block closes it: see `close`.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """What made it fail, None as long as nothing did."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open = False
        self._pending: set[Job] = set()
        self._up = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread: threading.Thread | None = None
        self._nursery: trio.Nursery | None = None
        self._stop: trio.Event | None = None
        self._reset: contextvars.Token[TrioThread | None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it accepts calls, in this process."""
        return self._open and self.is_ours

    def start(self) -> Self:
        """Start it, and return when it accepts calls. Raises RuntimeError the second time."""
        if self._thread is not None:
            raise WrongFace("this TrioThread was started already: make another one")
        # A daemon, so that one that cannot stop delays the interpreter's exit only as long as EXIT says.
        self._thread = threading.Thread(target=self._run, name="proctor-trio", daemon=True)
        KEEPER.keep(self)
        self._thread.start()
        self._up.wait()
        if self.error is not None:
            raise self._closed()
        return self

    def close(self, timeout: float | None = None) -> None:
        """Leave all open blocks in order, which stops what they supervise, and end the thread.

        Raises TimeoutError when that took more than `timeout` seconds (None: waits without limit); it goes on then.
        """
        if threading.current_thread() is self._thread:
            raise WrongFace("a TrioThread cannot close itself: close it from another thread")
        if self._thread is None or not self.is_ours:
            return
        self.request_stop()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the Trio thread did not stop within {timeout:g} s")

    def request_stop(self) -> None:
        """Begin to close it, and do not wait."""
        if self._stop is not None:
            self.soon(self._stop.set)

    def __enter__(self) -> Self:
        self.start()
        self._reset = CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reset is not None:
            CURRENT.reset(self._reset)
        self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()  # starting takes about a millisecond

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from asyncio import to_thread

        if self._reset is not None:
            CURRENT.reset(self._reset)
        await to_thread(self.close)  # stopping agents takes seconds, in which the loop has to run

    def soon(self, fn: Callable[..., object], *args: Any) -> None:
        """Call `fn(*args)` in the Trio thread; nothing happens where that has ended."""
        # a fork shares the parent's wake-up socket, and must not write to it
        if self._token is not None and self.is_ours:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(fn, *args)

    def submit(
        self, done: Done, fn: Callable[[], Awaitable[Any]], context: contextvars.Context | None = None
    ) -> Job:
        """Run `fn()` in the Trio thread; `done(outcome)` is called there once. Raises `BridgeClosed`."""
        job = Job(self, done, fn, contextvars.copy_context() if context is None else context)
        self.check_process()
        with self._lock:
            if not self._open:
                raise self._closed()
            self._pending.add(job)
        self.soon(self._spawn, job)
        return job

    @property
    def is_ours(self) -> bool:
        """Whether it is a thread of this process. One of the parent of a fork does not exist here: nothing of it can be waited for."""
        return self._pid == os.getpid()

    def check_process(self) -> None:
        """Raise `BridgeClosed` in a fork of its process."""
        if not self.is_ours:
            text = f"it belongs to the process {self._pid}; this one is a fork of that and opens its own"
            raise BridgeClosed(text)

    def forget(self, job: Job) -> bool:
        """Take a call off the list of those that have not ended; whether it was there."""
        with self._lock:
            there = job in self._pending
            self._pending.discard(job)
        return there

    def _spawn(self, job: Job) -> None:
        # Too late for a nursery that has closed: what is left is settled when the loop has ended.
        if self._nursery is not None:
            # In the caller's context, of which a task takes a copy when it is started.
            job.before.run(self._nursery.start_soon, job.run)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001  # each caller gets it, as the cause of its own error
            self.error = error
        with self._lock:
            self._open = False
            left, self._pending = [*self._pending], {*self._pending}
        for job in left:
            job.settle(outcome.Error(self._closed()))
        KEEPER.release(self)
        self._up.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        try:
            async with trio.open_nursery() as self._nursery:
                self._open = True
                self._up.set()
                await self._stop.wait()
                with self._lock:
                    self._open = False
                self._nursery.cancel_scope.cancel("the Trio thread is closed")
        finally:
            self._nursery = None

    def _closed(self) -> BridgeClosed:
        why = "was closed" if self._thread is not None else "was not started"
        why = why if self.error is None else f"failed: {self.error!r}"
        closed = BridgeClosed(f"the Trio thread {why}")
        closed.__cause__ = self.error
        return closed


EXIT = 60.0
"""Seconds that the interpreter's exit waits at most for the agents of a program that did not close them."""


class _Keeper:
    """Closes the open threads when the main thread has ended, and all others that are not daemons.

    By a thread that waits for them: handlers of `atexit` come too late, because nothing that is being stopped can start a thread
    then. A fork has threads of its own, and therefore a keeper of its own.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock, self._starting = threading.Lock(), threading.Lock()
        self._threads = set[TrioThread]()
        self._waits = False
        self._default: TrioThread | None = None

    def keep(self, thread: TrioThread) -> None:
        with self._lock:
            self._threads.add(thread)
            if self._waits:
                return
            self._waits = True
        threading.Thread(target=self._wait, name="proctor-keeper").start()

    def release(self, thread: TrioThread) -> None:
        with self._lock:
            self._threads.discard(thread)

    def default(self) -> TrioThread:
        """The thread of this process, started at its first use, and again after its end."""
        thread = self._default
        if thread is not None and thread.is_open:
            return thread
        with self._starting:
            if self._default is None or not self._default.is_open:
                self._default = TrioThread().start()
            return self._default

    def _wait(self) -> None:
        threading.main_thread().join()
        # Not before the other threads that the interpreter waits for: they may be using it still.
        while (other := next(filter(_holds_the_exit, threading.enumerate()), None)) is not None:
            other.join()
        with self._lock:
            left = [*self._threads]
        for thread in left:
            thread.request_stop()
        for thread in left:
            try:
                thread.close(EXIT)
            except TimeoutError:
                return  # the guard of each agent kills it when this process is gone


def _holds_the_exit(thread: threading.Thread) -> bool:
    own = (threading.main_thread(), threading.current_thread())
    return not thread.daemon and thread.is_alive() and thread not in own


KEEPER = _Keeper()


def current_thread() -> TrioThread:
    """The thread of the `with TrioThread()` block around, else that of the process."""
    return CURRENT.get() or KEEPER.default()
