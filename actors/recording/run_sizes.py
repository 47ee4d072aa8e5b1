"""The sizes of ended runs, kept in one file, so that a look for the oldest does not measure each of them again.

    ROOT/.proctor-sizes             0600, a line a run: NAME TOUCHED CHANGED SIZE

A short command ends before it has measured thousands of runs. What it has measured is written down a batch at a time, and
the next command goes on from there. A line counts as long as its folder was not touched since; one that was cut short, is
not ours or cannot be written is a run to measure, no error. With fewer runs than a batch there is no file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

import attrs

from proctor.actors.disk import replace_file
from proctor.runtime.processes import open_private, write_all

FILE = ".proctor-sizes"
BATCH = 100
"""Runs that are measured before they are written down."""


@attrs.frozen
class RunSize:
    """A run: when something in it was last `changed`, its `name`, the mtime of its folder in nanoseconds, its bytes."""

    changed: float
    name: str
    touched: int
    size: int

    def __str__(self) -> str:
        return f"{self.name} {self.touched} {self.changed!r} {self.size}\n"


class RunSizes:
    """The sizes known for the runs of `root`; `now` is the time of the look."""

    def __init__(self, root: Path, now: float) -> None:
        self.now = now
        self._path = root / FILE
        self._fresh = list[RunSize]()
        self._used = dict[str, RunSize]()
        self._known = dict[str, RunSize]()
        self._lines = 0
        with suppress(OSError):
            self._read()

    def get(self, name: str, touched: int) -> RunSize | None:
        """What is known of a run whose folder was last touched then."""
        found = self._known.get(name)
        if found is None or found.touched != touched:
            return None
        self._used[name] = found
        return found

    def add(self, run: RunSize) -> None:
        """Remember a run that was measured after its end."""
        self._fresh.append(run)
        self._used[run.name] = run
        if len(self._fresh) == BATCH:
            with suppress(OSError):
                self._append("".join(map(str, self._fresh)))
            self._fresh.clear()

    def tidy(self) -> None:
        """Write the file anew without the runs that are gone, where they are the most of it. Call after a look at all."""
        if self._lines > 2 * len(self._used) + BATCH:
            with suppress(OSError):
                replace_file(self._path, "".join(map(str, self._used.values())).encode())

    def _append(self, lines: str) -> None:
        # Appended in one write: of two commands that look at the same time neither cuts the other's lines.
        fd = open_private(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            write_all(fd, lines.encode())
        finally:
            os.close(fd)

    def _read(self) -> None:
        fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            # Somebody else's lines could make our runs look old.
            if not S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                return
            *lines, _ = file.read().decode("utf-8", "replace").split("\n")
        self._lines = len(lines)
        for line in lines:
            with suppress(ValueError):
                name, touched, changed, size = line.split(" ")
                self._known[name] = RunSize(float(changed), name, int(touched), int(size))
