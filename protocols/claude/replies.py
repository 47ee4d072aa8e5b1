"""The lines that answer a `control_request` of Claude Code. Each answered id is remembered, because an echo of the
line, or a late cancellation of what it answered, is nothing odd."""

from __future__ import annotations

from typing import Any

from proctor.protocols import jsonrpc
from proctor.protocols.claude.turns import state_of
from proctor.protocols.dialect import Memo


def agreed(memo: Memo, request: str, response: dict[str, Any]) -> bytes:
    """The reply that gives the CLI what it asked for."""
    return _reply(memo, {"subtype": "success", "request_id": request, "response": response})


def refused(memo: Memo, request: str, error: str) -> bytes:
    """The reply that says no. To a hook's call it may mean "go on": see `hooks`."""
    return _reply(memo, {"subtype": "error", "request_id": request, "error": error})


def _reply(memo: Memo, reply: dict[str, Any]) -> bytes:
    # Remembered before it is written: the echo may come at once.
    state_of(memo).decided.append(reply["request_id"])
    return jsonrpc.line({"type": "control_response", "response": reply}, tag=False)
