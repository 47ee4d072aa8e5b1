"""The status that a child reports of itself: `task_status` of a function child, and the same for an actor."""

from __future__ import annotations

from typing import Protocol


class ChildStatus(Protocol):
    """The `task_status` that the supervisor passes to a function child."""

    def started(self, value: object = None, /) -> None:
        """Ready, with a value for the caller that asked for the start. Raises `RuntimeError` the second time."""

    def extend(self, seconds: float) -> None:
        """While starting: `start_timeout` does not end before so many seconds from now."""

    def beat(self) -> None:
        """Alive, for the next `watchdog` seconds."""

    def ready(self, is_ready: bool = True) -> None:
        """Mark as ready or not: shown by `tree()` and emitted as an event, nothing else.

        Raises `RuntimeError` before `started`.
        """
