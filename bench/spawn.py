"""Programs started and reaped: one after the other, and many at once.

    python -m bench.spawn [--programs 256] [--guarded 16] [--at-once 64] [--rounds 7]

The program is the smallest there is, without a pipe, in a session of its own where the contender offers that. The limit
is `posix_spawn` and a wait for it, with nothing else in the process. "open_process" is ours by itself, "process" the
same as a child of a supervisor that starts it again and again; "guarded" has its guard above it, forked by
the fork server of a host that runs already, and is a work of its own. Wall time is compared: most of it is the system's, in the children.

Starting a program in the loop's own thread keeps the loop from anything else meanwhile. The second table is the longest
that a task that wakes every millisecond was late.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from bench.contest import Body, Contender, Result, Stopwatch, Work, hold, in_asyncio, in_trio, options, table
from bench.peers import entries
from proctor.runtime import MaxRestartsExceeded, open_supervisor
from proctor.runtime.processes import Command, open_ledger, open_process
from proctor.runtime.supervision import process

PROGRAMS = 256
GUARDED = 16
AT_ONCE = 64

TRUE = shutil.which("true") or "/bin/true"
ENV = {"PATH": os.defpath}
COMMAND = Command((TRUE,), ENV, stdin="null", stdout="null", stderr="null")
PULSE = 0.001

LIMIT = "posix_spawn + wait"
OURS = "open_process"
SUPERVISED = "process, supervised"
STOCK = "trio.lowlevel.open_process"

Run = Callable[[], Awaitable[object]]


def in_bulk(start: Callable[[], Callable[[], object]], at_once: int, programs: int) -> Stopwatch:
    """Start `at_once`, end them all, and again; without a loop."""
    with Stopwatch() as watch:
        for _ in range(programs // at_once):
            for end in [start() for _ in range(at_once)]:
                end()
    return watch


def spawned() -> Callable[[], object]:
    """By the system's own call."""
    return partial(os.waitpid, os.posix_spawn(TRUE, ["true"], ENV), 0)


def popened() -> Callable[[], object]:
    """By `subprocess`."""
    null = subprocess.DEVNULL
    return subprocess.Popen(
        (TRUE,), env=ENV, stdin=null, stdout=null, stderr=null, start_new_session=True
    ).wait


async def owned(guard: bool = False) -> None:
    """By ours."""
    async with open_process(COMMAND, guard=guard) as running:
        await running.wait()


async def stock() -> None:
    """By Trio's, which starts it in a thread."""
    null = subprocess.DEVNULL
    running = await trio.lowlevel.open_process(
        [TRUE], env=ENV, stdin=null, stdout=null, stderr=null, start_new_session=True
    )
    await running.wait()


async def on_asyncio() -> None:
    """By asyncio's, with the child watcher it comes with."""
    null = subprocess.DEVNULL
    running = await asyncio.create_subprocess_exec(
        TRUE, env=ENV, stdin=null, stdout=null, stderr=null, start_new_session=True
    )
    await running.wait()


async def trio_tasks(run: Run, at_once: int, programs: int) -> Stopwatch:
    """`programs` runs by `at_once` tasks."""

    async def several() -> None:
        for _ in range(programs // at_once):
            await run()

    with Stopwatch() as watch:
        async with trio.open_nursery() as nursery:
            for _ in range(at_once):
                nursery.start_soon(several)
    return watch


async def asyncio_tasks(run: Run, at_once: int, programs: int) -> Stopwatch:
    """The same in asyncio."""

    async def several() -> None:
        for _ in range(programs // at_once):
            await run()

    with Stopwatch() as watch:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(several())
    return watch


async def supervised(at_once: int, programs: int) -> Stopwatch:
    """`at_once` children of one supervisor, started again until there were `programs` starts."""
    specs = [process((TRUE,), id=f"p{number}", env=ENV, stderr="null") for number in range(at_once)]
    watch = Stopwatch()
    watch.start()
    try:
        async with open_supervisor(specs, intensity=max(0, programs - at_once), period=1e6):
            await trio.sleep_forever()
    except MaxRestartsExceeded:
        watch.stop()
    return watch


async def guarded_one_by_one(programs: int) -> Stopwatch:
    """`programs` runs below guards, in a host that has started two before: its fork server is there."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        async with open_ledger(Path(folder)):
            await trio_tasks(partial(owned, True), 1, 2)
            return await trio_tasks(partial(owned, True), 1, programs)


async def longest_delay(body: Body, programs: int) -> float:
    """How much too late, in milliseconds, a task in the same loop woke at the worst."""
    worst = 0.0

    async def pulse() -> None:
        nonlocal worst
        while True:
            due = time.perf_counter() + PULSE
            await trio.sleep(PULSE)
            worst = max(worst, time.perf_counter() - due)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pulse)
        await body(programs)
        nursery.cancel_scope.cancel()
    return worst * 1000


def starts(at_once: int, programs: int) -> Work:
    """Programs without a guard."""
    contenders = (
        Contender("limit", LIMIT, partial(in_bulk, spawned, at_once)),
        Contender("ours", OURS, in_trio(partial(trio_tasks, owned, at_once))),
        Contender("ours", SUPERVISED, in_trio(partial(supervised, at_once))),
        Contender("peer", "subprocess.Popen", partial(in_bulk, popened, at_once)),
        Contender("peer", STOCK, in_trio(partial(trio_tasks, stock, at_once))),
        Contender("peer", "asyncio", in_asyncio(partial(asyncio_tasks, on_asyncio, at_once))),
        *entries.spawners(at_once),
    )
    return Work(f"start, {at_once}", whole(programs, at_once), LIMIT, contenders, by="wall")


def guarded_starts(programs: int) -> Work:
    """What the guard costs."""
    contenders = (
        Contender("ours", OURS, in_trio(partial(trio_tasks, owned, 1))),
        Contender("ours", "open_process, guarded", in_trio(guarded_one_by_one)),
    )
    return Work("guarded start, 1", programs, OURS, contenders, by="wall")


def whole(programs: int, at_once: int) -> int:
    """`programs`, rounded so that each of `at_once` has as many."""
    return max(1, programs // at_once) * at_once


def results(programs: int, guarded: int, at_once: int, rounds: int) -> list[Result]:
    """All works, one after the other."""
    works = [*(starts(count, programs) for count in (1, at_once)), guarded_starts(guarded)]
    return [result for work in works for result in hold(work, rounds)]


def delays(programs: int, at_once: int, rounds: int) -> str:
    """Markdown: the medians over the rounds of the longest delay of the loop."""
    bodies: dict[str, Body] = {
        OURS: partial(trio_tasks, owned, at_once),
        SUPERVISED: partial(supervised, at_once),
        STOCK: partial(trio_tasks, stock, at_once),
    }
    size = whole(programs, at_once)
    lines = [f"| longest delay of the loop, {at_once} at once | ms |", "| --- | ---: |"]
    for name, body in bodies.items():
        worst = statistics.median(trio.run(longest_delay, body, size) for _ in range(rounds))
        lines.append(f"| {name} | {worst:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    chosen = options("Programs started and reaped", programs=PROGRAMS, guarded=GUARDED, at_once=AT_ONCE)
    print(table(results(chosen.programs, chosen.guarded, chosen.at_once, chosen.rounds)))
    print()
    print(delays(chosen.programs, chosen.at_once, chosen.rounds))


if __name__ == "__main__":
    main()
