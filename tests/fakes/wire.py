"""The server's half of HTTP/1.1 on one connection, as much of it as a fake API needs.

Requests carry their body with Content-Length; answers are whole, or streamed in chunks, and the connection is kept
for the next request. `reset` and a close in mid-body are there on purpose: a far end that breaks is what is tested.
Not handled: chunked requests (answered 411), trailers, upgrades, pipelining.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Protocol, TypeVar

import attrs
import trio

LARGEST_HEAD = 256 * 1024
PIECE = 64 * 1024


@attrs.frozen
class Head:
    """Request line and headers; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


class Server(Protocol):
    """What answers one client after the other."""

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one client until it leaves."""
        ...


S = TypeVar("S", bound=Server)


@asynccontextmanager
async def listening(make: Callable[[int], S]) -> AsyncGenerator[S]:
    """What is made for a port of the system's choice listens there, on 127.0.0.1, until the block ends."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listeners[0].socket.getsockname()[1]
    server = make(port)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, server.serve, listeners)
        yield server
        nursery.cancel_scope.cancel("the test is over")


class Connection:
    """One client. Every send may raise `trio.BrokenResourceError`: the client is gone."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._unread = bytearray()

    async def receive(self) -> tuple[Head, bytes] | None:
        """The next request with its body, None when the client has closed."""
        head = await self._head()
        if head is None:
            return None
        if "transfer-encoding" in head.headers:
            await self.respond(411)
            return None
        body = await self._body(int(head.headers.get("content-length", "0")))
        return None if body is None else (head, body)

    async def respond(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, *, cut: int = 0
    ) -> None:
        """A whole answer; with `cut`, that many bytes less than its Content-Length says."""
        fields = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
        await self._stream.send_all(_head_bytes(status, fields) + body[: len(body) - cut])

    async def respond_to_head(self) -> None:
        """An empty 200."""
        await self._stream.send_all(_head_bytes(200, {"content-length": "0"}))

    async def start_chunks(self, headers: Mapping[str, str]) -> None:
        """The head of a streamed 200."""
        await self._stream.send_all(_head_bytes(200, {**headers, "transfer-encoding": "chunked"}))

    async def send_chunk(self, data: bytes) -> None:
        """One chunk; waits while the client does not read. No bytes, no chunk: an empty one would end the body."""
        if data:
            await self._stream.send_all(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_chunks(self) -> None:
        """The regular end of a streamed body."""
        await self._stream.send_all(b"0\r\n\r\n")

    async def wait_gone(self) -> None:
        """Until the client has closed its side, or sent something although it is not its turn."""
        try:
            self._unread += await self._stream.receive_some()
        except trio.BrokenResourceError:
            return

    async def reset(self) -> None:
        """Close with RST, so that the client sees an error instead of an end."""
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.close()

    async def close(self) -> None:
        """Close at once, whatever was promised."""
        await trio.aclose_forcefully(self._stream)

    async def _head(self) -> Head | None:
        while (end := self._unread.find(b"\r\n\r\n")) < 0:
            if len(self._unread) > LARGEST_HEAD or not await self._more():
                return None
        lines = self._unread[:end].decode("latin-1").split("\r\n")
        del self._unread[: end + 4]
        method, target, _ = lines[0].split(" ", 2)
        fields = (line.partition(":") for line in lines[1:])
        return Head(method, target, {name.strip().lower(): value.strip() for name, _, value in fields})

    async def _body(self, length: int) -> bytes | None:
        while len(self._unread) < length:
            if not await self._more():
                return None
        body = bytes(self._unread[:length])
        del self._unread[:length]
        return body

    async def _more(self) -> bool:
        received = await self._stream.receive_some(PIECE)
        self._unread += received
        return bool(received)


def _head_bytes(status: int, fields: Mapping[str, str]) -> bytes:
    reasons = {each.value: each.phrase for each in HTTPStatus}
    lines = [f"HTTP/1.1 {status} {reasons.get(status, 'Overloaded')}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
