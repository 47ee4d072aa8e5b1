"""`proctor runs`, `show`, `cost` and `resume`: what recorded runs did, and going on with one.

They read the recordings of the state folder, of commands that have ended and of those that run, and nothing else: no host has to run.
"""

from __future__ import annotations

import fnmatch
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path

import attrs
import msgspec
import trio

from proctor.actors.durations import duration, format_duration, format_moment
from proctor.actors.errors import BadOption
from proctor.actors.recording.readable import markdown_of
from proctor.actors.recording.run_summary import (
    Charge,
    RunSummary,
    agent_of,
    recorded_events,
    run_folders,
    summary_of,
)
from proctor.actors.recording.trajectory import read_trajectory
from proctor.cli.commands.run import run_command
from proctor.cli.daemon import run_report
from proctor.cli.exit_status import FAILED, OK
from proctor.cli.parameters import RunForm, RunOptions, RunsOptions, SelectionOptions
from proctor.cli.recordings import state_directory
from proctor.cli.ui.output import Output
from proctor.cli.ui.text import aligned, last_line, money, one_line, printable
from proctor.cli.ui.transcript import Transcript
from proctor.cli.ui.verdict import PHRASES

_WORDS = 40
_FACTS: Mapping[str, Callable[[RunSummary, Charge], str]] = {
    "agent": lambda run, _: run.agent,
    "model": lambda _, charge: charge.model or "unknown",
    "day": lambda _, charge: time.strftime("%Y-%m-%d", time.localtime(charge.at)),
    "run": lambda run, _: run.id,
}


def runs_command(options: RunsOptions) -> int:
    """List recorded runs and return the exit status."""
    return run_report(partial(_list, options))


def cost_command(by: str, options: SelectionOptions) -> int:
    """Add the costs of recorded runs up and return the exit status."""
    return run_report(partial(_add_up, by, options))


def show_command(run: str, output: RunForm) -> int:
    """Show what a run did and return the exit status."""
    return run_report(partial(_show, run) if output == "text" else partial(_write_run, run, output))


def resume_command(run: str, prompt: str | None, options: RunOptions) -> int:
    """Send a prompt to a new agent in the conversation of a recorded run, and return the exit status."""
    found: list[tuple[str, RunSummary]] = []

    async def find(_: Output) -> int:
        summary = await trio.to_thread.run_sync(_find, run)
        found.append((_kind_of(summary), summary))
        return OK

    if (status := run_report(find)) != OK:
        return status
    [(kind, summary)] = found
    cwd = options.cwd or summary.cwd
    return run_command(kind, prompt, attrs.evolve(options, resume=summary.session_id, cwd=cwd))


# -- the commands


async def _list(options: RunsOptions, out: Output) -> int:
    runs = await trio.to_thread.run_sync(lambda: list(islice(_selected(options), options.number or None)))
    if options.output == "json":
        return await _write_json(out, [_record(run) for run in runs])
    rows = [("run", "agent", "kind", "begun", "took", "turns", "result", "cost", "last words")]
    rows += [
        (
            run.id,
            run.agent,
            run.kind,
            format_moment(run.begun, time.time()),
            format_duration(max(0.0, run.changed - run.begun)),
            str(len(run.charges)),
            _result(run),
            money(run.cost_usd),
            one_line(last_line(run.text), _WORDS),
        )
        for run in runs
    ]
    await _write(out, aligned(rows))
    return OK


async def _add_up(by: str, options: SelectionOptions, out: Output) -> int:
    def add_up() -> dict[str, list[float | None]]:
        costs = defaultdict[str, list[float | None]](list)
        for run in _selected(options):
            for charge in run.charges:
                costs[_FACTS[by](run, charge)].append(charge.cost_usd)
        return costs

    costs = await trio.to_thread.run_sync(add_up)
    everything = [cost for each in costs.values() for cost in each]
    table = [
        {by: key, "turns": len(each), "cost_usd": _sum(each), "unknown": each.count(None)}
        for key, each in (*sorted(costs.items()), ("total", everything))
    ]
    if options.output == "json":
        return await _write_json(out, table)
    rows = [(by, "turns", "without a cost", "cost")]
    rows += [
        (str(row[by]), str(row["turns"]), str(row["unknown"] or ""), f"${row['cost_usd']:.4f}")
        for row in table
    ]
    await _write(out, aligned(rows))
    return OK


async def _write_run(name: str, output: RunForm, out: Output) -> int:
    run = await trio.to_thread.run_sync(_find, name)
    await out.write(await trio.to_thread.run_sync(_WRITTEN[output], run.path))
    return OK


def _events_of(path: Path) -> bytes:
    return b"".join(msgspec.json.encode(event) + b"\n" for event in recorded_events(path))


def _trajectory_of(path: Path) -> bytes:
    return read_trajectory(path).to_json() + b"\n"


def _markdown_of(path: Path) -> bytes:
    return markdown_of(read_trajectory(path)).encode("utf-8", "replace")


_WRITTEN: Mapping[str, Callable[[Path], bytes]] = {
    "json": _events_of,
    "atif": _trajectory_of,
    "md": _markdown_of,
}


async def _show(name: str, out: Output) -> int:
    run = await trio.to_thread.run_sync(_find, name)
    events = await trio.to_thread.run_sync(lambda: list(recorded_events(run.path)))
    facts = {
        "run": run.path,
        "agent": f"{run.agent} ({run.kind}{f', model {run.model}' if run.model else ''})",
        "begun": _date(run.begun),
        "last event": _date(run.changed),
        "result": _result(run),
        "session": run.session_id,
        "folder": run.cwd,
        "turns": len(run.charges),
        "cost": money(run.cost_usd),
    }
    rows = [(f"{key}:", printable(str(value))) for key, value in facts.items() if value not in (None, "")]
    await _write(out, [*aligned(rows), ""])
    transcript = Transcript(safe=True, shared=True)
    for shown in (*transcript.take(events), transcript.finish("")):
        await out.write((shown.out + shown.err).encode("utf-8", "replace"))
    return OK if run.is_running or (run.outcome in (None, "ok") and not run.is_in_turn) else FAILED


# -- which runs


def _selected(options: SelectionOptions) -> Iterator[RunSummary]:
    since = 0.0 if options.since is None else time.time() - _seconds(options.since)
    for folder in run_folders(state_directory()):
        run = summary_of(folder)
        if run is not None and run.changed >= since and fnmatch.fnmatchcase(run.agent, options.agent):
            yield run


def _seconds(text: str) -> float:
    try:
        return duration(text)
    except ValueError as error:
        raise BadOption(f"--since: {error}") from None


def _find(name: str) -> RunSummary:
    """The run of this id, folder, or the last one of the agent of this name. Raises `BadOption`."""
    # also one that was recorded elsewhere, by `--record`
    if os.sep in name and Path(name).is_dir() and (run := summary_of(Path(name).absolute())) is not None:
        return run
    folders = run_folders(state_directory())
    named = [
        folder for folder in folders if name in (folder.name, str(folder)) or folder.name.endswith(f"-{name}")
    ]
    # the newest of an agent's, found by the name alone: there may be thousands
    for folder in (*named, *(folder for folder in folders if agent_of(folder) == name)):
        if (run := summary_of(folder)) is not None:
            return run
    raise BadOption(f"no run {name!r} below {state_directory()}: `proctor runs` lists them")


def _kind_of(run: RunSummary) -> str:
    """The agent of a run as `proctor run` takes it. Raises `BadOption`."""
    if run.session_id is None:
        raise BadOption(f"run {run.id} has no session to go on with: its agent never began a turn")
    if run.kind == "scripted":
        return next(
            (f"scripted:{word.partition('=')[2]}" for word in run.argv if word.startswith("--script=")),
            "scripted",
        )
    return run.kind


# -- output


def _record(run: RunSummary) -> dict[str, object]:
    facts = attrs.asdict(run, recurse=False, filter=lambda field, _: field.name not in ("argv", "charges"))
    begun, changed = (datetime.fromtimestamp(at).astimezone().isoformat() for at in (run.begun, run.changed))
    return {
        **facts,
        "path": str(run.path),
        "begun": begun,
        "changed": changed,
        "turns": len(run.charges),
        "cost_usd": run.cost_usd,
    }


def _result(run: RunSummary) -> str:
    if run.is_running:
        return "works" if run.is_in_turn else "is idle"
    # of a host that died the recording has no end
    return "was cut off" if run.is_in_turn else "no turn" if run.outcome is None else PHRASES[run.outcome]


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _sum(costs: Iterable[float | None]) -> float:
    return round(sum(cost for cost in costs if cost is not None), 6)


async def _write(out: Output, lines: Iterable[str]) -> None:
    await out.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))


async def _write_json(out: Output, value: object) -> int:
    await out.write(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
    return OK
