"""From the kill of a program to the first line of its replacement: one, and many at once until all are back.

    python -m bench.restart [--kills 64] [--at-once 500] [--rounds 5]

The program writes its number on a line and sleeps. The reference is the least that starts it again: a Trio task for
each that waits for its end and opens it anew, without limit, log, or anyone who could stop it in order. Ours are
children of one supervisor. Wall time is compared; an item is one replacement.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from bench.contest import Contender, Result, Stopwatch, Work, hold, in_asyncio, in_trio, options, table
from bench.peers import entries
from proctor.runtime import open_supervisor
from proctor.runtime.processes import Command, open_process
from proctor.runtime.supervision import process

KILLS = 64
AT_ONCE = 500
ROUNDS = 5
ENV = {"PATH": os.defpath}
ARGV = ("sh", "-c", "echo $$; exec sleep 1000")

STOCK = "Trio loop"


class Roster:
    """Who has said a line since the last kill; `full` is called when all have."""

    def __init__(self, count: int, full: Callable[[], object]) -> None:
        self._count = count
        self._full = full
        self._pids: list[int] = []

    def hear(self, line: bytes | bytearray) -> None:
        """One is up."""
        if line:
            self._pids.append(int(line))
            if len(self._pids) == self._count:
                self._full()

    def kill(self) -> None:
        """End all, and begin to count anew."""
        pids, self._pids = self._pids, []
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


class Killer:
    """Kills all again and again in Trio, and times how long they take to be back."""

    def __init__(self, at_once: int) -> None:
        self.roster = Roster(at_once, self._all_up)
        self._up = trio.Event()

    def _all_up(self) -> None:
        self._up.set()

    async def kill(self, times: int) -> Stopwatch:
        """`times` kills of all."""
        await self._up.wait()
        with Stopwatch() as watch:
            for _ in range(times):
                self._up = trio.Event()
                self.roster.kill()
                await self._up.wait()
        return watch


async def kill_while(
    keep: Callable[[], Awaitable[None]], killer: Killer, at_once: int, kills: int
) -> Stopwatch:
    """The kills, with `at_once` loops that each keep one alive."""
    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(keep)
        watch = await killer.kill(kills // at_once)
        nursery.cancel_scope.cancel()
    return watch


async def stock_loop(at_once: int, kills: int) -> Stopwatch:
    """Trio's own processes, started again by a loop each."""
    killer = Killer(at_once)

    async def keep() -> None:
        while True:
            running = await trio.lowlevel.open_process(
                ARGV, env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert running.stdout is not None
            try:
                killer.roster.hear(await running.stdout.receive_some())
                await running.wait()
            finally:
                running.kill()
                await running.stdout.aclose()

    return await kill_while(keep, killer, at_once, kills)


async def bare_loop(at_once: int, kills: int) -> Stopwatch:
    """The same loop over ours."""
    killer = Killer(at_once)
    command = Command(ARGV, ENV, stdin="null", stderr="null")

    async def keep() -> None:
        while True:
            async with open_process(command, ladder=()) as running:
                killer.roster.hear(await running.receive())
                await running.wait()

    return await kill_while(keep, killer, at_once, kills)


async def supervised(at_once: int, kills: int) -> Stopwatch:
    """Children of one supervisor."""
    killer = Killer(at_once)
    specs = [
        process(
            ARGV,
            id=f"p{number}",
            env=ENV,
            stderr="null",
            on_output=killer.roster.hear,
            shutdown="brutal_kill",
        )
        for number in range(at_once)
    ]
    async with open_supervisor(specs, intensity=kills + at_once, period=1e6):
        return await killer.kill(kills // at_once)


async def asyncio_loop(at_once: int, kills: int) -> Stopwatch:
    """The loop in asyncio."""
    up = asyncio.Event()
    roster = Roster(at_once, up.set)
    over = False

    async def keep() -> None:
        while not over:
            running = await asyncio.create_subprocess_exec(
                *ARGV, env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert running.stdout is not None
            roster.hear(await running.stdout.readline())
            await running.wait()

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(keep())
        await up.wait()
        with Stopwatch() as watch:
            for _ in range(kills // at_once):
                up.clear()
                roster.kill()
                await up.wait()
        over = True
        roster.kill()
    return watch


def restarts(at_once: int, kills: int) -> Work:
    """`kills` replacements, `at_once` at a time."""
    contenders = (
        Contender("peer", STOCK, in_trio(partial(stock_loop, at_once))),
        Contender("ours", "open_process in a loop", in_trio(partial(bare_loop, at_once))),
        Contender("ours", "process, supervised", in_trio(partial(supervised, at_once))),
        Contender("peer", "asyncio loop", in_asyncio(partial(asyncio_loop, at_once))),
        *entries.keepers(at_once),
    )
    return Work(f"restart, {at_once}", kills, STOCK, contenders, by="wall")


def results(kills: int, at_once: int, rounds: int) -> list[Result]:
    """One at a time, then all at once, each once."""
    works = (restarts(1, kills), restarts(at_once, at_once))
    return [result for work in works for result in hold(work, rounds)]


def main() -> None:
    """Print the table."""
    chosen = options("From a kill to the first line of the replacement", kills=KILLS, at_once=AT_ONCE)
    print(table(results(chosen.kills, chosen.at_once, chosen.rounds)))


if __name__ == "__main__":
    main()
