"""thespian's actors: all in this thread (simpleSystemBase), or each in a process of its own (multiprocTCPBase).

The caller is not an actor but the program outside, which has one question open at a time; it asks one actor after the
other.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from thespian.actors import Actor, ActorAddress, ActorSystem

from bench.contest import Stopwatch
from bench.mailbox import expect
from bench.peers.entries import Exchange

SIMPLE = "simpleSystemBase"
PATIENCE = 60.0
"""Seconds that an answer may take."""


class Tell:
    """A message without an answer."""


class Count:
    """Asks how many were told."""


class Counter(Actor):
    """Sends back what it is sent, and counts what wants no answer."""

    count = 0

    def receiveMessage(self, message: object, sender: ActorAddress) -> None:
        if isinstance(message, Tell):
            self.count += 1
        else:
            self.send(sender, self.count if isinstance(message, Count) else message)


@contextmanager
def counters(base: str, count: int) -> Generator[tuple[ActorSystem, list[ActorAddress]], None, None]:
    """So many of them and the system they are in, which is shut down at the end."""
    quiet = {"version": 1, "disable_existing_loggers": False, "root": {"level": logging.CRITICAL}}
    system = ActorSystem(base, logDefs=quiet)
    try:
        yield system, [system.createActor(Counter) for _ in range(count)]
    finally:
        system.shutdown()


@asynccontextmanager
async def crowd(count: int) -> AsyncGenerator[None, None]:
    """So many that do nothing."""
    with counters(SIMPLE, count):
        yield


def exchange(base: str, kind: Exchange, actors: int, operations: int) -> Stopwatch:
    """Ask, or tell and at the end ask, each in its turn."""
    with counters(base, actors) as (system, addresses):
        for address in addresses:
            expect(system.ask(address, True, PATIENCE), True)
        with Stopwatch() as watch:
            told = operations // actors if kind == "cast" else 0
            for number in range(1, operations // actors + 1):
                send(system, addresses, number, kind)
            for address in addresses:
                expect(system.ask(address, Count(), PATIENCE), told)
    if base != SIMPLE:
        watch.cpu = float("nan")
    return watch


def send(system: ActorSystem, addresses: list[ActorAddress], number: int, kind: Exchange) -> None:
    """One message to each."""
    for address in addresses:
        if kind == "call":
            expect(system.ask(address, number, PATIENCE), number)
        else:
            system.tell(address, Tell())
