"""Bytes to a file descriptor, without the event loop ever waiting for whoever reads it.

Each stream has one thread at work at a time; `write` returns when the bytes are with the system. Cancelled, it leaves
its thread behind in a write that may never end: only for a stream that nothing is written to any more. Order is kept
within one writer task. A reader that is gone is `BrokenPipeError`; what else keeps the bytes from being written (a
full disk, a stream that is closed) is `OutputFailed`.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Mapping
from contextlib import suppress

import trio

from proctor.cli.log import as_line

CHUNK = 64 * 1024
_NAMES: Mapping[int, str] = {1: "stdout", 2: "stderr"}
_GONE = (errno.EPIPE, errno.EIO)
"""A pipe without a reader; a terminal that was closed."""


class OutputFailed(Exception):
    """Bytes could not be written, and not because their reader has gone."""

    def __init__(self, fd: int, error: OSError) -> None:
        super().__init__(f"cannot write to {_NAMES.get(fd, f'descriptor {fd}')}: {error.strerror or error}")


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

    async def note(self, data: bytes) -> None:
        """Write what may get lost: notes to a stderr that is closed or full are no failure."""
        with suppress(BrokenPipeError, OutputFailed):
            await self.write(data)

    async def say(self, text: str) -> None:
        """A line of our own to the user, as `note`; what is quoted in it may come from anywhere."""
        await self.note(as_line(text, os.environ).encode("utf-8", "replace"))


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest[:CHUNK]) :]
        except BlockingIOError:  # somebody else set the shared pipe to non-blocking
            select.select([], [fd], [])
        except OSError as error:
            if error.errno in _GONE:
                raise BrokenPipeError(error.errno, error.strerror) from None
            raise OutputFailed(fd, error) from None
