"""Something that happens once and is waited for: `trio.Event` for those of which a tree has thousands.

An event holds a set for its waiting tasks from the start; this makes one for the first that waits.
"""

from __future__ import annotations

import trio


class OneShotEvent:
    """A one-shot event."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._event: trio.Event | None = None
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._is_set

    @trio.lowlevel.enable_ki_protection
    def set(self) -> None:
        """It happens; who waits goes on."""
        self._is_set = True
        self.release()

    def release(self) -> None:
        """End the waits, though it has not happened; who comes later waits again."""
        if self._event is not None:
            event, self._event = self._event, None
            event.set()

    async def wait(self) -> None:
        """Wait until it has happened, or who waits is released. A checkpoint in any case."""
        if self._is_set:
            await trio.lowlevel.checkpoint()
            return
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()
