"""HTTP/1 on one connection: the requests of a client, one after the other, each answered before the next is taken.

Guarantees: the client is read all the time, so that one that leaves cancels its request, but never more than `AHEAD` bytes of what nobody takes;
a connection that is idle ends in time, and at once when the server stops. What is no HTTP/1 gets an error status and the end of its connection.
Upgrades, to HTTP/2 or to a WebSocket, are ignored, as HTTP allows.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import h11
import trio

from proctor.actors.web_server.exchange import Application, Exchange, Message, refusal_of
from proctor.actors.web_server.guarded_stream import GuardedStream

MAX_HEAD = 16384
"""Bytes of the head of a request."""
AHEAD = 65536
BURST = 65536
"""Bytes sent without a checkpoint: a stream that catches up must not hold the loop."""
HTTP_VERSION_NOT_SUPPORTED = 505


class HttpConnection:
    """A connection over `stream`; `state` is that of its requests in ASGI. `scope` is cancelled when its client leaves; `log` gets a
    line for a request that fails."""

    def __init__(
        self,
        application: Application,
        stream: GuardedStream,
        state: dict[str, Any],
        idle_timeout: float,
        scope: trio.CancelScope,
        log: Callable[[str], None],
    ) -> None:
        self.protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._application = application
        self._stream = stream
        self._state = state
        self._idle_timeout = idle_timeout
        self._scope = scope
        self._log = log
        self._idle: trio.CancelScope | None = None
        self._exchange: Exchange | None = None
        self._is_stopping = self._has_left = False
        self._ahead = self._burst = 0
        self._arrived, self._room = trio.lowlevel.ParkingLot(), trio.lowlevel.ParkingLot()
        self._addresses = _addresses_of(stream)

    async def run(self) -> None:
        """Serve it until its end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            while await self._serve_next():
                # one that sends its requests ahead must not hold the loop
                await trio.lowlevel.checkpoint()
            await self._stream.close()
            nursery.cancel_scope.cancel("the connection has ended")

    def stop(self) -> None:
        """End it when the request that is being served has its response; at once where there is none."""
        self._is_stopping = True
        if self._idle is not None:
            self._idle.cancel("the server stops")

    # -- what comes

    async def _read(self) -> None:
        while not self._has_left:
            if self._ahead >= AHEAD:
                await self._room.park()
                continue
            data = await self._stream.receive_some()
            self._has_left = not data
            self._ahead += len(data)
            self.protocol.receive_data(data)
            self._arrived.unpark_all()
        if self._exchange is not None and not self._exchange.is_over:
            # the request of a client that has left must not run on
            self._scope.cancel("the client has left")

    async def next_event(self) -> Any:
        """The next event of h11. Raises `h11.RemoteProtocolError`."""
        while (event := self.protocol.next_event()) is h11.NEED_DATA:
            self._take()
            await self._arrived.park()
        if isinstance(event, h11.Data):
            self._take()
        return event

    def _take(self) -> None:
        """What has come was taken."""
        self._ahead = 0
        self._room.unpark_all()

    # -- requests

    async def _serve_next(self) -> bool:
        """Serve the next request. Whether another one may follow."""
        try:
            request = await self._next_request()
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint)
            return False
        if request is None:
            return False
        if not request.http_version.startswith(b"1."):
            await self._refuse(HTTP_VERSION_NOT_SUPPORTED)
            return False
        exchange = self._exchange = Exchange(self, request)
        try:
            await self._application(self._scope_of(request), exchange.receive, exchange.send)
        except Exception as error:  # noqa: BLE001  # it ends its own request; applications report their errors themselves
            self._log(f"a request failed: {error!r}")
        self._exchange = None
        if not exchange.is_over:  # an application that has not sent a whole response
            await self._refuse(exchange.fault or 500)
            return False
        if self._is_stopping or {self.protocol.our_state, self.protocol.their_state} != {h11.DONE}:
            return False
        self.protocol.start_next_cycle()
        return True

    async def _next_request(self) -> h11.Request | None:
        """The next request; None when none comes."""
        if self._is_stopping:
            return None
        event: Any = None
        with trio.move_on_after(self._idle_timeout) as self._idle:
            event = await self.next_event()
        self._idle = None
        return event if isinstance(event, h11.Request) and not self._has_left else None

    async def _refuse(self, status: int) -> None:
        if self.protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self.write(refusal_of(self.protocol, status))

    def _scope_of(self, request: h11.Request) -> Message:
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode("ascii"),
            "method": request.method.decode("ascii").upper(),
            "scheme": "http",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            **self._addresses,
            "state": dict(self._state),
            "extensions": {},
        }

    # -- what goes

    async def write(self, data: bytes) -> None:
        """Write it. To a client that has left nothing is written: then this connection is cancelled."""
        self._burst += len(data)
        sent = 0
        if self._burst <= BURST:
            sent = self._stream.send_now(data)
        if sent < len(data):
            self._burst = 0
            await self._stream.send_all(memoryview(data)[sent:])
            await trio.lowlevel.checkpoint()


def _addresses_of(stream: GuardedStream) -> Message:
    """The addresses of both ends as ASGI has them; None for those of a Unix socket."""
    found: Message = {"client": None, "server": None}
    if stream.socket.family == socket.AF_UNIX:
        return found
    for name, ask in (("client", stream.socket.getpeername), ("server", stream.socket.getsockname)):
        with suppress(OSError):  # the client has left already
            address = ask()
            found[name] = (address[0], address[1])
    return found
