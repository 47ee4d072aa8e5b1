"""The tree of one root supervisor, as supervisors share it: restarts, late stops, chance, and interrupts of the program."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeAlias, cast
from weakref import WeakValueDictionary

from proctor.runtime.messaging import SupervisorHandle, TreeContext
from proctor.runtime.supervision.decide import RestartTable
from proctor.runtime.supervision.grace import LateStops

Interrupt: TypeAlias = KeyboardInterrupt | SystemExit


class Tree(TreeContext):
    """The shared half of one tree."""

    def __init__(self, restarts: RestartTable, seed: int | None = None) -> None:
        super().__init__()
        # weak: a path at which no supervisor stands any more, and whose handle is not in use, costs nothing
        self.handles: WeakValueDictionary[str, SupervisorHandle] = WeakValueDictionary()
        self.late = LateStops()
        self.random = Random(seed)
        self.restarts = restarts
        self.interrupted: Interrupt | None = None
        self.on_interrupt: Callable[[], None] = _ignore

    def take_interrupt(self, error: BaseException) -> bool:
        """Record the interrupt that `error` is or has inside it; False if there is none."""
        interrupt = interrupt_in(error)
        if interrupt is not None:
            self.interrupt(interrupt)
        return interrupt is not None

    def interrupt(self, error: Interrupt) -> None:
        """Record the first interrupt. From here on nothing is started or restarted in the whole tree."""
        if self.interrupted is None:
            self.interrupted = error
        # Each time: the second interrupt kills.
        self.on_interrupt()


def first_leaf(error: BaseException) -> BaseException:
    """`error` itself, or the first exception inside it that is not a group."""
    whole: object = error
    if not isinstance(whole, BaseExceptionGroup):
        return error
    return first_leaf(cast("BaseExceptionGroup[BaseException]", whole).exceptions[0])


def interrupt_in(error: BaseException) -> Interrupt | None:
    """The first interrupt that is `error` or is inside it."""
    whole: object = error
    if isinstance(whole, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", whole)
        part = group.subgroup((KeyboardInterrupt, SystemExit))
        return None if part is None else interrupt_in(first_leaf(part))
    return error if isinstance(error, KeyboardInterrupt | SystemExit) else None


def _ignore() -> None:
    pass
