"""The writer of a process's stdin: each message is recorded first, then written whole and in order.

Replies of the conversation go through a bounded queue and a task of their own, so that reading never waits for writing.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from proctor.actors.recording.recording import Recording
from proctor.actors.transport.transport import Transport
from proctor.runtime.processes import ProcessGone, StdinClosed

MAX_UNREAD = 1000
"""The most replies in the queue."""


class StdinWriter:
    """Writes to one transport. `on_unread` is called when the queue is full; the reply is dropped."""

    def __init__(self, transport: Transport, recording: Recording, on_unread: Callable[[], None]) -> None:
        self._transport = transport
        self._recording = recording
        self._on_unread = on_unread
        self._send, self._queued = trio.open_memory_channel[bytes](MAX_UNREAD)

    def record(self, data: bytes) -> bytes:
        """Record a message that the stop sequence is about to write, and return it."""
        self._recording.stdin(data)
        return data

    async def write(self, data: bytes) -> None:
        """Write one message whole. Raises ProcessGone, StdinClosed, `RecordingFailed`."""
        self._recording.stdin(data)
        await self._transport.write(data)

    def queue(self, data: bytes) -> None:
        """Queue a reply; never waits."""
        try:
            if data:
                self._send.send_nowait(data)
        except trio.WouldBlock:
            self._on_unread()

    async def write_queued(self) -> None:
        """Write the queued replies until stdin is closed."""
        async for data in self._queued:
            try:
                await self.write(data)
            except (ProcessGone, StdinClosed):
                return
