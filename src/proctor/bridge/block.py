"""A block across the bridge: an async context manager that is entered and left by one Trio task, while its body runs elsewhere.

An error of the body is raised inside the manager, which may replace or swallow it, as in Trio. A body that is cancelled, or interrupted,
cancels the task of the manager instead.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import outcome
import trio

from proctor.bridge.errors import BridgeError
from proctor.bridge.trio_thread import Done, Job, TrioThread

Open = Callable[[], AbstractAsyncContextManager[Any]]


class HostedBlock:
    """`entered(outcome)` is called once in the Trio thread when the manager has been entered, or could not be; `ended(outcome)` once
    after that of a value, when it has been left: with True where it has swallowed the error of the body."""

    def __init__(self, thread: TrioThread, manager: Open, entered: Done, ended: Done) -> None:
        self.is_left = False
        """Whether its body has ended."""
        self.thrown: BaseException | None = None
        """The error of the body."""
        self.thread = thread
        self._manager = manager
        self._entered: Done | None = entered
        self._ended = ended
        self._left = trio.Event()
        self.opened: contextvars.Context | None = None
        self.job: Job = thread.submit(self._done, self._hold)

    def leave(self, error: BaseException | None) -> None:
        """Leave the manager, with the error of the body. From any thread."""
        self.thrown, self.is_left = error, True
        self.thread.soon(self._left.set)

    def cancel(self, reason: str) -> None:
        """Cancel the task of the manager, whose body has been cancelled. From any thread."""
        self.is_left = True
        self.job.cancel(reason)

    def apply(self, *, opened: bool) -> None:
        """Give the caller's context what entering, or leaving, has changed in it."""
        if opened and self.opened is not None:
            self.job.after = self.opened
        self.job.apply()
        if opened:
            # From here on only what leaving changes: a variable that the body sets is its own.
            self.job.before = self.job.after or self.job.before

    async def _hold(self) -> bool:
        async with self._manager() as value:
            self.opened = contextvars.copy_context()
            entered, self._entered = self._entered, None
            if entered is not None:
                entered(outcome.Value(value))
            await self._left.wait()
            if self.thrown is not None:
                raise self.thrown
            return False
        return True  # the manager has swallowed the error

    def _done(self, result: outcome.Outcome[Any]) -> None:
        entered, self._entered = self._entered, None
        if entered is None:
            self._ended(result)
        elif isinstance(result, outcome.Error):
            entered(result)
        else:
            entered(outcome.Error(BridgeError("the block ended before it began")))
