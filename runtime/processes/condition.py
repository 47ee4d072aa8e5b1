"""The condition of a process, its guard and its pipes as seen from outside at one moment.

A condition says nothing about what the process means by it: what follows from one is policy, which the caller has.
"""

from __future__ import annotations

import sys
from typing import Literal

import attrs

from proctor.runtime.processes.procfs import stat_of

PipeState = Literal["open", "closed"]
ProcessState = Literal["running", "stopped", "dead"]
GuardState = Literal["running", "stopped", "dead", "none"]


@attrs.frozen(kw_only=True)
class Condition:
    """`stdout`, `stderr` and `stdin` are closed when either side has closed them; `process` is the program itself,
    `guard` its parent, "none" where it has no guard. A stopped process got SIGSTOP or its like and was not continued."""

    stdout: PipeState = "open"
    stderr: PipeState = "open"
    stdin: PipeState = "open"
    process: ProcessState = "running"
    guard: GuardState = "none"

    def __str__(self) -> str:
        pipes = [name for name in ("stdout", "stderr", "stdin") if getattr(self, name) == "closed"]
        parts = [f"process {self.process}", *(f"{name} closed" for name in pipes)]
        return ", ".join(parts if self.guard == "none" else [*parts, f"guard {self.guard}"])


def process_state(pid: int, parent: int | None = None) -> ProcessState:
    """Whether this process runs. With `parent`, a process that has another parent is taken for dead: the number was
    given away again. Where the system shows nothing (not Linux), it is taken for running."""
    if sys.platform != "linux":
        return "running"
    stat = stat_of(pid)
    if stat is None or stat.state in "ZXx" or parent not in (None, stat.parent):
        return "dead"
    return "stopped" if stat.state == "T" else "running"
