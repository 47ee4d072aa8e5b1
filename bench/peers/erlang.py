"""Erlang's part, in a program of its own that times itself: `otp.escript`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.contest import Stopwatch
from bench.peers.entries import Exchange
from bench.spawn import TRUE

PROGRAM = Path(__file__).with_name("otp.escript")
MANY = 20
"""Servers for each actor of ours where idle ones are measured: Erlang tells its CPU time in milliseconds."""


def told(*arguments: str | int) -> list[float]:
    """The figures of one work."""
    command = ["escript", str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    return [float(figure) for figure in done.stdout.split()]


def timed(*arguments: str | int) -> Stopwatch:
    """The wall and the CPU time of one work."""
    watch = Stopwatch()
    watch.wall, watch.cpu = told(*arguments)
    return watch


def exchange(kind: Exchange, actors: int, operations: int) -> Stopwatch:
    """A caller for each of `actors` servers."""
    return timed(kind, actors, operations)


def start(at_once: int, programs: int) -> Stopwatch:
    """Ports, each until its program has ended."""
    return timed("spawn", at_once, programs, TRUE)


def idle(count: int) -> list[float]:
    """Bytes allocated, bytes resident, CPU microseconds to start and to stop, of each."""
    return told("idle", count * MANY)


def hear(children: int, rate: float, seconds: float, program: str) -> tuple[Stopwatch, float, list[float]]:
    """The watch, the bytes resident of all, and the delay of each event in seconds."""
    watch = Stopwatch()
    whole = max(1, round(seconds))
    watch.wall, watch.cpu, size, *delays = told("hear", children, str(rate), whole, sys.executable, program)
    return watch, size, delays
