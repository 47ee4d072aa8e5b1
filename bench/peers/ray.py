"""Ray's actors on one machine, a process for each. Ray is started by the first work and left to end with the program.

The one caller asks each of the N actors once, waits for all answers, and asks again.
"""

from __future__ import annotations

import ray

from bench.contest import Stopwatch
from bench.mailbox import expect
from bench.peers.entries import Exchange


class Counter:
    """Answers, and counts what wants no answer."""

    def __init__(self) -> None:
        self._count = 0

    def echo(self, number: int) -> int:
        """The number."""
        return number

    def tell(self, _: int) -> None:
        """Count."""
        self._count += 1

    def count(self) -> int:
        """How many were told."""
        return self._count


def exchange(kind: Exchange, actors: int, operations: int) -> Stopwatch:
    """Ask, or tell and at the end ask, each in its turn."""
    if not ray.is_initialized():
        ray.init(num_cpus=actors, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    handles = [ray.remote(Counter).remote() for _ in range(actors)]
    expect(ray.get([handle.count.remote() for handle in handles]), [0] * actors)
    with Stopwatch() as watch:
        for number in range(operations // actors):
            if kind == "call":
                answers = ray.get([handle.echo.remote(number) for handle in handles])
                expect(answers, [number] * actors)
            else:
                for handle in handles:
                    handle.tell.remote(number)
        told = operations // actors if kind == "cast" else 0
        expect(ray.get([handle.count.remote() for handle in handles]), [told] * actors)
    for handle in handles:
        ray.kill(handle)
    watch.cpu = float("nan")
    return watch
