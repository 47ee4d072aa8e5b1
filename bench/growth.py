"""What one more costs where there are many: actors, agents, lines of a ledger, dead hosts, kept runs.

    python -m bench.growth [--agents 100] [--actors 10000] [--lines 10000] [--hosts 1000] [--runs 20000] [--rounds 3]

Each is measured at a hundredth, a tenth and all of the number given: CPU microseconds of this process for each of them, the median of
the rounds. A row that stays level is linear; what is done once costs each of a few more. Agents are scripted, each an
interpreter, whose own CPU time is not counted. "first look" measures the kept runs, "later look" knows their sizes.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import trio

from bench.contest import MILLION, Stopwatch, options
from bench.idle import Idle
from proctor.actors.recording.recording import RUN_TAG
from proctor.actors.recording.retention import prune
from proctor.actors.specs import open_supervisor as open_agents
from proctor.actors.specs import scripted
from proctor.runtime import ChildSpec, open_supervisor
from proctor.runtime.processes import open_ledger, tag_folder
from proctor.runtime.processes.procfs import pid_namespace

SIZES = {"agents": 100, "actors": 10_000, "lines": 10_000, "hosts": 1_000, "runs": 20_000}
PARTS = (100, 10, 1)
"""What each number is divided by."""

Costs = Mapping[str, float]
"""CPU seconds of each work, for all of them together."""


def timed(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    with Stopwatch() as watch:
        work()
    return watch.cpu


async def actors(folder: Path, count: int) -> Costs:
    """Idle actors under one supervisor."""
    specs = [ChildSpec(f"actor{number}", Idle) for number in range(count)]
    start, stop = Stopwatch(), Stopwatch()
    start.start()
    async with open_supervisor(specs) as sup:
        start.stop()
        tree = timed(sup.tree)
        stop.start()
    stop.stop()
    return {"start": start.cpu, "tree()": tree, "stop": stop.cpu}


async def agents(folder: Path, count: int) -> Costs:
    """Scripted agents under one supervisor, ready."""
    script = folder / "script.ndjson"
    script.write_text('{"reply": "Well."}\n')
    specs = [scripted(f"agent{number}", script, cwd=folder) for number in range(count)]
    start, stop, status = Stopwatch(), Stopwatch(), Stopwatch()
    start.start()
    async with open_agents(specs) as sup:
        start.stop()
        tree = timed(sup.tree)
        with status:
            for spec in specs:
                await sup.agent(spec.id).status()
        stop.start()
    stop.stop()
    return {"start": start.cpu, "tree()": tree, "status()": status.cpu, "stop": stop.cpu}


async def lines(folder: Path, count: int) -> Costs:
    """Births that are noted in a ledger, of a process that lives."""
    async with open_ledger(folder / "hosts") as ledger:

        def note() -> None:
            for number in range(count):
                ledger.note(os.getpid(), f"{ledger.key}/{number}/bench")

        return {"note": timed(note)}


async def hosts(folder: Path, count: int) -> Costs:
    """Ledgers of dead hosts, one line each, that a sweep settles."""
    place, dead = pid_namespace(), folder / "hosts"
    async with open_ledger(dead) as ledger:
        for _ in range(count):
            key = secrets.token_hex(16)
            title = f"proctor-ledger 1 {key} {place.machine} {place.boot} {place.namespace}\n"
            (dead / f"{key}.ledger").write_text(f"{title}1 1 {key}/1/gone\n")
        with Stopwatch() as sweep:
            swept = await ledger.sweep()
    assert swept.hosts == count
    return {"sweep": sweep.cpu}


async def runs(folder: Path, count: int) -> Costs:
    """Kept runs that nothing removes yet, and that all go at last."""
    for number in range(count):
        run = folder / f"20260101-000000-bench-{number:08d}"
        run.mkdir()
        tag_folder(run, RUN_TAG, run.name)
        (run / "lock").touch()
        (run / "events.ndjson").touch()
    first, later = (timed(lambda: prune(folder)) for _ in range(2))
    removal = timed(lambda: prune(folder, keep_bytes=0))
    assert [name for name in os.listdir(folder) if not name.startswith(".")] == []
    return {"first look": first, "later look": later, "removal": removal}


WORKS = {work.__name__: work for work in (agents, actors, lines, hosts, runs)}


def rows(sizes: Mapping[str, int], rounds: int) -> Mapping[str, Sequence[tuple[int, float]]]:
    """For each work the sizes and the microseconds for each at them."""
    found: dict[str, list[tuple[int, float]]] = {}
    for name in WORKS:
        for part in PARTS:
            count = max(1, sizes[name] // part)
            costs = [_once(name, count) for _ in range(rounds)]
            for what in costs[0]:
                each = median(cost[what] for cost in costs) / count * MILLION
                found.setdefault(f"{name}: {what}", []).append((count, each))
    return found


def _once(name: str, count: int) -> Costs:
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        return trio.run(WORKS[name], Path(folder), count)


def table(rows: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Markdown."""
    lines = ["| CPU µs for each | few | µs | more | µs | all | µs |", f"| --- |{' ---: |' * 2 * len(PARTS)}"]
    for what, costs in rows.items():
        cells = [cell for count, each in costs for cell in (f"{count:,}", f"{each:,.1f}")]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    chosen = options("What one more costs where there are many", **SIZES)
    print(table(rows({name: getattr(chosen, name) for name in SIZES}, chosen.rounds)))


if __name__ == "__main__":
    main()
