"""What is written to one far end: recorded first, whole, and in order.

Replies that the conversation owes go by a bounded queue and a task of their own, so that reading never waits for
writing. A far end that leaves them unread is told of once; what to do about it is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from proctor.actors.recording.recording import Recording
from proctor.actors.transport.transport import Transport
from proctor.runtime.processes import ProcessGone, StdinClosed

MAX_UNREAD = 1000
"""Replies that may wait."""


class StdinWriter:
    """`unread` is called when a reply finds no room, and the reply is dropped."""

    def __init__(self, transport: Transport, recording: Recording, on_unread: Callable[[], None]) -> None:
        self._transport = transport
        self._recording = recording
        self._on_unread = on_unread
        self._send, self._queued = trio.open_memory_channel[bytes](MAX_UNREAD)

    def record(self, data: bytes) -> bytes:
        """Record what another is about to write, and give it back."""
        self._recording.stdin(data)
        return data

    async def write(self, data: bytes) -> None:
        """Write one message whole. Raises ProcessGone, StdinClosed, `RecordingFailed`."""
        await self._transport.write(self.record(data))

    def queue(self, data: bytes) -> None:
        """Let a reply be written; never waits."""
        try:
            if data:
                self._send.send_nowait(data)
        except trio.WouldBlock:
            self._on_unread()

    async def write_queued(self) -> None:
        """Write what is owed, until the far end takes no more."""
        async for data in self._queued:
            try:
                await self.write(data)
            except (ProcessGone, StdinClosed):
                return
