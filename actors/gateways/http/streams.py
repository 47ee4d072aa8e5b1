"""Server-sent events from an agent's log or from its approvals, encoded once for all clients.

A stream sends every event from its first position on once, in order, with its position as the id. Ready events go out in
one write, and a comment is sent after `HEARTBEAT` seconds without events. The last event, `end`, says why the stream
ends. A client that is slow or gone holds no events in memory: they are on disk. Encoded events are cached by their first
position, so clients that keep up share them, up to `CACHE_LIMIT` bytes an agent.

Not here: giving up a write that blocks. The web server does that, and cancels the response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from weakref import WeakValueDictionary

import msgspec
import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proctor.actors.agent.approval_queue import Approvals
from proctor.actors.gateways.http.schemas import EndRecord, approval_record
from proctor.actors.gateways.http.turns import LogCall, ServedTurn
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.serving.in_flight import CancelSignal, Waits
from proctor.actors.web_server.exchange import DISCONNECTED, while_connected
from proctor.protocols.vocabulary import AnyEvent

CACHE_LIMIT = 2**20
CHUNK = 32 * 2**10
"""Bytes of one write, approximately."""

PING = b": ping\n\n"

HEARTBEAT = 15.0
AT_REST = "the agent is at rest"
NO_MORE = "the events end here"
MEDIA_TYPE = "text/event-stream"
HEADERS: Mapping[str, str] = {"cache-control": "no-store", "x-accel-buffering": "no"}

Write = Callable[[bytes], Awaitable[None]]


Source = Callable[[Write], Awaitable[str]]
"""Writes the content of a stream until its end, and returns the reason of that."""


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
        # A cached chunk may go beyond the end that this reader was given.
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


class EventStream(Response):
    """A response that streams a source. The source is opened first, so its errors still have their own status."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        opened: AbstractAsyncContextManager[Source],
        agent: str,
        log: LogCall,
        headers: Mapping[str, str] | None = None,
        turn: ServedTurn | None = None,
    ) -> None:
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._opened = opened
        self._agent = agent
        self._log = log
        self._turn = turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        async with self._opened as source:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
            else:
                await self._stream(source, receive, send)

    async def _stream(self, source: Source, receive: Receive, send: Send) -> None:
        began, why = trio.current_time(), DISCONNECTED
        try:
            async with while_connected(receive):
                why = await source(_writing(send))
                turn = None if self._turn is None else self._turn.record()
                end = EndRecord(why=why, duration=_seconds_since(began), turn=turn)
                await send({"type": "http.response.body", "body": frame("end", msgspec.json.encode(end))})
        finally:
            facts = {"agent": self._agent, "seconds": _seconds_since(began), "why": why}
            self._log("stream ended", facts)


def _writing(send: Send) -> Write:
    async def write(data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})

    return write


def _seconds_since(began: float) -> float:
    return round(trio.current_time() - began, 3)


async def write_log(
    encoded: EncodedLog,
    position: int,
    closing: CancelSignal,
    write: Write,
    *,
    until: int | None = None,
    pause: float = HEARTBEAT,
) -> str:
    """Write an agent's events from `position` on, until `closing` fires or a closed log is read to its end."""
    await write(b": events\n\n")  # the first byte shows the client that its request was accepted
    log = encoded.log

    async def write_ready(waits: Waits) -> str | None:
        """Write what comes until the stream or a wait has ended."""
        nonlocal position
        while closing.why is None:
            if until is not None and position >= until:
                return NO_MORE
            if position < log.end:
                data, position = encoded.after(position, until)
                await write(data)
            elif log.closed:
                return AT_REST
            elif await waits.ended(log.changed):
                break
        return None

    while closing.why is None:
        waits = Waits(closing, pause)
        with waits.scope:
            if (why := await write_ready(waits)) is not None:
                return why
        # The signal may have fired in the same moment: then the stream ends, and nothing more is written.
        if waits.scope.cancelled_caught and closing.why is None:
            await write(PING)
    return closing.why


async def write_turn(
    encoded_events: EncodedEvents, turn: ServedTurn, position: int, pause: float, write: Write
) -> str:
    """Write the events of one turn, from its first or from `position` on."""
    encoded: EncodedLog | None = None
    await write(frame("turn", msgspec.json.encode(turn.record())))
    while True:
        if turn.log is not None and turn.first is not None:
            if encoded is None or encoded.log is not turn.log:
                position = 0 if encoded else position  # the turn started again, in a new log
                encoded = encoded_events.of(turn.id if turn.session else turn.agent, turn.log)
            position = max(turn.first, position)
            while position < turn.end:
                data, position = encoded.after(position, turn.end)
                await write(data)
        if turn.ended.why is not None:
            return turn.ended.why
        if await _timed_out(turn.changed, turn.ended, pause):
            await write(PING)


async def write_approvals(approvals: Approvals, closing: CancelSignal, pause: float, write: Write) -> str:
    """Write the open approvals of an agent and new ones, until `closing` fires or the agent is at rest."""
    await write(b": approvals\n\n")
    while closing.why is None:
        data = PING
        with closing.limit(pause):
            if (approval := await anext(approvals, None)) is None:
                return AT_REST
            data = frame("approval", msgspec.json.encode(approval_record(approval)))
        await write(data)
    return closing.why


async def _timed_out(wait: Callable[[], Awaitable[object]], closing: CancelSignal, pause: float) -> bool:
    """Wait, and return whether `pause` seconds passed before."""
    with closing.limit(pause) as scope:
        await wait()
    # The signal may have fired in the same moment: then the stream ends, and nothing more is written.
    return scope.cancelled_caught and closing.why is None
