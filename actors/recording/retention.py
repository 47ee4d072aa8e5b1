"""Retention: which recordings are removed, by age and by size.

Where all take too much, the oldest recording of the agent that has most goes first: one that writes a lot does not cost the
others their past. Removed is only what has our tag with its own name, belongs to this user, and is not locked: a folder of
somebody else's, a copy, a renamed one and a run directory of a version without tags stay.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from pathlib import Path

import trio

from proctor.actors.recording.periodic import run_periodically
from proctor.actors.recording.recording import EVENTS, RUN_NAME, RUN_TAG
from proctor.actors.recording.run_sizes import RunSize, RunSizes
from proctor.runtime.processes import is_tagged, remove_tree

KEEP_BYTES = 1 * 2**30
KEEP_SECONDS = 30 * 86400.0
PRUNE_INTERVAL = 3600.0
"""Seconds between two looks for recordings that are to go."""


def prune(
    root: Path,
    *,
    keep_bytes: int = KEEP_BYTES,
    keep_seconds: float = KEEP_SECONDS,
    now: float | None = None,
) -> list[Path]:
    """Remove run directories below `root` until both bounds hold; returns what was removed. Too old is what was not changed for
    `keep_seconds`; beyond `keep_bytes` the oldest of the agent that has most go first.

    Only directories with our tag and our lock file count, and one whose lock is held is left alone. `now` is the time
    that ages are counted to (default: the wall clock's).
    """
    now = time.time() if now is None else now
    runs = sorted(_runs_in(root, RunSizes(root, now)), key=attrgetter("changed"))
    old = [run for run in runs if now - run.changed > keep_seconds]
    removed = [run for run in old if _remove_unlocked(root / run.name)]
    left = [run for run in runs if now - run.changed <= keep_seconds]
    surplus = sum(run.size for run in runs) - sum(run.size for run in removed) - keep_bytes
    for run in _in_turn(left):
        if surplus <= 0:
            break
        if _remove_unlocked(root / run.name):
            removed.append(run)
            surplus -= run.size
    return [root / run.name for run in removed]


def _in_turn(runs: Iterable[RunSize]) -> Iterator[RunSize]:
    """The runs, which come oldest first, in the order in which they are to go: always the oldest of the agent that has most."""
    of_agents = defaultdict[str, deque[RunSize]](deque)
    for run in runs:
        of_agents[_agent_of(run)].append(run)
    # the most bytes first; of two agents with as much the one whose run is older
    heap = [(-sum(run.size for run in own), own[0].changed, agent) for agent, own in of_agents.items()]
    heapify(heap)
    while heap:
        less, _, agent = heap[0]
        own = of_agents[agent]
        run = own.popleft()
        if own:
            heapreplace(heap, (less + run.size, own[0].changed, agent))
        else:
            heappop(heap)
        yield run


def _agent_of(run: RunSize) -> str:
    named = RUN_NAME.fullmatch(run.name)
    assert named is not None  # others are not listed
    return named["agent"]


async def prune_regularly(
    root: Path,
    *,
    keep_bytes: int = KEEP_BYTES,
    keep_seconds: float = KEEP_SECONDS,
    every: float = PRUNE_INTERVAL,
    wall: Callable[[], float] = time.time,
) -> None:
    """Prune `root` now and then, `every` so many seconds, until cancelled; a task beside whatever records there.

    A wall clock that jumps ahead meanwhile makes nothing old: ages are counted to the time of the start and what has passed
    since. A failure to prune is no reason to fail: the next look tries again.
    """

    async def look(now: float) -> None:
        remove = partial(prune, root, keep_bytes=keep_bytes, keep_seconds=keep_seconds, now=now)
        with suppress(OSError):
            # In a thread that is abandoned: a disk that hangs must not hold up the end.
            await trio.to_thread.run_sync(remove, abandon_on_cancel=True)

    await run_periodically(look, every=every, wall=wall)


def untagged_runs(root: Path) -> list[Path]:
    """Folders below `root` that look like run directories and have no tag of ours, as versions before the tag made them. Nothing
    removes these by itself."""
    return sorted(
        lock.parent
        for lock in root.glob("*/lock")
        if RUN_NAME.fullmatch(lock.parent.name) and not is_tagged(lock.parent, RUN_TAG, lock.parent.name)
    )


def remove_old_files(folder: Path, *, keep_seconds: float = KEEP_SECONDS) -> None:
    """Remove the files of `folder` that were not written for so long. A folder that is not there is empty."""
    for path in folder.glob("*"):
        # Another program may remove it at the same time.
        with suppress(FileNotFoundError):
            if path.is_file() and time.time() - path.stat().st_mtime > keep_seconds:
                path.unlink()


def _runs_in(root: Path, sizes: RunSizes) -> Iterator[RunSize]:
    try:
        entries = [entry for entry in os.scandir(root) if RUN_NAME.fullmatch(entry.name)]
    except FileNotFoundError:
        return
    for entry in entries:
        with suppress(FileNotFoundError):  # somebody else prunes too
            touched = entry.stat(follow_symlinks=False).st_mtime_ns
            if run := sizes.get(entry.name, touched) or _measure(root / entry.name, touched, sizes):
                yield run
    sizes.tidy()


def _measure(path: Path, touched: int, sizes: RunSizes) -> RunSize | None:
    tagged = is_tagged(path, RUN_TAG, path.name)
    if not (path / "lock").exists():
        # A removal that was cut short leaves the tag, or nothing; a young folder may be a run that is being made.
        if sizes.now - touched / 1e9 > PRUNE_INTERVAL:
            with suppress(OSError):
                remove_tree(path) if tagged and len([*path.iterdir()]) == 1 else path.rmdir()
        return None
    if not tagged:
        return None
    # Looked at first: what ends during the count is counted again by the next look.
    ended = is_ended(path)
    run = RunSize(changed_at(path), path.name, touched, _size(path))
    if ended:
        sizes.add(run)
    return run


def changed_at(run: Path) -> float:
    """When something was last written: the folder alone would say when its last process was started."""
    with suppress(FileNotFoundError):
        return max(run.stat().st_mtime, (run / EVENTS).stat().st_mtime)
    return run.stat().st_mtime


def _size(run: Path) -> int:
    total = 0
    for folder, _, names in os.walk(run):
        for name in names:
            # A file may go while we look.
            with suppress(FileNotFoundError):
                total += os.lstat(Path(folder, name)).st_size
    return total


def is_ended(run: Path) -> bool:
    """Whether nothing is recorded any more into this run directory. Raises OSError where it is none."""
    if (lock := _lock_ended(run)) is not None:
        os.close(lock)
    return lock is not None


def _lock_ended(run: Path) -> int | None:
    """The lock of a run that has ended, held; None for one that is in use."""
    fd = os.open(run / "lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _remove_unlocked(run: Path) -> bool:
    try:
        lock = _lock_ended(run)
    except FileNotFoundError:
        return False
    if lock is None:
        return False
    try:
        # Under the lock: no owner can come to life between the look and the removal. The lock is removed after all but
        # the tag: the host may end in the middle, and what is left must still be known for a run that has ended.
        if is_tagged(run, RUN_TAG, run.name):
            return remove_tree(run, behind="lock")
        return False
    finally:
        os.close(lock)
