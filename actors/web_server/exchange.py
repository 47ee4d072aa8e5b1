"""One request and its response, between a connection and the application.

A response that starts before the whole body was read closes the connection, and says so. The head of a response goes out with the first part of its
body. The parts of a response without a length are chunks of HTTP/1.1, which are written past h11: it neither counts nor keeps what they sent.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any, Protocol, cast

import h11
import trio

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

DISCONNECTED = "the client has left"


class Wire(Protocol):
    """The connection of an exchange."""

    protocol: h11.Connection

    async def next_event(self) -> Any:
        """The next event of h11. Raises `h11.RemoteProtocolError`."""
        ...

    async def write(self, data: bytes) -> None:
        """Write it; to a client that has left, nothing."""
        ...


class Exchange:
    """The `receive` and `send` of the application for `request`, which came over `wire`."""

    def __init__(self, wire: Wire, request: h11.Request) -> None:
        self._wire = wire
        self._is_head = request.method == b"HEAD"
        self._may_chunk = request.http_version == b"1.1" and not self._is_head
        self._ahead: Any = None
        self._is_read = False
        self._start: Message | None = None
        self._has_body = self._chunked = False
        self._over = trio.Event()
        self.fault: int | None = None
        """The status of what is wrong with the body of the request."""
        self._look_ahead()

    @property
    def is_over(self) -> bool:
        """Whether the whole response was sent."""
        return self._over.is_set()

    # -- the request

    async def receive(self) -> Message:
        """ASGI's callable of this name."""
        if self._is_read or self._over.is_set():
            # a client that leaves before cancels its connection
            await self._over.wait()
            return {"type": "http.disconnect"}
        event = await self._next_event()
        if isinstance(event, h11.Data):
            self._look_ahead()
        elif not isinstance(event, h11.EndOfMessage):
            self._is_read = True
            return {"type": "http.disconnect"}
        body = bytes(event.data) if isinstance(event, h11.Data) else b""
        self._is_read = isinstance(event, h11.EndOfMessage) or isinstance(self._ahead, h11.EndOfMessage)
        return {"type": "http.request", "body": body, "more_body": not self._is_read}

    async def _next_event(self) -> Any:
        """The next part of the body, or its end; None where it is broken."""
        if self._ahead is None and self.fault is None:
            if self._wire.protocol.they_are_waiting_for_100_continue:
                await self._wire.write(self._encoded(h11.InformationalResponse(status_code=100, headers=[])))
            try:
                self._ahead = await self._wire.next_event()
            except h11.RemoteProtocolError as error:
                self.fault = error.error_status_hint
        event, self._ahead = self._ahead, None
        return event

    def _look_ahead(self) -> None:
        """Look whether the body is over, as most are at once, or with their first part."""
        try:
            event = self._wire.protocol.next_event()
        except h11.RemoteProtocolError as error:
            self.fault = error.error_status_hint
            return
        if event is not h11.NEED_DATA:
            self._ahead = event

    # -- the response

    async def send(self, message: Message) -> None:
        """ASGI's callable of this name."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        data, more = message.get("body", b""), message.get("more_body", False)
        head = b"" if self._start is None else self._begin(self._start)
        if self._chunked and more:
            chunk = (
                b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            )  # an empty one would end the response
            await self._wire.write(head + chunk)
            return
        parts = [head]
        if data and self._has_body:
            parts.append(self._encoded(h11.Data(data=data)))
        if not more:
            parts.append(self._encoded(h11.EndOfMessage()))
            self._over.set()
        await self._wire.write(b"".join(parts))

    def _begin(self, start: Message) -> bytes:
        self._start = None
        status, headers = start["status"], list(start.get("headers", ()))
        names = {name.lower() for name, _ in headers}
        self._has_body = not self._is_head and status >= 200 and status not in (204, 304)
        self._chunked = self._may_chunk and self._has_body and not names & _LENGTHS
        if b"date" not in names:
            headers.append((b"date", _date()))
        if self._wire.protocol.their_state is not h11.DONE:
            # The unread rest of the body would be taken for the next request.
            headers.append((b"connection", b"close"))
        return self._encoded(h11.Response(status_code=status, headers=headers))

    def _encoded(self, event: Any) -> bytes:
        return cast("bytes | None", self._wire.protocol.send(event)) or b""


def refusal_of(protocol: h11.Connection, status: int) -> bytes:
    """A whole response without a body, behind which the connection ends."""
    headers = [(b"content-length", b"0"), (b"connection", b"close"), (b"date", _date())]
    head = protocol.send(h11.Response(status_code=status, headers=headers)) or b""
    return head + (protocol.send(h11.EndOfMessage()) or b"")


def _date() -> bytes:
    return formatdate(time.time(), usegmt=True).encode()


_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})


@asynccontextmanager
async def while_connected(receive: Receive) -> AsyncGenerator[None]:
    """Cancel the block when the client of a request disconnects; the body must have been read."""

    async def watch(scope: trio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel(DISCONNECTED)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, nursery.cancel_scope)
        yield
        nursery.cancel_scope.cancel("the block is over")


async def body_of(stream: AsyncIterable[bytes], limit: int) -> bytes | None:
    """The parts of a body together; None, without the rest of it, when they have more than `limit` bytes."""
    body = bytearray()
    async for part in stream:
        body += part
        # Without reading on: a client could send without end.
        if len(body) > limit:
            return None
    return bytes(body)
