"""Server-sent events for one client, from an agent's log or from its approvals.

A stream sends every event from its first position on once, in order, with its position as the id. Ready events go out in
one write, and a comment is sent after `HEARTBEAT` seconds without events. The last event, `end`, says why the stream
ends. A client that is slow or gone holds no events in memory: they are on disk.

Not here: giving up a write that blocks. The web server does that, and cancels the response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec
import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proctor.actors.agent.approval_queue import Approvals
from proctor.actors.gateways.http.cancel_signal import CancelSignal
from proctor.actors.gateways.http.encoded_events import PING, EncodedEvents, EncodedLog, frame
from proctor.actors.gateways.http.schemas import EndRecord, TurnRecord, approval_record
from proctor.actors.gateways.http.turns import LogCall, ServedTurn
from proctor.actors.web_server.exchange import wait_disconnect

HEARTBEAT = 15.0
AT_REST = "the agent is at rest"
NO_MORE = "the events end here"
DISCONNECTED = "the client has left"
MEDIA_TYPE = "text/event-stream"
HEADERS: Mapping[str, str] = {"cache-control": "no-store", "x-accel-buffering": "no"}

Write = Callable[[bytes], Awaitable[None]]


class EventSource(Protocol):
    """The content of a stream."""

    async def write(self, write: Write) -> str:
        """Write until the end and return its reason."""
        ...

    def turn_record(self) -> TurnRecord | None:
        """The turn of the stream, if it has one."""
        ...


async def disconnected_before(receive: Receive, wait: Callable[[], Awaitable[None]]) -> bool:
    """Wait, and return whether the client disconnected before; that ends the wait."""
    left = False

    async def watch(scope: trio.CancelScope) -> None:
        nonlocal left
        await wait_disconnect(receive)
        left = True
        scope.cancel(DISCONNECTED)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, nursery.cancel_scope)
        await wait()
        nursery.cancel_scope.cancel("the wait is over")
    return left


class EventStream(Response):
    """A response that streams a source. The source is opened first, so its errors still have their own status."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        opened: AbstractAsyncContextManager[EventSource],
        agent: str,
        log: LogCall,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._opened = opened
        self._agent = agent
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        async with self._opened as source:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
            else:
                await self._stream(source, receive, send)

    async def _stream(self, source: EventSource, receive: Receive, send: Send) -> None:
        began, why = trio.current_time(), DISCONNECTED
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_client, receive, nursery.cancel_scope)
                why = await source.write(_writing(send))
                end = EndRecord(why=why, duration=_seconds_since(began), turn=source.turn_record())
                await send({"type": "http.response.body", "body": frame("end", msgspec.json.encode(end))})
                nursery.cancel_scope.cancel(why)
        finally:
            facts = {"agent": self._agent, "seconds": _seconds_since(began), "why": why}
            self._log("stream ended", facts)

    async def _watch_client(self, receive: Receive, scope: trio.CancelScope) -> None:
        await wait_disconnect(receive)
        scope.cancel(DISCONNECTED)


def _writing(send: Send) -> Write:
    async def write(data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})

    return write


def _seconds_since(began: float) -> float:
    return round(trio.current_time() - began, 3)


class LogSource:
    """An agent's events from `position` on, until `closing` fires or a closed log is read to its end."""

    def __init__(
        self,
        encoded: EncodedLog,
        position: int,
        closing: CancelSignal,
        *,
        until: int | None = None,
        pause: float = HEARTBEAT,
    ) -> None:
        self._encoded = encoded
        self._position = position
        self._closing = closing
        self._until = until
        self._pause = pause

    async def write(self, write: Write) -> str:
        """Write until the end and return its reason."""
        await write(b": events\n\n")  # the first byte shows the client that its request was accepted
        while self._closing.why is None:
            log = self._encoded.log
            if self._until is not None and self._position >= self._until:
                return NO_MORE
            if self._position < log.end:
                data, self._position = self._encoded.after(self._position, self._until)
                await write(data)
            elif log.closed:
                return AT_REST
            elif await _timed_out(log.changed, self._closing, self._pause):
                await write(PING)
        return self._closing.why

    def turn_record(self) -> TurnRecord | None:
        """None: the stream has no turn."""
        return None


class TurnSource:
    """The events of one turn, from its first or from `position` on."""

    def __init__(
        self, encoded_events: EncodedEvents, turn: ServedTurn, position: int = 0, pause: float = HEARTBEAT
    ) -> None:
        self._encoded_events = encoded_events
        self._encoded: EncodedLog | None = None
        self._turn = turn
        self._position = position
        self._pause = pause

    async def write(self, write: Write) -> str:
        """Write until the end of the turn and return its reason."""
        turn = self._turn
        await write(frame("turn", msgspec.json.encode(turn.record())))
        while True:
            if turn.log is not None and turn.first is not None:
                if self._encoded is None or self._encoded.log is not turn.log:
                    self._position = (
                        0 if self._encoded else self._position
                    )  # the turn started again, in a new log
                    self._encoded = self._encoded_events.of(turn.id if turn.session else turn.agent, turn.log)
                await self._write_all(self._encoded, write, max(turn.first, self._position))
            if turn.ended.why is not None:
                return turn.ended.why
            if await _timed_out(turn.changed, turn.ended, self._pause):
                await write(PING)

    async def _write_all(self, encoded: EncodedLog, write: Write, position: int) -> None:
        self._position = position
        while self._position < self._turn.end:
            data, self._position = encoded.after(self._position, self._turn.end)
            await write(data)

    def turn_record(self) -> TurnRecord | None:
        """The record of the turn."""
        return self._turn.record()


class ApprovalSource:
    """The open approvals of an agent and new ones, until `closing` fires or the agent is at rest."""

    def __init__(self, approvals: Approvals, closing: CancelSignal, pause: float = HEARTBEAT) -> None:
        self._approvals = approvals
        self._closing = closing
        self._pause = pause

    async def write(self, write: Write) -> str:
        """Write until the end and return its reason."""
        await write(b": approvals\n\n")
        while self._closing.why is None:
            try:
                data = await self._next()
            except StopAsyncIteration:
                return AT_REST
            await write(data)
        return self._closing.why

    async def _next(self) -> bytes:
        with self._closing.limit(self._pause):
            approval = await anext(self._approvals)
            return frame("approval", msgspec.json.encode(approval_record(approval)))
        return PING

    def turn_record(self) -> TurnRecord | None:
        """None: the stream has no turn."""
        return None


async def _timed_out(wait: Callable[[], Awaitable[None]], closing: CancelSignal, pause: float) -> bool:
    """Wait, and return whether `pause` seconds passed before."""
    with closing.limit(pause) as scope:
        await wait()
    return scope.cancelled_caught and closing.why is None
