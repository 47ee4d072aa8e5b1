"""The context that the actors of one tree share: names, events, clocks.

One per root supervisor, so that two trees in one program know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from proctor.runtime.events import Events
from proctor.runtime.messaging.deadlines import Deadlines
from proctor.runtime.messaging.registry import Registry
from proctor.runtime.messaging.timers import Timers


class TreeContext:
    """The shared half of one tree, as messages need it."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.events = Events()
        self.deadlines = Deadlines()
        self.timers = Timers()
        self.now: Callable[[], float] = trio.lowlevel.current_clock().current_time
        """`trio.current_time`, without the way to the run's clock: each call looks at it."""
        self.casts = 0
