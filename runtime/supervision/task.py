"""One task: a function that runs as a child, and its result.

Invariant: a task's `ref` is set before its function runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Literal, TypeVar, cast

import trio

from proctor.runtime.errors import ActorExited, CallTimeout, ResultTaken
from proctor.runtime.exits import Crash, ExitReason, Normal, Shutdown
from proctor.runtime.messaging import Ref, seconds_late, until
from proctor.runtime.spec import WORKER_SHUTDOWN, Grace
from proctor.runtime.supervision.child import Incarnation

T = TypeVar("T")


class Task(Generic[T]):
    """A function that runs as a child, and its result: `await task`, once."""

    ref: Ref
    """The one incarnation: to monitor, to end."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work: Callable[[], Awaitable[T]] | None = work
        self._value: T | None = None
        self._delivery: Literal["open", "awaited", "done"] = "open"
        self._dismissed = False

    async def run(self, *, task_status: Incarnation) -> None:
        """The body of the child. For its supervisor."""
        # Before `started`: the starter goes on from there and reads it.
        self.ref = task_status.ref
        task_status.started()
        work, self._work = self._work, None
        if work is not None:
            begun = work()
            del work  # and with it the arguments, else kept as long as it runs
            self._value = await begun

    async def wait(self, timeout: float | None = None) -> T:
        """Wait, at most `timeout` seconds, for its end: what the function returned. For one caller, once.

        Raises `ActorExited` with the reason of any other end, a crash as its cause; `CallTimeout`, and the task goes
        on and can be waited for again, as after a cancellation; `ResultTaken` if the result was delivered, be it as
        an error, or another waits for it.
        """
        if self._delivery != "open":
            raise ResultTaken(self.ref)
        self._delivery = "awaited"
        try:
            with trio.CancelScope(deadline=until(timeout)):
                await self.wait_ended()
        finally:
            # After a time-out or a cancellation, too: the result can still be fetched.
            self._delivery = "open"
        if self.ref.exit_reason is None:
            raise CallTimeout(self.ref, timeout or 0.0)
        return self.take()

    def __await__(self) -> Generator[Any, Any, T]:
        return self.wait().__await__()

    def take(self) -> T:
        """The result of a task that has ended, without waiting; raises as `wait` does."""
        if self._delivery != "open":
            raise ResultTaken(self.ref)
        self._delivery = "done"
        if not isinstance(self.ref.exit_reason, Normal):
            raise self.failure()
        # Let go of here: a task object may be kept for long.
        value, self._value = self._value, None
        return cast("T", value)

    async def wait_ended(self) -> ExitReason:
        """Wait for its end, however that comes; the result stays where it is. Any task may wait, any number of times."""
        with self.ref.monitor() as monitor:
            await monitor
        assert self.ref.exit_reason is not None
        return self.ref.exit_reason

    async def shutdown(self, grace: Grace = WORKER_SHUTDOWN) -> ExitReason:
        """End it, and wait until it has: asked, and after `grace` seconds killed, or killed at once. Why it ended.

        The block it is tied to goes on. If it ended by itself before, its result is still there.
        """
        self._dismissed = self._dismissed or self.ref.exit_reason is None
        if grace != "brutal_kill":
            self.ref.exit(Shutdown())
            with trio.move_on_after(grace) as asked:
                return await self.wait_ended()
            # The loop may have stalled: the task gets the time by which the clock was looked at late.
            with trio.move_on_after(seconds_late(asked.deadline)):
                return await self.wait_ended()
        self.ref.kill()
        return await self.wait_ended()

    async def dismiss(self) -> None:
        """Ask it to end, and wait until it has, whatever cancels the caller. Nothing happens if it has ended."""
        if self.ref.exit_reason is None:
            self._dismissed = True
            self.ref.exit(Shutdown())
            # A cancelled caller leaves no task behind; the grace of the task's spec bounds the wait.
            with trio.CancelScope(shield=True):
                await self.wait_ended()

    async def abandon(self) -> None:
        """Its start was given up: end it as `dismiss` does, or have it never begin."""
        # A start that is still queued then runs nothing.
        self._work = None
        if hasattr(self, "ref"):
            await self.dismiss()

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than by returning, and not because its owner ended it."""
        return not (isinstance(self.ref.exit_reason, Normal | None) or self._dismissed)

    def failure(self) -> ActorExited:
        """The error for its end, a crash as its cause."""
        reason = self.ref.exit_reason
        assert reason is not None
        error = ActorExited(self.ref, reason)
        error.__cause__ = reason.error if isinstance(reason, Crash) else None
        return error
