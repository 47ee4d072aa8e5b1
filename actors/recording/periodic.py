"""Looks that are taken now and then, with a time that ages are counted to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

import trio


async def run_periodically(
    look: Callable[[float], Awaitable[None]], *, every: float, wall: Callable[[], float]
) -> NoReturn:
    """Call `look` now and every so many seconds, until cancelled, with the time in Unix seconds.

    A wall clock that jumps ahead meanwhile makes nothing old: the time is at most that of the start and what has passed since.
    """
    began, began_wall = trio.current_time(), wall()
    while True:
        await look(min(wall(), began_wall + trio.current_time() - began))
        await trio.sleep(every)
