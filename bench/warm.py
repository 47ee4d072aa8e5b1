"""From a prompt to its first event: a run that starts its process, and one that finds one kept ready.

    python -m bench.warm [--starts 15]

Both go through a pool; the process kept ready has been greeted before the watch starts. The agent is the scripted one, so
what is saved is the start of an interpreter and our own; of a real command line it is its own start, see `bench.overhead`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import trio

from bench.contest import options
from proctor.actors.plan.plan import Plan, scripted_plan
from proctor.actors.serving.pool import Pool, Warm
from proctor.protocols.vocabulary import Text

STARTS = 15


async def first_word(pool: Pool, plan: Plan) -> float:
    """Milliseconds from the prompt to what the agent says."""
    began = time.perf_counter()
    async with pool.stream(plan, "Well?") as live:
        async for event in live:
            if isinstance(event, Text):
                return (time.perf_counter() - began) * 1000
    raise RuntimeError(f"it said nothing: {live.answer}")


async def kept_ready(pool: Pool) -> None:
    """Wait until there is one."""
    while not pool.statistics().warm:  # noqa: ASYNC110  # nothing is measured meanwhile
        await trio.sleep(0.01)


async def measured(plan: Plan, starts: int) -> Mapping[str, Sequence[float]]:
    """The times of so many runs each, taking turns."""
    times: dict[str, list[float]] = {"cold": [], "warm": []}
    cold, warm = Pool("cold", limit=2), Pool("warm", limit=2, warm=[Warm(plan)])
    async with trio.open_nursery() as nursery:
        await nursery.start(warm.serve)
        for _ in range(starts):
            await kept_ready(warm)
            times["warm"].append(await first_word(warm, plan))
            await kept_ready(warm)  # or its start would be measured with the next one
            times["cold"].append(await first_word(cold, plan))
        nursery.cancel_scope.cancel()
    return times


def rows(starts: int) -> Mapping[str, Sequence[float]]:
    """Milliseconds to the first word."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        script = Path(folder, "script.ndjson")
        script.write_text('{"reply": "Well."}\n')
        return trio.run(measured, scripted_plan("scripted", script, {"cwd": folder}), starts)


def table(times: Mapping[str, Sequence[float]]) -> str:
    """Markdown."""
    lines = ["| run | first word, ms | lowest | highest |", "| --- | ---: | ---: | ---: |"]
    for name, taken in times.items():
        lines.append(f"| {name} | {median(taken):.1f} | {min(taken):.1f} | {max(taken):.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    print(table(rows(options("A process kept ready", starts=STARTS).starts)))


if __name__ == "__main__":
    main()
