"""A socket stream whose writes end in time, whatever the client does."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

import trio

CHUNK = 65536
RESET = struct.pack("ii", 1, 0)


class GuardedStream:
    """A stream whose writes end after `write_timeout` seconds without progress, or at once by `abort`. A write is shielded, since half of it would
    spoil what is written next.

    `connection` is cancelled when the stream is aborted or broken.
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

    async def send_all(self, data: bytes | memoryview) -> None:
        """Send all of it. Where the client is gone, or takes in nothing for too long, the connection is cancelled."""
        rest = memoryview(data)
        # Piece by piece, so that the time-out is for progress, not for the whole of a large response.
        while rest and not self._broken:
            await self._send(rest[:CHUNK])
            rest = rest[CHUNK:]

    async def _send(self, piece: memoryview) -> None:
        try:
            with trio.CancelScope(relative_deadline=self._write_timeout, shield=True) as self._write:
                await self._inner.send_all(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._break("the client has left")
        if self._write.cancelled_caught:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)  # drop unsent data at once
            self._break(f"the client read nothing for {self._write_timeout:g} s")

    def _break(self, why: str) -> None:
        # set first: a write that is cancelled must not be tried again
        self._broken = True
        self._connection.cancel(why)

    def abort(self) -> None:
        """End the connection at once, and with it a write that blocks."""
        self._break("the connection is aborted")
        self._write.cancel("the connection is aborted")

    async def receive_some(self) -> bytes:
        """What has come; empty where the client has left."""
        try:
            return bytes(await self._inner.receive_some(CHUNK))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def close(self) -> None:
        """Close it, so that the client still gets what was sent."""
        if not self._broken:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._inner.send_eof()
        self.socket.close()
