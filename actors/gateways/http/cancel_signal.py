"""A signal that cancels waits.

It cancels only waits, never writes: half a write would corrupt the stream.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import trio


class CancelSignal:
    """Fires once; `why` is then the reason."""

    def __init__(self) -> None:
        self.why: str | None = None
        self._waiting: set[trio.CancelScope] = set()

    def fire(self, why: str) -> None:
        """Cancel every wait, now and later. The first reason counts."""
        self.why = self.why or why
        for scope in self._waiting:
            scope.cancel(why)

    @contextmanager
    def limit(self, seconds: float) -> Generator[trio.CancelScope]:
        """Cancel the block when the signal fires, or after so many seconds."""
        with trio.CancelScope(relative_deadline=seconds) as scope:
            if self.why is not None:
                scope.cancel(self.why)
            self._waiting.add(scope)
            try:
                yield scope
            finally:
                self._waiting.discard(scope)
