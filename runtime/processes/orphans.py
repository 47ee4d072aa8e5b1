"""Killing what dead hosts have left: every process that carries a marker of theirs, in whatever session it hides.

A marker begins with its host's key, a random word that no other host has. So a process that carries it was started
below that host, by any process and at any time; a process without it is a stranger and untouched.

Guarantees. A process is signalled by a descriptor that was opened before its marker was read: the number may be given
away at any moment, the descriptor stays with who was looked at. All that are found are frozen before one is killed,
the newest first, so that a family cannot fork away; it is looked again until nothing is found and nothing can have
been started meanwhile (or, on a machine that never rests, nothing was found several times in a row). It ends in
time, and what is still there is reported with the reason. Neither this process nor what it descends from is touched.

Not handled: a program that has overwritten its own environment, or was given one without the marker. A guard above it
finds these too, as long as the guard lives.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack

import attrs
import trio

from proctor.runtime.processes import procfs

SWEEP_LIMIT = 10.0
"""Seconds after which what does not die is left behind."""
PATIENT = 10
"""Looks in a row that the system may refuse."""
QUIET = 10
"""Empty searches in a row that are enough where processes are started all the time."""
HANDFUL = 100
"""Processes that are frozen and killed at once: each takes a descriptor."""
_SHORTEST, _LONGEST = 0.002, 0.05


def key_of(marker: str) -> str:
    """The host's part of a marker."""
    return marker.partition("/")[0]


@attrs.frozen(order=True)
class Orphan:
    """A process that outlived its host: `pid`, `start` in ticks since the boot, the program's `name`, its `marker`.
    `why` it is still there; empty when it is not."""

    pid: int
    start: int
    name: str = attrs.field(eq=False)  # it changes with what it executes
    marker: str = attrs.field(eq=False)
    why: str = attrs.field(default="", eq=False)

    def __str__(self) -> str:
        text = f"{self.name} ({self.pid})"
        return f"{text}: {self.why}" if self.why else text


@attrs.frozen
class SweepResult:
    """The result of the search for orphans. Not `sure`: it could not be looked everywhere in time, or not at all for
    `cause`."""

    killed: tuple[Orphan, ...] = ()
    left: tuple[Orphan, ...] = ()
    sure: bool = True
    cause: Exception | None = None


def find_marked(keys: Collection[str]) -> tuple[Orphan, ...]:
    """All that carry a marker with one of `keys` at this moment, by number. Raises OSError where there is no /proc."""
    found: list[Orphan] = []
    for pid in procfs.pids():
        marker = _marker_among(keys, pid)
        stat = procfs.stat_of(pid) if marker else None
        if marker and stat is not None:
            found.append(Orphan(pid, stat.start, stat.name, marker))
    return tuple(sorted(found))


async def kill_marked(keys: Collection[str], *, limit: float = SWEEP_LIMIT) -> SweepResult:
    """Kill all that carry a marker with one of `keys`, and return when they are gone, or after `limit` seconds.

    Looking is done in a thread, which a system that does not answer cannot make us wait for. Cancelled, it leaves off.
    """
    if not keys:
        return SweepResult()
    if sys.platform != "linux":
        return SweepResult(sure=False)
    hunt = _Hunt(frozenset(keys))
    sure = False
    with trio.move_on_after(limit):
        # Stays False when the time runs out in the middle, so the ledger is kept for the next host.
        sure = await _found_none(hunt)
    return hunt.toll(sure=sure)


async def _found_none(hunt: _Hunt) -> bool:
    limiter, quiet, refused, pause = trio.CapacityLimiter(1), 0, 0, _SHORTEST
    while refused < PATIENT:
        try:
            # In a thread: a read of /proc can hang on a process in a dying mount. One at a time, as `_Hunt`
            # has no lock.
            sure = await trio.to_thread.run_sync(hunt.round, limiter=limiter, abandon_on_cancel=True)
        except (
            OSError,
            RuntimeError,
        ) as error:  # no descriptor, no thread to look in: that may pass; or no /proc
            hunt.refusal, quiet, refused = error, 0, refused + 1
        else:
            refused, quiet = 0, 0 if hunt.alive - hunt.above else quiet + 1
            if (quiet and sure) or quiet == QUIET:
                return True
        await trio.sleep(pause)
        pause = min(2 * pause, _LONGEST)
    return False


class _Hunt:
    def __init__(self, keys: frozenset[str]) -> None:
        self.alive: set[Orphan] = set()
        self.above: set[Orphan] = set()
        self.refusal: Exception | None = None
        self._keys = keys
        self._found: set[Orphan] = set()
        self._seen: set[Orphan] = set()
        self._bare: list[int] = []
        self._refused: dict[Orphan, str] = {}

    def round(self) -> bool:
        """Freeze and kill those that are there. Returns whether none was missed for sure."""
        # Read before the look: a process started during it changes the number, and the look has to be
        # repeated.
        last = procfs.last_pid()
        before = self.alive.copy()
        self._seen, self._bare = set(), []
        frozen: list[tuple[Orphan, int]] = []
        with ExitStack() as held:
            try:
                # An error in the middle, such as no more descriptors, still kills those that are frozen
                # already.
                frozen += self._freeze(held)
            finally:
                for orphan, pidfd in frozen:
                    self._signal(orphan, pidfd, signal.SIGKILL)
        # Those found in this round were only just killed: the next look has to show that they are gone.
        self.alive -= before - self._seen  # only a look that went to its end shows that somebody is gone
        return procfs.last_pid() == last and not any(map(_is_executing, self._bare))

    def _freeze(self, held: ExitStack) -> Iterator[tuple[Orphan, int]]:
        line = procfs.ancestors()
        for orphan, pidfd in self._marked(held):
            self.alive.add(orphan)
            self._seen.add(orphan)
            self._found.add(orphan)
            if orphan.pid in line:
                self.above.add(orphan)
            elif self._signal(orphan, pidfd, signal.SIGSTOP):
                yield orphan, pidfd

    def toll(self, *, sure: bool) -> SweepResult:
        found, alive = self._found.copy(), self.alive.copy()  # a thread that hangs may still wake up
        left = (attrs.evolve(orphan, why=self._why(orphan)) for orphan in alive)
        return SweepResult(
            tuple(sorted(found - alive)), tuple(sorted(left)), sure, None if sure else self.refusal
        )

    def _marked(self, held: ExitStack) -> Iterator[tuple[Orphan, int]]:
        taken = 0
        for pid in procfs.pids():
            marker = _marker_among(self._keys, pid)
            if marker is None:
                continue
            if not marker:
                # Looked at again when the round is over: nearly all are threads of the kernel, and a look costs.
                self._bare.append(pid)
                continue
            # The rest has its turn in the next round; unbounded, a thousand orphans would use up our
            # descriptors.
            if taken == HANDFUL:
                return
            try:
                # Opened before the second look at the marker: what is signalled later is what was looked at.
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            taken += 1
            held.callback(os.close, pidfd)
            # Read again: between the first look and the descriptor the number may have gone to another
            # process.
            stat, marker = procfs.stat_of(pid), _marker_among(self._keys, pid)
            if marker == "":
                self._bare.append(pid)
            if stat is not None and marker:
                yield Orphan(pid, stat.start, stat.name, marker), pidfd

    def _signal(self, orphan: Orphan, pidfd: int, number: signal.Signals) -> bool:
        try:
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            return False
        except OSError as error:  # whatever the reason: the others are still to be killed
            self._refused[orphan] = f"it cannot be killed: {error.strerror}"
            return False
        return True

    def _why(self, orphan: Orphan) -> str:
        if orphan in self.above:
            return "this process descends from it"
        return self._refused.get(orphan, "it was killed and does not die")


def _marker_among(keys: Collection[str], pid: int) -> str | None:
    """Its marker when its key is among `keys`, else None; empty when it has no environment."""
    try:
        marker = procfs.marker_of(pid)
    except PermissionError:
        # Another user's, or one that changed its user: neither may be ours to kill.
        return None
    return marker if marker == "" or (marker is not None and key_of(marker) in keys) else None


def _is_executing(pid: int) -> bool:
    """Whether a process that had no environment a moment ago is about to get one, or has got one with a marker since."""
    try:
        return procfs.is_executing(pid) or bool(procfs.marker_of(pid))
    except PermissionError:
        return False
