"""What the actors of one tree share: names, events, time and chance, and whether the program was interrupted.

One per root supervisor, so that two trees in one program know nothing of each other (R006).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, cast
from weakref import WeakValueDictionary

import trio

from proctor.runtime.events import Events
from proctor.runtime.messaging.deadlines import Deadlines
from proctor.runtime.messaging.registry import Registry
from proctor.runtime.messaging.timers import Timers
from proctor.runtime.supervision.grace import LateStops

if TYPE_CHECKING:
    from proctor.runtime.supervision.decide import RestartTable
    from proctor.runtime.supervision.supervisor import AnySupervisor

Interrupt = KeyboardInterrupt | SystemExit


class System:
    """The shared half of one tree."""

    def __init__(self, restarts: RestartTable, seed: int | None = None) -> None:
        self.registry = Registry()
        # weak: a path that nobody stands at, and whose handle nobody has, costs nothing
        self.handles: WeakValueDictionary[str, AnySupervisor] = WeakValueDictionary()
        self.events = Events()
        self.deadlines = Deadlines()
        self.timers = Timers()
        self.late = LateStops()
        self.now: Callable[[], float] = trio.lowlevel.current_clock().current_time
        """`trio.current_time`, without the way to the run's clock: each call looks at it."""
        self.casts = 0
        self.random = Random(seed)
        self.restarts = restarts
        self.interrupted: Interrupt | None = None
        self.on_interrupt: Callable[[], None] = _nobody_yet

    def take_interrupt(self, error: BaseException) -> bool:
        """Record the interrupt that `error` is or has inside it; False if there is none."""
        interrupt = interrupt_in(error)
        if interrupt is not None:
            self.interrupt(interrupt)
        return interrupt is not None

    def interrupt(self, error: Interrupt) -> None:
        """Record the first interrupt (T5). From here on nothing is started or restarted in the whole tree."""
        if self.interrupted is None:
            self.interrupted = error
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


def _nobody_yet() -> None:
    pass
