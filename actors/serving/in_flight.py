"""Requests in flight beside a gateway, so that a server's end can wait for them.

A request is counted until its block is left. After `close` no request is admitted; `ended` cuts the rest short, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import trio
from trio_util import AsyncValue


class CancelSignal:
    """A signal that fires once; `why` is then the reason. It cancels only waits: half a write would corrupt a stream."""

    def __init__(self) -> None:
        self.why: str | None = None
        self._waiting: set[trio.CancelScope] = set()

    def fire(self, why: str) -> None:
        """Cancel every wait, now and later. The first reason counts."""
        self.why = self.why or why
        for scope in self._waiting:
            scope.cancel(why)

    @contextmanager
    def limit(self, seconds: float) -> Generator[trio.CancelScope]:
        """Cancel the block when the signal fires, or after so many seconds."""
        with trio.CancelScope(relative_deadline=seconds) as scope:
            # It may have fired before this wait began.
            if self.why is not None:
                scope.cancel(self.why)
            self.add(scope)
            try:
                yield scope
            finally:
                self.discard(scope)

    def add(self, scope: trio.CancelScope) -> None:
        """Cancel this scope when the signal fires."""
        self._waiting.add(scope)

    def discard(self, scope: trio.CancelScope) -> None:
        """Cancel it no more."""
        self._waiting.discard(scope)


class Waits:
    """Waits of one task, each ended by the signal or after `seconds`: within its block, and in one scope, as to open one for each wait
    costs more than what is waited for. What is done in the block between two waits is not cancelled."""

    def __init__(self, signal: CancelSignal, seconds: float) -> None:
        self.scope = trio.CancelScope()
        self._signal, self._seconds = signal, seconds

    async def ended(self, wait: Callable[[], Awaitable[object]]) -> bool:
        """Wait. Leaves the block when the wait is cut short; True when that was due in the moment in which it ended by itself, after
        which the caller must leave the block."""
        scope = self.scope
        if self._signal.why is not None:
            return True
        self._signal.add(scope)
        scope.deadline = trio.current_time() + self._seconds
        try:
            await wait()
        finally:
            scope.deadline = math.inf
            self._signal.discard(scope)
        return scope.cancel_called


class InFlight:
    """The requests in flight of one server. `closed` is why no more are admitted, else None; `ended` cuts short the others."""

    def __init__(self) -> None:
        self.closed: str | None = None
        self.ended = CancelSignal()
        self._count = AsyncValue(0)

    @contextmanager
    def visit(self) -> Generator[None]:
        """Context of one request, which is left early when it is cut short. Call it only while not `closed`."""
        self._count.value += 1
        try:
            with self.ended.limit(math.inf):
                yield
        finally:
            self._count.value -= 1

    def close(self, why: str) -> None:
        """Admit no more requests. The first reason counts."""
        self.closed = self.closed or why

    async def wait_empty(self) -> None:
        """Wait until no request is in flight."""
        await self._count.wait_value(0)
