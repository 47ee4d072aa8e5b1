"""The host's tools as Claude Code sees them: an MCP server named `host` that lives in this process (L39).

Guarantees: each `mcp_message` gets its reply, because an unanswered one holds the first turn for 30 seconds. The
handshake, `tools/list`, `ping` and every notification are answered here, at once; an unknown method or tool is refused
at once. Only `tools/call` goes to the host, as `ToolRequested`, and is answered by a `ToolReturn`.

A call that is cancelled is withdrawn: by `notifications/cancelled` where the turn is interrupted (seen in both tested
versions), or by `control_cancel_request`. A return that comes after that has nobody to go to.

Not here: running a tool, and its deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from proctor.protocols.claude.replies import agreed
from proctor.protocols.claude.turns import notes
from proctor.protocols.claude.wire import ControlRequest
from proctor.protocols.dialect import HostTool, Launch, Memo, Out, Send
from proctor.protocols.errors import Misuse
from proctor.protocols.jsonrpc import METHOD_NOT_FOUND, Message, params
from proctor.protocols.salvage import decoded
from proctor.protocols.vocabulary import (
    Misplaced,
    Notice,
    RequestWithdrawn,
    ToolRequested,
    ToolReturn,
    Unrecognized,
)

SERVER = "host"
"""The server's name; the model calls a tool of it `mcp__host__NAME`."""

REVISION = "2025-11-25"
"""The revision of MCP that is spoken where the CLI names none."""

INVALID_PARAMS = -32602


class _Hello(msgspec.Struct, frozen=True, gc=False):
    revision: str = msgspec.field(default=REVISION, name="protocolVersion")


class _Meta(msgspec.Struct, frozen=True, gc=False):
    tool_call: str | None = msgspec.field(default=None, name="claudecode/toolUseId")


class _Call(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    arguments: dict[str, Any] = {}
    meta: _Meta = msgspec.field(default=_Meta(), name="_meta")


class _Cancelled(msgspec.Struct, frozen=True, gc=False):
    call: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="requestId")


def servers(launch: Launch) -> list[str]:
    """The names of the servers in this process, for `initialize`."""
    return [SERVER] if launch.host_tools else []


def permitted(launch: Launch) -> list[str]:
    """The permission rules under which the host's own tools need no approval; a one-shot run has none of them."""
    tools = launch.host_tools if launch.mode == "session" else ()
    return [f"mcp__{SERVER}__{tool.name}" for tool in tools]


def is_served(memo: Memo, frame: ControlRequest) -> bool:
    """Is this message for the server of this process?"""
    return frame.request.server_name in servers(memo.launch)


def read_message(memo: Memo, frame: ControlRequest) -> Out:
    """One message of the CLI's MCP client to the server `host`."""
    message, odd = decoded(memo, Message, bytes(frame.request.message) or b"{}", "control_request.message")
    if odd:
        return (*odd, _fault(memo, frame, message, INVALID_PARAMS, "not understood"))
    match message.kind, message.method:
        case "request", "tools/call":
            return _read_call(memo, frame, message)
        case "request", method if method in _ANSWERS:
            result = _ANSWERS[method](memo, message)
            return (_answer(memo, frame, message, {"result": result}), *memo.hush(f"mcp_message.{method}"))
        case "request", method:
            gone = _fault(memo, frame, message, METHOD_NOT_FOUND, f"{method!r} is not served by this host")
            return (gone, Unrecognized(memo.frame, memo.turn, f"control_request.mcp_message.{method}"))
        case "notification", method:
            withdrawn = _read_cancelled(memo, message) if method == "notifications/cancelled" else ()
            return (_acknowledge(memo, frame), *(withdrawn or memo.hush(f"mcp_message.{method}")))
        case _:
            return (_acknowledge(memo, frame), Misplaced(memo.frame, memo.turn, "mcp_message.reply", ""))


def _hello(memo: Memo, message: Message) -> dict[str, Any]:
    asked, _ = params(memo, _Hello, message)
    server = {"name": SERVER, "version": "1"}
    return {"protocolVersion": asked.revision, "capabilities": {"tools": {}}, "serverInfo": server}


def _list(memo: Memo, message: Message) -> dict[str, Any]:
    return {"tools": [_shown(tool) for tool in memo.launch.host_tools]}


def _shown(tool: HostTool) -> dict[str, Any]:
    # 2.1.330 would else keep it out of the model's prompt, to be found by a search
    meta = {"anthropic/alwaysLoad": True}
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.schema, "_meta": meta}


def _pong(memo: Memo, message: Message) -> dict[str, Any]:
    return {}


_ANSWERS: Mapping[str, Callable[[Memo, Message], dict[str, Any]]] = {
    "initialize": _hello,
    "tools/list": _list,
    "ping": _pong,
}


def _read_call(memo: Memo, frame: ControlRequest, message: Message) -> Out:
    call, odd = params(memo, _Call, message)
    if odd:
        return (*odd, _fault(memo, frame, message, INVALID_PARAMS, "the arguments were not understood"))
    if call.name not in [tool.name for tool in memo.launch.host_tools]:
        why = f"unknown tool {call.name!r}"
        notice = Notice(memo.frame, memo.turn, "request_refused", why, {"kind": "tools/call"})
        return (_fault(memo, frame, message, INVALID_PARAMS, why), notice)
    request = frame.request_id
    memo.calls[request] = call.name
    notes(memo).tool_calls[request] = message.key
    return (ToolRequested(memo.frame, memo.turn, request, call.name, call.arguments, call.meta.tool_call),)


def _read_cancelled(memo: Memo, message: Message) -> Out:
    cancelled, odd = params(memo, _Cancelled, message)
    key = bytes(cancelled.call).decode()
    open_calls = notes(memo).tool_calls
    withdrawn = [request for request, call in open_calls.items() if call == key]
    for request in withdrawn:
        forget(memo, request)
    return (*odd, *(RequestWithdrawn(memo.frame, memo.turn, request) for request in withdrawn))


def forget(memo: Memo, request: str) -> None:
    """Nobody waits for the answer to this request any more; its cancellation may still be repeated."""
    kept = notes(memo)
    memo.calls.pop(request, None)
    kept.tool_calls.pop(request, None)
    kept.hook_points.pop(request, None)
    kept.decided.append(request)


def write_return(memo: Memo, returned: ToolReturn) -> bytes:
    """The result of a call. Raises Misuse where the request was not the call of a tool."""
    if (key := notes(memo).tool_calls.pop(returned.id, None)) is None:
        raise Misuse(f"{returned.id!r} is not the call of a tool", request="tool_return")
    content = [{"type": "text", "text": returned.text}]
    result = {"content": content, "isError": returned.is_error}
    return _reply(memo, returned.id, {"id": msgspec.json.decode(key), "result": result})


def _reply(memo: Memo, request: str, message: dict[str, Any]) -> bytes:
    return agreed(memo, request, {"mcp_response": {"jsonrpc": "2.0", **message}})


def _answer(memo: Memo, frame: ControlRequest, message: Message, outcome: dict[str, Any]) -> Send:
    identity = msgspec.json.decode(message.key) if message.key else None
    return Send(_reply(memo, frame.request_id, {"id": identity, **outcome}))


def _fault(memo: Memo, frame: ControlRequest, message: Message, code: int, text: str) -> Send:
    return _answer(memo, frame, message, {"error": {"code": code, "message": text}})


def _acknowledge(memo: Memo, frame: ControlRequest) -> Send:
    # a notification has no reply in JSON-RPC, but the control request around it has
    return Send(_reply(memo, frame.request_id, {"result": {}}))
