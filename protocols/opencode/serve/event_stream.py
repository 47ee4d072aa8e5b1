r"""Server-sent events, from bytes at any cut: what stood in `data`, event by event.

Guarantees: the same events however the bytes were cut; comments, ids, names and unknown fields are passed over; an
event without data is none. Memory is bounded by `max_event`: a longer event comes out as its first bytes, so that
its decoder sees that it is cut, and the next one is whole again.

Not here: lines ended by a lone carriage return, reconnecting, and what the data means.
"""

from __future__ import annotations

MAX_EVENT = 32 * 2**20
"""Longest data of one event, in bytes."""


class EventStream:
    """Reads one stream."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk ends, in order; several lines of data are joined by newlines."""
        self._rest += chunk
        if b"\n" not in chunk:
            self._shorten()
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        ended = [data for line in lines if (data := self._take(line.removesuffix(b"\r"))) is not None]
        self._shorten()
        return ended

    def _take(self, line: bytes) -> bytes | None:
        if self._skipping:
            self._skipping = False  # the end of a line whose beginning was all there was room for
            return None
        if not line:
            data, self._data, self._size = self._data, [], 0
            return b"\n".join(data) if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._keep(value.removeprefix(b" "))
        return None

    def _keep(self, value: bytes) -> None:
        if (room := self._max_event - self._size) > 0:
            self._data.append(value[:room])
            self._size += len(value)

    def _shorten(self) -> None:
        if len(self._rest) > self._max_event + 16 and not self._skipping:
            # What is there becomes the beginning of the event, and the rest of the line is passed over.
            self._take(bytes(self._rest))
            self._rest.clear()
            self._skipping = True
        elif self._skipping:
            self._rest.clear()
