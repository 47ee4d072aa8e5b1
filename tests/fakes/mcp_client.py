"""What a client of MCP says, as messages without the `jsonrpc` member, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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
