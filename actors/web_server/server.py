"""An ASGI application on a bound socket: HTTP/1 by h11, on Trio.

`serve` returns within `grace` seconds of the request to stop (twice that when the application's own shutdown takes its
time, too), or at once when it is cancelled, whatever its clients do. Connections are bounded (`connections`), and the
bytes of a client end no connection but its own.

Not here: authentication, the content of responses, and TLS (a task for a proxy).
"""

from __future__ import annotations

import errno
import logging
import math
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from proctor.actors.serving.capacity import connection_limit
from proctor.actors.web_server.connections import ADMITS_BY_REQUEST, CONNECTION, Connection, ConnectionTable
from proctor.actors.web_server.exchange import Application, Message, Receive, Send
from proctor.actors.web_server.guarded_stream import GuardedStream
from proctor.actors.web_server.http1 import HttpConnection
from proctor.actors.web_server.lifespan import lifespan
from proctor.actors.web_server.listening import BACKLOG
from proctor.actors.web_server.peers import refusal

Table = Callable[[Callable[[str], None]], ConnectionTable]

GRACE = 2.0
WRITE_TIMEOUT = 10.0
ADMIT_TIMEOUT = 10.0
"""Seconds in which a client must send an authenticated request."""
IDLE_TIMEOUT = 5.0
LOG_INTERVAL = 60.0
SHORTAGE_ERRORS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
SHORTAGE_PAUSE = 0.1

_log = logging.getLogger("proctor.http")


class _Connections:
    """The connections of one server."""

    def __init__(
        self,
        application: Application,
        state: dict[str, Any],
        write_timeout: float,
        idle_timeout: float,
        table: Table,
    ) -> None:
        self._application = application
        self._state = state
        self._write_timeout = write_timeout
        self._idle_timeout = idle_timeout
        self._live: dict[GuardedStream, HttpConnection] = {}
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
                for connection in self._live.values():
                    connection.stop()  # idle ones end now, the others after their request
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
            http = self._live[guarded] = self._http(guarded, connection)
            self._table.enter(connection)
            with scope:
                await http.run()
        except Exception as error:  # noqa: BLE001  # a request that fails ends its own connection, not the server
            self._log(f"a connection ended with an error: {error!r}")
        finally:
            self._live.pop(guarded, None)
            # On every path, or the place of a broken connection would stay taken.
            self._table.leave(connection)
            stream.socket.close()

    def _http(self, stream: GuardedStream, connection: Connection) -> HttpConnection:
        async def exchanged(scope: Message, receive: Receive, send: Send) -> None:
            if not self._state.get(ADMITS_BY_REQUEST, False):
                connection.admit()
            await self._application(scope, receive, send)

        state = {**self._state, CONNECTION: connection}
        return HttpConnection(exchanged, stream, state, self._idle_timeout, connection.scope, self._log)


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
    state: dict[str, Any] = {}
    # The start-up of the application first: no request may come before it.
    async with lifespan(application, state, grace):
        # Only now: until here clients are refused instead of left waiting.
        bound.listen(BACKLOG)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
        most = connection_limit() if connections is None else connections
        few = max(1, most // 4) if unauthenticated is None else unauthenticated
        table = partial(ConnectionTable, most, few, admit_timeout)
        await _Connections(application, state, write_timeout, idle_timeout, table).serve(
            listener, shutdown, grace, task_status.started
        )
