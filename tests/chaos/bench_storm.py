"""A batch of real Claude Code processes in a storm: its model's API refuses at random, and its usage window closes again and again.

    python -m tests.chaos.bench_storm [--tasks 100] [--limit 4] [--seed 1] [--closed 10]

None may be lost, and at most 1 % of the tokens may be paid twice: what the API has answered is counted there.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import attrs
import trio

import proctor
from proctor.actors.serving.retry import RETRY
from tests.clis.install import CLIS
from tests.fakes.messages_api import open_messages_api
from tests.fakes.requests import Request
from tests.fakes.steps import Plain, Status, Text
from tests.real.homes import make_home

REFUSED = 0.2
"""The share of requests that the API refuses with 429."""


@attrs.define
class Storm:
    """What the API does, and what it has answered. The window takes `window` answers, then it is closed for `closed` seconds."""

    random: Random
    window: int
    closed: float
    answered: Counter[str] = attrs.field(factory=Counter[str])
    refused: int = 0
    limited: int = 0
    _taken: int = 0
    _opens: float = 0.0

    def step(self, request: Request) -> Plain:
        """The answer to a request of a main conversation."""
        now = time.time()
        if self._taken >= self.window and self._opens <= now:
            self._taken, self._opens = 0, now + self.closed
        if now < self._opens:
            self.limited += 1
            return Status(429, "usage limit reached", headers=_limit_headers(round(self._opens) + 1))
        if self.random.random() < REFUSED:
            self.refused += 1
            return Status(429, "slow down", headers={"retry-after": "0"})
        self._taken += 1
        self.answered[_task_of(request)] += 1
        return Text("The work is done.")


def _limit_headers(resets_at: int) -> dict[str, str]:
    prefix = "anthropic-ratelimit-unified"
    return {
        f"{prefix}-status": "rejected",
        f"{prefix}-reset": str(resets_at),
        f"{prefix}-representative-claim": "five_hour",
        f"{prefix}-5h-status": "rejected",
        f"{prefix}-5h-reset": str(resets_at),
        f"{prefix}-5h-utilization": "1.0",
    }


def _task_of(request: Request) -> str:
    found = [text for text in request.user_texts if text.startswith("Do task ")]
    return found[0] if found else ""


@attrs.frozen
class Report:
    """What came of it; `faults` are broken promises."""

    results: tuple[proctor.BatchResult, ...]
    storm: Storm
    seconds: float
    tasks: int

    @property
    def paid_twice(self) -> int:
        """Answers beyond the first of each task."""
        return sum(count - 1 for count in self.storm.answered.values())

    def faults(self) -> Iterator[str]:
        """Each broken promise."""
        if len(self.results) != self.tasks or any(not result.ok for result in self.results):
            yield f"lost: {self.tasks - sum(result.ok for result in self.results)} of {self.tasks}"
        if self.paid_twice > self.tasks / 100:
            yield f"paid twice: {self.paid_twice} of {self.storm.answered.total()} answers"

    def lines(self) -> Iterator[str]:
        """The report for a person."""
        tries = sum(len(result.tries) for result in self.results)
        waited = sum(result.times.waiting for result in self.results)
        yield f"{len(self.results)} results in {self.seconds:.0f} s, {tries} tries, {waited:.0f} s of waits"
        yield f"the API answered {self.storm.answered.total()}, refused {self.storm.refused}, limited {self.storm.limited}"
        yield f"paid twice: {self.paid_twice} answers"
        yield from (f"FAULT: {fault}" for fault in self.faults())


async def storm(folder: Path, claude: Path, *, tasks: int, limit: int, seed: int, closed: float) -> Report:
    """Run a batch of `tasks` in a storm."""
    weather = Storm(Random(seed), window=max(2, tasks // 4), closed=closed)
    async with open_messages_api() as api:
        api.answer_with(weather.step)
        home = make_home(folder / "claude", api.url)
        agent = proctor.claude("claude", executable=claude, env=home.environment, retries=3)
        given = [
            proctor.BatchTask(id=f"t{n}", prompt=f"Do task {n}.", check="grep -q done") for n in range(tasks)
        ]
        begun, found = trio.current_time(), list[proctor.BatchResult]()
        retry = attrs.evolve(RETRY, attempts=8)
        path = folder / "results.jsonl"
        async with proctor.batch(given, agent, limit=limit, results=path, retry=retry, seed=seed) as results:
            async for result in results:
                found.append(result)
        return Report(tuple(found), weather, trio.current_time() - begun, tasks)


def main(arguments: list[str] | None = None) -> int:
    """Run the storm that the arguments describe. Exit status 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.bench_storm", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--limit", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--closed", type=float, default=10.0, help="seconds for which the window is closed")
    given = parser.parse_args(arguments)
    clis = CLIS.install(None)
    newest = max(alias for alias in clis if alias.startswith("claude-"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder  # the ledger of hosts is the storm's own

        async def run() -> Report:
            return await storm(
                Path(folder),
                clis[newest],
                tasks=given.tasks,
                limit=given.limit,
                seed=given.seed,
                closed=given.closed,
            )

        report = trio.run(run)
    sys.stdout.writelines(f"{line}\n" for line in report.lines())
    return int(any(report.faults()))


if __name__ == "__main__":
    sys.exit(main())
