"""The model's time: processes that wait for signals or instants, stepped in order of time.

A process is a generator that yields a `Wait`. What becomes ready at one instant goes first in, first out.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Generator
from itertools import count
from typing import TypeAlias

import attrs

STEPS = 100_000


class Signal:
    """Something that happens once."""

    __slots__ = ("happened", "waits")

    def __init__(self) -> None:
        self.happened = False
        self.waits: list[Wait] = []


@attrs.define(eq=False)
class Wait:
    """Until one of the signals has happened, at most to the instant `until`."""

    signals: tuple[Signal, ...]
    until: float = math.inf
    process: Process | None = None


Process: TypeAlias = Generator[Wait, None, None]
Steps: TypeAlias = Generator[Wait, None, None]


class Clockwork:
    """All processes of one run, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ready: deque[Process] = deque()
        self._timers: list[tuple[float, int, Wait]] = []
        self._numbers = count()

    def start(self, process: Process) -> None:
        """Have a process run from its beginning, in its turn."""
        self._ready.append(process)

    def happen(self, signal: Signal) -> None:
        """Have a signal happen, if it has not."""
        signal.happened = True
        waits, signal.waits = signal.waits, []
        for wait in waits:
            self._wake(wait)

    def _wake(self, wait: Wait) -> None:
        process, wait.process = wait.process, None
        if process is not None:
            self._ready.append(process)

    def run(self) -> None:
        """Until nothing waits for an instant any more."""
        for _ in range(STEPS):
            if self._ready:
                self._step(self._ready.popleft())
            elif self._timers:
                self.now, _, wait = heapq.heappop(self._timers)
                self._wake(wait)
            else:
                return
        raise AssertionError("the model goes on and on")

    def _step(self, process: Process) -> None:
        wait = next(process, None)
        if wait is None:
            return
        wait.process = process
        if any(signal.happened for signal in wait.signals) or wait.until <= self.now:
            self._wake(wait)
            return
        for signal in wait.signals:
            signal.waits.append(wait)
        if wait.until < math.inf:
            heapq.heappush(self._timers, (wait.until, next(self._numbers), wait))
