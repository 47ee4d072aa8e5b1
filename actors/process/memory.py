"""The resident memory of an agent's processes: the tree below its guard, at one moment.

Counted on request: some tens of microseconds for each process. Shared pages count once for each process that maps them, so the
sum is more than what an exit would free. Linux only.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from proctor.runtime.processes import children_of, resident_of


@attrs.frozen
class Memory:
    """`resident` bytes of `processes` in all, of which `largest` bytes are the largest one's."""

    resident: int
    processes: int
    largest: int


def memory_of(*pids: int | None) -> Memory | None:
    """Of the trees below these processes, themselves included; None when there is none of them any more."""
    sizes = [size for pid in _trees(pid for pid in pids if pid is not None) if (size := resident_of(pid))]
    return Memory(sum(sizes), len(sizes), max(sizes)) if sizes else None


def _trees(roots: Iterable[int]) -> set[int]:
    seen: set[int] = set()
    waiting = [*roots]
    while waiting:
        pid = waiting.pop()
        if pid not in seen:  # a number that was given away meanwhile could lead round in a circle
            seen.add(pid)
            waiting += children_of(pid)
    return seen
