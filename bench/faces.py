"""What it costs to reach Trio from an asyncio program and from plain code.

    python -m bench.faces [--calls 3000] [--events 200000] [--rounds 7]

A call is `Ref.call` of an actor that answers at once. Events come from the log of an agent that another task writes in batches of
100; each is handed out one by one. The medians of the rounds, wall time; the ways take turns. Beside ours: `trio.from_thread.run` from a
thread of Trio's own, which has no cancellation, and anyio's blocking portal, which runs asyncio.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import trio

import proctor
from bench.contest import options
from proctor import aio, sync
from proctor.actors.recording.eventlog import Cursor, EventLog
from proctor.bridge import TrioThread, asyncio_face, sync_face
from proctor.protocols.vocabulary import TextDelta
from proctor.runtime import Actor, ChildSpec, Ref

CALLS = 3_000
EVENTS = 200_000
AT_ONCE = 64
BATCH = 100


class Echo(Actor):
    async def handle_call(self, msg: object, from_: object) -> object:
        return msg


ECHO = ChildSpec("echo", Echo)


async def shared(call: Callable[[int], Awaitable[object]], calls: int) -> None:
    for number in range(calls):
        await call(number)


async def in_trio(ref: Ref, calls: int, at_once: int) -> float:
    """Seconds that calls take where Trio runs."""
    begun = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(shared, ref.call, calls // at_once)
    return time.perf_counter() - begun


async def in_asyncio(ref: Ref, thread: TrioThread, calls: int, at_once: int) -> float:
    """Seconds that calls take from an asyncio loop."""
    proxy = aio.Ref.around(ref, thread)
    begun = time.perf_counter()
    await asyncio.gather(*(shared(proxy.call, calls // at_once) for _ in range(at_once)))
    return time.perf_counter() - begun


def in_plain(ref: Ref, thread: TrioThread, calls: int) -> float:
    """Seconds that calls take from a plain thread."""
    proxy = sync.Ref.around(ref, thread)
    begun = time.perf_counter()
    for number in range(calls):
        proxy.call(number)
    return time.perf_counter() - begun


async def by_from_thread(ref: Ref, calls: int) -> float:
    def work() -> float:
        begun = time.perf_counter()
        for number in range(calls):
            trio.from_thread.run(ref.call, number)
        return time.perf_counter() - begun

    return await trio.to_thread.run_sync(work)


def by_portal(calls: int) -> float:
    try:
        from anyio.from_thread import start_blocking_portal
    except ImportError:
        return float("nan")

    async def echo(number: int) -> int:
        await asyncio.sleep(0)
        return number

    with start_blocking_portal() as portal:
        begun = time.perf_counter()
        for number in range(calls):
            portal.call(echo, number)
        return time.perf_counter() - begun


def runner() -> Callable[[Any], Any]:
    """`uvloop.run`, or asyncio's where there is none."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def call_ways(thread: TrioThread, ref: Ref) -> Mapping[str, Callable[[int], float]]:
    """Each way → seconds for so many calls."""
    on_trio = partial(sync_face.call, thread)
    return {
        "Trio": lambda calls: on_trio(in_trio, ref, calls, 1),
        "proctor.sync": lambda calls: in_plain(ref, thread, calls),
        "proctor.aio": lambda calls: asyncio.run(in_asyncio(ref, thread, calls, 1)),
        "proctor.aio, uvloop": lambda calls: float(runner()(in_asyncio(ref, thread, calls, 1))),
        "trio.from_thread.run": lambda calls: on_trio(by_from_thread, ref, calls),
        "anyio's blocking portal": by_portal,
        f"Trio, {AT_ONCE} at once": lambda calls: on_trio(in_trio, ref, calls, AT_ONCE),
        f"proctor.aio, {AT_ONCE} at once": lambda calls: asyncio.run(in_asyncio(ref, thread, calls, AT_ONCE)),
    }


async def write(log: EventLog, events: int) -> None:
    """Write so many events, in batches, as a process that streams."""
    for start in range(0, events, BATCH):
        log.append([TextDelta(number, "t", "some text") for number in range(start, start + BATCH)])
        await trio.lowlevel.checkpoint()
    log.close()


async def read_in_trio(cursor: Cursor) -> int:
    return len([event async for event in cursor])


async def read_in_asyncio(cursor: Cursor, thread: TrioThread) -> int:
    return len([event async for event in asyncio_face.Stream[Any].around(cursor, thread)])


def read_in_plain(cursor: Cursor, thread: TrioThread) -> int:
    return len([*sync_face.Stream[Any].around(cursor, thread)])


async def _log() -> EventLog:
    return EventLog()


def streamed(thread: TrioThread, events: int, read: Callable[[Cursor], int]) -> float:
    """Seconds until a reader has all events that a task of Trio writes."""
    log: EventLog = sync_face.call(thread, _log)
    cursor = log.cursor(0)
    begun = time.perf_counter()
    thread.submit(lambda _: None, partial(write, log, events))
    found = read(cursor)
    took = time.perf_counter() - begun
    sync_face.call_plain(thread, log.release)
    assert found == events, f"{found} of {events} events"
    return took


def stream_ways(thread: TrioThread) -> Mapping[str, Callable[[int], float]]:
    """Each way → seconds for so many events."""

    def ways(read: Callable[[Cursor], int]) -> Callable[[int], float]:
        return lambda events: streamed(thread, events, read)

    return {
        "Trio": ways(lambda cursor: sync_face.call(thread, read_in_trio, cursor)),
        "proctor.sync": ways(lambda cursor: read_in_plain(cursor, thread)),
        "proctor.aio": ways(lambda cursor: asyncio.run(read_in_asyncio(cursor, thread))),
    }


def medians(ways: Mapping[str, Callable[[int], float]], size: int, rounds: int) -> dict[str, float]:
    """Seconds for one item by each way, which take turns."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way(min(size, 200))
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(way(size) / size)
    return {name: statistics.median(each) for name, each in found.items()}


def rows(calls: int, events: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds a call, and seconds an event, by each way."""
    with TrioThread() as thread, sync.open_supervisor([ECHO]) as sup:
        [(_, ref, *_)] = sup.which_children()
        assert isinstance(ref, proctor.Ref)
        return medians(call_ways(thread, ref), calls, rounds), medians(stream_ways(thread), events, rounds)


def table(found: tuple[dict[str, float], dict[str, float]]) -> str:
    """Two tables: µs a call, and events a second."""
    calls, events = found
    lines = ["| a call by | µs | more than in Trio |", "|---|--:|--:|"]
    for name, seconds in calls.items():
        base = calls[f"Trio, {AT_ONCE} at once" if "at once" in name else "Trio"]
        lines.append(f"| {name} | {seconds * 1e6:.0f} | {(seconds - base) * 1e6:.0f} |")
    lines += ["", "| events read by | a second |", "|---|--:|"]
    lines += [f"| {name} | {1 / seconds:,.0f} |" for name, seconds in events.items()]
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    chosen = options("Trio from other programs", calls=CALLS, events=EVENTS)
    print(table(rows(chosen.calls, chosen.events, chosen.rounds)))


if __name__ == "__main__":
    main()
