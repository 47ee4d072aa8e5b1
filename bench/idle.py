"""What an actor costs that has nothing to do: memory, and the time to start one and to stop one.

    python -m bench.idle [--actors 1000] [--rounds 3]

Ours stand under one supervisor, each with a name; "used" has handled a call. The bare Trio tasks beside them sleep in
one nursery. Each is measured in processes of its own: once for what Python holds per actor, by `tracemalloc`; once for
resident memory, which counts what the allocator keeps too; and for CPU time without either.
"""

from __future__ import annotations

import argparse
import gc
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median

import trio
import trio.testing

from bench.contest import MILLION, ROUNDS, Stopwatch
from bench.peers import entries
from proctor.runtime import Actor, Call, ChildSpec, open_supervisor

ACTORS = 1000
PAGE = resource.getpagesize()
RESIDENT = Path("/proc/self/statm")

Many = Callable[[int], AbstractAsyncContextManager[None]]
"""So many idle ones for the length of an `async with`."""


class Idle(Actor):
    """Answers, when asked."""

    async def handle_call(self, msg: object, from_: Call) -> object:
        return msg


@asynccontextmanager
async def actors(used: bool, count: int) -> AsyncGenerator[None, None]:
    """`count` of ours, each of which was asked once or not at all."""
    names = [f"actor{number}" for number in range(count)]
    async with open_supervisor([ChildSpec(name, Idle, name=name) for name in names]) as tree:
        for name in names if used else ():
            await tree.name(name).call(1)
        yield


@asynccontextmanager
async def tasks(count: int) -> AsyncGenerator[None, None]:
    """`count` tasks that sleep."""
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(trio.sleep_forever)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


KINDS: Mapping[str, Many] = {
    "an actor, idle": partial(actors, False),
    "an actor, used": partial(actors, True),
    "a Trio task": tasks,
    **entries.crowds(),
}


async def traced(many: Many, count: int) -> tuple[float, ...]:
    """Bytes that Python holds for each."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    async with many(count):
        gc.collect()
        return ((tracemalloc.get_traced_memory()[0] - before) / count,)


async def resident(many: Many, count: int) -> tuple[float, ...]:
    """Bytes of the machine for each; NaN where it does not tell."""
    before = _resident()
    async with many(count):
        gc.collect()
        return ((_resident() - before) / count,)


def _resident() -> float:
    return int(RESIDENT.read_text().split()[1]) * PAGE if RESIDENT.exists() else float("nan")


async def timed(many: Many, count: int) -> tuple[float, ...]:
    """CPU microseconds to start and to stop each."""
    start, stop = Stopwatch(), Stopwatch()
    start.start()
    async with many(count):
        start.stop()
        stop.start()
    stop.stop()
    return start.cpu / count * MILLION, stop.cpu / count * MILLION


Measure = Callable[[Many, int], Awaitable[tuple[float, ...]]]

MEASURES: tuple[Measure, ...] = (traced, resident, timed)


def alone(kind: str, measure: int, count: int) -> list[float]:
    """One measure of one kind, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "bench.idle",
        f"--alone={kind}",
        f"--measure={measure}",
        f"--actors={count}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(figure) for figure in done.stdout.split()]


def row(kind: str, count: int, rounds: int) -> list[float]:
    """The medians of all that is measured of one kind."""
    return medians(
        [[f for number in range(len(MEASURES)) for f in alone(kind, number, count)] for _ in range(rounds)]
    )


def medians(runs: Iterable[list[float]]) -> list[float]:
    """Of each figure over the runs."""
    return [median(figures) for figures in zip(*runs, strict=True)]


def reported(count: int, rounds: int) -> dict[str, list[float]]:
    """The medians of what other programs measure themselves; nothing of one that is not there."""
    runs = [entries.reports(count) for _ in range(rounds)]
    return {kind: medians(run[kind] for run in runs) for kind in runs[0]}


def rows(count: int, rounds: int) -> dict[str, list[float]]:
    """The figures of every kind, in the order of the headings; none of one that is not there."""
    return {kind: row(kind, count, rounds) for kind in KINDS} | reported(count, rounds)


HEADINGS = ("of each", "bytes, traced", "bytes, resident", "start, CPU µs", "stop, CPU µs")


def table(rows: Mapping[str, list[float]]) -> str:
    """Markdown, one row per kind."""
    cells = [HEADINGS, ("---", *["--:"] * 4)]
    for kind, figures in rows.items():
        cells.append((kind, *([f"{figure:,.0f}" for figure in figures] or (entries.MISSING, "", "", ""))))
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def main() -> None:
    """Print the table; with `--alone`, the figures of one measure."""
    parser = argparse.ArgumentParser(description="What an idle actor costs")
    parser.add_argument("--actors", type=int, default=ACTORS, help=f"default {ACTORS}", metavar="N")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}", metavar="N")
    parser.add_argument("--alone", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--measure", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone is not None:
        measure, many = MEASURES[int(chosen.measure)], KINDS[str(chosen.alone)]
        figures = trio.run(measure, many, int(chosen.actors))
        print(*figures)
    else:
        print(table(rows(chosen.actors, chosen.rounds)))


if __name__ == "__main__":
    main()
