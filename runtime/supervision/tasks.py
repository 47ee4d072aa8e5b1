"""Functions run as children of a dynamic supervisor, with a result for their starter.

Guarantees: a task's end is seen by its exit reason, as every child's; its value is there when the reason is `Normal`,
and it is delivered once. `async_` ties task and block: an abnormal end of the task, or one that somebody else asked
for, cancels the block and is raised from it; a block left by an exception or a cancellation ends its task and waits
for that; one left otherwise waits for the task. `async_nolink` ties nothing. A start whose caller is cancelled
meanwhile leaves no task.

A task runs in the context of its supervisor, not of its caller: what it needs is passed as arguments. A stop
cancels it, as a kill does; a function has no hooks between the two.

Not here: one task and its result (`task`), tasks over many items (`task_stream`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast

import trio

from proctor.runtime.addresses import AnyRef
from proctor.runtime.events import LateStop
from proctor.runtime.messaging import Down, Ref, watch
from proctor.runtime.protected import protected_context
from proctor.runtime.spec import (
    WORKER_SHUTDOWN,
    ChildSpec,
    DynamicFlags,
    Grace,
    OnTimeout,
    Restart,
    StreamOptions,
)
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.dynamic import DynamicLoop, NestedDynamic
from proctor.runtime.supervision.handles import AnySupervisor
from proctor.runtime.supervision.root import open_root
from proctor.runtime.supervision.supervisor import nested_spec
from proctor.runtime.supervision.task import Task
from proctor.runtime.supervision.task_stream import TaskStream, open_task_stream

Args = TypeVarTuple("Args")
Item = TypeVar("Item")
T = TypeVar("T")


class _Tie:
    """Cancels a block when its task fails."""

    def __init__(self, task: Task[Any], block: trio.CancelScope) -> None:
        self._task, self._block = task, block

    def deliver(self, down: Down) -> None:
        # a task that ended well, or by its own shutdown, is no reason to cancel the block
        if self._task.failed:
            self._block.cancel(reason=str(down))


class TaskSupervisor(AnySupervisor):
    """The handle on a supervisor of tasks: async functions that are run as its children."""

    @property
    def _dynamic(self) -> DynamicLoop:
        return cast("DynamicLoop", self._loop)

    async def start_child(
        self,
        fn: Callable[[Unpack[Args]], Awaitable[object]],
        *args: *Args,
        restart: Restart = "temporary",
        shutdown: Grace = WORKER_SHUTDOWN,
    ) -> Ref:
        """Run `await fn(*args)` as a child whose result is dropped; it is restarted only if `restart` says so.

        Raises `MaxChildren`, and what every request raises.
        """
        return await self._dynamic.start(
            ChildSpec(_id(fn), _forgetful, (fn, *args), restart=restart, shutdown=shutdown)
        )

    async def terminate_child(self, ref: AnyRef) -> tuple[LateStop, ...]:
        """Stop the task whose last incarnation is `ref`, and forget it: what did not end in time, see `late`.

        Raises `NotFound` if it is gone.
        """
        return await self._loop.ask(partial(self._dynamic.terminate, ref))

    async def async_nolink(
        self,
        fn: Callable[[Unpack[Args]], Awaitable[T]],
        *args: *Args,
        shutdown: Grace = WORKER_SHUTDOWN,
    ) -> Task[T]:
        """Run `await fn(*args)` as a task that is not tied to the caller: it outlives it, and its crash is an
        `ActorExited` for the task that awaits it.

        `shutdown` is what the supervisor grants it at a stop. Raises `MaxChildren`, and what every request raises.
        """
        task: Task[T] = Task(partial(fn, *args))
        # A flag, not `except`: a cancelled start has to leave no task either.
        started = False
        try:
            # temporary: a second run could not give its result to a task that has been awaited
            await self._dynamic.start(ChildSpec(_id(fn), task.run, restart="temporary", shutdown=shutdown))
            started = True
        finally:
            if not started:
                await task.abandon()
        return task

    @protected_context
    async def async_(
        self,
        fn: Callable[[Unpack[Args]], Awaitable[T]],
        *args: *Args,
        shutdown: Grace = WORKER_SHUTDOWN,
    ) -> AsyncGenerator[Task[T], None]:
        """Run `await fn(*args)` as a task tied to the block: `async with tasks.async_(fn, *args) as task`.

        If the task ends otherwise than by returning, and not by its own `shutdown`, the block is cancelled and
        raises `ActorExited`, a crash as its cause. Leaving the block by an exception ends the task; leaving it
        otherwise waits for it. Entering raises `MaxChildren`, and what every request raises.
        """
        task = await self.async_nolink(fn, *args, shutdown=shutdown)
        try:
            with trio.CancelScope() as block:
                # Before the body runs: of a task that has ended already it is notified at once.
                watch(_Tie(task, block), task.ref, task.ref.endpoint)
                yield task
                await task.wait_ended()
        finally:
            await task.dismiss()
        # behind the scope, which has taken the cancellation of the tie: here it becomes the error that caused
        # it
        if task.failed:
            raise task.failure()

    def async_stream(
        self,
        items: Iterable[Item] | AsyncIterable[Item],
        fn: Callable[[Item], Awaitable[T]],
        *,
        max_concurrency: int | None = None,
        ordered: bool = True,
        timeout: float | None = 5.0,
        on_timeout: OnTimeout = "exit",
    ) -> AbstractAsyncContextManager[TaskStream[Item, T]]:
        """Run `await fn(item)` as a task for each of `items`, and iterate over the outcomes.

        `async with tasks.async_stream(urls, fetch) as outcomes: async for outcome in outcomes: ...`. At most
        `max_concurrency` items, left out: the number of processors, are taken and not yet handed out as outcomes;
        so items may be endless, and a consumer that is slow stops the taking. Outcomes come in the order of the
        items unless `ordered=False`. Each item may take `timeout` seconds.

        A crash of an item cancels the block and is raised from it as `ActorExited`; an item's time-out as
        `TaskTimeout`, with `on_timeout="kill"` it is an outcome, `TaskExit`, instead. Leaving the block ends the
        tasks that are left, and closes `items` if they are a generator. Raises `InvalidSpec`.
        """
        options = _options(max_concurrency, ordered, timeout, on_timeout)
        return open_task_stream(lambda item: self.async_nolink(fn, item), items, options, linked=True)

    def async_stream_nolink(
        self,
        items: Iterable[Item] | AsyncIterable[Item],
        fn: Callable[[Item], Awaitable[T]],
        *,
        max_concurrency: int | None = None,
        ordered: bool = True,
        timeout: float | None = 5.0,
        on_timeout: OnTimeout = "exit",
    ) -> AbstractAsyncContextManager[TaskStream[Item, T]]:
        """`async_stream` in which the crash of an item is an outcome, `TaskExit`, and the others go on."""
        options = _options(max_concurrency, ordered, timeout, on_timeout)
        return open_task_stream(lambda item: self.async_nolink(fn, item), items, options, linked=False)


def _options(
    max_concurrency: int | None, ordered: bool, timeout: float | None, on_timeout: OnTimeout
) -> StreamOptions:
    at_once = (os.cpu_count() or 1) if max_concurrency is None else max_concurrency
    return StreamOptions(max_concurrency=at_once, ordered=ordered, timeout=timeout, on_timeout=on_timeout)


def _id(fn: object) -> str:
    return getattr(fn, "__name__", "task")


async def _forgetful(fn: Callable[..., Awaitable[object]], *args: Any, task_status: Incarnation) -> None:
    task_status.started()
    begun = fn(*args)
    del fn, args  # else kept as long as it runs
    await begun


def task_supervisor_spec(
    id: str, *, max_children: int | None = None, intensity: int = 1, period: float = 5.0, **spec: Any
) -> ChildSpec:
    """A task supervisor as a child: its own flags, and the `ChildSpec` fields `spec`. Raises `InvalidSpec`.

    Its handle is `above.supervisor(path, TaskSupervisor)`.
    """
    flags = DynamicFlags(max_children=max_children, intensity=intensity, period=period)
    return nested_spec(id, NestedDynamic(flags, TaskSupervisor), spec)


def open_task_supervisor(
    *,
    max_children: int | None = None,
    intensity: int = 1,
    period: float = 5.0,
    name: str | None = None,
    seed: int | None = None,
) -> AbstractAsyncContextManager[TaskSupervisor]:
    """A root task supervisor for the length of an `async with`; leaving it ends the tasks that are left.

    At most `max_children` tasks at a time. `intensity` and `period`, in seconds, are for tasks that `start_child`
    is to restart. `seed` fixes what is random in the tree. Raises `InvalidSpec`.
    """
    flags = DynamicFlags(max_children=max_children, intensity=intensity, period=period)
    opened = open_root(partial(DynamicLoop, flags, TaskSupervisor), name or "root", seed=seed)
    return cast("AbstractAsyncContextManager[TaskSupervisor]", opened)
