"""One very long line, through the path of every agent: is its time linear, and its memory?

    python -m bench.longline [--rounds 3]

A child writes a turn of Claude Code that has one line of so many megabytes, an answer. The watch runs from the prompt to
the end of the turn. Each size runs in processes of its own; `peak` is what its resident memory grew by at most. A line
above the limit of `protocols.framing` is not kept, so the last row costs less than its length.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from contextlib import closing
from statistics import median

import attrs
import trio

from bench.contest import Stopwatch
from bench.writer import closing as ending
from bench.writer import opening
from proctor.actors.plan.plan import Plan
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.protocols import dialect as dialects
from proctor.protocols.claude import CLAUDE
from proctor.protocols.vocabulary import Garbled, Prompt, Text, TurnEnded

MEGABYTES = 40
ROUNDS = 3
WRITER = """
import sys
sys.stdin.buffer.read()
write = sys.stdout.buffer.write
write({opening!r})
write(b'{{"type":"assistant","message":{{"content":[{{"type":"text","text":"')
for _ in range({megabytes}):
    write(b"x" * 10**6)
write(b'"}}]}}}}\\n')
write({ending!r})
"""


def plan_for(megabytes: int) -> Plan:
    """An agent whose command line is the writer, in a one-shot run."""
    script = WRITER.format(megabytes=megabytes, opening=opening(), ending=ending())

    def launch(wanted: dialects.Launch) -> dialects.Command:
        return dialects.Command(argv=(sys.executable, "-I", "-S", "-c", script))

    dialect = attrs.evolve(CLAUDE, name="writer", launch=launch)
    return Plan(name="writer", dialect=dialect, launch=dialects.Launch(executable=(), mode="oneshot"))


async def through(megabytes: int) -> tuple[float, float, str]:
    """CPU seconds, bytes of memory at the most, and what the line came as."""
    seen = ""
    with closing(RunDirectory(None, "bench")) as directory:
        log = EventLog(directory.path / "events.ndjson")
        live = AgentProcess(plan_for(megabytes), log, directory)
        async with trio.open_nursery() as nursery:
            await nursery.start(live.serve)
            before = _peak()
            with Stopwatch() as watch:
                await live.send(Prompt("p1", "go"))
                async for event in log.cursor(0):
                    if isinstance(event, Text | Garbled):
                        seen = type(event).__name__
                    elif isinstance(event, TurnEnded):
                        break
            peak = _peak() - before
    return watch.cpu, peak, seen


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def apart(megabytes: int) -> tuple[float, float, str]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "bench.longline", f"--alone={megabytes}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cpu, peak, seen = done.stdout.split()
    return float(cpu), float(peak), seen


def row(megabytes: int, rounds: int) -> tuple[str, ...]:
    """One size: its medians."""
    runs = [apart(megabytes) for _ in range(rounds)]
    cpu, peak = median(run[0] for run in runs) * 1e3, median(run[1] for run in runs) / 1e6
    figures = (f"{cpu:.0f}", f"{cpu / megabytes:.2f}", f"{peak:.0f}", f"{peak / megabytes:.1f}")
    return (str(megabytes), *figures, runs[0][2])


HEADINGS = ("line, MB", "CPU ms", "CPU ms per MB", "peak, MB", "peak per MB", "came as")


def table(rounds: int, most: int = MEGABYTES) -> str:
    """Markdown, one row per size: an eighth of `most`, a fourth, a half and all."""
    sizes = [max(1, most // part) for part in (8, 4, 2, 1)]
    rules = ("--:", "--:", "--:", "--:", "--:", "---")
    cells: list[tuple[str, ...]] = [HEADINGS, rules, *(row(size, rounds) for size in sizes)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def main() -> None:
    """Print the table; with `--alone`, the figures of one size."""
    parser = argparse.ArgumentParser(description="One very long line")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}", metavar="N")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone is not None:
        print(*trio.run(through, chosen.alone))
    else:
        print(table(chosen.rounds))


if __name__ == "__main__":
    main()
