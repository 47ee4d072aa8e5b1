"""`proctor bench`: gives the tasks of a file to agents, scores their work, and prints a table of that; `proctor bench compare` compares results.

Progress goes to stderr: one line that is renewed on a terminal, else a line for each result. The results go to a file, which the next command
of the same words continues.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec
import trio

from proctor.actors.batch.batch import Batch, batch
from proctor.actors.batch.results import BatchResult, load_results
from proctor.actors.batch.statistics import (
    AgentSummary,
    Difference,
    Estimate,
    differences_of,
    differences_within,
    summaries_of,
)
from proctor.actors.batch.tasks import BatchTask, load_tasks
from proctor.actors.durations import format_duration
from proctor.actors.errors import AgentError, BadOption, OptionFault
from proctor.actors.fleet.fleet import load_fleet
from proctor.actors.plan.environment import parse_env
from proctor.actors.plan.option_checks import collect_faults, suggest_or_list
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, plan_of
from proctor.actors.process.orphans import track_processes
from proctor.actors.scripted import ScriptError
from proctor.cli.agent_kinds import KINDS, checked_plan
from proctor.cli.exit_status import FAILED, OK, STDOUT_GONE, status_of
from proctor.cli.interrupts import Interrupts, interruptible
from proctor.cli.parameters import BenchOptions, listed
from proctor.cli.ui.output import Output, OutputFailed
from proctor.cli.ui.text import aligned, one_line, printable
from proctor.runtime.processes import ProcessError

_EXPECTED = (AgentError, OutputFailed, ProcessError, ScriptError, OSError)
_Work: TypeAlias = Callable[[Output, Interrupts], Awaitable[int]]
_SECONDS_TO_SHOW = 1.0
_CLEAR = "\r\x1b[K"


def bench_command(tasks: str, options: BenchOptions) -> int:
    """Run a benchmark and return the exit status. An expected error is one line on stderr."""
    return _run(partial(_bench, tasks, options))


def compare_command(files: Sequence[str], *, json: bool) -> int:
    """Compare files of results and return the exit status."""
    return _run(partial(_compare, files, json))


def _run(work: _Work) -> int:
    return trio.run(_main, work)


async def _main(work: _Work) -> int:
    screen = Output(2)

    async def guarded(interrupts: Interrupts) -> int:
        try:
            with interrupts.scope:
                return await work(screen, interrupts)
            return FAILED  # interrupted: the status of the signal counts
        except BrokenPipeError:
            return STDOUT_GONE
        except _EXPECTED as error:
            for line in str(error).splitlines():
                await screen.say(printable(line))
            return status_of(error)

    return await interruptible(guarded, notify=screen.say, background=trio.lowlevel.checkpoint)


# -- a benchmark


async def _bench(file: str, options: BenchOptions, screen: Output, interrupts: Interrupts) -> int:
    tasks, plans = _checked(file, options)
    path = Path(options.output) if options.output is not None else Path(file).with_suffix(".results.jsonl")
    results = batch(
        tasks,
        plans,
        limit=options.limit,
        repeat=options.repeat,
        results=path,
        budget=options.budget,
        keep=options.keep,
    )
    interrupts.kill = results.kill
    found = list[BatchResult]()
    progress = _Progress(screen, results, len(tasks) * len(plans) * options.repeat)
    error: AgentError | None
    try:
        async with track_processes(screen.say), results:
            error = await _collect(results, found, progress)
    finally:
        # also when it is interrupted, and bounded, because the reader may have stopped reading
        with trio.move_on_after(_SECONDS_TO_SHOW, shield=True), suppress(BrokenPipeError, OutputFailed):
            await progress.close()
            await _write(found, json=options.json)
            if found:
                await screen.say(f"results: {path}")
    if error is not None:
        raise error
    return OK


async def _collect(results: Batch, found: list[BatchResult], progress: _Progress) -> AgentError | None:
    """Add the results to `found` as they come. Returns the error that ended them, a spent budget most of all: what is there is shown before it."""
    try:
        async for result in results:
            found.append(result)
            await progress.show(result)
    except AgentError as error:
        return error
    return None


def _checked(file: str, options: BenchOptions) -> tuple[list[BatchTask], list[Plan]]:
    """The tasks and the agents. Raises an error with every fault of the options, or of the tasks."""
    faults = list[OptionFault]()
    plans = collect_faults(faults, lambda: _plans(options), list[Plan]())
    if options.limit < 1:
        faults.append(OptionFault("--limit", f"must be 1 or more, got {options.limit}"))
    if options.repeat < 1:
        faults.append(OptionFault("--repeat", f"must be 1 or more, got {options.repeat}"))
    if options.budget is not None and not 0 < options.budget < float("inf"):
        faults.append(
            OptionFault("--budget", f"must be a number of US dollars above 0, got {options.budget:g}")
        )
    if faults:
        raise BadOption("\n".join(map(str, faults)), faults)
    return load_tasks(file), plans


def _plans(options: BenchOptions) -> list[Plan]:
    names = listed(options.agents)
    fleet = _fleet(options.fleet)
    if not names and not fleet:
        raise BadOption(
            "--agents: name the agents, such as --agents claude,codex, or a fleet file with --fleet"
        )
    return [fleet[name] if name in fleet else _kind(name, fleet, options) for name in names or fleet]


def _fleet(file: str | None) -> Mapping[str, Plan]:
    """The agents of a fleet file, by name."""
    if file is None:
        return {}
    fleet = load_fleet(Path(file))
    return {agent.name: plan_of(agent.spec()) for _, agent in fleet.members(fleet.name)}


def _kind(name: str, fleet: Mapping[str, Plan], options: BenchOptions) -> Plan:
    if fleet and name.partition(":")[0] not in KINDS:
        raise BadOption(f"--agents: {name!r} is no agent of {options.fleet}{suggest_or_list(name, fleet)}")
    chosen: AgentOptions = {
        "env": parse_env(options.env, os.environ),
        "home": options.home,
        "permission": options.permission,
    }
    return checked_plan(name, chosen)


class _Progress:
    """The progress on stderr: a line that is renewed on a terminal, else a line for each result."""

    def __init__(self, screen: Output, results: Batch, total: int) -> None:
        self._screen = screen
        self._results = results
        self._total = total
        self._failed = 0
        self._begun = trio.current_time()

    async def show(self, result: BatchResult) -> None:
        """Show that an attempt has ended."""
        self._failed += not result.ok
        came = f"score {result.score:g}" if result.ok else f"failed: {result.cause}"
        name = f"{result.task} {result.agent}" + (f" #{result.repetition}" if result.repetition > 1 else "")
        text = one_line(f"{self._summary()}; {name}: {came}")
        if self._screen.is_terminal:
            await self._screen.note(f"{_CLEAR}{text[: _columns() - 1]}".encode())
        else:
            await self._screen.say(text)

    async def close(self) -> None:
        """Leave the terminal's line."""
        if self._screen.is_terminal:
            await self._screen.note(_CLEAR.encode())

    def _summary(self) -> str:
        done = self._results.progress
        here, left = done.done - done.kept, self._total - done.done
        parts = [f"{done.done}/{self._total}", f"{self._failed} failed", f"${done.cost_usd:.2f}"]
        if here and left:
            seconds = (trio.current_time() - self._begun) / here * left
            parts.append(f"about {format_duration(seconds)} left")
        return ", ".join(parts)


def _columns() -> int:
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80


# -- tables


async def _write(results: Sequence[BatchResult], *, json: bool) -> None:
    found, out = summaries_of(results), Output(1)
    if json:
        await out.write(_json({"agents": found}))
    elif found:
        await out.write("".join(f"{line}\n" for line in _table(found)).encode())


def _table(summaries: Sequence[AgentSummary]) -> list[str]:
    rows = [
        (
            "agent",
            "attempts",
            "score",
            "95 %",
            "cost",
            "tokens in/out",
            "working",
            "p50",
            "p95",
            "tries",
            "failures",
        )
    ]
    for one in summaries:
        failures = ", ".join(f"{count} {cause}" for cause, count in one.failures.items())
        rows.append(
            (
                one.agent,
                str(one.attempts),
                f"{one.score.mean:.3f}",
                _interval(one.score),
                _dollars(one),
                _tokens(one),
                _seconds(one.working),
                _seconds(one.working_p50),
                _seconds(one.working_p95),
                str(one.tries),
                failures,
            )
        )
    return aligned(rows)


def _interval(estimate: Estimate, digits: int = 3) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{estimate.low:.{digits}f} to {estimate.high:.{digits}f}"


def _dollars(summary: AgentSummary) -> str:
    if summary.cost_usd is None:
        return ""
    # a sum that lacks some is no total
    return f"{'over ' if summary.unknown_costs else ''}${summary.cost_usd:.4f}"


def _tokens(summary: AgentSummary) -> str:
    usage = summary.usage
    return "" if usage is None else f"{usage.input_tokens or 0}/{usage.output_tokens or 0}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


# -- comparison


async def _compare(files: Sequence[str], json: bool, screen: Output, interrupts: Interrupts) -> int:
    read = [load_results(file) for file in files]
    for file, results in zip(files, read, strict=True):
        if not results:
            raise BadOption(f"{file}: has no results")
    found = (
        differences_of(read[0], read[1], (files[0], files[1]))
        if len(read) == 2
        else differences_within(read[0])
    )
    if not found:
        raise BadOption("nothing to compare: the results have no agent and task in common")
    out = Output(1)
    if json:
        await out.write(_json({"differences": found}))
    else:
        await out.write("".join(f"{line}\n" for line in _differences(found)).encode())
    return OK


def _differences(differences: Sequence[Difference]) -> list[str]:
    rows = [("base", "other", "tasks", "better", "worse", "score", "95 %", "working", "95 %", "cost", "95 %")]
    for one in differences:
        working, cost = one.working, one.cost_usd
        rows.append(
            (
                one.base,
                one.other,
                str(one.tasks),
                str(one.better),
                str(one.worse),
                f"{one.score.mean:+.3f}",
                _interval(one.score),
                "" if working is None else f"{working.mean:+.1f} s",
                "" if working is None else _interval(working, 1),
                "" if cost is None else f"{'-' if cost.mean < 0 else '+'}${abs(cost.mean):.4f}",
                "" if cost is None else _interval(cost, 4),
            )
        )
    return aligned(rows)
