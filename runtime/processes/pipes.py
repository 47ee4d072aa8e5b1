"""Our ends of a process's pipes, read and written without a thread and without a task of their own.

`OutputPipe` is output of the process. It guarantees that everything that was in the pipe is handed out, then `b""` for
ever. It ends at end of file; where a grandchild holds the other end open, `expire()` ends it: what is in the pipe at
that moment is still handed out, what comes later is not. One consumer at a time: `receive` waits for the pipe in the
consumer's task, `hand_over` has the run's hub read it, which is cheaper where many pipes have little to say.

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
from collections.abc import Callable, Generator
from functools import partial

import attrs
import trio

from proctor.runtime.processes.hub import Hub, watch

READ_SIZE = 256 * 1024
"""Most bytes handed out at once, and the room of a wide pipe."""

SMALL_READ = 64 * 1024
"""Bytes asked for where little came last. The C library maps and unmaps a buffer of more than 128 KiB for each read,
which for one line costs ten times the read."""


Take = Callable[[bytes], object]


def _bytes_waiting(fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


class _Descriptor:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        # readiness is a hint only: a blocking read after a false one would stop the whole run
        os.set_blocking(fd, False)

    @property
    def closed(self) -> bool:
        """True once the descriptor has been given back."""
        return self._fd == -1

    def close(self) -> None:
        """Give the descriptor back and wake the tasks that wait on it; a second call does nothing."""
        # forgotten before it is closed: a task that is woken must not use a number that is free
        fd, self._fd = self._fd, -1
        if fd != -1:
            trio.lowlevel.notify_closing(fd)
            # after the wake: Trio still has to take the number out of its epoll
            os.close(fd)


Over = Callable[[BaseException | None], object]


@attrs.define(eq=False)
class HandOver:
    """While the hub reads: what to call when it does so no more, and the error of the function that took it."""

    hub: Hub
    over: Over
    error: BaseException | None = None


class OutputPipe(_Descriptor):
    """Output of a process: bytes until the end, then `b""` on each call."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.ended = trio.Event()
        self._unwritten: int | None = None
        self._refusal: OSError | None = None
        self._room = SMALL_READ
        self._consumer: object = None
        self._hand_over: HandOver | None = None

    async def receive(self) -> bytes:
        """The next bytes, at most READ_SIZE; `b""` at the end.

        Raises trio.BusyResourceError when another task is receiving: one consumer has the output.
        Raises trio.ClosedResourceError when the output was taken over while waiting; nothing is lost by that.
        Raises OSError when the system refuses to read; the output has ended then.
        """
        with self._consuming() as consumer:
            try:
                return await self._receive(consumer)
            except OSError:
                self.close()  # else a task that waits for the end would wait for a reader that is gone
                raise

    async def hand_over(self, take: Take) -> None:
        """Have the hub call `take` with what comes, and return when the rest is to be had from `receive`: at the end, which
        `receive` tells then, when it expired, was taken over or refused, and at once where there is no hub.

        `take` is called in the context of this task; it must not wait, and what it raises is raised here.
        Raises trio.BusyResourceError as `receive` does.
        """
        with self._consuming():
            task = trio.lowlevel.current_task()
            waiting = self.begin_hand_over(take, lambda _: trio.lowlevel.reschedule(task))
            if waiting is None:
                return
            try:
                await trio.lowlevel.wait_task_rescheduled(self._abort_hand_over)
            finally:
                # in place of a cancellation, too: the bytes were taken, and only the error says what became of them
                if waiting.error is not None:
                    raise waiting.error

    def begin_hand_over(self, take: Take, over: Over) -> HandOver | None:
        """The same for one that has no task waiting: `over` is called where `hand_over` would return or raise, with the error, and
        None is returned where it would return at once. The caller sees to it that there is one consumer."""
        if self.closed or self._unwritten is not None:
            return None
        hub = watch(self._fd, partial(self._read_for, take))
        if hub is not None:
            self._hand_over = HandOver(hub, over)
        return self._hand_over

    def take_over(self) -> None:
        """Make the present consumer give up; the next to receive is the consumer."""
        self._consumer = None
        if not self.closed:
            self._end_hand_over()
            trio.lowlevel.notify_closing(self._fd)

    def close(self) -> None:
        """Give the descriptor back, with what is unread; the output has ended."""
        self._end_hand_over()  # before its number can be somebody else's
        super().close()
        self.ended.set()

    def expire(self) -> None:
        """Wait for nothing more: hand out what the pipe holds now, then end."""
        if not self.closed and self._unwritten is None:
            try:
                # counted once, now: a grandchild that writes for ever must not keep the pipe open
                self._unwritten = _bytes_waiting(self._fd)
            except OSError as error:
                self._refusal = error  # raised where somebody reads
            self._end_hand_over()
            trio.lowlevel.notify_closing(self._fd)

    @contextlib.contextmanager
    def _consuming(self) -> Generator[object]:
        if self._consumer is not None:
            raise trio.BusyResourceError("another task is receiving this output; it has one consumer")
        self._consumer = consumer = object()
        try:
            yield consumer
        finally:
            if self._consumer is consumer:
                self._consumer = None

    def _read_for(self, take: Take) -> int:
        """Read once, in the step of the hub: nothing that goes wrong here may end that."""
        try:
            data = self._read()
        except OSError as error:
            # kept and raised by `receive`: this runs in the task of the hub, where it would end the output of
            # all
            self._refusal = error
            self._end_hand_over()
            return 0
        if data:
            waiting = self._hand_over  # before the call, which may end it: by a cancellation of its own task
            try:
                take(data)
            except BaseException as error:  # noqa: BLE001  raised in the task that handed it over
                if waiting is not None:
                    waiting.error = error
                self._end_hand_over()
        return len(data or b"")

    def _end_hand_over(self) -> None:
        waiting, self._hand_over = self._hand_over, None
        if waiting is not None:
            # in the same step: the caller may close the descriptor next
            waiting.hub.forget(self._fd)
            waiting.over(waiting.error)

    def _abort_hand_over(self, _: object) -> trio.lowlevel.Abort:
        waiting, self._hand_over = self._hand_over, None
        if waiting is not None:
            waiting.hub.forget(self._fd)
        return trio.lowlevel.Abort.SUCCEEDED

    async def _receive(self, consumer: object) -> bytes:
        while not self.closed:
            if self._refusal is not None:
                raise self._refusal
            try:
                if self._unwritten is None:
                    await trio.lowlevel.wait_readable(self._fd)
                else:
                    # the pipe need not become readable again: what is counted is there already
                    await trio.lowlevel.checkpoint()
            except trio.ClosedResourceError:
                if self._consumer is consumer:
                    continue  # closed or expired
            # asked after each wait: the pipe may have been taken over while we slept, and a read would steal
            # its bytes
            if self._consumer is not consumer:
                raise trio.ClosedResourceError("this output was taken over")
            if self._refusal is not None:
                raise self._refusal
            if not self.closed and (data := self._read()) is not None:
                return data
        await trio.lowlevel.checkpoint()
        return b""

    def read_now(self) -> bytes:
        """What is there, at most one read of it, for its consumer beside the one who waits for it; `b""` for none."""
        with contextlib.suppress(OSError):  # that one meets the refusal, too
            return b"" if self.closed else self._read() or b""
        return b""

    def _read(self) -> bytes | None:
        most = self._room if self._unwritten is None else min(self._unwritten, self._room)
        try:
            data = os.read(self._fd, most)
        except (BlockingIOError, InterruptedError):
            # readiness is only a hint: another reader of a shared pipe may have been faster
            return None
        # a full small read means that more is waiting: the next one takes it in one go
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
                # cut in the middle: another message would continue the half line; cut before its first byte,
                # nothing has happened
                if 0 < len(left) < len(data):
                    self.close()

    async def _write(self, data: memoryview) -> int:
        while not self.closed:
            try:
                return os.write(self._fd, data)
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_writable(self._fd)
            except BrokenPipeError:
                # remembered, because the senders that wait behind this one must get the same error
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
        # cut at twice the limit, so that a byte is moved once on average and not with each call
        if len(self._kept) > 2 * self._limit:
            del self._kept[: len(self._kept) - self._limit]

    @property
    def value(self) -> bytes:
        """The bytes kept, at most `limit`."""
        return bytes(self._kept[max(0, len(self._kept) - self._limit) :])
