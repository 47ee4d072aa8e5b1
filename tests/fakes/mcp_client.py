"""What a client of MCP says, as messages without the `jsonrpc` member, and how it is written."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
import trio.testing
from mcp.server import stdio

from proctor.actors.gateways.mcp.server import ToolsetServer

INITIALIZE: dict[str, Any] = {
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    },
}
READY = {"method": "notifications/initialized"}


def calls(id: int, tool: str, token: str | None = None, **arguments: Any) -> dict[str, Any]:
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return {"id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments, **meta}}


def written(*messages: Mapping[str, Any]) -> bytes:
    """One line each."""
    return b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)


class _Lines:
    """The far end of a stream, with what the SDK's stdio transport uses of files."""

    def __init__(self, stream: trio.StapledStream[Any, Any]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncGenerator[str]:
        rest = b""
        async for chunk in self._stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode()

    async def write(self, text: str) -> None:
        await self._stream.send_all(text.encode())

    async def flush(self) -> None:
        """`write` has written."""


@asynccontextmanager
async def over_streams(things: ToolsetServer) -> AsyncGenerator[Any]:
    """A transport for the SDK's client, to `things.serve_streams`; `things` has ended when the block is left."""
    ours, theirs = trio.testing.memory_stream_pair()
    lines, transport = _Lines(ours), cast("Any", stdio).stdio_server

    async def serve() -> None:
        async with theirs:
            await things.serve_streams(theirs, theirs)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with transport(lines, lines) as streams:
            yield streams
            await ours.send_eof()
