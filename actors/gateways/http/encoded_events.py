"""An agent's events as server-sent events: encoded once, for every reader.

Guarantees: the id of a frame is the event's position in the log; what readers that keep up are given is encoded once,
however many they are, because a chunk that begins where they stand is held; a reader that is behind costs an encoding
of its own, and nothing stays of it. At most `HELD` bytes are held for an agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakValueDictionary

import msgspec

from proctor.actors.recording.eventlog import EventLog
from proctor.protocols.vocabulary import AnyEvent

HELD = 2**20
CHUNK = 32 * 2**10
"""Bytes of one write, about: what is ready goes together."""

PING = b": ping\n\n"


class Frames:
    """Those of one log. `encoded` counts events, `held` bytes."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.encoded = 0
        self._encode = msgspec.json.Encoder().encode
        self._chunks: dict[int, tuple[bytes, int]] = {}
        self.held = 0
        self._hint = (-1, 0)

    def after(self, position: int, end: int | None = None) -> tuple[bytes, int]:
        """What is there from `position` on, up to about `CHUNK` bytes and before `end`, and the position behind it."""
        parts, size = list[bytes](), 0
        limit = self.log.end if end is None else min(end, self.log.end)
        while position < limit and size < CHUNK:
            data, position = self._chunk(position, limit)
            parts.append(data)
            size += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts), position

    def _chunk(self, position: int, limit: int) -> tuple[bytes, int]:
        found = self._chunks.get(position)
        if found is not None and found[1] <= limit:
            return found
        if (gap := self.log.missing(position)) is not None:
            first = gap.data["next"]
            # under the position before the next event: who reconnects with it goes on where we do
            return frame(gap.__struct_config__.tag, self._encode(gap), first - 1), first
        events, self._hint = self.log.read(position, self._hint)
        if not events:
            return self._chunk(position, limit)  # it was removed just now, and is missing
        chunks = list(self._made(position, events[: limit - position]))
        for begin, data, end in chunks:  # what the disk gave at once is used up before it is asked again
            self._keep(begin, (data, end))
        return chunks[0][1:]

    def _made(self, position: int, events: Sequence[AnyEvent]) -> Iterator[tuple[int, bytes, int]]:
        begin, parts, size = position, list[bytes](), 0
        for number, event in enumerate(events, position + 1):
            parts.append(frame(event.__struct_config__.tag, self._encode(event), number - 1))
            size += len(parts[-1])
            if size >= CHUNK or number == position + len(events):
                yield begin, b"".join(parts), number
                begin, parts, size = number, [], 0
        self.encoded += len(events)

    def _keep(self, position: int, made: tuple[bytes, int]) -> None:
        replaced = self._chunks.pop(position, None)
        self.held += len(made[0]) - (0 if replaced is None else len(replaced[0]))
        self._chunks[position] = made
        while self.held > HELD and len(self._chunks) > 1:
            data, _ = self._chunks.pop(next(iter(self._chunks)))
            self.held -= len(data)


class Shelf:
    """The frames of each log that somebody reads."""

    def __init__(self) -> None:
        self._frames: WeakValueDictionary[str, Frames] = WeakValueDictionary()

    def frames(self, agent: str, log: EventLog) -> Frames:
        """The readers of one log share them; they go with the last."""
        found = self._frames.get(agent)
        if found is None or found.log is not log:
            found = self._frames[agent] = Frames(log)
        return found


def frame(event: object, data: bytes, position: int | None = None) -> bytes:
    """One server-sent event; `data` is JSON, which holds no line feed."""
    head = b"" if position is None else b"id: %d\n" % position
    return b"%bevent: %b\ndata: %b\n\n" % (head, str(event).encode(), data)
