"""HTTP/1 on one stream: Hypercorn's connection without TLS and without HTTP/2.

Hypercorn's HTTP/2 holds whatever a client with a window of 0 does not take in, without a bound, and an exception in it for
bytes of any client ends the server. A client that begins with it is answered 505 and disconnected.

Uses inner classes of Hypercorn 0.18, as `webserver` does.
"""

from __future__ import annotations

from typing import Any, cast

from hypercorn.events import Closed
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import ConnectionState

HTTP_VERSION_NOT_SUPPORTED = 505


class _Http1(H11Protocol):
    async def _check_protocol(self, event: Any) -> None:
        """Nothing changes the protocol: an upgrade that is asked for is ignored, as HTTP allows."""

    async def _create_stream(self, request: Any) -> None:
        if request.http_version.startswith(b"1."):
            await super()._create_stream(request)
        else:
            await self._send_error_response(HTTP_VERSION_NOT_SUPPORTED)
            await self.send(Closed())


class _Protocol(ProtocolWrapper):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.protocol = _Http1(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.state,
            self.ssl,
            self.client,
            self.server,
            self.send,
        )


class HttpConnection(TCPServer):
    """One connection, until its client leaves or it is cancelled."""

    async def run(self) -> None:
        try:
            opened = self.stream.socket
            client, server = _address(opened.getpeername()), _address(opened.getsockname())
            async with TaskGroup() as group:
                self._task_group = group
                given = (self.app, self.config, self.context, group, ConnectionState(self.state))
                self.protocol = _Protocol(*given, False, client, server, self.protocol_send)
                await self.protocol.initiate()
                await cast("Any", self.idle_task).restart(group, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass
        finally:
            await self._close()


def _address(name: Any) -> tuple[str, int] | None:
    """Host and port, None for a Unix socket."""
    return None if isinstance(name, str | bytes) else (name[0], name[1])
