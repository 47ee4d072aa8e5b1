"""The events of an agent as server-sent events, encoded once for all readers.

The id of a server-sent event is the position of the event in the log. Chunks are cached by their first position, so readers that
keep up share them. A reader that is behind has its events encoded separately, up to `CACHE_LIMIT` cached bytes an agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakValueDictionary

import msgspec

from proctor.actors.recording.eventlog import EventLog
from proctor.protocols.vocabulary import AnyEvent

CACHE_LIMIT = 2**20
CHUNK = 32 * 2**10
"""Bytes of one write, approximately."""

PING = b": ping\n\n"


class EncodedLog:
    """The encoded events of one log. `encoded` counts events, `cached` bytes."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.encoded = 0
        self._encode = msgspec.json.Encoder().encode
        self._chunks: dict[int, tuple[bytes, int]] = {}
        self.cached = 0
        self._hint = (-1, 0)

    def after(self, position: int, end: int | None = None) -> tuple[bytes, int]:
        """The events from `position` on, about `CHUNK` bytes of them and none from `end` on, and the next position."""
        parts, size = list[bytes](), 0
        limit = self.log.end if end is None else min(end, self.log.end)
        while position < limit and size < CHUNK:
            data, position = self._chunk(position, limit)
            parts.append(data)
            size += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts), position

    def _chunk(self, position: int, limit: int) -> tuple[bytes, int]:
        cached = self._chunks.get(position)
        if cached is not None and cached[1] <= limit:
            return cached
        if (gap := self.log.missing(position)) is not None:
            first = gap.data["next"]
            # the id is the position before the next event, so a client that reconnects with it continues there
            return frame(gap.__struct_config__.tag, self._encode(gap), first - 1), first
        events, self._hint = self.log.read(position, self._hint)
        if not events:
            return self._chunk(position, limit)  # it was removed just now: report the gap
        chunks = list(self._encoded_chunks(position, events[: limit - position]))
        for begin, data, end in chunks:  # one read of the disk gives many chunks
            self._keep(begin, (data, end))
        return chunks[0][1:]

    def _encoded_chunks(self, position: int, events: Sequence[AnyEvent]) -> Iterator[tuple[int, bytes, int]]:
        begin, parts, size = position, list[bytes](), 0
        for number, event in enumerate(events, position + 1):
            parts.append(frame(event.__struct_config__.tag, self._encode(event), number - 1))
            size += len(parts[-1])
            if size >= CHUNK or number == position + len(events):
                yield begin, b"".join(parts), number
                begin, parts, size = number, [], 0
        self.encoded += len(events)

    def _keep(self, position: int, chunk: tuple[bytes, int]) -> None:
        replaced = self._chunks.pop(position, None)
        self.cached += len(chunk[0]) - (0 if replaced is None else len(replaced[0]))
        self._chunks[position] = chunk
        while self.cached > CACHE_LIMIT and len(self._chunks) > 1:
            data, _ = self._chunks.pop(next(iter(self._chunks)))
            self.cached -= len(data)


class EncodedEvents:
    """The encoded logs of a gateway, each as long as it has a reader."""

    def __init__(self) -> None:
        self._logs: WeakValueDictionary[str, EncodedLog] = WeakValueDictionary()

    def of(self, agent: str, log: EventLog) -> EncodedLog:
        """The encoded log of an agent, shared by its readers."""
        cached = self._logs.get(agent)
        if cached is None or cached.log is not log:
            cached = self._logs[agent] = EncodedLog(log)
        return cached


def frame(event: object, data: bytes, position: int | None = None) -> bytes:
    """One server-sent event; `data` is JSON, which holds no line feed."""
    head = b"" if position is None else b"id: %d\n" % position
    return b"%bevent: %b\ndata: %b\n\n" % (head, str(event).encode(), data)
