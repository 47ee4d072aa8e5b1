"""tractor's actors, a process for each. A cast is an item of a stream, of which it has no other kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import tractor
import trio

from bench.contest import Stopwatch
from bench.mailbox import expect
from bench.peers.entries import Exchange


async def echo(number: int) -> int:
    """Runs in the actor: answers."""
    return number


@tractor.context
async def count(ctx: tractor.Context) -> int:
    """Runs in the actor: counts what it is sent."""
    await ctx.started()
    total = 0
    async with ctx.open_stream() as stream:
        async for _ in stream:
            total += 1
    return total


async def call(portal: tractor.Portal, times: int) -> None:
    """Ask and be answered."""
    for number in range(times):
        expect(await portal.run(echo, number=number), number)


async def cast(portal: tractor.Portal, times: int) -> None:
    """Tell, and at the end learn how many were counted."""
    async with portal.open_context(count) as (context, _):
        async with context.open_stream() as stream:
            for number in range(times):
                await stream.send(number)
        expect(await context.result(), times)


def exchange(kind: Exchange, actors: int, operations: int) -> Stopwatch:
    """A caller for each actor."""
    return trio.run(_exchange, call if kind == "call" else cast, actors, operations // actors)


async def _exchange(
    send: Callable[[tractor.Portal, int], Awaitable[None]], actors: int, times: int
) -> Stopwatch:
    async with tractor.open_nursery() as processes:
        portals = [
            await processes.start_actor(f"actor{number}", enable_modules=[__name__])
            for number in range(actors)
        ]
        for portal in portals:
            await call(portal, 1)
        with Stopwatch() as watch:
            async with trio.open_nursery() as nursery:
                for portal in portals:
                    nursery.start_soon(partial(send, portal, times))
        await processes.cancel()
    watch.cpu = float("nan")
    return watch
