"""Agents that greet slowly: how long a tree of them takes to start, to be back after a kill, and a sibling beside one of them.

    python -m bench.agents [--agents 50] [--rounds 3]

The scripted agent answers its greeting after half a second; it is an interpreter, so its own start takes CPU of the cores
that all of them share, which is in the figures: `alone` is one of them. The last row kills an agent while another, that was
killed before, waits 8 s for its greeting. Back means ready: the greeting was answered. Agents put off a restart by about
a quarter of a second, which is in the figures, too.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from statistics import median

import trio

from bench.contest import options
from proctor.actors.specs import Supervisor, open_supervisor, scripted
from proctor.runtime import ChildStarted

AGENTS, ROUNDS = 50, 3
GREETING, SLOW = 0.5, 8.0


class Herd:
    """Agents of one tree, known by their names."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._folder = folder
        for name in self.names:
            self.greet_in(name, GREETING)

    def _script(self, name: str) -> Path:
        return self._folder / f"{name}.ndjson"

    def greet_in(self, name: str, seconds: float) -> None:
        """Its greetings from now on take so long."""
        text = f'{{"agent": {{"greeting": {seconds}}}}}\n{{"reply": "Well."}}\n'
        self._script(name).write_text(text)

    def open(self) -> AbstractAsyncContextManager[Supervisor]:
        """The tree."""
        specs = [scripted(name, self._script(name), cwd=self._folder) for name in self.names]
        return open_supervisor(specs, intensity=1000, period=1.0)


async def kill(sup: Supervisor, names: Iterable[str]) -> None:
    """Kill their processes."""
    statuses = [await sup.agent(name).status() for name in names]
    for status in statuses:
        assert status.pid is not None
        os.kill(status.pid, signal.SIGKILL)


async def back(sup: Supervisor, names: Sequence[str]) -> float:
    """Kill their processes, and wait until all are ready again: seconds."""
    missing = {f"{sup.path}/{name}" for name in names}
    with sup.events(kinds=["child_started"]) as events:
        began = time.perf_counter()
        await kill(sup, names)
        async for event in events:
            assert isinstance(event, ChildStarted)
            missing.discard(event.path)
            if not missing:
                break
    return time.perf_counter() - began


async def measured(folder: Path, agents: int) -> Mapping[str, float]:
    """Seconds of one round."""
    times: dict[str, float] = {}
    for count in (1, agents):
        herd = Herd(folder, [f"a{number}" for number in range(count)])
        what = "alone" if count == 1 else f"{count} agents"
        began = time.perf_counter()
        async with herd.open() as sup:
            times[f"{what}: started"] = time.perf_counter() - began
            times[f"{what}: all killed and back"] = await back(sup, herd.names)
    herd = Herd(folder, ["slow", "sibling"])
    herd.greet_in("sibling", 0)
    async with herd.open() as sup:
        herd.greet_in("slow", SLOW)
        await kill(sup, ["slow"])
        await trio.sleep(1)  # its new process waits for its greeting
        times[f"sibling back beside a greeting of {SLOW:g} s"] = await back(sup, ["sibling"])
    return times


def rows(agents: int, rounds: int) -> Mapping[str, Sequence[float]]:
    """Seconds of each round."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
            for what, seconds in trio.run(measured, Path(folder), agents).items():
                found.setdefault(what, []).append(seconds)
    return found


def table(times: Mapping[str, Sequence[float]]) -> str:
    """Markdown."""
    lines = ["| agents, greeting 0.5 s | seconds | lowest | highest |", "| --- | ---: | ---: | ---: |"]
    for what, taken in times.items():
        lines.append(f"| {what} | {median(taken):.2f} | {min(taken):.2f} | {max(taken):.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    chosen = options("Agents that greet slowly", agents=AGENTS, rounds=ROUNDS)
    print(table(rows(chosen.agents, chosen.rounds)))


if __name__ == "__main__":
    main()
