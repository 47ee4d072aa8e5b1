"""One agent's events, in order, for any number of readers.

Guarantees: an appended event is never lost and never changed; each reader sees every event from its position on, in
order; a slow reader costs disk, never memory, and never slows the writer (R050, R053). A bounded window of the
newest events is kept in memory; the whole log is a file of NDJSON, read back when a reader has fallen behind the
window.

Positions are counted from 0 over the life of the log, through every restart of its agent. `append` does not wait;
it wakes the readers that do. Events travel in batches: a reader's iterator hands a batch out with one task switch at
most.

Not handled: a second process writing the same file; the lock of the run directory keeps that away.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from operator import length_hint
from pathlib import Path

import attrs
import msgspec
import trio

from proctor.actors.disk import write_whole
from proctor.actors.errors import RecordingFailed
from proctor.protocols.vocabulary import AnyEvent

WINDOW_EVENTS = 1000
WINDOW_BYTES = 4 * 2**20
_STRIDE = 256 * 2**10
_SHARES = 16
"""Small batches are held together up to this part of a window."""

_FEW = 64
"""Events up to which they are; a window is narrowed by whole batches."""


@attrs.frozen
class LogStatistics:
    """`end` counts all events; `window_*` those in memory; `bytes` is the size of the file; `readers` wait now."""

    end: int
    window_start: int
    window_bytes: int
    bytes: int
    readers_waiting: int


@attrs.define
class _Batch:
    """Grows in place while it is the newest and has few events: these are handed out as a copy."""

    events: list[AnyEvent]
    size: int


class EventLog:
    """Appended to by one agent, read through cursors. `path=None` keeps the file nameless, gone with the log.

    `window` (events) and `window_bytes` bound what is held in memory. Raises `RecordingFailed` when the disk does.
    """

    def __init__(
        self, path: Path | None = None, *, window: int = WINDOW_EVENTS, window_bytes: int = WINDOW_BYTES
    ) -> None:
        self.path = path
        self._limits = (window, window_bytes)
        self._share = (min(_FEW, window // _SHARES), window_bytes // _SHARES)
        self._encode = msgspec.json.Encoder().encode_lines
        self._decode = msgspec.json.Decoder(AnyEvent).decode_lines
        self._fd = _open(path)
        self._finalizer = weakref.finalize(self, os.close, self._fd)
        self._index: list[tuple[int, int]] = [(0, 0)]
        self._batches: dict[int, _Batch] = {}
        self._start = self._end = self._bytes = self._held = self._newest = 0
        self._lot = trio.lowlevel.ParkingLot()
        self._closed = False

    @property
    def end(self) -> int:
        """The position that the next event will have."""
        return self._end

    @property
    def closed(self) -> bool:
        """True when nothing will be appended any more."""
        return self._closed

    def append(self, events: Sequence[AnyEvent]) -> None:
        """Add `events` at the end and wake the readers. Does not wait. Raises `RecordingFailed`."""
        if not events:
            return
        data = self._encode(events)
        write_whole(self._fd, data, self.path)
        if self._bytes - self._index[-1][1] >= _STRIDE:
            self._index.append((self._end, self._bytes))
        self._hold(events, len(data))
        self._end += len(events)
        self._bytes += len(data)
        self._held += len(data)
        self._shrink()
        if self._lot:
            self._lot.unpark_all()

    def close(self) -> None:
        """No more events: readers end when they have read what is there. The file stays readable to them."""
        self._closed = True
        self._lot.unpark_all()

    def reopen(self) -> None:
        """Events may come again: the agent has a new incarnation after all."""
        self._closed = False

    def release(self) -> None:
        """Close the log and its file. Only for a log without readers left; otherwise the file goes with the last."""
        self.close()
        self._finalizer()

    def cursor(self, since: int | None = None) -> Cursor:
        """A reader from position `since` on (default: from the next event on). Raises ValueError below 0."""
        if since is not None and since < 0:
            raise ValueError(f"since must be 0 or more, got {since!r}")
        return Cursor(self, self._end if since is None else since)

    async def changed(self) -> None:
        """Wait for the next append or the end."""
        await self._lot.park()

    def read(
        self, position: int, hint: tuple[int, int] = (-1, 0)
    ) -> tuple[Sequence[AnyEvent], tuple[int, int]]:
        """Some events from `position` on, and a hint that makes the read after them quick. Does not wait."""
        if position >= self._end:
            return (), hint
        if position >= self._start:
            return self._window_from(position), hint
        return self._file_from(position, hint)

    def statistics(self) -> LogStatistics:
        waiting = self._lot.statistics().tasks_waiting
        return LogStatistics(self._end, self._start, self._held, self._bytes, waiting)

    def _hold(self, events: Sequence[AnyEvent], size: int) -> None:
        # a batch and its place cost more memory than an event: those who say one thing at a time share one
        newest = self._batches.get(self._newest)
        most, most_bytes = self._share
        if newest and len(newest.events) + len(events) <= most and newest.size + size <= most_bytes:
            newest.events += events
            newest.size += size
        else:
            self._newest = self._end
            self._batches[self._end] = _Batch([*events], size)

    def _shrink(self) -> None:
        while len(self._batches) > 1 and self._is_too_wide():
            oldest = next(iter(self._batches))
            gone = self._batches.pop(oldest)
            self._held -= gone.size
            self._start = oldest + len(gone.events)

    def _is_too_wide(self) -> bool:
        most, most_bytes = self._limits
        if self._held > most_bytes:
            return True
        # a reader that was woken may run after the next append; the batch it was woken for is not read from disk
        return len(self._batches) > 2 and self._end - self._start > most

    def _window_from(self, position: int) -> Sequence[AnyEvent]:
        batch = self._batches.get(position)
        if batch is not None:
            return batch.events if len(batch.events) > self._share[0] else batch.events[:]
        for first, batch in reversed(self._batches.items()):
            if first <= position:
                return batch.events[position - first :]
        return ()

    def _file_from(self, position: int, hint: tuple[int, int]) -> tuple[list[AnyEvent], tuple[int, int]]:
        first, offset = hint if hint[0] == position else self._place(position)
        while True:
            data = self._whole_lines(offset)
            events = self._decode(data)
            skip = position - first
            first, offset = first + len(events), offset + len(data)
            if skip < len(events):
                return events[skip:], (first, offset)

    def _whole_lines(self, offset: int) -> bytes:
        size = _STRIDE
        while not (cut := (data := os.pread(self._fd, size, offset)).rfind(b"\n") + 1):
            size *= 4
        return data[:cut]

    def _place(self, position: int) -> tuple[int, int]:
        low, high = 0, len(self._index)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._index[middle][0] <= position else (low, middle)
        return self._index[low]


class Cursor:
    """A reader's place in a log; `async for` gives events until the log is closed. One task at a time.

    Leaving a loop early loses nothing: the next one goes on.
    """

    def __init__(self, log: EventLog, position: int) -> None:
        self._log = log
        self._hint = (-1, 0)
        self._left: Iterator[AnyEvent] = iter(())
        self._fetched = position

    @property
    def position(self) -> int:
        """That of the next event it will hand out."""
        return self._fetched - length_hint(self._left)

    @property
    def log(self) -> EventLog:
        """What it reads."""
        return self._log

    async def batch(self) -> Sequence[AnyEvent]:
        """The events from the position on, at least one, waiting if need be; empty once the log is closed and read."""
        if events := [*self._left]:
            return events
        await self._wait()
        return self._fetch()

    def batch_nowait(self) -> Sequence[AnyEvent]:
        """What is there now, perhaps nothing."""
        return [*self._left] or self._fetch()

    def __aiter__(self) -> Cursor:
        return self

    async def __anext__(self) -> AnyEvent:
        for event in self._left:
            return event
        await self._wait()
        self._left = iter(self._fetch())
        for event in self._left:
            return event
        raise StopAsyncIteration

    async def _wait(self) -> None:
        if self._fetched < self._log.end or self._log.closed:
            await trio.lowlevel.checkpoint()  # a reader that is behind must not hold the loop
        while self._fetched >= self._log.end and not self._log.closed:
            await self._log.changed()

    def _fetch(self) -> Sequence[AnyEvent]:
        events, self._hint = self._log.read(self._fetched, self._hint)
        self._fetched += len(events)
        return events


def _open(path: Path | None) -> int:
    if path is None:
        with tempfile.TemporaryFile(prefix="proctor-log-") as file:
            return os.dup(file.fileno())
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RecordingFailed(str(path), error) from error
