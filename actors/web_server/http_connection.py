"""HTTP/1 on one stream: Hypercorn's connection without HTTP/2.

Hypercorn's HTTP/2 keeps whatever a client with a window of 0 does not read, without a bound. A client that begins
with HTTP/2 gets the status 505, and its connection is closed.
"""

from __future__ import annotations

from typing import Any

from hypercorn.events import Closed
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer

HTTP_VERSION_NOT_SUPPORTED = 505


class _Http1(H11Protocol):
    async def _check_protocol(self, event: Any) -> None:
        """Ignore every request to upgrade to HTTP/2, as HTTP allows."""

    async def _create_stream(self, request: Any) -> None:
        if request.http_version.startswith(b"1."):
            await super()._create_stream(request)
        else:
            await self._send_error_response(HTTP_VERSION_NOT_SUPPORTED)
            await self.send(Closed())


class HttpConnection(TCPServer):
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
