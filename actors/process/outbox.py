"""What is written to one far end: recorded first, whole, and in order.

Replies that the conversation owes go by a bounded queue and a task of their own, so that reading never waits for
writing. A far end that leaves them unread is told of once; what to do about it is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from proctor.actors.recording.recording import Recording
from proctor.actors.transport.transport import Transport
from proctor.runtime.processes.process_errors import ProcessGone, StdinClosed

ROOM = 1000
"""Replies that may wait."""


class Outbox:
    """`unread` is called when a reply finds no room, and the reply is dropped."""

    def __init__(self, transport: Transport, recording: Recording, unread: Callable[[], None]) -> None:
        self._transport = transport
        self._recording = recording
        self._unread = unread
        self._put, self._owed = trio.open_memory_channel[bytes](ROOM)

    def said(self, data: bytes) -> bytes:
        """Record what another is about to write, and give it back."""
        self._recording.stdin(data)
        return data

    async def write(self, data: bytes) -> None:
        """Write one message whole. Raises ProcessGone, StdinClosed, `RecordingFailed`."""
        await self._transport.write(self.said(data))

    def owe(self, data: bytes) -> None:
        """Let a reply be written; never waits."""
        try:
            if data:
                self._put.send_nowait(data)
        except trio.WouldBlock:
            self._unread()

    async def pay(self) -> None:
        """Write what is owed, until the far end takes no more."""
        async for owed in self._owed:
            try:
                await self.write(owed)
            except (ProcessGone, StdinClosed):
                return
