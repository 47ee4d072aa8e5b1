"""What a piece of code leaves behind in this process: descriptors, children, threads, tasks, files.

Guarantees: only what is this process's own is counted, so that two test runs side by side do not see each other. What
had been there before is not held against anybody; nor are daemon threads, which Trio keeps for the next call, and the
descriptor of the look itself. Linux; elsewhere children are not known.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from proctor.runtime.processes import pids, stat_of

_PAUSES = (0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
"""Seconds between two looks, for a dying child or a closing thread, where no event loop runs. A look costs a collection."""


class Leaked(AssertionError):
    """Something was left behind; `things` names each, in the order of kinds."""

    def __init__(self, things: tuple[str, ...]) -> None:
        super().__init__(f"left behind: {', '.join(things)}")
        self.things = things


@attrs.frozen
class Belongings:
    """What the process has at one instant: a name for each thing, and how many tasks live (0 outside of Trio)."""

    things: frozenset[str]
    tasks: int

    def beyond(self, before: Belongings) -> tuple[str, ...]:
        """What is here and was not before, by name."""
        more = self.tasks - before.tasks
        tasks = (f"{more} task{'s' if more > 1 else ''}",) if more > 0 else ()
        return (*sorted(self.things - before.things), *tasks)


def belongings(folder: Path | None = None) -> Belongings:
    """What the process has now; `folder` is one whose entries count too."""
    gc.collect()
    return Belongings(
        frozenset((*_descriptors(), *_children(), *_threads(), *_files(folder))),
        trio.lowlevel.current_statistics().tasks_living if trio.lowlevel.in_trio_run() else 0,
    )


@contextmanager
def no_leaks(folder: Path | None = None) -> Generator[None]:
    """Raises `Leaked` when the block leaves something behind, unless it raises itself.

    In a Trio task the tasks of the whole run count as well, so let nobody else start any meanwhile. Outside of Trio what
    is on its way out has two and a half seconds; a block within Trio has to have waited.
    """
    before = belongings(folder)
    yield
    pauses = iter(() if trio.lowlevel.in_trio_run() else _PAUSES)
    never = threading.Event()
    while left := belongings(folder).beyond(before):
        if (pause := next(pauses, None)) is None:
            raise Leaked(left)
        never.wait(pause)


def _descriptors() -> Iterator[str]:
    place = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    for number in os.listdir(place):
        try:
            target = os.readlink(f"{place}/{number}")
        except OSError:  # the one that the listing itself took, or a system without names
            continue
        if not target.endswith(f"/{os.getpid()}/fd"):
            yield f"descriptor {number} ({target})"


def _children() -> Iterator[str]:
    if sys.platform != "linux":
        return
    for pid in pids():
        stat = stat_of(pid)
        if stat is not None and stat.parent == os.getpid():
            yield f"process {pid} ({stat.name}{', a zombie' if stat.state == 'Z' else ''})"


def _threads() -> Iterator[str]:
    return (f"thread {t.name}" for t in threading.enumerate() if not t.daemon)


def _files(folder: Path | None) -> Iterator[str]:
    return iter(()) if folder is None else (f"file {path}" for path in folder.iterdir())
