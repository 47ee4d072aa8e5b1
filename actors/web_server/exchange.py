"""One request and its response, between Hypercorn and the application.

The disconnect of the client is not reported while the last part of a response is written: an application that stopped
then would leave Hypercorn's connection neither closed nor usable. A response that starts before the whole body was read
closes the connection, and says so.

The parts of a response without a length go to the socket past Hypercorn, which takes 100 µs for each: HTTP/1.1 has them as chunks,
and neither Hypercorn nor h11 counts or keeps what they sent. The head and the last part go through Hypercorn.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import trio

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

DISCONNECTED = "the client has left"

BURST = 65536
"""Bytes sent without a checkpoint: a stream that catches up must not hold the loop."""


class Connection(Protocol):
    """The stream of a connection."""

    def send_now(self, data: bytes) -> int:
        """Send what the socket takes at once, and return how many bytes that were."""
        ...

    async def send_all(self, data: memoryview) -> None:
        """Send all of it."""
        ...


class Exchange:
    """The `receive` and `send` of the application, around Hypercorn's."""

    def __init__(self, scope: Message, receive: Receive, send: Send, connection: Connection) -> None:
        self._receive, self._send, self._connection = receive, send, connection
        self._may_chunk = scope["http_version"] == "1.1" and scope["method"] != "HEAD"
        self._chunked, self._burst = False, 0
        self._body_read = not _has_body(scope)
        self._last_write: trio.Event | None = None

    async def receive(self) -> Message:
        """ASGI's callable of this name."""
        message = await self._receive()
        if message["type"] == "http.disconnect" and self._last_write is not None:
            # Reported during the last write, the application would stop in it and leave the connection of
            # Hypercorn unusable.
            await self._last_write.wait()
        self._body_read = self._body_read or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """ASGI's callable of this name."""
        # The unread rest of the body would be taken for the next request.
        if message["type"] == "http.response.start" and not self._body_read:
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        if message["type"] != "http.response.body":
            await self._send(message)
            self._chunked = self._may_chunk and _has_no_length(message)
            return
        if message.get("more_body", False):
            await (self._send_chunk(message["body"]) if self._chunked else self._send(message))
            return
        self._last_write = trio.Event()
        try:
            await self._send(message)
        finally:
            # On every path, or `receive` would wait for a write that has failed.
            self._last_write.set()

    async def _send_chunk(self, data: bytes) -> None:
        if not data:  # would end the response
            return
        chunk, sent = b"%x\r\n%b\r\n" % (len(data), data), 0
        self._burst += len(chunk)
        if self._burst <= BURST:
            sent = self._connection.send_now(chunk)
        if sent < len(chunk):
            self._burst = 0
            try:
                # the next part must not follow half of this one; the connection bounds the time
                with trio.CancelScope(shield=True):
                    await self._connection.send_all(memoryview(chunk)[sent:])
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                # `receive` reports that the client has left; the end of its connection cancels the application here
                await trio.lowlevel.checkpoint()


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


def _has_no_length(start: Message) -> bool:
    """Whether h11 sends the body of this response in chunks, to a client of HTTP/1.1."""
    lengths = (b"content-length", b"transfer-encoding")
    has_body = start.get("status", 0) >= 200 and start["status"] not in (204, 304)
    return has_body and not any(name.lower() in lengths for name, _ in start.get("headers", ()))


def _has_body(scope: Message) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
