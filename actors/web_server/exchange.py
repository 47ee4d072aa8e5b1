"""One request and its response, between Hypercorn and the application.

Guarantees: the client's leaving is not told while the last part of a response is written, since an application that stops
at that news would leave Hypercorn's connection neither closed nor usable. An answer that comes before the whole body was
read says that the connection is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import trio

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Exchange:
    """What the application is given instead of Hypercorn's own `receive` and `send`."""

    def __init__(self, scope: Message, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._whole = not _has_body(scope)
        self._ending: trio.Event | None = None

    async def receive(self) -> Message:
        """For the application."""
        message = await self._receive()
        if message["type"] == "http.disconnect" and self._ending is not None:
            await self._ending.wait()
        self._whole = self._whole or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """For the application."""
        if message["type"] == "http.response.start" and not self._whole:
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        if message["type"] != "http.response.body" or message.get("more_body", False):
            await self._send(message)
            return
        self._ending = trio.Event()
        try:
            await self._send(message)
        finally:
            self._ending.set()


def _has_body(scope: Message) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
