"""A server of MCP over stdio with one tool, `look`, run by its path: it tells what it was given, with side data."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

LOOK: dict[str, Any] = {
    "name": "look",
    "description": "Tells what it sees.",
    "inputSchema": {"type": "object", "properties": {}},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "tiny", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    if method == "tools/list":
        return {"tools": [LOOK]}
    if method == "tools/call":
        seen = {
            name: value for name, value in os.environ.items() if name.startswith(("PROCTOR_CONTEXT", "TINY"))
        }
        text = f"I saw {json.dumps(seen, sort_keys=True)}"
        return {
            "content": [{"type": "text", "text": text}],
            "structuredContent": {"seen": len(seen)},
            "_meta": {"tiny/marker": "row-7"},
        }
    return {} if method == "ping" else None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message.get("method", ""), message.get("params") or {})
        outcome = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
