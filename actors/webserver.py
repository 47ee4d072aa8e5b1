"""An ASGI application on a bound socket: Hypercorn under Trio, with writes that can be given up.

Hypercorn shields each write from cancellation, so one client that stops reading would hold up its graceful stop, and
the cancellation of whoever owns it, for ever. Each connection gets a stream whose writes have a deadline here.

Guarantees: `serve` returns within `grace` seconds of the wish to stop (twice that when the application's own shutdown
takes its time, too), or at once when it is cancelled, whatever its clients do. On that wish nobody new is
taken, idle connections are closed, and requests under way have `grace` seconds, then they are cancelled. A client that
takes in no 64 KiB within `stall` seconds loses its connection, and its request is cancelled; so is what is left of a
connection that is closed, a body that the application did not read included; its answer says so. Above `connections` a new one is closed
at once: the host needs files for its agents.

Uses inner classes of Hypercorn 0.18: the tests of this module are what says whether another version will do.

On a Unix socket a process that the host itself has started, an agent's tool, is refused, and so is another user's.

Not here: who may connect besides, what is answered, TLS (that is a proxy's).
"""

from __future__ import annotations

import logging
import math
import socket
import struct
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from proctor.actors.peers import refusal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

GRACE = 2.0
STALL = 10.0
CONNECTIONS = 1000
BACKLOG = 1024
REFUSALS_EVERY = 60.0
PIECE = 65536
RESET = struct.pack("ii", 1, 0)

_log = logging.getLogger("proctor.http")


class GuardedStream(trio.abc.HalfCloseableStream):
    """A socket's stream whose writes are given up after `stall` seconds, or at once by `abort`.

    `connection` is cancelled as soon as it is closed.
    """

    def __init__(self, inner: trio.SocketStream, stall: float, connection: trio.CancelScope) -> None:
        self.socket = inner.socket
        self._inner = inner
        self._stall = stall
        self._connection = connection
        self._write = trio.CancelScope()
        self._broken = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            await self._send(rest[:PIECE])
            rest = rest[PIECE:]

    async def _send(self, piece: memoryview) -> None:
        if self._broken:
            raise trio.BrokenResourceError("a write to this client was given up")
        try:
            with trio.CancelScope(relative_deadline=self._stall) as self._write:  # inside Hypercorn's shield
                await self._inner.send_all(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self.aclose()  # Hypercorn would tell the application, which may not listen
            raise
        if self._write.cancelled_caught:
            await self._give_up()
            raise trio.BrokenResourceError(f"the client took in nothing for {self._stall:g} s")

    async def _give_up(self) -> None:
        self._broken = True
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)  # what it did not read goes, too
        await self.aclose()

    def abort(self) -> None:
        """No more writes, and the one under way is given up."""
        self._broken = True
        self._write.cancel("the server stops")

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._inner.receive_some(max_bytes)

    async def send_eof(self) -> None:
        await self._inner.send_eof()

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            self._connection.cancel("the connection is closed")


class _Connections:
    """Those of one server."""

    def __init__(
        self, application: Any, config: Config, state: dict[str, Any], stall: float, most: int
    ) -> None:
        self._application = application
        self._config = config
        self._state = state
        self._stall = stall
        self._most = most
        self._context = WorkerContext(None)
        self._live: set[GuardedStream] = set()
        self._refused, self._quiet_until = 0, -math.inf

    def _log_refusal(self, why: str) -> None:
        """At most one line a minute: whoever is refused can try as often as it likes."""
        self._refused += 1
        if trio.current_time() >= self._quiet_until:
            _log.warning("a connection was refused: %s (%d so far)", why, self._refused)
            self._quiet_until = trio.current_time() + REFUSALS_EVERY

    async def serve(
        self, listener: trio.SocketListener, shutdown: trio.Event, grace: float, ready: Callable[[], None]
    ) -> None:
        async with trio.open_nursery() as around:
            around.start_soon(self._free_writers)
            async with trio.open_nursery() as connections:
                await self._accept(listener, shutdown, connections, ready)
                await self._context.terminated.set()
                around.cancel_scope.deadline = trio.current_time() + grace
            around.cancel_scope.cancel("all connections are closed")

    async def _accept(
        self,
        listener: trio.SocketListener,
        shutdown: trio.Event,
        connections: trio.Nursery,
        ready: Callable[[], None],
    ) -> None:
        async with trio.open_nursery() as accepting:
            serving = partial(trio.serve_listeners, self._connection, [listener], handler_nursery=connections)
            await accepting.start(serving)
            ready()
            await shutdown.wait()
            accepting.cancel_scope.cancel("the server stops")

    async def _free_writers(self) -> None:
        """Whoever cancels the connections: those that sit in a shielded write cannot notice it themselves."""
        try:
            await trio.sleep_forever()
        finally:
            for stream in self._live:
                stream.abort()

    async def _connection(self, stream: trio.SocketStream) -> None:
        if len(self._live) >= self._most:
            await stream.aclose()
            return
        if (why := refusal(stream.socket)) is not None:
            self._log_refusal(why)
            await stream.aclose()
            return
        with trio.CancelScope() as scope:
            guarded = GuardedStream(stream, self._stall, scope)
            self._live.add(guarded)
            try:
                state = ConnectionState(self._state.copy())
                await TCPServer(
                    self._application, self._config, self._context, cast("Any", state), cast("Any", guarded)
                ).run()
            finally:
                self._live.discard(guarded)


async def serve(
    application: Application,
    bound: socket.socket,
    *,
    shutdown: trio.Event,
    grace: float = GRACE,
    stall: float = STALL,
    connections: int = CONNECTIONS,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `application` on `bound`, a bound TCP or Unix socket, until `shutdown` is set; the socket is closed then.

    Started as soon as connections are accepted, after the application's own startup. `grace` and `stall` in seconds.
    Raises what the application's startup or shutdown raises.
    """
    config = Config()
    config.errorlog = config.accesslog = None
    config.include_server_header = False
    wrapped = cast("Any", ASGIWrapper(cast("Any", _closing(application))))
    state: dict[str, Any] = {}
    lifespan = Lifespan(wrapped, config, cast("Any", state))
    async with trio.open_nursery() as nursery:
        await nursery.start(lifespan.handle_lifespan)
        await lifespan.wait_for_startup()
        bound.listen(BACKLOG)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
        await _Connections(wrapped, config, state, stall, connections).serve(
            listener, shutdown, grace, task_status.started
        )
        with trio.move_on_after(grace):
            await lifespan.wait_for_shutdown()
        nursery.cancel_scope.cancel("the server has stopped")


def _closing(application: Application) -> Application:
    """The same, but an answer that comes before the whole body was read says that the connection is closed."""

    async def served(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["http_version"].startswith("1") or not _has_body(scope):
            await application(scope, receive, send)
            return
        whole = False

        async def read() -> Message:
            nonlocal whole
            message = await receive()
            whole = whole or not message.get("more_body", False)
            return message

        async def write(message: Message) -> None:
            if message["type"] == "http.response.start" and not whole:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await application(scope, read, write)

    return served


def _has_body(scope: Message) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
