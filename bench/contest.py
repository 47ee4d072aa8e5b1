"""Contenders side by side: rounds, medians, ratios, one markdown table.

Guarantees: in every round each contender of a work runs once, in an order that turns by one from round to round, after
a collection of garbage and one short run that is not counted. A ratio is taken within a round and the median of those
is printed, so a machine that is slow for a while is slow for all. CPU seconds are those of this process, in user and
kernel mode; a child's are its own affair. Where a work waits for children, wall time is what is compared, and so it is
for a contender that does the work in other processes. One that cannot run here has a row that says why.

Not handled: the frequency of the cores, and what else the machine does; that shows as the range of the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from math import isnan, nan
from statistics import median
from types import TracebackType
from typing import Any, Literal, Self

import attrs
import trio

Role = Literal["limit", "ours", "peer"]
Measure = Literal["cpu", "wall"]
ROUNDS = 7
MILLION = 1_000_000


class Stopwatch:
    """Started and stopped once, or around a `with` block; then `wall` and `cpu` are the seconds between."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def start(self) -> None:
        """Begin."""
        self.wall, self.cpu = time.perf_counter(), _cpu()

    def stop(self) -> None:
        """End."""
        self.wall, self.cpu = time.perf_counter() - self.wall, _cpu() - self.cpu

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


Body = Callable[[int], Coroutine[Any, Any, Stopwatch]]


def in_trio(body: Body) -> Callable[[int], Stopwatch]:
    """`body(size)` in a Trio loop of its own."""
    return lambda size: trio.run(body, size)


def in_asyncio(body: Body) -> Callable[[int], Stopwatch]:
    """`body(size)` in an asyncio loop of its own."""
    return lambda size: asyncio.run(body(size))


@attrs.frozen
class Contender:
    """`run(size)` does the work once and returns the watch that timed it; it raises when the work was not done whole.

    `by` is what its ratio is taken of, where that is not what the work says. With a text in `absent` it does not run,
    and the text stands in its row. A watch whose `cpu` is NaN does not know it."""

    role: Role
    name: str
    run: Callable[[int], Stopwatch]
    by: Measure | None = None
    absent: str = ""


@attrs.frozen
class Work:
    """`size` items, done by each contender; ratios are to the one named `reference`, of what `by` says."""

    name: str
    size: int
    reference: str
    contenders: tuple[Contender, ...]
    by: Measure = "cpu"

    def only(self, *names: str) -> Work:
        """The same with fewer contenders, in the order given."""
        by_name = {contender.name: contender for contender in self.contenders}
        return attrs.evolve(self, contenders=tuple(by_name[name] for name in names))


@attrs.frozen
class Result:
    """Medians over the rounds. `rate` is items per second of wall time, `cpu` seconds per million items, `ratio` the
    reference's CPU seconds, or those of wall time, by the contender's (more is better), with its lowest and highest. All
    are NaN for a contender that is absent."""

    work: Work
    contender: Contender
    rate: float
    cpu: float
    ratio: float
    lowest: float
    highest: float


def hold(work: Work, rounds: int) -> list[Result]:
    """Let the contenders of `work` run in turn and sum up, in the order of the contenders."""
    present = [contender for contender in work.contenders if not contender.absent]
    for contender in present:
        contender.run(max(1, work.size // 20))
    watches: dict[str, list[Stopwatch]] = {contender.name: [] for contender in present}
    for turn in range(rounds):
        first = turn % len(present)
        for contender in (*present[first:], *present[:first]):
            gc.collect()
            watches[contender.name].append(contender.run(work.size))
    return [_sum_up(work, contender, watches) for contender in work.contenders]


def _sum_up(work: Work, contender: Contender, watches: Mapping[str, Sequence[Stopwatch]]) -> Result:
    if contender.absent:
        return Result(work, contender, *[nan] * 5)
    own, reference = watches[contender.name], watches[work.reference]
    by = contender.by or work.by
    ratios = [
        _seconds(other, by) / max(_seconds(mine, by), 1e-9)
        for mine, other in zip(own, reference, strict=True)
    ]
    return Result(
        work=work,
        contender=contender,
        rate=median(work.size / watch.wall for watch in own),
        cpu=median(watch.cpu for watch in own) / work.size * MILLION,
        ratio=median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
    )


def _seconds(watch: Stopwatch, by: Measure) -> float:
    return watch.cpu if by == "cpu" else watch.wall


HEADINGS = ("work", "", "contender", "per second", "CPU s per million", "ratio (CPU)", "range")


def table(results: Iterable[Result]) -> str:
    """Markdown, one row per contender; the reference of each work is in bold."""
    rows = [_row(result) for result in results]
    widths = [max(len(row[column]) for row in (HEADINGS, *rows)) for column in range(len(HEADINGS))]
    rules = [("-" * (w - 1) + ":") if column > 2 else "-" * w for column, w in enumerate(widths)]
    return "\n".join(_joined(cells, widths) for cells in (HEADINGS, rules, *rows))


def _row(result: Result) -> tuple[str, ...]:
    contender = result.contender
    is_reference = contender.name == result.work.reference
    whose = (result.work.name, contender.role, f"**{contender.name}**" if is_reference else contender.name)
    if contender.absent:
        return (*whose, contender.absent, "", "", "")
    by = contender.by or result.work.by
    return (
        *whose,
        f"{result.rate:,.0f}",
        "" if isnan(result.cpu) else f"{result.cpu:.2f}",
        f"{result.ratio:.2f}" if by == "cpu" else f"{result.ratio:.2f} (wall)",
        "" if is_reference else f"{result.lowest:.2f} to {result.highest:.2f}",
    )


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        f"{cell:>{width}}" if column > 2 else f"{cell:<{width}}"
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"


def options(description: str, **sizes: int) -> argparse.Namespace:
    """The command line of a script: `--rounds`, and an option with its default for each of `sizes`."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in {"rounds": ROUNDS, **sizes}.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=_count, default=default, help=f"default {default}", metavar="N")
    return parser.parse_args()


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of 1 or more")
    return int(text)
