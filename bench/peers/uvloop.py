"""What asyncio does, on uvloop's event loop."""

from __future__ import annotations

import uvloop

from bench import mailbox, spawn
from bench.contest import Stopwatch
from bench.peers.entries import Exchange


def exchange(kind: Exchange, actors: int, operations: int) -> Stopwatch:
    """The queue and the future of `bench.mailbox`."""
    return uvloop.run(mailbox.queues(kind == "cast", actors, operations))


def start(at_once: int, programs: int) -> Stopwatch:
    """The tasks of `bench.spawn`."""
    return uvloop.run(spawn.asyncio_tasks(spawn.on_asyncio, at_once, programs))
