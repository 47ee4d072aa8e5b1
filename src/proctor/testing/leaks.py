"""Leak check: descriptors, child processes, threads, tasks and files that a block of code leaves behind.

Counts only resources of this process that are new, so tests may run side by side. Daemon threads do not count, because
Trio keeps them for the next call. Child processes are counted on Linux only.
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
"""Seconds between two checks outside of Trio, for a child or a thread that is still ending. A check runs the garbage collector."""


class Leaked(AssertionError):
    """Resources were left behind; `things` names each of them."""

    def __init__(self, things: tuple[str, ...]) -> None:
        super().__init__(f"left behind: {', '.join(things)}")
        self.things = things


@attrs.frozen
class Belongings:
    """The resources of the process by name, and the number of tasks (0 outside of Trio)."""

    things: frozenset[str]
    tasks: int

    def beyond(self, before: Belongings) -> tuple[str, ...]:
        """The resources that are not in `before`, by name."""
        more = self.tasks - before.tasks
        tasks = (f"{more} task{'s' if more > 1 else ''}",) if more > 0 else ()
        return (*sorted(self.things - before.things), *tasks)


def belongings(folder: Path | None = None) -> Belongings:
    """List the resources of the process; entries of `folder` count too."""
    # an object in a cycle would hold its descriptor until some later collection and be counted against
    # another test
    gc.collect()
    return Belongings(
        frozenset((*_descriptors(), *_children(), *_threads(), *_files(folder))),
        trio.lowlevel.current_statistics().tasks_living if trio.lowlevel.in_trio_run() else 0,
    )


@contextmanager
def no_leaks(folder: Path | None = None) -> Generator[None]:
    """Raise `Leaked` when the block leaves a resource behind, unless the block itself raises.

    In a Trio task the tasks of the whole run count too, so no other task may start one meanwhile. Outside of Trio,
    resources that are being closed have two and a half seconds.
    """
    before = belongings(folder)
    yield
    # inside Trio a pause would block the loop, and nothing could end meanwhile
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
