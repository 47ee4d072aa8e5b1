"""The items of a Codex agent's turns as events, for `app-server` and `exec`.

Guarantees: a tool is a `ToolCall` when it starts and a `ToolResult` when it completes, and one that only completes is
both. Which kinds are tools, under what name and with what input, is a table; a kind that is in none is `Unrecognized`.
Only a message or a piece of reasoning that completes counts: the pieces before it are void without it.

The names of tools are ours, the same in calls, approvals and rules: `shell`, `apply_patch`, `web_search`, `sleep`,
`view_image`, `image_generation`, `mcp__SERVER__TOOL`, and for tools of the host and of sub-agents their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs
import msgspec

from proctor.protocols.codex.turns import Call, SessionState, state_of
from proctor.protocols.codex.wire import ErrorMessage, Item, McpResult
from proctor.protocols.dialect import Memo
from proctor.protocols.lenient import Refusal, decoded_or, value
from proctor.protocols.mcp import side_data
from proctor.protocols.vocabulary import AnyEvent, Notice, Text, Thinking, ToolCall, ToolResult, Unrecognized

QUIET = frozenset(("userMessage", "hookPrompt", "functionCallOutput"))
"""Kinds that mean nothing to a consumer."""

FAILED = frozenset(("failed", "declined", "interrupted"))
"""The status of a tool that did not do what it was called for."""

NOTICES: Mapping[str, tuple[str, str]] = {
    "contextCompaction": ("compacting", "compacted"),
    "enteredReviewMode": ("", "review_started"),
    "error": ("", "warning"),
    "exitedReviewMode": ("", "review_ended"),
    "plan": ("", "plan"),
    "subAgentActivity": ("", "subagent"),
    "todoList": ("", "plan"),
}
"""Kind to the codes of its notices, when it starts and when it completes; none where there is no code."""


@attrs.frozen
class Tool:
    """One kind of item as a tool: its name, its input, the text of its result and what came beside it."""

    name: Callable[[Item], str]
    input: Callable[[Item], dict[str, Any]]
    result: Callable[[Item], str]
    beside: Callable[[Item], dict[str, Any]] = lambda item: {}


def mcp_tool(server: str, tool: str) -> str:
    """The name of a tool of an MCP server."""
    return f"mcp__{server}__{tool}"


def _command(item: Item) -> dict[str, Any]:
    return {"command": item.command} if item.cwd is None else {"command": item.command, "cwd": item.cwd}


def arguments(value: object) -> dict[str, Any]:
    """The arguments of a call as the input of a tool; what is no object is kept under a name."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {} if value is None else {"arguments": value}


def _set(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _mcp_result(item: Item) -> str:
    if (error := _error(item)) is not None:
        return error
    return _texts(decoded_or(McpResult(), McpResult, item.result).content)


def _texts(parts: list[dict[str, Any]]) -> str:
    texts = [part.get("text") for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))


def _error(item: Item) -> str | None:
    try:
        error = msgspec.json.decode(item.error, type=str | ErrorMessage | None)
    except Refusal:
        return None
    return error.message or "it failed without a message" if isinstance(error, ErrorMessage) else error


def _status(item: Item) -> str:
    return item.status or ""


_COLLAB = Tool(
    lambda item: item.tool,
    lambda item: _set(prompt=item.prompt, receivers=item.receiver_thread_ids),
    _status,
)

TOOLS: Mapping[str, Tool] = {
    "commandExecution": Tool(
        lambda item: "shell", _command, lambda item: item.aggregated_output or _undone(item)
    ),
    "fileChange": Tool(lambda item: "apply_patch", lambda item: {"changes": item.changes}, _status),
    "mcpToolCall": Tool(
        lambda item: mcp_tool(item.server, item.tool),
        lambda item: arguments(item.arguments),
        _mcp_result,
        lambda item: side_data(value(item.result)),
    ),
    "dynamicToolCall": Tool(
        lambda item: item.tool,
        lambda item: arguments(item.arguments),
        lambda item: _texts(item.content_items or []),
    ),
    "collabAgentToolCall": _COLLAB,
    "collabToolCall": _COLLAB,
    "webSearch": Tool(
        lambda item: "web_search", lambda item: _set(query=item.query, action=item.action), lambda item: ""
    ),
    "imageView": Tool(lambda item: "view_image", lambda item: _set(path=item.path), lambda item: ""),
    "imageGeneration": Tool(
        lambda item: "image_generation",
        lambda item: _set(prompt=item.revised_prompt),
        lambda item: item.saved_path or _status(item),
    ),
    "sleep": Tool(
        lambda item: "sleep", lambda item: {"seconds": (item.duration_ms or 0) / 1000}, lambda item: ""
    ),
}
"""Kind of item → its tool. The two ways of driving the CLI write the same kinds in two spellings."""


def _undone(item: Item) -> str:
    return _status(item) if item.status in FAILED else ""


def starts(memo: Memo, item: Item, turn: str | None, parent: str | None) -> list[AnyEvent]:
    """The events of an item that has begun."""
    if (tool := TOOLS.get(item.type)) is not None:
        return _called(memo, item, tool, turn, parent)
    return _remark(memo, item, turn, done=False)


def completes(memo: Memo, item: Item, turn: str | None, parent: str | None) -> list[AnyEvent]:
    """The events of an item that is whole."""
    frame = memo.frame
    match item.type:
        case "agentMessage":
            return [Text(frame, turn, item.text, parent)] if item.text else []
        case "reasoning":
            content = decoded_or(list[str](), list[str], item.content)
            thought = item.text or "\n\n".join(part for part in item.summary if part) or "\n\n".join(content)
            return [Thinking(frame, turn, thought, parent)] if thought else []
        case kind if (tool := TOOLS.get(kind)) is not None:
            return _result_of(memo, item, tool, turn, parent)
        case _:
            return _remark(memo, item, turn, done=True)


def _called(memo: Memo, item: Item, tool: Tool, turn: str | None, parent: str | None) -> list[AnyEvent]:
    own = state_of(memo)
    call = Call(tool.name(item), {} if memo.truncated else tool.input(item), unread=memo.truncated)
    own.calls[item.id] = call
    if call.unread:
        return []
    return [ToolCall(memo.frame, turn, _id(memo, item), call.name, call.input, parent)]


def _result_of(memo: Memo, item: Item, tool: Tool, turn: str | None, parent: str | None) -> list[AnyEvent]:
    own = state_of(memo)
    before = own.calls.get(item.id)
    is_reported = before is not None and not before.unread
    begun = [] if is_reported else _called(memo, item, tool, turn, parent)
    own.calls.pop(item.id, None)
    _adopt(own, item)
    bad = item.status in FAILED or item.success is False
    text, beside = tool.result(item), tool.beside(item)
    seconds = None if item.duration_ms is None else item.duration_ms / 1000
    return [*begun, ToolResult(memo.frame, turn, _id(memo, item), text, bad, parent, beside, seconds)]


def _adopt(own: SessionState, item: Item) -> None:
    """A call that makes sub-agents is the parent of all that they do."""
    # Only the first: a thread keeps the parent that began it.
    for thread in item.receiver_thread_ids:
        own.parents.setdefault(thread, item.id)


def _id(memo: Memo, item: Item) -> str:
    return item.id or f"frame{memo.frame}"  # a CLI may give no id; this one is unique in the run


def _remark(memo: Memo, item: Item, turn: str | None, *, done: bool) -> list[AnyEvent]:
    if item.type in QUIET or item.type in ("agentMessage", "reasoning"):
        return []
    if item.type not in NOTICES:
        return [Unrecognized(memo.frame, turn, f"item.{item.type or 'untyped'}")]
    code = NOTICES[item.type][done]
    if item.type == "subAgentActivity":
        state_of(memo).parents.setdefault(item.agent_thread_id, item.id)
    text = item.text or item.message or item.review
    data = _set(kind=item.kind, thread=item.agent_thread_id, agent=item.agent_path)
    return [Notice(memo.frame, turn, code, text, data)] if code else []
