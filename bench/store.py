"""Requests kept on disk: accepted one after the other, and by many callers at once.

    python -m bench.store [--requests 300] [--callers 50] [--rounds 5]

Each is accepted once it is synchronised to the disk. The limit is a bare SQLite connection that commits each request with the
same settings, in the loop's own thread; many callers share a commit with ours, which the limit does not do. Wall time is
compared: most of it is the disk's. The second table is the time until the receipt.
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import trio

from bench.contest import Contender, Result, Stopwatch, Work, hold, options, table
from proctor.actors.store.records import StoredRequest
from proctor.actors.store.sqlite import Store

REQUESTS = 300
CALLERS = 50


def _request(number: str) -> StoredRequest:
    return StoredRequest(id=number, agent="a", key=number, digest="d", prompt="Review it.", accepted=0.0)


async def bare(requests: int) -> Stopwatch:
    """A transaction each."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        database = sqlite3.connect(Path(folder) / "x.db", isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE requests (id TEXT PRIMARY KEY, prompt TEXT)")
        with Stopwatch() as watch:
            for number in range(requests):
                database.execute("INSERT INTO requests VALUES (?, ?)", (str(number), "Review it."))
        database.close()
    await trio.lowlevel.checkpoint()
    return watch


async def kept(callers: int, requests: int, receipts: list[float] | None = None) -> Stopwatch:
    """By ours, from so many callers at once."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        store = Store(Path(folder) / "x.db")
        await store.open()

        async def call(caller: int) -> None:
            for number in range(max(1, requests // callers)):
                begun = time.perf_counter()
                await store.accept(_request(f"{caller}-{number}"))
                if receipts is not None:
                    receipts.append(time.perf_counter() - begun)

        with Stopwatch() as watch:
            async with trio.open_nursery() as nursery:
                for caller in range(min(callers, requests)):
                    nursery.start_soon(call, caller)
        await store.close()
    return watch


def works(requests: int, callers: int) -> list[Work]:
    """One caller, and many."""

    def work(name: str, at_once: int) -> Work:
        contenders = (
            Contender("limit", "sqlite3, a commit each", lambda size: trio.run(bare, size)),
            Contender("ours", "Store.accept", lambda size: trio.run(partial(kept, at_once), size)),
        )
        return Work(name, requests, "sqlite3, a commit each", contenders, by="wall")

    return [work("accepted by one", 1), work(f"accepted by {callers}", callers)]


def results(requests: int, callers: int, rounds: int) -> list[Result]:
    """Of both."""
    return [row for work in works(requests, callers) for row in hold(work, rounds)]


def receipts(requests: int, callers: int) -> str:
    """A table of the milliseconds until a request is accepted."""
    lines = ["| callers | ms, median | ms, 99 % |", "|---|---|---|"]
    for at_once in (1, callers):
        taken = list[float]()
        trio.run(kept, at_once, requests, taken)
        taken.sort()
        late = taken[min(len(taken) - 1, len(taken) * 99 // 100)]
        lines.append(f"| {at_once} | {statistics.median(taken) * 1000:.1f} | {late * 1000:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    chosen = options("Requests kept on disk", requests=REQUESTS, callers=CALLERS)
    print(
        table([row for work in works(chosen.requests, chosen.callers) for row in hold(work, chosen.rounds)])
    )
    print()
    print(receipts(chosen.requests, chosen.callers))


if __name__ == "__main__":
    main()
