"""An ASGI application on a bound socket: Hypercorn under Trio, with writes that can be cancelled.

`serve` returns within `grace` seconds of the request to stop (twice that when the application's own shutdown takes its
time, too), or at once when it is cancelled, whatever its clients do. Connections are bounded (`connections`), and the
bytes of a client end no connection but its own.

Not here: authentication, the content of responses, and TLS (a task for a proxy).
"""

# Hypercorn's public serve() accepts connections itself, and its parts are used here for that reason. With it 18 of the 50 cases
# of tests/actors/test_webserver.py and test_attacks.py fail, on these points:
# - it shields each write from cancellation, so one client that stops reading blocks its stop and its cancellation;
# - it has no time limit for a write, and does not cancel the request of a client that left while its body was unread;
# - nothing can look at a connection before it is served: neither the peer of a Unix socket nor the bounds of `connections`;
# - it always speaks HTTP/2 with a client that begins with it;
# - an exception in one connection ends the server.

from __future__ import annotations

import errno
import logging
import math
import os
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from proctor.actors.serving.capacity import connection_limit
from proctor.actors.web_server.connections import ADMITS_BY_REQUEST, CONNECTION, Connection, ConnectionTable
from proctor.actors.web_server.exchange import Application, Exchange, Message, Receive, Send
from proctor.actors.web_server.listening import BACKLOG
from proctor.actors.web_server.peers import refusal

Table = Callable[[Callable[[str], None]], ConnectionTable]

GRACE = 2.0
WRITE_TIMEOUT = 10.0
ADMIT_TIMEOUT = 10.0
"""Seconds in which a client must send an authenticated request."""
IDLE_TIMEOUT = 5.0
CHUNK = 65536
LOG_INTERVAL = 60.0
SHORTAGE_ERRORS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
SHORTAGE_PAUSE = 0.1
HTTP_VERSION_NOT_SUPPORTED = 505
RESET = struct.pack("ii", 1, 0)

_log = logging.getLogger("proctor.http")


class GuardedStream(trio.abc.HalfCloseableStream):
    """A socket stream whose writes end after `write_timeout` seconds without progress, or at once by `abort`.

    `connection` is cancelled when the stream is closed.
    """

    def __init__(self, inner: trio.SocketStream, write_timeout: float, connection: trio.CancelScope) -> None:
        self.socket = inner.socket
        self._inner = inner
        self._write_timeout = write_timeout
        self._connection = connection
        self._write = trio.CancelScope()
        self._broken = False

    def send_now(self, data: bytes) -> int:
        """Send what the socket takes at once, and return how many bytes that were."""
        if self._broken:
            return 0
        try:
            return os.write(self.socket.fileno(), data)
        except OSError:  # full, broken or closed: `send_all` meets the same, and deals with it
            return 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        # Piece by piece, so that the time-out is for progress, not for the whole of a large response.
        while rest:
            await self._send(rest[:CHUNK])
            rest = rest[CHUNK:]

    async def _send(self, piece: memoryview) -> None:
        if self._broken:
            raise trio.BrokenResourceError("a write to this client timed out before")
        try:
            # inside Hypercorn's shield, so this scope can end the write
            with trio.CancelScope(relative_deadline=self._write_timeout) as self._write:
                await self._inner.send_all(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self.aclose()  # Hypercorn would only notify the application, which may not be reading
            raise
        if self._write.cancelled_caught:
            await self._give_up()
            raise trio.BrokenResourceError(f"the client read nothing for {self._write_timeout:g} s")

    async def _give_up(self) -> None:
        self._broken = True
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)  # drop unsent data at once
        await self.aclose()

    def abort(self) -> None:
        """End the connection at once, and with it a write that blocks."""
        # Set first: a write that is cancelled below must not be tried again.
        self._broken = True
        self._write.cancel("the connection is aborted")
        self._connection.cancel("the connection is aborted")

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
            # The request of a client that has left must not run on.
            self._connection.cancel("the connection is closed")


class _Http1(H11Protocol):
    """HTTP/1 alone: Hypercorn's HTTP/2 keeps whatever a client with a window of 0 does not read, without a bound. A client that
    begins with HTTP/2 gets the status 505, and its connection is closed.
    """

    async def _check_protocol(self, event: Any) -> None:
        """Ignore every request to upgrade to HTTP/2, as HTTP allows."""

    async def _create_stream(self, request: Any) -> None:
        if request.http_version.startswith(b"1."):
            await super()._create_stream(request)
        else:
            await self._send_error_response(HTTP_VERSION_NOT_SUPPORTED)
            await self.send(Closed())


class _HttpConnection(TCPServer):
    """One connection, until its client leaves or it is cancelled."""

    async def _read_data(self) -> None:
        # Hypercorn has no option against HTTP/2 without TLS; before the first byte its protocol can still be replaced.
        wrapper: Any = self.protocol
        wrapper.protocol = _Http1(
            wrapper.app,
            wrapper.config,
            wrapper.context,
            wrapper.task_group,
            wrapper.state,
            wrapper.ssl,
            wrapper.client,
            wrapper.server,
            wrapper.send,
        )
        await super()._read_data()


class _Connections:
    """The connections of one server."""

    def __init__(
        self,
        application: Application,
        config: Config,
        state: dict[str, Any],
        write_timeout: float,
        table: Table,
    ) -> None:
        self._application = application
        self._config = config
        self._state = state
        self._write_timeout = write_timeout
        self._context = WorkerContext(None)
        self._live: set[GuardedStream] = set()
        self._table = table(self._log)
        self._logged, self._quiet_until = 0, -math.inf

    def _log(self, what: str) -> None:
        # at most one line a minute, because clients can cause this as often as they like
        self._logged += 1
        if trio.current_time() >= self._quiet_until:
            _log.warning("%s (%d so far)", what, self._logged)
            self._quiet_until = trio.current_time() + LOG_INTERVAL

    async def serve(
        self, listener: trio.SocketListener, shutdown: trio.Event, grace: float, ready: Callable[[], None]
    ) -> None:
        async with trio.open_nursery() as around:
            around.start_soon(self._free_writers)
            async with trio.open_nursery() as connections:
                async with listener, trio.open_nursery() as accepting:
                    accepting.start_soon(self._accept, listener, connections)
                    ready()
                    await shutdown.wait()
                    # First no new connections, then the end of those that are there.
                    accepting.cancel_scope.cancel("the server stops")
                await (
                    self._context.terminated.set()
                )  # idle connections end now, the others after their request
                # Counted from here, where no further connection can come.
                around.cancel_scope.deadline = trio.current_time() + grace
            around.cancel_scope.cancel("all connections are closed")

    async def _accept(self, listener: trio.SocketListener, connections: trio.Nursery) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in SHORTAGE_ERRORS:
                    raise
                self._log(f"a connection could not be accepted: {error.strerror}")
                # the connection stays pending, so without a pause this loop would spin
                await trio.sleep(SHORTAGE_PAUSE)
            else:
                connections.start_soon(self._connection, stream)

    async def _free_writers(self) -> None:
        # a connection in a shielded write does not notice its cancellation: abort all of them
        try:
            await trio.sleep_forever()
        finally:
            for stream in self._live:
                stream.abort()

    async def _connection(self, stream: trio.SocketStream) -> None:
        scope = trio.CancelScope()
        guarded = GuardedStream(stream, self._write_timeout, scope)
        connection = Connection(self._table, scope, guarded.abort)
        try:
            # Before a byte is read: an agent of this program must not reach its own host.
            if (why := refusal(stream.socket)) is not None:
                self._log(f"a connection was refused: {why}")
                return
            self._live.add(guarded)
            self._table.enter(connection)
            with scope:
                await self._http(guarded, connection).run()
        except Exception as error:  # noqa: BLE001  # bytes that break Hypercorn end their own connection, not the server
            self._log(f"a connection ended with an error: {error!r}")
        finally:
            self._live.discard(guarded)
            # On every path, or the place of a broken connection would stay taken.
            self._table.leave(connection)
            stream.socket.close()  # Hypercorn does not when it is cancelled

    def _http(self, stream: GuardedStream, connection: Connection) -> _HttpConnection:
        async def exchanged(scope: Message, receive: Receive, send: Send) -> None:
            if not self._state.get(ADMITS_BY_REQUEST, False):
                connection.admit()
            if scope["type"] == "http":
                exchange = Exchange(scope, receive, send, stream)
                receive, send = exchange.receive, exchange.send
            await self._application(scope, receive, send)

        state = ConnectionState({**self._state, CONNECTION: connection})
        application = cast("Any", ASGIWrapper(cast("Any", exchanged)))
        return _HttpConnection(
            application, self._config, self._context, cast("Any", state), cast("Any", stream)
        )


async def serve(
    application: Application,
    bound: socket.socket,
    *,
    shutdown: trio.Event,
    grace: float = GRACE,
    write_timeout: float = WRITE_TIMEOUT,
    connections: int | None = None,
    unauthenticated: int | None = None,
    admit_timeout: float = ADMIT_TIMEOUT,
    idle_timeout: float = IDLE_TIMEOUT,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `application` on `bound`, a bound TCP or Unix socket, until `shutdown` is set; then the socket is closed.

    It reports its start when it accepts connections, after the application's own startup. `connections` defaults to what the
    limit of open files permits (`connection_limit`), `unauthenticated` to a quarter of it. In seconds: `grace` for requests under
    way at shutdown, `write_timeout`, `admit_timeout` until a client must be authenticated, `idle_timeout` for idle connections.
    Raises the errors of the application's startup and shutdown.
    """
    config = Config()
    config.errorlog = config.accesslog = None
    config.include_server_header = False
    config.keep_alive_timeout = idle_timeout
    wrapped = cast("Any", ASGIWrapper(cast("Any", application)))
    state: dict[str, Any] = {}
    lifespan = Lifespan(wrapped, config, cast("Any", state))
    async with trio.open_nursery() as nursery:
        # The start-up of the application first: no request may come before it.
        await nursery.start(lifespan.handle_lifespan)
        await lifespan.wait_for_startup()
        # Only now: until here clients are refused instead of left waiting.
        bound.listen(BACKLOG)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
        most = connection_limit() if connections is None else connections
        few = max(1, most // 4) if unauthenticated is None else unauthenticated
        table = partial(ConnectionTable, most, few, admit_timeout)
        await _Connections(application, config, state, write_timeout, table).serve(
            listener, shutdown, grace, task_status.started
        )
        # An application whose shutdown hangs must not keep the server from its end.
        with trio.move_on_after(grace):
            await lifespan.wait_for_shutdown()
        nursery.cancel_scope.cancel("the server has stopped")
