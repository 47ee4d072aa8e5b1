r"""Bytes to lines, at any cut, with a bound on what one line may cost.

Guarantees: only b"\n" ends a line (a CLI may write U+2028 inside one); the lines that come out are the same however
the bytes were cut; a line is joined once, so a 20 MB line costs linear time. Every line comes out, blank ones too, so
that counting them gives the number of each line in a recorded `stdout.ndjson`. A trailing CR stays: to JSON it is
white space.

A line longer than `max_line` is not kept. From the byte where it becomes too long, what was kept and what still comes
is reduced to a *skim*: the line with its long strings cut short. It is still JSON when the line was, and says which
frame it is and how it ended, but not what it contained. The skim itself is bounded; where even the structure is too
big it is given up (empty). Peak memory is `max_line` and a chunk.

Not handled here: what a line means, and text encodings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

MAX_LINE = 32 * 2**20
"""Longest line that is delivered whole, in bytes."""

STRING_LIMIT = 1024
SKIM_LIMIT = 2**20
HEAD = 400
PIECE = 2**16

_BACKSLASH = ord("\\")
_STRING_REST = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_WHOLE_TOKENS = re.compile(rb'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+', re.DOTALL)
_HALF_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")


class Oversized(NamedTuple):
    """A line over the limit: its length and first bytes, and its skim (empty when it was given up)."""

    size: int
    head: bytes
    truncated: bytes


class Framing:
    r"""Splits a stream of bytes at b"\n". `fed` counts the bytes of it so far."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self.fed = 0
        self._kept = bytearray()
        self._long: _LongLine | None = None

    @property
    def offset(self) -> int:
        """The byte of the stream at which the first line begins that was not delivered yet."""
        return self.fed - (self._long.size if self._long else len(self._kept))

    def feed(self, chunk: bytes) -> Sequence[bytes | Oversized]:
        """The lines that this chunk ends, in order, each without its newline."""
        self.fed += len(chunk)
        if len(chunk) > self._max_line:
            return self._piecewise(chunk)
        *lines, tail = chunk.split(b"\n")
        if not lines:
            self._keep(tail)
            return lines
        # Nothing kept from before, which is the usual case: the lines are whole as they are.
        if not (self._kept or self._long):
            self._keep(tail)
            return lines
        self._keep(lines[0])
        first = self._take()
        self._keep(tail)
        return [first, *lines[1:]]

    def is_one_line(self, chunk: bytes) -> bool:
        """Is this chunk exactly the one line that `feed` would give, with its newline?"""
        size = len(chunk)
        starts_line = not self._kept and self._long is None
        return starts_line and 0 < size <= self._max_line and chunk.find(b"\n") == size - 1

    def end(self) -> Sequence[bytes | Oversized]:
        """The last line, where the stream ended without a newline."""
        return [self._take()] if self._kept or self._long else []

    def _piecewise(self, chunk: bytes) -> list[bytes | Oversized]:
        *lines, tail = chunk.split(b"\n")
        out: list[bytes | Oversized] = []
        for line in lines:
            self._keep(line)
            out.append(self._take())
        self._keep(tail)
        return out

    def _keep(self, part: bytes) -> None:
        if self._long is not None:
            self._long.feed(part)
        elif len(self._kept) + len(part) <= self._max_line:
            self._kept += part
        else:
            self._long = _LongLine()
            self._long.feed(self._kept)
            self._kept = bytearray()
            self._long.feed(part)

    def _take(self) -> bytes | Oversized:
        if self._long is not None:
            record, self._long = self._long.record(), None
            return record
        line = bytes(self._kept)
        self._kept = bytearray()
        return line


class Place:
    """The place of the lines of one feed: `frame` is the number of the first, `offset` the byte it begins at."""

    def __init__(self, frame: int, offset: int, lines: Sequence[bytes | Oversized]) -> None:
        self.first = frame
        self._next = 0
        self._offset = offset
        self._lines = lines

    def is_blank(self, frame: int) -> bool:
        """Is the line of this number nothing but white space?"""
        line = self._lines[frame - self.first]
        return isinstance(line, bytes) and not line.strip()

    def size(self, frame: int) -> int:
        """Its length in bytes."""
        line = self._lines[frame - self.first]
        return len(line) if isinstance(line, bytes) else line.size

    def offset(self, frame: int) -> int:
        """The byte at which it begins. To be asked in order: each length is read once."""
        while self._next < frame - self.first:
            line = self._lines[self._next]
            self._offset += (len(line) if isinstance(line, bytes) else line.size) + 1
            self._next += 1
        return self._offset


class _LongLine:
    """A line that is too long, read on. `_string` holds the string it stands in, None outside of one."""

    def __init__(self) -> None:
        self.size = 0
        self._head = b""
        self._skim = bytearray()
        self._string: bytearray | None = None
        self._backslash = b""
        self._given_up = False

    def feed(self, part: bytes | bytearray) -> None:
        self.size += len(part)
        if len(self._head) < HEAD:
            self._head += bytes(part[: HEAD - len(self._head)])
        for start in range(0, len(part), PIECE):
            if self._given_up:
                return
            # A backslash at the end of a piece belongs to the first byte of the next.
            self._read(self._backslash + part[start : start + PIECE])
            # A structure that is too big is given up whole: half of it is no JSON.
            if len(self._skim) > SKIM_LIMIT:
                self._given_up = True
                self._skim = bytearray()

    def record(self) -> Oversized:
        return Oversized(self.size, self._head, bytes(self._skim))

    def _read(self, piece: bytes) -> None:
        self._backslash = b""
        at = 0
        while at < len(piece):
            at = self._outside(piece, at) if self._string is None else self._inside(piece, at, self._string)

    def _outside(self, piece: bytes, at: int) -> int:
        quote = piece.find(b'"', at)
        if quote < 0:
            self._skim += piece[at:]
            return len(piece)
        self._skim += piece[at : quote + 1]
        self._string = bytearray()
        return quote + 1

    def _inside(self, piece: bytes, at: int, string: bytearray) -> int:
        match = _STRING_REST.match(piece, at)
        end = match.end() if match else at
        if len(string) <= STRING_LIMIT:
            string += piece[at : min(end, at + STRING_LIMIT + 1)]
        if end == len(piece):
            return end
        if piece[end] == _BACKSLASH:  # its partner comes with the next piece
            self._backslash = piece[end:]
            return len(piece)
        self._skim += _shortened(string) + b'"'
        self._string = None
        return end + 1


def _shortened(string: bytearray) -> bytes:
    if len(string) <= STRING_LIMIT:
        return bytes(string)
    whole = _WHOLE_TOKENS.match(string[:STRING_LIMIT])
    # A cut must not fall into an escape or between the halves of a surrogate pair.
    text = _HALF_PAIR.sub(b"", whole[0] if whole else b"")
    return text.decode("utf-8", "ignore").encode()
