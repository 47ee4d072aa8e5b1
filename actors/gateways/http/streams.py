"""Server-sent events to one client, from an agent's log or from its open questions.

Guarantees: every event from the first position on, once, in order, each under its position in the log; what is ready
goes in one write; a comment each `HEARTBEAT` seconds while there is nothing; a last event `end` that says why there
will be no more. A client that has gone, or does not read, holds nothing but its place: the events are on disk. Only
waiting is ever cut short, so that no event is cut in two.

Not here: giving up a write that stalls (the web server does, and cancels the response).
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
from proctor.actors.gateways.http.cancel_signal import Bell
from proctor.actors.gateways.http.encoded_events import PING, Frames, Shelf, frame
from proctor.actors.gateways.http.schemas import EndRecord, TurnRecord, approval_record
from proctor.actors.gateways.http.turns import ServedTurn, Tell

HEARTBEAT = 15.0
AT_REST = "the agent is at rest"
NO_MORE = "the events end here"
LEFT = "the client has left"
MEDIA_TYPE = "text/event-stream"
HEADERS: Mapping[str, str] = {"cache-control": "no-store", "x-accel-buffering": "no"}

Write = Callable[[bytes], Awaitable[None]]


class Reading(Protocol):
    """What a stream is made of."""

    async def write(self, write: Write) -> str:
        """Write until the end, and say why it is one."""
        ...

    def turn_record(self) -> TurnRecord | None:
        """The turn that the stream is about, if it is about one."""
        ...


async def gone(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def left_before(receive: Receive, wait: Callable[[], Awaitable[None]]) -> bool:
    """Whether the client left while it was waited; it is not waited any more then."""
    left = False

    async def watch(scope: trio.CancelScope) -> None:
        nonlocal left
        await gone(receive)
        left = True
        scope.cancel(LEFT)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, nursery.cancel_scope)
        await wait()
        nursery.cancel_scope.cancel("it has come")
    return left


class EventStream(Response):
    """Opens what it reads from, so that this can still fail as any other request, and writes it to its end."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        opened: AbstractAsyncContextManager[Reading],
        agent: str,
        tell: Tell,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._opened = opened
        self._agent = agent
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        async with self._opened as reading:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
            else:
                await self._stream(reading, receive, send)

    async def _stream(self, reading: Reading, receive: Receive, send: Send) -> None:
        began, why = trio.current_time(), LEFT
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_gone, receive, nursery.cancel_scope)
                why = await reading.write(_writing(send))
                end = EndRecord(why=why, duration=_seconds_since(began), turn=reading.turn_record())
                await send({"type": "http.response.body", "body": frame("end", msgspec.json.encode(end))})
                nursery.cancel_scope.cancel(why)
        finally:
            facts = {"agent": self._agent, "seconds": _seconds_since(began), "why": why}
            self._tell("stream ended", facts)

    async def _until_gone(self, receive: Receive, scope: trio.CancelScope) -> None:
        await gone(receive)
        scope.cancel(LEFT)


def _writing(send: Send) -> Write:
    async def write(data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})

    return write


def _seconds_since(began: float) -> float:
    return round(trio.current_time() - began, 3)


class LogReading:
    """An agent's events from `position` on, until `bell` rings or the log is closed and read."""

    def __init__(
        self,
        frames: Frames,
        position: int,
        bell: Bell,
        *,
        until: int | None = None,
        pause: float = HEARTBEAT,
    ) -> None:
        self._frames = frames
        self._position = position
        self._bell = bell
        self._until = until
        self._pause = pause

    async def write(self, write: Write) -> str:
        """Until the end: why."""
        await write(b": events\n\n")  # who waits for a first byte knows that it is heard
        while self._bell.why is None:
            log = self._frames.log
            if self._until is not None and self._position >= self._until:
                return NO_MORE
            if self._position < log.end:
                data, self._position = self._frames.after(self._position, self._until)
                await write(data)
            elif log.closed:
                return AT_REST
            elif await _cut(log.changed, self._bell, self._pause):
                await write(PING)
        return self._bell.why

    def turn_record(self) -> TurnRecord | None:
        """It is of no turn."""
        return None


class TurnReading:
    """The events of one turn, from its first or from `position` on."""

    def __init__(self, shelf: Shelf, turn: ServedTurn, position: int = 0, pause: float = HEARTBEAT) -> None:
        self._shelf = shelf
        self._frames: Frames | None = None
        self._turn = turn
        self._position = position
        self._pause = pause

    async def write(self, write: Write) -> str:
        """Until the end of the turn, and all of it is written: why."""
        turn = self._turn
        await write(frame("turn", msgspec.json.encode(turn.record())))
        while True:
            if turn.log is not None and turn.first is not None:
                if self._frames is None or self._frames.log is not turn.log:
                    self._position = 0 if self._frames else self._position  # it has begun anew
                    self._frames = self._shelf.frames(turn.id if turn.session else turn.agent, turn.log)
                await self._write_all(self._frames, write, max(turn.first, self._position))
            if turn.over.why is not None:
                return turn.over.why
            if await _cut(turn.changed, turn.over, self._pause):
                await write(PING)

    async def _write_all(self, frames: Frames, write: Write, position: int) -> None:
        self._position = position
        while self._position < self._turn.end:
            data, self._position = frames.after(self._position, self._turn.end)
            await write(data)

    def turn_record(self) -> TurnRecord | None:
        """The turn, with what became of it."""
        return self._turn.record()


class ApprovalReading:
    """The open questions of an agent, and those to come, until `bell` rings or the agent is at rest."""

    def __init__(self, approvals: Approvals, bell: Bell, pause: float = HEARTBEAT) -> None:
        self._approvals = approvals
        self._bell = bell
        self._pause = pause

    async def write(self, write: Write) -> str:
        """Until the end: why."""
        await write(b": approvals\n\n")
        while self._bell.why is None:
            try:
                data = await self._next()
            except StopAsyncIteration:
                return AT_REST
            await write(data)
        return self._bell.why

    async def _next(self) -> bytes:
        with self._bell.cuts(self._pause):
            approval = await anext(self._approvals)
            return frame("approval", msgspec.json.encode(approval_record(approval)))
        return PING

    def turn_record(self) -> TurnRecord | None:
        """They are of no turn."""
        return None


async def _cut(wait: Callable[[], Awaitable[None]], bell: Bell, pause: float) -> bool:
    """Whether nothing came in so many seconds."""
    with bell.cuts(pause) as scope:
        await wait()
    return scope.cancelled_caught and bell.why is None
