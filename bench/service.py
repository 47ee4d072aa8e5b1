"""A FastAPI service whose agents are killed at random, under steady requests: does each get an end, and is the loop held?

    python -m bench.service [--rate 50] [--seconds 20] [--kills 40] [--rounds 1]

The service is that of docs/tutorials/fastapi-service.md: three scripted agents under one supervisor. Requests come `rate` a second, whatever
has ended of those before; `kills` agents are killed over the time, by chance. A task of the loop sleeps for 2 ms again and again: what it
wakes too late is how long something held the loop, or a core. The last row is the same loop with the same requests to a path that asks no
agent: what the machine, FastAPI and the client do to it by themselves.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import time
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from random import Random
from typing import Any

import attrs

from bench.contest import options
from proctor import aio

RATE, SECONDS, KILLS = 50, 20, 40
STEP = 0.002
PATIENCE = 60.0
"""Seconds after the last request until one without an end counts as lost."""
NAMES = ("writer", "reviewer", "translator")


@attrs.define
class Found:
    """What a run has shown: replies by status, seconds until each, and how late the loop was, in seconds."""

    replies: Counter[int] = attrs.field(factory=Counter[int])
    seconds: list[float] = attrs.field(factory=list[float])
    lateness: list[float] = attrs.field(factory=list[float])
    lost: int = 0


async def watch(found: Found) -> None:
    """Note how late the loop is."""
    while True:
        due = time.perf_counter() + STEP
        await asyncio.sleep(STEP)
        found.lateness.append(max(0.0, time.perf_counter() - due))


async def kill(sup: aio.Supervisor, kills: int, seconds: float, chance: Random) -> None:
    """Kill agents by chance, over so many seconds."""
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0, 2 * seconds / kills))
        await sup.child(chance.choice(NAMES)).kill()


async def request(client: Any, path: str, found: Found) -> None:
    begun = time.perf_counter()
    reply = await client.post(path)
    found.replies[reply.status_code] += 1
    found.seconds.append(time.perf_counter() - begun)


async def measure(rate: int, seconds: float, kills: int, seed: int = 1, path: str = "") -> Found:
    """Run the service. With a `path` all requests go there, and no agent is killed."""
    import httpx

    app: Any = importlib.import_module("examples.fastapi_service").app
    found, chance = Found(), Random(seed)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://service", timeout=None)
    async with app.router.lifespan_context(app), client, asyncio.TaskGroup() as group:
        gc.collect()
        gc.freeze()  # what FastAPI and pydantic have made: a look through it takes 200 ms, in whatever thread it begins
        beside = [group.create_task(watch(found))]
        if not path:
            beside.append(group.create_task(kill(app.state.sup, kills, seconds, chance)))
        asked = set[asyncio.Task[None]]()
        for number in range(int(rate * seconds)):
            one = path or f"/agents/{chance.choice(NAMES)}/ask?prompt={number}"
            asked.add(group.create_task(request(client, one, found)))
            await asyncio.sleep(1 / rate)
        _, late = await asyncio.wait(asked, timeout=PATIENCE)
        found.lost = len(late)
        for task in (*late, *beside):
            task.cancel()
    return found


def rows(rate: int, seconds: float, kills: int) -> dict[str, Found]:
    """The service with its agents killed, and the loop without them; nothing where FastAPI is not installed."""
    if find_spec("fastapi") is None:
        return {}
    return {
        f"{kills} agents killed": asyncio.run(measure(rate, seconds, kills)),
        "no agent asked": asyncio.run(measure(rate, seconds, 0, path="/none")),
    }


def table(found: Mapping[str, Found]) -> str:
    """One row for each."""
    if not found:
        return "FastAPI: not installed"
    heads = "requests|replies|without an end|ms, median|99 %|loop late, ms: 99 %|99.9 %|most"
    lines = [f"| | {heads.replace('|', ' | ')} |", "|---|--:|---|--:|--:|--:|--:|--:|--:|"]
    for name, one in found.items():
        replies = ", ".join(f"{status}: {count}" for status, count in sorted(one.replies.items()))
        times = [f"{_at(one.seconds, share):.1f}" for share in (0.5, 0.99)]
        times += [f"{_at(one.lateness, share):.1f}" for share in (0.99, 0.999, 1.0)]
        total = sum(one.replies.values()) + one.lost
        lines.append(f"| {name} | {total} | {replies} | {one.lost} | {' | '.join(times)} |")
    return "\n".join(lines)


def _at(values: list[float], share: float) -> float:
    """Milliseconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


def main() -> None:
    """Print the table."""
    chosen = options("A service whose agents are killed", rate=RATE, seconds=SECONDS, kills=KILLS)
    print(table(rows(chosen.rate, chosen.seconds, chosen.kills)))


if __name__ == "__main__":
    main()
