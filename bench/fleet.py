"""A fleet: many children that each say a little all the time, and one process of ours that hears them all.

    python -m bench.fleet [--children 500] [--rate 20] [--seconds 10] [--rounds 1]

Every event carries the time it was written at; its delay is taken where the contender has it decoded. All children have
spoken before the watch starts, and garbage is collected a second before, so that the pause is in no delay. Each contender
runs in a process of its own, so that its memory is its own; the CPU time is that process's. The guards' stands beside it:
what each has used since its start, and its private memory. The children's is not there, though they take their share of the cores,
which the load tells, that of the machine at the end of the row's own run, and so does the part of the time for which the contender could
run and no core was free for it. What is delivered is counted against what the
children should have written: a contender that falls behind shows it there. Every contender decodes with msgspec. Where a pass of
Trio's loop computes for more than 10 ms, the longest is printed with the task and the code that held it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from math import isnan, nan
from pathlib import Path
from statistics import mean, median

import attrs
import trio

from bench import ticker
from bench.contest import Stopwatch
from bench.ndjson import StreamEvent, decode_lines
from bench.peers.entries import FLEETS, MISSING
from proctor.actors.operations.loop_watch import Hold, watch_loop
from proctor.actors.plan.plan import Plan
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.recording.eventlog import Cursor, EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.protocols import dialect as dialects
from proctor.protocols.claude import CLAUDE
from proctor.protocols.vocabulary import Prompt, TextDelta
from proctor.runtime.processes import Command, open_ledger, open_process, sample_tree

CHILDREN, RATE, SECONDS = 500, 20, 10
READ_SIZE = 64 * 1024
PROGRAM = str(Path(ticker.__file__))
ENV = {"PATH": os.environ.get("PATH", "")}
PAGE = resource.getpagesize()
SETTLING = 1.0
"""Seconds between the collection of garbage and the watch."""

BOUND = 0.01
"""Seconds of a pass of the loop, above which it is told what held it."""

Figures = dict[str, float]


def argv(number: int, rate: float) -> tuple[str, ...]:
    """The ticker of this number; their phases are spread over a period."""
    return (sys.executable, "-I", "-S", PROGRAM, str(rate), str(number * 0.618 % 1))


@attrs.frozen
class Fleet:
    """So many children, each with so many events a second, watched for so many seconds. With `sessions`, each child of a peer leads a
    session, as those of agents do: where the kernel has autogroups, it gets as large a share of the cores as the reader."""

    children: int
    rate: float
    seconds: float
    sessions: bool = True


class Ear:
    """Takes what children say. `heard` is the number of those that have spoken, `guards` are the pids of their guards."""

    def __init__(self) -> None:
        self.heard = 0
        self.watch = Stopwatch()
        self.delays = array("d")  # few bytes each, as they are counted as memory of the fleet
        self.bytes = 0.0
        self.waited = 0.0
        self.guards: list[int] = []
        self.guard_costs = guard_costs([])
        self.longest: Hold | None = None
        self._listening = False
        self._before = resident()

    def tick(self, said: str) -> None:
        """One event, decoded."""
        if self._listening:
            self.delays.append(time.time() - float(said))

    def lines(self, data: bytes) -> None:
        """Whole lines, for a contender that decodes nothing itself."""
        for line in decode_lines(data):
            if isinstance(line, StreamEvent) and line.event.delta is not None:
                self.tick(line.event.delta.text)

    def held(self, hold: Hold) -> None:
        """A pass of the loop was longer than `BOUND`; what the scheduler gave to others is not the loop's."""
        if self._listening and (self.longest is None or hold.computed > self.longest.computed):
            self.longest = hold

    def start(self) -> None:
        """All have spoken, and the second after the last collection is over: begin."""
        self._listening = True
        self.waited = run_delay()
        self.watch.start()

    def stop(self) -> None:
        """The time is over."""
        self.watch.stop()
        self.waited = run_delay() - self.waited
        self._listening = False
        self.bytes = resident() - self._before


def resident() -> float:
    """Bytes of this process in memory."""
    return float(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def run_delay() -> float:
    """Seconds for which this process could run and had to wait for a core; NaN where the kernel does not count them."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return nan


def guard_costs(guards: list[int]) -> Figures:
    """CPU milliseconds and private bytes of a guard, on average; nothing where there is none."""
    if not guards:
        return {"guard_cpu": nan, "guard_bytes": nan}
    return {
        "guard_cpu": mean(sample_tree(pid)[0].cpu for pid in guards) * 1e3,
        "guard_bytes": mean(_private(pid) for pid in guards),
    }


def _private(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


def bare(fleet: Fleet, ear: Ear) -> None:
    """The limit: one loop over epoll, no task, nothing kept."""
    with ExitStack() as stack, select.epoll() as poll:
        for number in range(fleet.children):
            child = _popen(number, fleet)
            stack.callback(_end, child)
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.close()
            poll.register(child.stdout.fileno(), select.EPOLLIN)
        spoken: set[int] = set()
        while len(spoken) < fleet.children:
            spoken |= _listen(poll, ear)
        gc.collect()
        _listen_for(SETTLING, poll, ear)
        ear.start()
        _listen_for(fleet.seconds, poll, ear)
        ear.stop()


def _popen(number: int, fleet: Fleet) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        argv(number, fleet.rate), env=ENV, stdin=pipe, stdout=pipe, start_new_session=fleet.sessions
    )


def _listen_for(seconds: float, poll: select.epoll, ear: Ear) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        _listen(poll, ear)


def _listen(poll: select.epoll, ear: Ear) -> set[int]:
    ready = {fd for fd, _ in poll.poll(0.1)}
    for fd in ready:
        ear.lines(os.read(fd, READ_SIZE))
    return ready


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.__exit__(None, None, None)


Keep = Callable[[int, Fleet, Ear, Callable[[], None]], Awaitable[None]]
"""Holds one child for ever; calls the function when it has spoken first."""


async def in_tasks(keep: Keep, fleet: Fleet, ear: Ear) -> None:
    """A task of Trio for each child."""
    up = trio.Event()

    def spoke() -> None:
        ear.heard += 1
        if ear.heard == fleet.children:
            up.set()

    async with trio.open_nursery() as nursery:
        for number in range(fleet.children):
            nursery.start_soon(keep, number, fleet, ear, spoke)
        await up.wait()
        gc.collect()
        await trio.sleep(SETTLING)
        with watch_loop(BOUND, ear.held):
            ear.start()
            await trio.sleep(fleet.seconds)
            ear.stop()
        ear.guard_costs = guard_costs(ear.guards)
        nursery.cancel_scope.cancel()


async def an_agent(number: int, fleet: Fleet, ear: Ear, spoke: Callable[[], None], *, read: bool) -> None:
    """The path of every agent, and a task that reads its log event by event."""
    with closing(RunDirectory(None, "bench")) as directory:
        log = EventLog(directory.path / "events.ndjson")
        live = AgentProcess(plan_for(number, fleet.rate), log, directory)
        cursor = log.cursor(0)
        async with trio.open_nursery() as nursery:
            await nursery.start(live.serve)
            if live.pid is not None and live.pid != live.program_pid:
                ear.guards.append(live.pid)
            await live.send(Prompt("p1", "go"))
            await _first(cursor)
            spoke()
            if not read:
                await trio.sleep_forever()
            async for event in cursor:
                if isinstance(event, TextDelta):
                    ear.tick(event.text)


async def _first(cursor: Cursor) -> None:
    async for event in cursor:
        if event.__class__ is TextDelta:
            return


def plan_for(number: int, rate: float) -> Plan:
    """An agent whose command line is a ticker, in a one-shot run: it begins when its stdin ends."""

    def launch(wanted: dialects.Launch) -> dialects.Command:
        return dialects.Command(argv=argv(number, rate))

    dialect = attrs.evolve(CLAUDE, name="ticker", launch=launch)
    return Plan(name="ticker", dialect=dialect, launch=dialects.Launch(executable=(), mode="oneshot"))


async def a_process(number: int, fleet: Fleet, ear: Ear, spoke: Callable[[], None]) -> None:
    """`open_process` and `receive`."""
    async with open_process(Command(argv(number, fleet.rate), ENV), ladder=()) as process:
        process.close_stdin()
        await process.receive()
        spoke()
        while data := await process.receive():
            ear.lines(data)


async def a_stock_process(number: int, fleet: Fleet, ear: Ear, spoke: Callable[[], None]) -> None:
    """Trio's own process and its stream."""
    pipe = subprocess.PIPE
    process = await trio.lowlevel.open_process(
        argv(number, fleet.rate), env=ENV, stdin=pipe, stdout=pipe, start_new_session=fleet.sessions
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await process.stdin.aclose()
        await process.stdout.receive_some()
        spoke()
        while data := await process.stdout.receive_some():
            ear.lines(bytes(data))
    finally:
        process.kill()


async def a_descriptor(number: int, fleet: Fleet, ear: Ear, spoke: Callable[[], None]) -> None:
    """A pipe read by hand under Trio."""
    child = _popen(number, fleet)
    assert child.stdin is not None
    assert child.stdout is not None
    fd = child.stdout.fileno()
    try:
        child.stdin.close()
        await trio.lowlevel.wait_readable(fd)
        os.read(fd, READ_SIZE)
        spoke()
        while True:
            await trio.lowlevel.wait_readable(fd)
            ear.lines(os.read(fd, READ_SIZE))
    finally:
        _end(child)


async def on_asyncio(fleet: Fleet, ear: Ear) -> None:
    """asyncio's processes, a task each."""
    up = asyncio.Event()
    pipe = asyncio.subprocess.PIPE

    async def keep(number: int) -> None:
        child = await asyncio.create_subprocess_exec(
            *argv(number, fleet.rate), env=ENV, stdin=pipe, stdout=pipe, start_new_session=fleet.sessions
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.close()
            await child.stdout.readline()
            ear.heard += 1
            if ear.heard == fleet.children:
                up.set()
            async for line in child.stdout:
                ear.lines(line)
        finally:
            child.kill()
            await child.wait()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(keep(number)) for number in range(fleet.children)]
        await up.wait()
        gc.collect()
        await asyncio.sleep(SETTLING)
        ear.start()
        await asyncio.sleep(fleet.seconds)
        ear.stop()
        for task in tasks:
            task.cancel()


async def agents_in_tasks(read: bool, fleet: Fleet, ear: Ear) -> None:
    """The same of agents in a host, which has a ledger."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        async with open_ledger(Path(folder)):
            await in_tasks(partial(an_agent, read=read), fleet, ear)


def _in_trio(keep: Keep) -> Callable[[Fleet, Ear], None]:
    return lambda fleet, ear: trio.run(in_tasks, keep, fleet, ear)


CONTENDERS: Mapping[str, Callable[[Fleet, Ear], None]] = {
    "bare epoll": bare,
    "agents, async for": lambda fleet, ear: trio.run(agents_in_tasks, True, fleet, ear),
    "agents, nobody reads": lambda fleet, ear: trio.run(agents_in_tasks, False, fleet, ear),
    "open_process, receive": _in_trio(a_process),
    "Trio, descriptors": _in_trio(a_descriptor),
    "Trio, stock processes": _in_trio(a_stock_process),
    "asyncio, msgspec": lambda fleet, ear: asyncio.run(on_asyncio(fleet, ear)),
    "asyncio, one session": lambda fleet, ear: asyncio.run(
        on_asyncio(attrs.evolve(fleet, sessions=False), ear)
    ),
}


def alone(name: str, fleet: Fleet) -> Figures:
    """The figures of one contender, in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    ear = Ear()
    CONTENDERS[name](fleet, ear)
    if ear.longest is not None and ear.longest.computed > BOUND:
        print(f"{name}: {ear.longest}", file=sys.stderr)
    waiting = {"waiting": ear.waited / ear.watch.wall}
    return {**figures(fleet, ear.watch, ear.delays, ear.bytes), **ear.guard_costs, **waiting}


def figures(fleet: Fleet, watch: Stopwatch, delays: Sequence[float], size: float) -> Figures:
    """What the table tells but for guards: parts of a core, microseconds an event, delays in milliseconds, bytes a child,
    processes that ran or waited to in the last minute."""
    owed = fleet.children * fleet.rate * watch.wall
    ordered = sorted(delays)
    return {
        "cores": watch.cpu / watch.wall,
        "per_event": watch.cpu / owed * 1e6,
        "p50": _quantile(ordered, 0.5),
        "p99": _quantile(ordered, 0.99),
        "delivered": len(delays) / owed,
        "bytes": size / fleet.children,
        "load": os.getloadavg()[0],
    }


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[int(len(ordered) * part)] * 1e3 if ordered else float("nan")


def apart(name: str, fleet: Fleet) -> Figures:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "bench.fleet", f"--alone={name}", f"--children={fleet.children}"]
    command += [f"--rate={fleet.rate}", f"--seconds={fleet.seconds}"]
    # what is told of a held loop goes to stderr, past the table
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    told: Figures = json.loads(done.stdout)
    return told


def rows(fleet: Fleet, rounds: int) -> dict[str, Figures]:
    """The medians of every contender; nothing of one that is not there."""
    runs = [{name: apart(name, fleet) for name in CONTENDERS} | _others(fleet) for _ in range(rounds)]
    return {name: _medians(run[name] for run in runs) for name in runs[0]}


def _others(fleet: Fleet) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    for peer in FLEETS:
        if peer.absent():
            found[peer.name] = {}
        else:
            watch, size, delays = peer.load()(fleet.children, fleet.rate, fleet.seconds, PROGRAM)
            found[peer.name] = {**figures(fleet, watch, delays, size), **guard_costs([]), "waiting": nan}
    return found


def _medians(runs: Iterable[Figures]) -> Figures:
    kept = [*runs]
    return {figure: median(run[figure] for run in kept) for figure in kept[0]}


HEADINGS = (
    *("fleet", "cores", "CPU µs per event", "p50, ms", "p99, ms", "delivered", "KB per child"),
    *("CPU ms a guard", "KB a guard", "load", "waiting"),
)


def table(rows: Mapping[str, Figures]) -> str:
    """Markdown, one row per contender."""
    numbers = len(HEADINGS) - 1
    cells = [HEADINGS, ("---", *["--:"] * numbers)]
    for name, told in rows.items():
        cells.append((name, *(_cells(told) if told else (MISSING, *[""] * (numbers - 1)))))
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _cells(told: Figures) -> tuple[str, ...]:
    heard = f"{told['delivered']:.2f}" if told["delivered"] else ""
    return (
        f"{told['cores']:.2f}",
        f"{told['per_event']:.0f}",
        _known(told["p50"], 2),
        _known(told["p99"], 2),
        heard,
        f"{told['bytes'] / 1000:.0f}",
        _known(told["guard_cpu"], 0),
        _known(told["guard_bytes"] / 1000, 0),
        f"{told['load']:.1f}",
        _known(told["waiting"], 2),
    )


def _known(figure: float, digits: int) -> str:
    return "" if isnan(figure) else f"{figure:.{digits}f}"


def main() -> None:
    """Print the table; with `--alone`, the figures of one contender."""
    parser = argparse.ArgumentParser(description="Many children that each say a little all the time")
    for name, default in {"children": CHILDREN, "rate": RATE, "seconds": SECONDS, "rounds": 1}.items():
        parser.add_argument(f"--{name}", type=float, default=default, help=f"default {default}", metavar="N")
    parser.add_argument("--alone", choices=CONTENDERS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    fleet = Fleet(int(chosen.children), chosen.rate, chosen.seconds)
    if chosen.alone is not None:
        print(json.dumps(alone(chosen.alone, fleet)))
    else:
        print(table(rows(fleet, int(chosen.rounds))))


if __name__ == "__main__":
    main()
