"""What a child's place at its supervisor keeps over restarts, as an Erlang table owned by the supervisor would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Kept(dict[Any, Any]):
    """A dictionary that lives as long as the child's spec is held, and says when it is not in use any more.

    The functions are called by the supervisor, must not wait, and an error in one is an event (`kept_error`).
    """

    def __init__(self) -> None:
        super().__init__()
        self.resting: list[Callable[[], object]] = []
        self.dropped: list[Callable[[], object]] = []

    def at_rest(self, fn: Callable[[], object]) -> None:
        """Call `fn` each time the child is down and no restart is owed; also before it is dropped."""
        self.resting.append(fn)

    def when_dropped(self, fn: Callable[[], object]) -> None:
        """Call `fn` once, when the spec is dropped or the supervisor has ended."""
        self.dropped.append(fn)
