"""The lines of MCP over two streams, for a Trio program that can be stopped while it serves.

Reading and writing can be cancelled at any time. The wire keeps the ids of pending requests: those neither withdrawn nor
answered. A line that is not JSON, not a request, or too long is answered with an error of JSON-RPC. When the input ends or
the output is closed, `closed` is set and reading blocks; cancel the reader once no request is pending.

Not here: the meaning of the messages.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio
from mcp.types import INVALID_REQUEST, PARSE_ERROR, jsonrpc_message_adapter
from trio_util import AsyncValue

from proctor.protocols.framing import Framing, Oversized
from proctor.protocols.lenient import Refusal

CHUNK = 64 * 1024
Id = int | str


class _Frame(msgspec.Struct):
    id: Id | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _Withdrawn(msgspec.Struct, rename="camel"):
    request_id: Id | None = None


class Wire:
    """Lines in and out, with the interface that the SDK's stdio transport expects of files."""

    def __init__(self, rx: trio.abc.ReceiveStream, tx: trio.abc.SendStream) -> None:
        self.closed = trio.Event()
        self._rx, self._tx = rx, tx
        self._ended = False
        self._writing = trio.Lock()
        self._framing = Framing()
        self._lines = deque[bytes | Oversized]()
        self._pending = AsyncValue(frozenset[Id]())

    async def wait_settled(self) -> None:
        """Wait until no request is pending."""
        await self._pending.wait_value(frozenset())

    def __aiter__(self) -> Wire:
        return self

    async def __anext__(self) -> str:
        """The next message; iteration never ends by itself, see `closed`."""
        while True:
            while self._lines:
                if (message := await self._accepted(self._lines.popleft())) is not None:
                    return message
            if self._ended:
                self.closed.set()
                # Ending here would end the SDK's session, and with it the replies that are under way.
                await trio.sleep_forever()
            await self._read()

    async def _read(self) -> None:
        try:
            chunk = bytes(await self._rx.receive_some(CHUNK))
        except (OSError, trio.BrokenResourceError):
            # The client is gone, which is the same as the end of the input.
            chunk = b""
        self._lines.extend(self._framing.feed(chunk) if chunk else self._framing.end())
        self._ended = not chunk

    async def _accepted(self, line: bytes | Oversized) -> str | None:
        if isinstance(line, Oversized):
            await self._refuse(INVALID_REQUEST, f"a message of {line.size} bytes is too long")
            return None
        if not line.strip():
            return None
        try:
            text, frame = line.decode(), msgspec.json.decode(line, type=_Frame)
        except msgspec.ValidationError as error:
            await self._refuse(INVALID_REQUEST, f"not a message of JSON-RPC: {error}")
        except Refusal as error:
            await self._refuse(PARSE_ERROR, f"not JSON: {error}")
        else:
            if (why := _unreadable(frame, text)) is None:
                self._track(frame)
                return text
            await self._refuse(INVALID_REQUEST, why, frame.id)
        return None

    def _track(self, frame: _Frame) -> None:
        if frame.method is not None and frame.id is not None:
            self._pending.value |= {frame.id}
        elif frame.method == "notifications/cancelled" and (withdrawn := _withdrawn(frame)) is not None:
            self._pending.value -= {withdrawn}

    async def _refuse(self, code: int, message: str, request: Id | None = None) -> None:
        error: dict[str, Any] = {"code": code, "message": message}
        await self._send(msgspec.json.encode({"jsonrpc": "2.0", "id": request, "error": error}) + b"\n")

    async def write(self, text: str) -> None:
        """Write one message; it is dropped when the output is closed."""
        data = text.encode()
        await self._send(
            data
        )  # before the request counts as answered, so that `wait_settled` waits for the write
        frame = msgspec.json.decode(data, type=_Frame)
        if frame.method is None and frame.id is not None:
            self._pending.value -= {frame.id}

    async def _send(self, data: bytes) -> None:
        # Several tasks write, and a message has to go out whole.
        async with self._writing:
            try:
                await self._tx.send_all(data)
            except (OSError, trio.BrokenResourceError):
                # The client reads no more; `closed` ends the server.
                self.closed.set()

    async def flush(self) -> None:
        """Do nothing: `write` writes to the system at once."""


def _unreadable(frame: _Frame, text: str) -> str | None:
    """Why the SDK would ignore this message without a reply; None when it would not."""
    if frame.method is None and not (bytes(frame.result) or bytes(frame.error)):
        return "a message has a method, a result or an error"
    try:
        jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:  # its text would repeat the message
        return "not a message of JSON-RPC 2.0: wrong version or params"
    return None


def _withdrawn(frame: _Frame) -> Id | None:
    try:
        return msgspec.json.decode(frame.params, type=_Withdrawn).request_id
    except Refusal:
        return None


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
