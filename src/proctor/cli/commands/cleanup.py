"""`proctor doctor --prove-cleanup`: a runtime is started, killed without warning, and what it leaves is counted.

The runtime is a process of its own with guarded children, half of them with descendants in sessions of their own and
with orphans (`victim`). After the kill nothing may be left once the time is over. Then the next start sweeps a ledger
that names a living stranger under its true number and start: it must go on undisturbed.
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
    """The runtime could not be brought up, so that nothing was proved."""


@attrs.frozen(kw_only=True)
class Proof:
    """`processes` ran below a runtime of `children` when it was killed, `apart` of them in other sessions than their
    guard's. After `seconds` these were `left`; `swept` is what the next start did; was the stranger `untouched`?"""

    children: int
    processes: int
    apart: int
    seconds: float
    left: tuple[Orphan, ...]
    swept: Swept
    untouched: bool

    @property
    def holds(self) -> bool:
        """Nothing was left and nobody else harmed."""
        return not self.left and not self.swept.left and self.swept.sure and self.untouched

    def lines(self) -> Iterator[str]:
        """For a person."""
        yield (
            f"killed a runtime with {self.children} children and {self.processes} processes below it, "
            f"{self.apart} of them in sessions of their own"
        )
        yield f"left after {self.seconds:.2f} s: {', '.join(map(str, self.left)) or 'nothing'}"
        yield f"killed by the sweep of the next start: {', '.join(map(str, self.swept.killed)) or 'nothing'}"
        yield from (f"could not be killed: {orphan}" for orphan in self.swept.left)
        yield f"a stranger under a noted number: {'untouched' if self.untouched else 'HARMED'}"
        yield "proved" if self.holds else "NOT proved"

    def facts(self) -> dict[str, object]:
        """For a program."""
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
    """Do it; the time to die is `seconds`. Raises ProofFailed, or ProcessError when not even a program can be started."""
    with tempfile.TemporaryDirectory(prefix="proctor-doctor-") as folder:
        victim = (sys.executable, "-m", "proctor.cli.commands.orphan_fixture", folder, str(children))
        stranger = (sys.executable, "-I", "-S", "-c", _SLEEP)
        async with (
            open_process(Command(victim, os.environ), ladder=_AT_ONCE) as host,
            open_process(Command(stranger, os.environ), ladder=_AT_ONCE) as other,
        ):
            await _ready(host, _STARTING + children)
            return await _killed(host, other, Path(folder), children, seconds)


async def _ready(host: Process, patience: float) -> None:
    said = b""
    with trio.move_on_after(patience):
        while b"ready\n" not in said and (data := await host.receive()):
            said += data
    if b"ready\n" not in said:
        await host.stop()
        told = host.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ProofFailed(f"the runtime to be killed did not come up: {told or host.exit}")


async def _killed(host: Process, other: Process, folder: Path, children: int, seconds: float) -> Proof:
    ledger = _ledger_in(folder)
    before, apart = _census(ledger)
    began = trio.current_time()
    host.kill()
    await host.wait()
    left = await _wait_gone(ledger.stem, began + seconds)
    took = trio.current_time() - began
    _forge(ledger, other)
    async with open_ledger(folder) as next_one:
        swept = await next_one.sweep()
    return Proof(
        children=children,
        processes=before,
        apart=apart,
        seconds=took,
        left=left,
        swept=swept,
        untouched=_goes_on(other) and other.pid in swept.strangers,
    )


def _ledger_in(folder: Path) -> Path:
    [ledger] = folder.glob("*.ledger")
    return ledger


def _census(ledger: Path) -> tuple[int, int]:
    """How many processes its host has, and how many of them in other sessions than those it made itself."""
    words = (line.split()[0] for line in ledger.read_text().splitlines()[1:])
    noted = {int(word) for word in words if word.isdecimal()}
    found = find_marked({ledger.stem})
    return len(found), sum(os.getsid(orphan.pid) not in noted for orphan in found)


async def _wait_gone(key: str, deadline: float) -> tuple[Orphan, ...]:
    # nobody tells of the end of those who are not ours
    while (left := find_marked({key})) and trio.current_time() < deadline:  # noqa: ASYNC110
        await trio.sleep(_LOOK)
    return left


def _forge(ledger: Path, stranger: Process) -> None:
    stat = stat_of(stranger.pid)
    assert stat is not None
    with ledger.open("a") as lines:
        lines.write(str(Entry(stranger.pid, stat.start, f"{ledger.stem}/0/forged")))


def _goes_on(process: Process) -> bool:
    stat = stat_of(process.pid)
    return process.exit is None and stat is not None and stat.state not in "TZX"
