"""Coroutine functions of an asyncio program that agents call: tools, hooks, policies, models.

They run as tasks of the loop that opened the agents, not in the Trio thread, and see the context variables of the task that calls them. A
cancelled call cancels the task. Plain functions: `workers`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial, wraps
from typing import Any

import outcome
import trio

from proctor.bridge.errors import CallerGone, WrongFace

GRACE = 5.0
"""Seconds that a cancelled coroutine of the caller has to end in."""

CHECK = 0.5
"""Seconds between two looks whether the loop of a coroutine is still there."""

LOOP: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "proctor.bridge.loop", default=None
)
"""The loop that a call came from."""


def on_loop(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """An async function for Trio that awaits `function` in the asyncio loop of the caller. Raises what that raises, and `CallerGone`."""

    @wraps(function)
    async def called(*args: Any, **kwargs: Any) -> Any:
        loop = LOOP.get()
        if loop is None:
            name = getattr(function, "__name__", repr(function))
            raise WrongFace(
                f"{name!r} is for asyncio: open its agent by proctor.aio, or make it with proctor"
            )
        return await _LoopCall(loop, partial(function, *args, **kwargs)).result()

    return called


class _LoopCall:
    """One coroutine of the caller, as a task of its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[[], Awaitable[Any]]) -> None:
        self._loop = loop
        self._function = function
        self._token = trio.lowlevel.current_trio_token()
        self._context = contextvars.copy_context()
        self._ended = trio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._result: outcome.Outcome[Any] = outcome.Error(CallerGone("its event loop has ended"))

    async def result(self) -> Any:
        if not self._soon(self._begin):
            raise CallerGone("its event loop has ended")
        try:
            await self._end()
        except trio.Cancelled:
            if self._soon(self._cancel):
                # The clean-up of the coroutine, which others may rely on; not for longer, since its loop may stand still.
                with trio.move_on_after(GRACE, shield=True):
                    await self._ended.wait()
            raise
        return self._result.unwrap()

    async def _end(self) -> None:
        while not self._ended.is_set():
            with trio.move_on_after(CHECK):
                await self._ended.wait()
            # A loop that ends says nothing to a task that was begun after it has cancelled all others.
            if self._loop.is_closed():
                return

    def _soon(self, step: Callable[[], object]) -> bool:
        try:
            self._loop.call_soon_threadsafe(step)
        except RuntimeError:  # the loop is closed
            return False
        return True

    # -- in the loop

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._awaited(), context=self._context)
        self._task.add_done_callback(self._finish)

    async def _awaited(self) -> Any:
        return await self._function()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel("the agent has withdrawn the call")

    def _finish(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._result = outcome.Error(CallerGone("its event loop cancelled it"))
        elif (error := task.exception()) is not None:
            self._result = outcome.Error(error)
        else:
            self._result = outcome.Value(task.result())
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._ended.set)
