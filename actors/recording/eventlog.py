"""One agent's events, in order, for any number of readers.

Guarantees: an appended event is never changed; each reader sees every event from its position on, in order; a slow reader
costs disk, never memory, and never slows the writer. The newest events are kept in memory: `RECENT_EVENTS` where the disk
has them, too, and a window of them while it does not; the log is a file of NDJSON, read back when a reader has fallen behind
those. With a `limit` the oldest
segments of the file go first. A reader that stands where events are missing, because they were removed or a disk that was full
did not take them, gets one `Notice` with the code `events_dropped`, whose `data` has `since` and `next`, and goes on there. A log that was cut short in the middle of an event, as a full disk or a lost
machine leaves it, is gone on with behind its last whole event.

Positions are counted from 0 over the life of the log, through every restart of its agent, and are the same for a program that opens its
file later: what is missing has its positions, too. `append` does not wait;
it wakes the readers that do. Events travel in batches: a reader's iterator hands a batch out with one task switch at
most.

Not handled: a limit without a path; a second process writing the same file; the lock of the run directory keeps that away.
"""

from __future__ import annotations

import errno
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from operator import length_hint
from pathlib import Path

import attrs
import msgspec
import trio
from outcome import Value

from proctor.actors.errors import RecordingFailed
from proctor.actors.recording.segments import SegmentedFile, temporary_segments
from proctor.protocols.lenient import encoded_loosely
from proctor.protocols.vocabulary import HOST, AnyEvent, Notice

WINDOW_EVENTS = 1000
WINDOW_BYTES = 4 * 2**20
RECENT_EVENTS = 128
"""Events in memory of a log that the disk takes. Some readers are a little behind; each event costs 150 bytes."""
_STRIDE = 256 * 2**10
SEGMENTS = 8
"""Parts of a file with a limit; one of them is removed at a time."""
_SHARES = 16
"""Small batches are held together up to this part of a window."""

_FEW = 32
"""Events up to which they are; a window is narrowed by whole batches."""


@attrs.frozen
class LogStatistics:
    """`end` counts all events; `window_*` those in memory; `bytes` is what was written in all, `held` what of it is on disk;
    `first` is the oldest event that can be read; `readers` wait now."""

    end: int
    window_start: int
    window_bytes: int
    bytes: int
    readers_waiting: int
    held: int = 0
    first: int = 0


@attrs.define
class _Batch:
    """Grows in place while it is the newest and has few events: these are handed out as a copy."""

    events: list[AnyEvent]
    size: int


class EventLog:
    """Appended to by one agent, read through cursors. `path=None` keeps the file nameless, gone with the log.

    `window` (events) and `window_bytes` bound what is held in memory, `limit` (bytes) what is on disk. Raises
    `RecordingFailed` when the disk does; with `failed`, which is called with it, it goes on in memory alone until `resume`.
    `lasting`: the file stays at `path` after `close`; otherwise its folder is removed.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        window: int = WINDOW_EVENTS,
        window_bytes: int = WINDOW_BYTES,
        limit: int | None = None,
        failed: Callable[[RecordingFailed], None] | None = None,
        lasting: bool = True,
    ) -> None:
        self.path = path
        self._lasting = lasting
        self._failed = failed
        self._written = True
        self._lost = 0  # while nothing is written: the first event that is not on disk
        self._limit = limit
        self._limits, self._recent = (window, window_bytes), min(window, RECENT_EVENTS)
        self._share = (min(_FEW, window // _SHARES), window_bytes // _SHARES)
        self._encoder = msgspec.json.Encoder()
        self._decode = msgspec.json.Decoder(AnyEvent).decode_lines
        segment = None if limit is None else max(1, limit // SEGMENTS)
        self._file = (
            temporary_segments("proctor-log-") if path is None else SegmentedFile(path, segment=segment)
        )
        # For a log that is dropped without `release`: its descriptor goes with it.
        self._finalizer = weakref.finalize(self, SegmentedFile.close, self._file)
        self._index: list[tuple[int, int]]
        self._batches: dict[int, _Batch] = {}
        try:
            self._recover()
        except RecordingFailed:
            self._finalizer()
            raise
        self._start = self._end = self._newest = self._file.units
        self._held = 0
        self._readers: dict[trio.lowlevel.Task, None] = {}  # those that wait
        self._closed = False

    @property
    def end(self) -> int:
        """The position that the next event will have."""
        return self._end

    @property
    def first(self) -> int:
        """The oldest position that can still be read."""
        return self._readable_from(0)

    @property
    def closed(self) -> bool:
        """True when nothing will be appended any more."""
        return self._closed

    def append(self, events: Sequence[AnyEvent]) -> None:
        """Add `events` at the end and wake the readers. Does not wait. Raises `RecordingFailed`."""
        if not events:
            return
        data, failure = self._encode(events), None
        if self._written:
            try:
                self._write(data, self._end, len(events))
            except RecordingFailed as error:
                if self._failed is None:
                    raise
                self._written, self._lost, failure = False, self._end, error
        # Also after a failed write: readers near the end miss nothing.
        self._hold(events, len(data))
        if self._readers:
            self._wake(events)
        # Last: the listener appends a notice of its own, which has to come behind these events.
        if failure is not None and self._failed is not None:
            self._failed(failure)

    def _encode(self, events: Sequence[AnyEvent]) -> bytes:
        try:
            # a list: of what it has to make one of, msgspec (0.22) keeps that list for the life of the program
            return self._encoder.encode_lines(events if isinstance(events, list) else [*events])
        except UnicodeEncodeError:  # a path in it is not UTF-8, which JSON has no way to write
            return b"".join(encoded_loosely(event) + b"\n" for event in events)

    def resume(self) -> None:
        """Go on writing after a failure, with what is still in memory. Raises `RecordingFailed` while the disk does."""
        if self._written:
            return
        position = max(self._lost, self._start)
        # What has left the memory is lost: the file goes on behind a gap that readers are shown.
        if position > self._lost:
            self._file.begin_at(position)
            self._index.append((position, self._file.end))
        while position < self._end:
            events = self._window_from(position)
            self._write(self._encode(events), position, len(events))
            # Moved on with each write, so that a second failure does not write an event twice.
            self._lost = position = position + len(events)
        self._written = True

    def move_to(self, path: Path) -> None:
        """Go on in a copy of its file at `path`, unseen by readers. Raises `RecordingFailed`, and is then where it was."""
        self._file.move_to(path)
        self.path, self._lasting = path, True

    def _write(self, data: bytes, position: int, count: int) -> None:
        file = self._file
        place = file.append(data, count)
        if place - self._index[-1][1] >= _STRIDE:
            self._index.append((position, place))
        if self._limit is not None and file.held > self._limit:
            self._drop(self._limit)

    def close(self) -> None:
        """No more events: readers end when they have read what is there, from the file too."""
        self._closed = True
        # a descriptor must not wait for the garbage collection of its log: handles of ended agents are kept for long
        if self.path is not None and (self._lasting or self._start <= self._file.first):
            self._file.close()
        self._wake(())

    def reopen(self) -> None:
        """Events may come again: the agent has a new incarnation after all."""
        self._closed = False

    def release(self) -> None:
        """Close the log and its file. Only for a log without readers left: a nameless file is gone."""
        self.close()
        self._finalizer()

    def cursor(self, since: int | None = None) -> Cursor:
        """A reader from position `since` on (default: from the next event on). Raises ValueError below 0."""
        if since is not None and since < 0:
            raise ValueError(f"since must be 0 or more, got {since!r}")
        return Cursor(self, self._end if since is None else since)

    # no coroutine of its own: each reader enters and leaves one less for each event
    def changed(self) -> Awaitable[Sequence[AnyEvent]]:
        """Wait for the next append and return its events, or for the end, and return none."""
        reader = trio.lowlevel.current_task()
        self._readers[reader] = None

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._readers[reader]
            return trio.lowlevel.Abort.SUCCEEDED

        return trio.lowlevel.wait_task_rescheduled(abort)  # noqa: ASYNC105  awaited by the caller

    def _wake(self, events: Sequence[AnyEvent]) -> None:
        # who waits has read all before: it gets the new ones with the wake, and does not look for them
        readers, self._readers = self._readers, {}
        for reader in readers:
            trio.lowlevel.reschedule(reader, Value(events))

    def read(
        self, position: int, hint: tuple[int, int] = (-1, 0)
    ) -> tuple[Sequence[AnyEvent], tuple[int, int]]:
        """Some events from `position` on, and a hint that makes the read after them quick. Does not wait."""
        if position >= self._end:
            return (), hint
        if position >= self._start:
            return self._window_from(position), hint
        if self._readable_from(position) > position:
            return (), hint
        return self._file_from(position, hint)

    def recent(self, position: int) -> Iterator[AnyEvent]:
        """The events from `position` on that are in memory. For those who only look: nothing is read from disk."""
        position = max(position, self._start)
        while position < self._end:
            events = self._window_from(position)
            yield from events
            position += len(events)

    def missing(self, position: int) -> Notice | None:
        """The notice for a reader at `position` in the place of removed events; None when the event is there."""
        following = self._readable_from(position)
        if following == position:
            return None
        reason = "the disk did not accept them"
        if position < self._file.first:
            limit = "" if self._limit is None else f" (the log holds at most {self._limit} bytes)"
            reason = f"they were removed{limit}, or {reason}"
        text = f"the events {position} to {following - 1} are missing: {reason}"
        return Notice(HOST, None, "events_dropped", text, {"since": position, "next": following})

    def _readable_from(self, position: int) -> int:
        """The first position from this one on whose event is there: in memory, or on disk."""
        if position >= self._start:
            return position
        position = max(position, self._file.first)
        unwritten = [] if self._written else [(self._lost, self._start)]
        for since, following in (*self._file.holes, *unwritten):
            if since <= position < following:
                position = following
        return min(position, self._start)

    def statistics(self) -> LogStatistics:
        waiting, file = len(self._readers), self._file
        return LogStatistics(
            self._end, self._start, self._held, file.end, waiting, held=file.held, first=self.first
        )

    def _drop(self, limit: int) -> None:
        while self._file.held > limit and self._file.drop_oldest():
            pass
        begin = (self._file.first, self._file.begin)
        self._index = [begin, *(place for place in self._index if place[0] > begin[0])]

    def _recover(self) -> None:
        """Count what is in a file that was there, and cut off what is no whole event."""
        file, self._index = self._file, self._file.starts()
        units, place = self._index[-1]
        while place < file.end:
            data = self._whole_lines(place)
            whole, count = _whole_events(data)
            units, place = units + count, place + whole
            # A kill or a full disk leaves half an event: it goes before the next one is appended.
            if whole < len(data) or not data:
                file.truncate(place, units)
                break
            self._index.append((units, place))
        file.units = units

    def _hold(self, events: Sequence[AnyEvent], size: int) -> None:
        # a batch and its place cost more memory than an event: those who say one thing at a time share one
        newest, count = self._batches.get(self._newest), len(events)
        most, most_bytes = self._share
        if newest and len(newest.events) + count <= most and newest.size + size <= most_bytes:
            newest.events += events
            newest.size += size
        else:
            self._newest = self._end
            self._batches[self._end] = _Batch([*events], size)
        self._end += count
        self._held += size
        if self._held > self._limits[1] or self._end - self._start > self._recent:
            self._narrow()

    def _narrow(self) -> None:
        while len(self._batches) > 1 and self._is_too_wide():
            oldest = next(iter(self._batches))
            gone = self._batches.pop(oldest)
            self._held -= gone.size
            self._start = oldest + len(gone.events)

    def _is_too_wide(self) -> bool:
        if self._held > self._limits[1]:
            return True
        # what the disk has need not be here as well
        most = self._recent if self._written else self._limits[0]
        # a reader that was woken may run after the next append; the batch it was woken for is not read from disk
        return len(self._batches) > 2 and self._end - self._start > most

    def _window_from(self, position: int) -> Sequence[AnyEvent]:
        batch = self._batches.get(position)
        if batch is not None:
            # A small batch may still grow in place, so a reader gets a copy.
            return batch.events if len(batch.events) > self._share[0] else batch.events[:]
        for first, batch in reversed(self._batches.items()):
            if first <= position:
                return batch.events[position - first :]
        return ()

    def _file_from(self, position: int, hint: tuple[int, int]) -> tuple[list[AnyEvent], tuple[int, int]]:
        first, offset = hint if hint[0] == position else self._place(position)
        holes = dict(self._file.holes)
        while data := self._whole_lines(offset):
            events = self._decode(data)
            skip = position - first
            first, offset = first + len(events), offset + len(data)
            first = holes.get(first, first)  # a read never goes past the end of a segment
            if skip < len(events):
                return events[skip:], (first, offset)
        if self._readable_from(position) == position:
            raise RecordingFailed(
                str(self.path), OSError(errno.EIO, "another program has changed the event log")
            )
        return [], (-1, 0)  # another program has removed it: `missing` makes the notice

    def _whole_lines(self, offset: int) -> bytes:
        size, data = _STRIDE, self._file.read(offset, _STRIDE)
        while not (cut := data.rfind(b"\n") + 1) and len(data) == size:
            size *= 4
            data = self._file.read(offset, size)
        return data[:cut]

    def _place(self, position: int) -> tuple[int, int]:
        low, high = 0, len(self._index)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._index[middle][0] <= position else (low, middle)
        file, place = self._file, self._index[low]
        return place if place[1] >= file.begin else (file.first, file.begin)


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
        """The log that it reads."""
        return self._log

    async def batch(self) -> Sequence[AnyEvent]:
        """The events from the position on, at least one, waiting if need be; empty once the log is closed and read."""
        if events := [*self._left]:
            return events
        return await self._next()

    def batch_nowait(self) -> Sequence[AnyEvent]:
        """The events that are there now, perhaps none."""
        return [*self._left] or self._fetch()

    def __aiter__(self) -> Cursor:
        return self

    async def __anext__(self) -> AnyEvent:
        for event in self._left:
            return event
        log = self._log
        # what `_next` does for a reader that keeps up, without its coroutine
        events = await log.changed() if self._fetched == log.end and not log.closed else ()
        self._fetched += len(events)
        self._left = iter(events or await self._next())
        for event in self._left:
            return event
        raise StopAsyncIteration

    async def _next(self) -> Sequence[AnyEvent]:
        log = self._log
        if self._fetched < log.end or log.closed:
            await trio.lowlevel.checkpoint()  # a reader that is behind must not hold the loop
        # No checkpoint between the look and the wait, so no event is missed.
        while self._fetched >= log.end and not log.closed:
            is_next = self._fetched == log.end
            events = await log.changed()
            if is_next and events:
                self._fetched += len(events)
                return events
        return self._fetch()

    def _fetch(self) -> Sequence[AnyEvent]:
        log = self._log
        while True:
            if (gap := log.missing(self._fetched)) is not None:
                self._fetched = gap.data["next"]
                return (gap,)
            events, self._hint = log.read(self._fetched, self._hint)
            self._fetched += len(events)
            if events or self._fetched >= log.end:
                return events


def _whole_events(data: bytes) -> tuple[int, int]:
    """The numbers of bytes and lines at the beginning of `data` that are whole events."""
    place = count = 0
    while end := data.find(b"\n", place) + 1:
        try:
            msgspec.json.decode(data[place:end])
        except msgspec.DecodeError:  # nothing behind it can be counted on either
            break
        place, count = end, count + 1
    return place, count
