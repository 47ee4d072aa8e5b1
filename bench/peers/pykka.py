"""pykka's actors, a thread for each.

The one caller is the thread that runs the bench: it asks each of the N actors once, waits for all answers, and asks
again, so that N are at work at a time and none has two questions.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import pykka

from bench.contest import Stopwatch
from bench.mailbox import expect
from bench.peers.entries import Exchange

COUNT = -1
"""Asks how many were told."""


class Counter(pykka.ThreadingActor):
    """Counts all, and answers with the number, or with the count."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def on_receive(self, message: int) -> int:
        if message == COUNT:
            return self._count
        self._count += 1
        return message


@contextmanager
def counters(count: int) -> Generator[list[pykka.ActorRef[Counter]], None, None]:
    """So many of them; at the end all are stopped."""
    actors = [Counter.start() for _ in range(count)]
    try:
        yield actors
    finally:
        for actor in actors:
            actor.stop(block=False)
        for actor in actors:
            actor.stop(block=True)


@asynccontextmanager
async def crowd(count: int) -> AsyncGenerator[None, None]:
    """So many that do nothing."""
    with counters(count):
        yield


def exchange(kind: Exchange, actors: int, operations: int) -> Stopwatch:
    """Ask, or tell and at the end ask, each in its turn."""
    with counters(actors) as refs, Stopwatch() as watch:
        for number in range(operations // actors):
            if kind == "call":
                ask(refs, number, number)
            else:
                tell(refs, number)
        ask(refs, COUNT, operations // actors)
    return watch


def ask(refs: list[pykka.ActorRef[Counter]], message: int, wanted: int) -> None:
    """Each of them, and wait for all answers."""
    for answer in [ref.ask(message, block=False) for ref in refs]:
        expect(answer.get(), wanted)


def tell(refs: list[pykka.ActorRef[Counter]], message: int) -> None:
    """Each of them."""
    for ref in refs:
        ref.tell(message)
