"""An application of a test, served on a loopback socket, and clients that speak to it byte by byte."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import attrs
import trio

from proctor.actors.web_server.connections import admit_by_request
from proctor.actors.web_server.exchange import Application, Message, Receive, Send
from proctor.actors.web_server.listening import Endpoint, bound, endpoint_of
from proctor.actors.web_server.server import serve

Handler = Callable[[Message, Receive, Send], Awaitable[None]]

LOCAL = Endpoint()
REQUEST = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"


@attrs.frozen
class Running:
    where: Endpoint
    shutdown: trio.Event
    stopped: trio.Event
    scope: trio.CancelScope

    async def connect(self) -> trio.SocketStream:
        if self.where.path is not None:
            return await trio.open_unix_socket(self.where.path)
        return await trio.open_tcp_stream(self.where.host, self.where.port)


@asynccontextmanager
async def running(
    application: Application, where: Endpoint = LOCAL, **options: Any
) -> AsyncGenerator[Running]:
    async def served(task_status: trio.TaskStatus[Running]) -> None:
        with bound(where) as opened:
            server = Running(endpoint_of(opened), trio.Event(), trio.Event(), trio.CancelScope())
            with server.scope:
                async with trio.open_nursery() as inner:
                    await inner.start(
                        partial(serve, application, opened, shutdown=server.shutdown, **options)
                    )
                    task_status.started(server)
        server.stopped.set()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            server = await nursery.start(served)
            yield server
            server.scope.cancel()


def application(handler: Handler, *, doors: bool = False) -> Application:
    """`handler` with the lifespan of ASGI; with `doors` it says itself who is let in."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            if doors:
                admit_by_request(scope)
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await handler(scope, receive, send)

    return app


async def begin(send: Send, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def hello(scope: Message, receive: Receive, send: Send) -> None:
    await begin(send, 200, (b"content-length", b"5"))
    await send({"type": "http.response.body", "body": b"hello"})


async def flood(scope: Message, receive: Receive, send: Send) -> None:
    await begin(send)
    while True:
        await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})


async def read_all(stream: trio.SocketStream) -> bytes:
    data = b""
    with suppress(trio.BrokenResourceError):
        async for chunk in stream:
            data += chunk
    return data


async def get(stream: trio.SocketStream, request: bytes = REQUEST) -> bytes:
    await stream.send_all(request)
    data = b""
    while not data.endswith(b"hello"):
        data += (chunk := await stream.receive_some())
        assert chunk, data
    return data
