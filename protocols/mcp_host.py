"""The host's tools as an MCP server, one message at a time, over any transport.

Guarantees: every request gets its reply at once, except a call of a known tool, which the host carries out. Unknown methods
and tools are refused. `handle` does not raise on anything a client may send; protocol errors come out as events. The
protocol revision is the client's: the messages used here are the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from proctor.protocols.dialect import HostTool, Memo
from proctor.protocols.jsonrpc import METHOD_NOT_FOUND, Message, params
from proctor.protocols.mcp import HOST
from proctor.protocols.vocabulary import AnyEvent, Misplaced, Notice, ToolReturn, Unrecognized

REVISION = "2025-11-25"
"""The revision of MCP that is spoken where the client names none."""

INVALID_PARAMS = -32602

Outcome = Mapping[str, Any]
"""`result` or `error`, as a reply has it."""


@attrs.frozen
class Call:
    """A tool is to be called; `tool_call` is the CLI's id of it, where it tells."""

    tool: str
    arguments: dict[str, Any]
    tool_call: str | None = None


@attrs.frozen(kw_only=True)
class Handled:
    """The effect of one message. `outcome` is its reply; `call` is to be carried out; `cancelled` is the id
    of a call that was cancelled, as it was written."""

    outcome: Outcome | None = None
    call: Call | None = None
    cancelled: str | None = None
    events: tuple[AnyEvent, ...] = ()


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


def handle(memo: Memo, tools: Sequence[HostTool], message: Message, path: str) -> Handled:
    """Handle a message of the client; `path` begins the kind of what is not recognized in it."""
    match message.kind, message.method:
        case "request", "tools/call":
            return _handle_call(memo, tools, message)
        case "request", method if method in _ANSWERS:
            return Handled(outcome={"result": _ANSWERS[method](memo, tools, message)})
        case "request", method:
            odd = Unrecognized(memo.frame, memo.turn, f"{path}.{method}")
            return Handled(
                outcome=fault(METHOD_NOT_FOUND, f"{method!r} is not supported by this host"), events=(odd,)
            )
        case "notification", "notifications/cancelled":
            return _handle_cancelled(memo, message)
        case "notification", _:
            return Handled()
        case _:
            return Handled(events=(Misplaced(memo.frame, memo.turn, f"{path}.reply", ""),))


def fault(code: int, text: str) -> Outcome:
    """A refusal."""
    return {"error": {"code": code, "message": text}}


def returned(answer: ToolReturn) -> Outcome:
    """The result of a call, a failure included: the model reads both."""
    content = [{"type": "text", "text": answer.text}]
    return {"result": {"content": content, "isError": answer.is_error}}


def _hello(memo: Memo, tools: Sequence[HostTool], message: Message) -> dict[str, Any]:
    hello, _ = params(memo, _Hello, message)
    server = {"name": HOST, "version": "1"}
    return {"protocolVersion": hello.revision, "capabilities": {"tools": {}}, "serverInfo": server}


def _list(memo: Memo, tools: Sequence[HostTool], message: Message) -> dict[str, Any]:
    return {"tools": [_shown(tool) for tool in tools]}


def _shown(tool: HostTool) -> dict[str, Any]:
    # Claude Code 2.1.330 would else keep it out of the model's prompt, to be found by a search
    meta = {"anthropic/alwaysLoad": True}
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.schema, "_meta": meta}


def _pong(memo: Memo, tools: Sequence[HostTool], message: Message) -> dict[str, Any]:
    return {}


_ANSWERS: Mapping[str, Callable[[Memo, Sequence[HostTool], Message], dict[str, Any]]] = {
    "initialize": _hello,
    "tools/list": _list,
    "ping": _pong,
}


def _handle_call(memo: Memo, tools: Sequence[HostTool], message: Message) -> Handled:
    call, odd = params(memo, _Call, message)
    if odd:
        refused = fault(INVALID_PARAMS, "the arguments were not understood")
        return Handled(outcome=refused, events=tuple(odd))
    if call.name not in [tool.name for tool in tools]:
        why = f"unknown tool {call.name!r}"
        notice = Notice(memo.frame, memo.turn, "request_refused", why, {"kind": "tools/call"})
        return Handled(outcome=fault(INVALID_PARAMS, why), events=(notice,))
    return Handled(call=Call(call.name, call.arguments, call.meta.tool_call))


def _handle_cancelled(memo: Memo, message: Message) -> Handled:
    cancelled, odd = params(memo, _Cancelled, message)
    return Handled(cancelled=bytes(cancelled.call).decode("utf-8", "replace"), events=tuple(odd))
