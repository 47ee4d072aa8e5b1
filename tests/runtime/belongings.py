"""What this process holds, of which a leak leaves more: open descriptors, children, and the tasks of its loop."""

from __future__ import annotations

import gc
import os

import attrs
import trio


@attrs.frozen
class Belongings:
    """What was held at a moment."""

    descriptors: dict[str, str]
    children: frozenset[int]
    tasks: int


def belongings() -> Belongings:
    """All that is held now."""
    return Belongings(descriptors(), children(), tasks())


def belongings_at_first() -> Belongings:
    """What is held before the deeds of a test; the garbage of earlier tests goes before this count, not after it."""
    gc.collect()
    return belongings()


def descriptors() -> dict[str, str]:
    """The open descriptors of this process and what each is."""
    found: dict[str, str] = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the listing's own
            continue
    return found


def descriptors_at_first() -> dict[str, str]:
    """The same before the deeds of a test, as `belongings_at_first`."""
    gc.collect()
    return descriptors()


def children() -> frozenset[int]:
    """The processes below this one, zombies too; none are known where the system does not list them."""
    try:
        threads = os.listdir("/proc/self/task")
    except FileNotFoundError:
        return frozenset()
    return frozenset(int(pid) for thread in threads for pid in _children_of(thread))


def _children_of(thread: str) -> list[bytes]:
    try:
        with open(f"/proc/self/task/{thread}/children", "rb", buffering=0) as file:
            return file.read().split()
    except OSError:  # the thread has ended
        return []


def tasks() -> int:
    """The tasks that live in this loop."""
    return trio.lowlevel.current_statistics().tasks_living
