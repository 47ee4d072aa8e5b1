"""The clock of a turn in which nothing is heard.

Every sign of life starts it anew; an announced retry holds it until then; after an error that the CLI reported
without ending the turn, a shorter patience applies (L30). It does not run while `counts` says that silence is
legitimate: no turn is open, a tool runs, a question waits for an answer.

Our own slowness never counts against the CLI (Q13): when the time is up, bytes that came meanwhile are let in first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio
from trio_util import RepeatedEvent

MERCY = 0.05
"""Seconds in which what is already in the pipe may still be read."""


class Silence:
    """`patience` and `after_error` in seconds; `error` is what the CLI last reported and did not get over."""

    def __init__(self, counts: Callable[[], bool], *, patience: float, after_error: float) -> None:
        self.error: str | None = None
        self._counts = counts
        self._patience = patience
        self._after_error = min(patience, after_error)
        self._heard = self._held = 0.0
        self._due = math.inf
        self._changed = RepeatedEvent()

    def hear(self) -> None:
        """A sign of life, now. Cheap: for every read."""
        self._heard = trio.current_time()

    def hold(self, seconds: float) -> None:
        """Silence is announced for so long."""
        self._held = trio.current_time() + seconds

    def look_again(self) -> None:
        """Something that `counts` or `error` depend on has changed. Wakes nobody where that puts the end off."""
        if trio.current_time() + self._left() < self._due:
            self._changed.set()

    @property
    def lasted(self) -> float:
        """Seconds since the last sign of life."""
        return trio.current_time() - self._heard

    async def wait(self) -> None:
        """Return when it has lasted too long."""
        while True:
            self._due = trio.current_time() + self._left()
            with trio.move_on_at(max(trio.current_time(), self._due)):
                await self._changed.wait()
                continue
            await trio.sleep(MERCY)
            if self._left() <= 0:
                return

    def _left(self) -> float:
        if not self._counts():
            return math.inf
        limit = self._patience if self.error is None else self._after_error
        return max(self._heard, self._held) + limit - trio.current_time()
