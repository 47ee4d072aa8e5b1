"""The proof of `proctor doctor --prove-cleanup`: kills a runtime without warning and counts the processes that are left.

The runtime is a process of its own (`orphan_fixture`) with guarded children, half of them with descendants in other
sessions. Then the next start sweeps a ledger that names a living process of somebody else: that one must not be killed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import trio

from proctor.runtime.processes import (
    Command,
    Entry,
    Orphan,
    Process,
    Step,
    Swept,
    find_marked,
    open_ledger,
    open_process,
    stat_of,
)

_AT_ONCE = (Step("kill"),)
_STARTING = 60.0
_LOOK = 0.02
_SLEEP = "import time; time.sleep(600)"


class ProofFailed(Exception):
    """The runtime did not start, so nothing was proved."""


@attrs.frozen(kw_only=True)
class Proof:
    """The result. `apart` of the `processes` were in other sessions than their guard; `seconds` after the kill these were
    `left`; `swept` is the result of the next start; `untouched`: the foreign process still runs."""

    children: int
    processes: int
    apart: int
    seconds: float
    left: tuple[Orphan, ...]
    swept: Swept
    untouched: bool

    @property
    def holds(self) -> bool:
        """Whether nothing was left and no foreign process was killed."""
        return not self.left and not self.swept.left and self.swept.sure and self.untouched

    def lines(self) -> Iterator[str]:
        """The result as text."""
        yield (
            f"killed a runtime with {self.children} children and {self.processes} processes below it, "
            f"{self.apart} of them in sessions of their own"
        )
        yield f"left after {self.seconds:.2f} s: {', '.join(map(str, self.left)) or 'nothing'}"
        yield f"killed by the sweep of the next start: {', '.join(map(str, self.swept.killed)) or 'nothing'}"
        yield from (f"could not be killed: {orphan}" for orphan in self.swept.left)
        yield f"a foreign process with a recorded pid: {'untouched' if self.untouched else 'KILLED'}"
        yield "proved" if self.holds else "NOT proved"

    def facts(self) -> dict[str, object]:
        """The result as JSON data."""
        return {
            "holds": self.holds,
            "children": self.children,
            "processes": self.processes,
            "apart": self.apart,
            "seconds": round(self.seconds, 3),
            "left": [attrs.asdict(orphan) for orphan in self.left],
            "swept": [attrs.asdict(orphan) for orphan in (*self.swept.killed, *self.swept.left)],
            "stranger_untouched": self.untouched,
        }


async def prove_cleanup(children: int, seconds: float) -> Proof:
    """Run the proof; all processes must be gone within `seconds`. Raises ProofFailed and ProcessError."""
    with tempfile.TemporaryDirectory(prefix="proctor-doctor-") as folder:
        fixture = (sys.executable, "-m", "proctor.cli.orphan_fixture", folder, str(children))
        stranger = (sys.executable, "-I", "-S", "-c", _SLEEP)
        async with (
            open_process(Command(fixture, os.environ), ladder=_AT_ONCE) as host,
            open_process(Command(stranger, os.environ), ladder=_AT_ONCE) as other,
        ):
            await _ready(host, _STARTING + children)
            return await _killed(host, other, Path(folder), children, seconds)


async def _ready(host: Process, patience: float) -> None:
    output = b""
    with trio.move_on_after(patience):
        while b"ready\n" not in output and (data := await host.receive()):
            output += data
    if b"ready\n" not in output:
        # stopped first, so that its stderr is complete when the last line is quoted
        await host.stop()
        last = host.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ProofFailed(f"the runtime to be killed did not start: {last or host.exit}")


async def _killed(host: Process, other: Process, folder: Path, children: int, seconds: float) -> Proof:
    ledger = _ledger_in(folder)
    # before the kill: afterwards only what was left could be counted
    before, apart = _count_processes(ledger)
    began = trio.current_time()
    # SIGKILL: no handler, no finally and no atexit of the runtime may help with the clean-up that is proved
    host.kill()
    await host.wait()
    left = await _wait_gone(ledger.stem, began + seconds)
    took = trio.current_time() - began
    # forged with its true start time, so that only the missing marker protects it
    _add_foreign_entry(ledger, other)
    async with open_ledger(folder) as next_one:
        swept = await next_one.sweep()
    return Proof(
        children=children,
        processes=before,
        apart=apart,
        seconds=took,
        left=left,
        swept=swept,
        untouched=_runs(other) and other.pid in swept.strangers,
    )


def _ledger_in(folder: Path) -> Path:
    [ledger] = folder.glob("*.ledger")
    return ledger


def _count_processes(ledger: Path) -> tuple[int, int]:
    """The number of processes of the host, and of those in sessions that it did not make."""
    words = (line.split()[0] for line in ledger.read_text().splitlines()[1:])
    recorded = {int(word) for word in words if word.isdecimal()}
    marked = find_marked({ledger.stem})
    return len(marked), sum(os.getsid(orphan.pid) not in recorded for orphan in marked)


async def _wait_gone(key: str, deadline: float) -> tuple[Orphan, ...]:
    # polls: the kernel does not report the end of processes that are not our children
    while (left := find_marked({key})) and trio.current_time() < deadline:  # noqa: ASYNC110
        await trio.sleep(_LOOK)
    return left


def _add_foreign_entry(ledger: Path, stranger: Process) -> None:
    stat = stat_of(stranger.pid)
    assert stat is not None
    with ledger.open("a") as lines:
        lines.write(str(Entry(stranger.pid, stat.start, f"{ledger.stem}/0/forged")))


def _runs(process: Process) -> bool:
    stat = stat_of(process.pid)
    # T is stopped, Z a zombie, X dead: the sweep stops a process before it looks at it again
    return process.exit is None and stat is not None and stat.state not in "TZX"
