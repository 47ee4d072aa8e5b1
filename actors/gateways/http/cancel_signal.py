"""A bell that ends waits. Only waiting is cut short, never a write: half of one would garble the stream."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import trio


class Bell:
    """Rings once; `why` is then what it rang for."""

    def __init__(self) -> None:
        self.why: str | None = None
        self._waiting: set[trio.CancelScope] = set()

    def ring(self, why: str) -> None:
        """End every wait, and those to come. The first reason counts."""
        self.why = self.why or why
        for scope in self._waiting:
            scope.cancel(why)

    @contextmanager
    def cuts(self, seconds: float) -> Generator[trio.CancelScope]:
        """Around a wait: it is left when the bell rings, or after so many seconds."""
        with trio.CancelScope(relative_deadline=seconds) as scope:
            if self.why is not None:
                scope.cancel(self.why)
            self._waiting.add(scope)
            try:
                yield scope
            finally:
                self._waiting.discard(scope)
