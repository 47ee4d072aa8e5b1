"""A file that is only appended to, in segments: the oldest go first when there is too much of it.

    events.ndjson               what is being written
    events.0-5321.ndjson        units 0 to 5320, written before
    events.6000-6000.ndjson     an empty marker: what follows begins with unit 6000

Guarantees: what is appended is there whole or not at all, and the file can be appended to after a disk that was full: what
a failed write has left is cut off. Units (events, lines) are counted over all segments, those that were removed or never
written included, and so are bytes: a place in the file stays what it was, and a unit keeps its number for all that open the
file later. A segment ends at the end of a line. A segment that somebody else has removed is lost, and nothing else is.

A rotation that the system refuses is put off, and does not fail the write that needed it.

`read_raw_frame` finds the recorded line that an event came from.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from contextlib import suppress
from itertools import islice
from pathlib import Path

import attrs

from proctor.actors.errors import RecordingFailed
from proctor.protocols.vocabulary import HOST, AnyEvent
from proctor.runtime.processes import open_private, restore_directory, write_all

_MAX_STRETCH = 2
"""Segments' lengths after which one ends also in the middle of a line."""
_CHUNK = 2**20
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW


@attrs.frozen
class Segment:
    """Units `first` to before `end`, the bytes `begin` to before `begin + size` of all that was ever written."""

    path: Path
    first: int
    end: int
    begin: int
    size: int


class SegmentedFile:
    """The file at `path`, made or gone on with; `segment` bytes begin a new one, None: it is never divided. `divided` is whether it is,
    or was, in more than one segment.

    Raises `RecordingFailed` when it cannot be opened.
    """

    # without a dictionary each: an agent has four of them open
    __slots__ = (
        *("_begin", "_first", "_line_ended", "_old", "_segment", "_size", "_torn"),
        *("divided", "fd", "held", "path", "units"),
    )

    def __init__(self, path: Path, *, segment: int | None = None, fd: int = -1) -> None:
        self.path = path
        self.units = 0
        self._segment = segment
        self._old: list[Segment] = []
        self._first = self._begin = self._size = 0
        self._torn = self.divided = False
        self._line_ended = True
        self.held = 0
        self.fd = fd
        if fd >= 0:
            return
        try:
            self.fd = open_private(path, _FLAGS)
            self._find_earlier()
        except OSError as error:
            self.close()
            raise RecordingFailed(str(path), error) from error

    @property
    def first(self) -> int:
        """The first unit that is still there."""
        return next((segment.first for segment in self._old if segment.size), self._first)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """The gaps between units that are there: the first of it, and the first unit behind it."""
        held = [segment for segment in self._old if segment.size]
        behind = (*(segment.first for segment in held[1:]), self._first)
        pairs = zip(held, behind, strict=False)
        return [(before.end, first) for before, first in pairs if before.end < first]

    @property
    def begin(self) -> int:
        """The place of the first byte that is still there."""
        return self._old[0].begin if self._old else self._begin

    @property
    def end(self) -> int:
        """The place behind the last byte."""
        return self._begin + self._size

    def starts(self) -> list[tuple[int, int]]:
        """The first unit and the place of each segment, the current one's last."""
        old = ((segment.first, segment.begin) for segment in self._old if segment.size)
        return [*old, (self._first, self._begin)]

    def append(self, data: bytes, units: int | None = None) -> int:
        """Write all of `data`, which ends `units` units (None: as many as lines), or nothing; return the place where it begins.

        Raises `RecordingFailed`.
        """
        if self.fd < 0:
            self._open()
        if self._segment is not None and self._size >= self._segment:
            self._rotate()
        # What a failed write has left must go first: a reader would take both parts for one line.
        if self._torn:
            self._cut()
        size = len(data)
        try:
            done = os.write(self.fd, data)
            if done < size:
                write_all(self.fd, data[done:])
        except OSError as error:
            # Set before the attempt to cut: where that fails, too, the next append cuts.
            self._torn = True
            with suppress(RecordingFailed):  # the first cause is what is reported
                self._cut()
            raise RecordingFailed(str(self.path), error) from error
        place = self._begin + self._size
        self._size += size
        self.held += size
        self.units += data.count(b"\n") if units is None else units
        self._line_ended = data.endswith(b"\n")
        return place

    def read(self, place: int, size: int) -> bytes:
        """At most `size` bytes from `place` on, of one segment; nothing where that is gone. Raises `RecordingFailed`."""
        try:
            if place >= self._begin:
                size = min(size, self.end - place)
                if self.fd < 0:
                    return _read(self.path, place - self._begin, size)
                return os.pread(self.fd, size, place - self._begin)
            for segment in self._old:
                if segment.begin <= place < segment.begin + segment.size:
                    return _read(segment.path, place - segment.begin, size)
        except FileNotFoundError:  # somebody cleans up where we write
            self._lose(place)
        except OSError as error:
            raise RecordingFailed(str(self.path), error) from error
        return b""

    def drop_oldest(self) -> bool:
        """Remove the oldest segment; False when only the one being written is left, or the system refuses."""
        if not any(segment.size for segment in self._old):
            return False
        segment, is_last = self._old[0], len(self._old) == 1
        try:
            # before the last name that has a number goes: without one, units would be counted from 0 again
            marker = self._marker(self._first) if is_last else None
            segment.path.unlink(missing_ok=True)
        except OSError:  # it stays in the list: an uncounted file would leave a hole behind it
            return False
        del self._old[0]
        self.held -= segment.size
        self._old.extend([] if marker is None else [marker])
        return True

    def close(self) -> None:
        """Close the descriptor. A file with a name is opened again when it is read or appended to."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _open(self) -> None:
        """Open the file again where it was closed. Raises `RecordingFailed`."""
        if self.fd >= 0:
            return
        try:
            self.fd = open_private(self.path, _FLAGS)
            size = os.fstat(self.fd).st_size
            # Shortened by another program: the places in it mean something else now.
            if 0 < size < self._size:
                raise OSError(errno.EIO, "another program has changed the file")
        except OSError as error:
            self.close()
            raise RecordingFailed(str(self.path), error) from error
        # Removed, and made anew by this open: what it held is lost.
        if size < self._size:
            self._lose_current()
        # bytes of a write that broke off in the middle; `_cut` takes them away before the next append
        self._torn = self._torn or size > self._size

    def truncate(self, place: int, units: int) -> None:
        """Forget what the current segment has behind `place`, where it has `units` in all. Raises `RecordingFailed`."""
        self.held -= self.end - place
        self._size, self.units = place - self._begin, units
        self._cut()

    def _lose(self, place: int) -> None:
        if place >= self._begin:
            self._lose_current()
            return
        while self._old and (self._old[0].begin <= place or not self._old[0].path.exists()):
            if not self.drop_oldest():
                return

    def _lose_current(self) -> None:
        self.held -= self._size
        self._first, self._begin, self._size = self.units, self.end, 0
        self.divided = self._begin > 0

    def _cut(self) -> None:
        try:
            os.ftruncate(self.fd, self._size)
        except OSError as error:
            raise RecordingFailed(str(self.path), error) from error
        self._torn = False

    def begin_at(self, unit: int) -> None:
        """Go on in a segment of its own, whose first unit is `unit`: those before it that were not written are nowhere.

        Raises `RecordingFailed`."""
        self._open()
        if self._torn:
            self._cut()
        try:
            if self._size:
                self._divide()
            marker = self._marker(unit)
        except OSError as error:
            raise RecordingFailed(str(self.path), error) from error
        self._old.extend([] if marker is None else [marker])
        self._first = self.units = unit

    def _marker(self, unit: int) -> Segment | None:
        """An empty segment whose name says which unit follows; None where the whole folder was removed."""
        path = self._place_of(unit, unit)
        try:
            os.close(open_private(path, _FLAGS))
        except FileNotFoundError:
            return None
        return Segment(path, unit, unit, self._begin, 0)

    def move_to(self, path: Path) -> None:
        """Go on in a copy at `path`: each unit and each place stays what it was. Raises `RecordingFailed`, and is then where
        it was."""
        self._open()
        if self._torn:
            self._cut()
        try:
            for segment in self._old:
                with suppress(FileNotFoundError):  # removed under us, and found to be when it is read
                    os.close(_copied(segment.path, path.with_name(segment.path.name)))
            fd = _copied(self.fd, path)
        except OSError as error:
            raise RecordingFailed(str(path), error) from error
        # Only when the copy is whole: an error leaves the log where it was.
        os.close(self.fd)
        self.fd, self.path = fd, path
        self._old = [attrs.evolve(old, path=path.with_name(old.path.name)) for old in self._old]

    def _rotate(self) -> None:
        assert self._segment is not None
        # between two lines, so that each segment can be read alone; a line without an end must not grow it
        # for ever
        if self._line_ended or self._size >= _MAX_STRETCH * self._segment:
            with suppress(OSError):
                # a refusal costs nothing: the current segment only grows, and the next append tries again
                self._divide()

    def _divide(self) -> None:
        fresh, fd = self.path.with_name(f"{self.path.name}.new"), -1
        place = self._place_of(self._first, self.units)
        done = Segment(place, self._first, self.units, self._begin, self._size)
        try:
            restore_directory(self.path.parent, parents=False)
            # opened before anything is renamed: no descriptor left must not cost what is there
            fd = open_private(fresh, _FLAGS | os.O_TRUNC)
            with suppress(FileNotFoundError):  # removed under us: what it held is lost, and found to be
                os.rename(self.path, done.path)
            # Between the two renames there is no file of the name; `_take_back` mends an error there.
            os.rename(fresh, self.path)
        except OSError:
            if fd >= 0:
                os.close(fd)
                _take_back(fresh, done.path, self.path)
            raise
        os.close(self.fd)
        self.fd = fd
        self._old.append(done)
        self._first, self._begin, self._size = self.units, self.end, 0
        self.divided = self._begin > 0

    def _place_of(self, first: int, end: int) -> Path:
        return self.path.with_name(f"{self.path.stem}.{first}-{end}{self.path.suffix}")

    def _find_earlier(self) -> None:
        self._size = os.fstat(self.fd).st_size
        self._old.extend(segments_of(self.path))
        if self._old:
            last = self._old[-1]
            self._first, self._begin = last.end, last.begin + last.size
            self.divided = self._begin > 0
        self.units = self._first
        self.held = self._size + sum(segment.size for segment in self._old)


def temporary_segments(prefix: str) -> SegmentedFile:
    """One without a name, never divided, that goes when it is closed. Raises `RecordingFailed`."""
    try:
        with tempfile.TemporaryFile(prefix=prefix) as file:
            # A copy of the descriptor: the file object closes its own.
            return SegmentedFile(Path("(temporary)"), fd=os.dup(file.fileno()))
    except OSError as error:
        raise RecordingFailed("(temporary)", error) from error


def segments_of(path: Path) -> list[Segment]:
    """The segments that were written before the file at `path`, the oldest first. Raises OSError."""
    pattern = re.compile(rf"{re.escape(path.stem)}\.(\d+)-(\d+){re.escape(path.suffix)}")
    found = ((pattern.fullmatch(inner.name), inner) for inner in path.parent.iterdir())
    named = sorted((int(name[1]), int(name[2]), inner) for name, inner in found if name is not None)
    segments, begin = list[Segment](), 0
    for first, end, inner in named:
        size = inner.stat().st_size
        segments.append(Segment(inner, first, end, begin, size))
        begin += size
    return segments


def _take_back(fresh: Path, done: Path, path: Path) -> None:
    with suppress(OSError):
        # only where the second rename failed: what is there otherwise is the log itself
        if not path.exists():
            os.rename(done, path)
        fresh.unlink(missing_ok=True)


def _copied(source: Path | int, path: Path) -> int:
    """A descriptor of a new file with what is in the other."""
    begin = (
        os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW) if isinstance(source, Path) else source
    )
    fd = -1
    try:
        # O_EXCL: a file that is there is not ours to overwrite
        fd, place = open_private(path, _FLAGS | os.O_EXCL), 0
        while data := os.pread(begin, _CHUNK, place):
            write_all(fd, data)
            place += len(data)
    except OSError:
        if fd >= 0:
            os.close(fd)
        raise
    finally:
        if begin != source:
            os.close(begin)
    return fd


def _read(path: Path, offset: int, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)


def read_raw_frame(log: Path | None, event: AnyEvent) -> bytes:
    """The line of the event's incarnation, without its end; `log` is the agent's event log. Reads the disk.

    Raises LookupError when no line caused it, when it belongs to no turn (the turn's id begins with the number of the
    incarnation), or when there is no such line any more.
    """
    if event.frame == HOST:
        raise LookupError(f"no line caused this event: {event!r}")
    number = (event.turn or "").partition(".")[0]
    if log is None or not number.isdecimal():
        raise LookupError(f"no process is known for this event: {event!r}")
    try:
        line = _line(log.parent / number / "stdout.ndjson", event.frame)
    except OSError as error:
        raise LookupError(f"the recording of process {number} cannot be read: {error.strerror}") from error
    if line is None:
        raise LookupError(f"the recording of process {number} has no line {event.frame}")
    return line.rstrip(b"\n")


def _line(path: Path, number: int) -> bytes | None:
    segments = segments_of(path)
    current = segments[-1].end if segments else 0
    held = [(segment.path, segment.first) for segment in segments if segment.first <= number < segment.end]
    file, first = held[0] if held else (path, current)
    if number < first:
        return None
    with open(file, "rb") as lines:
        return next(islice(lines, number - first, None), None)
