"""Plain functions of the caller that agents call. They run in worker threads, and see the context variables of the task that calls them.

A thread cannot be cancelled: a cancelled call leaves it. Does without asyncio, which plain programs need not load.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any

import trio

WORKERS = 100
"""Plain functions of the caller that run at a time. They have threads of their own: some that hang must not take those of agents."""

_LIMITER: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("proctor.bridge.workers")


def in_thread(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """An async function for Trio that calls the plain `function` in a worker thread."""

    @wraps(function)
    async def called(*args: Any, **kwargs: Any) -> Any:
        # left when cancelled: a function that hangs must not hold up the agent
        call = partial(function, *args, **kwargs)
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=_limiter())

    return called


def _limiter() -> trio.CapacityLimiter:
    try:
        return _LIMITER.get()
    except LookupError:
        _LIMITER.set(limiter := trio.CapacityLimiter(WORKERS))
        return limiter
