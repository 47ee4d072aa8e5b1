"""One client of an MCP server over two streams, which a Trio program can stop while it is served.

Requests are read and answered in their order; calls of tools run beside each other, and each is answered when it ends. A call that
the client withdraws is cancelled and gets no answer. When the input ends or the output is closed, `closed` is set.

Not here: the meaning of the messages.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import trio

from proctor.actors.gateways.mcp.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Cancelled,
    Dialogue,
    Id,
    Message,
    Object,
    Offer,
    Refused,
    ToolCall,
    read,
)
from proctor.protocols.framing import Framing, Oversized

CHUNK = 64 * 1024
UNREAD = 10_000
"""Messages that wait for a client to read them. One that lets more wait has stopped reading, and is served no longer."""
UNREAD_PROGRESS = 1000
"""With so many messages waiting, progress is dropped."""


class Connection:
    """One client; `run` serves it once."""

    def __init__(self, offer: Offer, rx: trio.abc.ReceiveStream, tx: trio.abc.SendStream) -> None:
        self.closed = trio.Event()
        self._call = offer.call
        self._rx, self._tx = rx, tx
        self._dialogue = Dialogue(offer)
        self._reading = trio.CancelScope()
        self._running: dict[Id, trio.CancelScope] = {}
        self._out, self._unread = trio.open_memory_channel[bytes](UNREAD)

    async def run(self) -> None:
        """Serve until `close`, the end of the input or of the output; then until all is answered."""
        async with trio.open_nursery() as writing, self._out:
            writing.start_soon(self._write)
            async with trio.open_nursery() as calls:
                with self._reading:
                    await self._read(calls)
                self.closed.set()

    def report_changed_tools(self) -> None:
        """Notify the client that the list of tools is another one."""
        if self._dialogue.takes_notifications:
            self._send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    def close(self) -> None:
        """Read no further request."""
        self._reading.cancel("the server is stopping")

    # -- in

    async def _read(self, calls: trio.Nursery) -> None:
        framing = Framing()
        while chunk := await self._receive():
            for line in framing.feed(chunk):
                self._accept(line, calls)
        for line in framing.end():
            self._accept(line, calls)

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._rx.receive_some(CHUNK))
        except (OSError, trio.BrokenResourceError):
            # The client is gone, which is the same as the end of the input.
            return b""

    def _accept(self, line: bytes | Oversized, calls: trio.Nursery) -> None:
        try:
            message = read(line)
            if message is None:
                return
            if message.id is None:
                self._notice(message)
            elif message.id in self._running:
                raise Refused(INVALID_REQUEST, "a request with this id is still running", message.id)
            elif (result := self._dialogue.answer(message)) is not None:
                self._answer(message.id, result)
            else:
                scope = self._running[message.id] = trio.CancelScope()
                calls.start_soon(self._carry_out, message.id, message, scope)
        except Refused as refused:
            self._send(refused.answer)

    def _notice(self, message: Message) -> None:
        if isinstance(message.params, Cancelled) and (scope := self._running.get(message.params.request_id)):
            scope.cancel("the client has withdrawn the call")

    async def _carry_out(self, id: Id, call: Message, scope: trio.CancelScope) -> None:
        assert isinstance(call.params, ToolCall)
        token, result = call.meta.progress, None
        progress = None if token is None else partial(self._report, token)
        try:
            with scope:
                result = await self._call(call.params.name, call.params.arguments or {}, progress)
            if result is not None:
                self._answer(id, self._dialogue.complete(result))
        except (TypeError, ValueError, RecursionError) as error:
            text = f"the result cannot be written as JSON: {type(error).__name__}: {error}"
            self._send(Refused(INTERNAL_ERROR, text, id).answer)
        finally:
            del self._running[id]

    # -- out

    async def _report(self, token: Id, seconds: float, text: str) -> None:
        if self._unread.statistics().current_buffer_used < UNREAD_PROGRESS:
            params = {"progressToken": token, "progress": seconds, "message": text}
            self._send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    def _answer(self, id: Id, result: Object) -> None:
        self._send({"jsonrpc": "2.0", "id": id, "result": result})

    def _send(self, message: Object) -> None:
        try:
            # Without waiting, so that no cancellation cuts a message in two and a slow reader holds up no call.
            self._out.send_nowait(msgspec.json.encode(message) + b"\n")
        except (trio.WouldBlock, trio.BrokenResourceError):
            self._reading.cancel("the client has stopped reading")

    async def _write(self) -> None:
        async with self._unread:
            async for data in self._unread:
                try:
                    await self._tx.send_all(data)
                except (OSError, trio.BrokenResourceError):
                    self._reading.cancel("the client reads no more")
                    return


@asynccontextmanager
async def standard_streams() -> AsyncGenerator[tuple[trio.abc.ReceiveStream, trio.abc.SendStream]]:
    """Stdin and stdout as streams for the protocol alone; both are restored after the block.

    Meanwhile other readers of stdin see its end, other writers of stdout write to stderr, and child processes inherit neither.
    """
    sys.stdout.flush()
    # Above 2: descriptors 0 and 1 are replaced below, so that a stray print cannot break the protocol.
    stdin, stdout = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))
    async with trio.lowlevel.FdStream(stdin) as rx, trio.lowlevel.FdStream(stdout) as tx:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        try:
            yield rx, tx
        finally:
            # Before stdout is restored: what is in the buffer was not written for it.
            sys.stdout.flush()
            os.dup2(stdin, 0)
            os.dup2(stdout, 1)
