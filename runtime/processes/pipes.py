"""Our ends of a process's pipes, read and written without a thread and without a task of their own.

`OutputPipe` is output of the process. It guarantees that everything that was in the pipe is handed out, then `b""` for
ever. It ends at end of file; where a grandchild holds the other end open, `expire()` ends it: what is in the pipe at
that moment is still handed out, what comes later is not. One consumer at a time.

Where the system refuses to read, the pipe is closed and the refusal raised: once.

`StdinPipe` is input of the process. Messages go out whole and in the order of their senders. A message cut short by
cancellation closes the pipe, so that no other message can continue its half line.

Invariant: a descriptor is used only through `self._fd`, which is -1 from the moment of closing; a number that the
system gives to somebody else is never touched. Closing wakes the waiting task.
Neither class knows of the process: who died, and why, is the business of `process`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import sys
import termios

import trio

READ_SIZE = 256 * 1024
"""Most bytes handed out at once, and the room of a wide pipe."""

SMALL_READ = 64 * 1024
"""Bytes asked for where little came last. The C library maps and unmaps a buffer of more than 128 KiB for each read,
which for one line costs ten times the read."""


def _bytes_waiting(fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


class _Descriptor:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_blocking(fd, False)

    @property
    def closed(self) -> bool:
        """True once the descriptor has been given back."""
        return self._fd == -1

    def close(self) -> None:
        """Give the descriptor back and wake the tasks that wait on it; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd != -1:
            trio.lowlevel.notify_closing(fd)
            os.close(fd)


class OutputPipe(_Descriptor):
    """Output of a process: bytes until the end, then `b""` on each call."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.ended = trio.Event()
        self._unwritten: int | None = None
        self._refusal: OSError | None = None
        self._room = SMALL_READ
        self._consumer: object = None

    async def receive(self) -> bytes:
        """The next bytes, at most READ_SIZE; `b""` at the end.

        Raises trio.BusyResourceError when another task is receiving: one consumer has the output.
        Raises trio.ClosedResourceError when the output was taken over while waiting; nothing is lost by that.
        Raises OSError when the system refuses to read; the output has ended then.
        """
        if self._consumer is not None:
            raise trio.BusyResourceError("another task is receiving this output; it has one consumer")
        self._consumer = consumer = object()
        try:
            return await self._receive(consumer)
        except OSError:
            self.close()  # else a task that waits for the end would wait for a reader that is gone
            raise
        finally:
            if self._consumer is consumer:
                self._consumer = None

    def take_over(self) -> None:
        """Make the present consumer give up; the next to receive is the consumer."""
        self._consumer = None
        if not self.closed:
            trio.lowlevel.notify_closing(self._fd)

    def close(self) -> None:
        """Give the descriptor back, with what is unread; the output has ended."""
        super().close()
        self.ended.set()

    def expire(self) -> None:
        """Wait for nothing more: hand out what the pipe holds now, then end."""
        if not self.closed and self._unwritten is None:
            try:
                self._unwritten = _bytes_waiting(self._fd)
            except OSError as error:
                self._refusal = error  # raised where somebody reads
            trio.lowlevel.notify_closing(self._fd)

    async def _receive(self, consumer: object) -> bytes:
        while not self.closed:
            try:
                if self._unwritten is None:
                    await trio.lowlevel.wait_readable(self._fd)
                else:
                    await trio.lowlevel.checkpoint()
            except trio.ClosedResourceError:
                if self._consumer is consumer:
                    continue  # closed or expired
            if self._consumer is not consumer:
                raise trio.ClosedResourceError("this output was taken over")
            if self._refusal is not None:
                raise self._refusal
            if (data := self._read()) is not None:
                return data
        await trio.lowlevel.checkpoint()
        return b""

    def _read(self) -> bytes | None:
        if self.closed:
            return b""
        try:
            data = os.read(
                self._fd, self._room if self._unwritten is None else min(self._unwritten, self._room)
            )
        except (BlockingIOError, InterruptedError):
            return None
        self._room = SMALL_READ if len(data) < SMALL_READ else READ_SIZE
        if self._unwritten is not None:
            self._unwritten -= len(data)
        if not data:
            self.close()
        return data


class StdinPipe(_Descriptor):
    """Input of a process: whole messages, one after the other."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._turn = trio.Lock()
        self._broken = False

    @property
    def refused(self) -> bool:
        """Whether nothing more can be written: closed by us, or the other end is closed."""
        if self.closed:
            return True
        poll = select.poll()
        poll.register(self._fd, 0)  # POLLERR is always reported: the last reader has gone
        return bool(poll.poll(0))

    async def send(self, data: bytes) -> None:
        """Write all of `data`; concurrent messages never interleave.

        Raises trio.ClosedResourceError when this end is closed, also while waiting; trio.BrokenResourceError when the
        process closed its end, now or before; OSError when the system refuses to write. Cancelled after the first byte, it closes the pipe; before it, nothing has happened.
        """
        async with self._turn:
            left = memoryview(data)
            try:
                while left:
                    left = left[await self._write(left) :]
            finally:
                if 0 < len(left) < len(data):
                    self.close()

    async def _write(self, data: memoryview) -> int:
        while not self.closed:
            try:
                return os.write(self._fd, data)
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_writable(self._fd)
            except BrokenPipeError:
                self._broken = True
                self.close()
        if self._broken:
            raise trio.BrokenResourceError("the process closed its end of the pipe")
        raise trio.ClosedResourceError("this end of the pipe is closed")


def output_pipe(*, wide: bool = False) -> tuple[OutputPipe, int]:
    """A pipe for output: our end, and the descriptor the process writes to; `wide` asks for READ_SIZE bytes of room."""
    read, write = os.pipe()
    try:
        if wide:
            _widen(read)
        return OutputPipe(read), write
    except OSError:
        _give_back(read, write)
        raise


def stdin_pipe() -> tuple[StdinPipe, int]:
    """A pipe for input: our end, and the descriptor the process reads from."""
    read, write = os.pipe()
    try:
        return StdinPipe(write), read
    except OSError:
        _give_back(read, write)
        raise


def _give_back(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def _widen(fd: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(
            OSError
        ):  # the user's share of pipe memory is spent: the default size serves
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, READ_SIZE)


class Tail:
    """The last `limit` bytes of what went by, and the count of all."""

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._limit = limit
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Take `data`, forgetting the oldest bytes above the limit."""
        self.total += len(data)
        self._kept += data
        if len(self._kept) > 2 * self._limit:
            del self._kept[: len(self._kept) - self._limit]

    @property
    def value(self) -> bytes:
        """The bytes kept, at most `limit`."""
        return bytes(self._kept[max(0, len(self._kept) - self._limit) :])
