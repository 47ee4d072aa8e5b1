"""Output streams that never block the event loop, however slow their readers are.

A thread writes the bytes; `write` returns when the system has them. A cancelled `write` leaves its thread in a write that
may never end, so nothing may be written to that stream afterwards. Order is kept within one writer task.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Mapping
from contextlib import suppress

import trio

from proctor.cli.ui.log_format import as_line

CHUNK = 64 * 1024
_NAMES: Mapping[int, str] = {1: "stdout", 2: "stderr"}
_GONE = (errno.EPIPE, errno.EIO)
"""A pipe without a reader; a terminal that was closed."""


class OutputFailed(Exception):
    """A write failed although the reader is still there: a full disk, a closed stream."""

    def __init__(self, fd: int, error: OSError) -> None:
        super().__init__(f"cannot write to {_NAMES.get(fd, f'descriptor {fd}')}: {error.strerror or error}")


class Output:
    """One output stream, by its descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._one = trio.CapacityLimiter(1)

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._fd)

    async def write(self, data: bytes) -> None:
        """Write all of `data`. Raises `BrokenPipeError` when the reader has gone, and `OutputFailed`."""
        if data:
            await trio.to_thread.run_sync(
                # a limiter of its own: writers that hang must not use up the threads of the whole program
                _write_all,
                self._fd,
                data,
                limiter=self._one,
                abandon_on_cancel=True,
            )

    async def note(self, data: bytes) -> None:
        """Write `data` if possible; errors are ignored."""
        with suppress(BrokenPipeError, OutputFailed):
            await self.write(data)

    async def say(self, text: str) -> None:
        """Write a message for the user, as `note` does. Control characters in quoted text are made visible."""
        await self.note(as_line(text, os.environ).encode("utf-8", "replace"))


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest[:CHUNK]) :]
        except BlockingIOError:  # another process set the shared pipe to non-blocking
            # this is a worker thread, so to wait here holds up nothing but this stream
            select.select([], [fd], [])
        except OSError as error:
            if error.errno in _GONE:
                raise BrokenPipeError(error.errno, error.strerror) from None
            raise OutputFailed(fd, error) from None
