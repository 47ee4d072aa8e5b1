"""anyio's memory object streams, on either of its backends: one there and one back, as with Trio's channels."""

from __future__ import annotations

from functools import partial

import anyio

from bench.contest import Stopwatch
from bench.mailbox import ROOM, expect
from bench.peers.entries import Exchange


class Streams:
    """A stream there and a stream back."""

    def __init__(self, times: int) -> None:
        self._times = times
        self._send, self._requests = anyio.create_memory_object_stream[int](ROOM)
        self._answer, self._answers = anyio.create_memory_object_stream[int](1)

    async def call(self) -> None:
        """The caller."""
        async with self._send, self._answers:
            for number in range(self._times):
                await self._send.send(number)
                expect(await self._answers.receive(), number)

    async def echo(self) -> None:
        """Its callee."""
        async with self._requests, self._answer:
            async for number in self._requests:
                await self._answer.send(number)

    async def cast(self) -> None:
        """One who tells."""
        async with self._send, self._answers:
            for number in range(self._times):
                await self._send.send(number)

    async def count(self) -> None:
        """One who is told."""
        count = 0
        async with self._requests, self._answer:
            async for _ in self._requests:
                count += 1
        expect(count, self._times)


def exchange(backend: str, kind: Exchange, actors: int, operations: int) -> Stopwatch:
    """Two streams for each of `actors` pairs."""
    return anyio.run(partial(_exchange, kind, actors, operations), backend=backend)


async def _exchange(kind: Exchange, actors: int, operations: int) -> Stopwatch:
    pairs = [Streams(operations // actors) for _ in range(actors)]
    gate, watch = anyio.Event(), Stopwatch()

    async def gated(pair: Streams) -> None:
        await gate.wait()
        await (pair.call() if kind == "call" else pair.cast())

    async with anyio.create_task_group() as group:
        for pair in pairs:
            group.start_soon(pair.echo if kind == "call" else pair.count)
            group.start_soon(gated, pair)
        await anyio.wait_all_tasks_blocked()
        watch.start()
        gate.set()
    watch.stop()
    return watch
