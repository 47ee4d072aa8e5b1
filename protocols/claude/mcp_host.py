"""The host's tools as Claude Code sees them: an MCP server named `host` that lives in this process.

Guarantees: each `mcp_message` gets its reply, because an unanswered one holds the first turn for 30 seconds. What the
messages mean is `protocols.mcp_host`'s; here is the envelope around them, and which calls are open. Only `tools/call`
goes to the host, as `ToolRequested`, and is answered by a `ToolReturn`.

A call that is cancelled is withdrawn: by `notifications/cancelled` where the turn is interrupted (seen in both tested
versions), or by `control_cancel_request`. A return that comes after that is dropped.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.protocols.claude.replies import agreed
from proctor.protocols.claude.turns import state_of
from proctor.protocols.claude.wire import ControlRequest
from proctor.protocols.dialect import Launch, Memo, Out, Send
from proctor.protocols.errors import Misuse
from proctor.protocols.jsonrpc import Message
from proctor.protocols.lenient import decoded
from proctor.protocols.mcp import HOST
from proctor.protocols.mcp_host import INVALID_PARAMS, Call, Handled, fault, handle, returned
from proctor.protocols.vocabulary import RequestWithdrawn, ToolRequested, ToolReturn


def servers(launch: Launch) -> list[str]:
    """The names of the servers in this process, for `initialize`."""
    return [HOST] if launch.host_tools else []


def permitted(launch: Launch) -> list[str]:
    """The permission rules under which the host's own tools need no approval; a one-shot run has them by a server."""
    tools = launch.host_tools if launch.mode == "session" else ()
    return [f"mcp__{HOST}__{tool.name}" for tool in tools]


def is_served(memo: Memo, frame: ControlRequest) -> bool:
    """Is this message for the server of this process?"""
    return frame.request.server_name in servers(memo.launch)


def read_message(memo: Memo, frame: ControlRequest) -> Out:
    """One message of the CLI's MCP client to the server `host`."""
    message, odd = decoded(memo, Message, bytes(frame.request.message) or b"{}", "control_request.message")
    if odd:
        refused = fault(INVALID_PARAMS, "not understood")
        return (*odd, _answer(memo, frame, message, Handled(outcome=refused)))
    handled = handle(memo, memo.launch.host_tools, message, "control_request.mcp_message")
    if handled.call is not None:
        return (_begin(memo, frame, message, handled.call),)
    withdrawn = () if handled.cancelled is None else _withdraw(memo, handled.cancelled)
    out = (_answer(memo, frame, message, handled), *handled.events, *withdrawn)
    if len(out) > 1:
        return out
    return (*out, *memo.ignore(f"mcp_message.{message.method}"))


def _begin(memo: Memo, frame: ControlRequest, message: Message, call: Call) -> ToolRequested:
    request = frame.request_id
    memo.calls[request] = call.tool
    state_of(memo).tool_calls[request] = message.key
    return ToolRequested(memo.frame, memo.turn, request, call.tool, call.arguments, call.tool_call)


def _withdraw(memo: Memo, key: str) -> Out:
    open_calls = state_of(memo).tool_calls
    withdrawn = [request for request, call in open_calls.items() if call == key]
    for request in withdrawn:
        forget(memo, request)
    return tuple(RequestWithdrawn(memo.frame, memo.turn, request) for request in withdrawn)


def forget(memo: Memo, request: str) -> None:
    """Drop the record of a request that needs no answer any more; its cancellation may still be repeated."""
    kept = state_of(memo)
    memo.calls.pop(request, None)
    kept.tool_calls.pop(request, None)
    kept.hook_points.pop(request, None)
    kept.decided.append(request)


def write_return(memo: Memo, answer: ToolReturn) -> bytes:
    """The result of a call. Raises Misuse where the request was not the call of a tool."""
    if (key := state_of(memo).tool_calls.pop(answer.id, None)) is None:
        raise Misuse(f"{answer.id!r} is not a tool call", request="tool_return")
    return _reply(memo, answer.id, {"id": msgspec.json.decode(key), **returned(answer)})


def _reply(memo: Memo, request: str, message: dict[str, Any]) -> bytes:
    return agreed(memo, request, {"mcp_response": {"jsonrpc": "2.0", **message}})


def _answer(memo: Memo, frame: ControlRequest, message: Message, handled: Handled) -> Send:
    if handled.outcome is None:
        # a notification has no reply in JSON-RPC, but the control request around it has
        return Send(_reply(memo, frame.request_id, {"result": {}}))
    identity = msgspec.json.decode(message.key) if message.key else None
    return Send(_reply(memo, frame.request_id, {"id": identity, **handled.outcome}))
