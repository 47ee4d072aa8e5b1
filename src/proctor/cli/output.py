"""Bytes to a file descriptor, without the event loop ever waiting for whoever reads it.

Each stream has one thread at work at a time; `write` returns when the bytes are with the system. Cancelled, it leaves
its thread behind in a write that may never end: only for a stream that nothing is written to any more. Order is kept
within one writer task. A reader that is gone is `BrokenPipeError`.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress

import trio

CHUNK = 64 * 1024


class Output:
    """One stream."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._one = trio.CapacityLimiter(1)

    @property
    def is_terminal(self) -> bool:
        """Does a person read it?"""
        return os.isatty(self._fd)

    async def write(self, data: bytes) -> None:
        """Write all of `data`. Raises `BrokenPipeError`, or another OSError when the stream is closed or full."""
        if data:
            await trio.to_thread.run_sync(
                _write_all, self._fd, data, limiter=self._one, abandon_on_cancel=True
            )

    async def say(self, text: str) -> None:
        """A line of our own to the user. A stderr that is closed says nothing."""
        with suppress(OSError):
            await self.write(f"proctor: {text}\n".encode("utf-8", "replace"))


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest[:CHUNK]) :]
        except BlockingIOError:  # somebody else set the shared pipe to non-blocking
            select.select([], [fd], [])
