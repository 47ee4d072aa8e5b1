"""The content blocks of the `assistant` and `user` lines of Claude Code, as events.

Guarantees: one event per block, in order; a block that is not modelled becomes `Unrecognized` and costs nothing
beside it. The synthetic answer that stands for an API failure is not the agent's text: it is a `Notice`, and its
word for the cause is kept for the end of the turn.
"""

from __future__ import annotations

import msgspec

from proctor.protocols.claude.turns import count, fold, state_of
from proctor.protocols.claude.wire import Assistant, Block, LimitInfo, LimitParams, Timing, User
from proctor.protocols.dialect import Memo, Out
from proctor.protocols.lenient import Refusal, decoded, decoded_or
from proctor.protocols.limits import reset_time
from proctor.protocols.mcp import side_data
from proctor.protocols.vocabulary import (
    AnyEvent,
    LimitReached,
    Notice,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unrecognized,
)

QUIET_PARTS = frozenset(("image", "document", "search_result", "tool_reference"))
"""Parts of a tool's result that have no text; they stay in the frame."""

_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_assistant(memo: Memo, frame: Assistant, line: bytes) -> Out:
    """Read the text of the agent, or the synthetic answer that stands for an API failure."""
    if frame.error is not None:
        return _read_failure(memo, frame)
    # A subagent may run under another model, and a synthetic answer under none.
    if frame.parent_tool_use_id is None and frame.message.model not in (None, "<synthetic>"):
        state_of(memo).model = frame.message.model
    count(memo, frame.message, frame.parent_tool_use_id)
    return _read_blocks(memo, frame.message.content, frame.parent_tool_use_id, "assistant")


def _read_failure(memo: Memo, frame: Assistant) -> Out:
    text = " ".join(block.text for block in decoded_or(list[Block](), list[Block], frame.message.content))
    out: list[AnyEvent] = []
    if frame.parent_tool_use_id is None:
        kept = state_of(memo)
        kept.failure = frame.error
        # A `rate_limit_event` may have reported it already: one event for each limit.
        if frame.api_error == "usage_limit_reached" and not kept.limited:
            params, bad = decoded(
                memo, LimitParams, bytes(frame.api_error_params) or b"{}", "assistant.params"
            )
            out += [*bad, *read_limit(memo, params.rate_limit_info, rejected=True)]
    data = {"error": frame.error, "status": frame.api_error_status}
    return (*out, Notice(memo.frame, memo.turn, "api_failure", text, data))


def read_user(memo: Memo, frame: User, line: bytes) -> Out:
    """Results of tools; and echoes and synthetic prompts, which are quiet."""
    # 2.1.197 has no `command_lifecycle`: there the echo of a prompt tells which turn took it in.
    if frame.is_replay and frame.uuid is not None and (taken := fold(memo, frame.uuid)):
        return taken
    # A string is the text of a prompt, echoed or synthetic; results of tools are always blocks.
    if memoryview(frame.message.content)[:1].tobytes() == b'"':
        return memo.ignore("user.replay" if frame.is_replay else "user.text")
    out = _read_blocks(memo, frame.message.content, frame.parent_tool_use_id, "user")
    return _with_side_data(out, bytes(frame.tool_use_result)) if frame.tool_use_result else out


def _with_side_data(out: Out, raw: bytes) -> Out:
    """The result of a tool, with what came beside its text: it stands once in a frame, which has one result."""
    # decoded only for what names something that is looked for: most results are long, and have nothing of it
    beside = decoded_or(None, object, raw) if b"structuredContent" in raw or b"_meta" in raw else None
    timing = decoded_or(None, Timing, raw) if b"urationMs" in raw else None
    data, seconds = side_data(beside), None if timing is None else timing.seconds
    # A frame with several results does not say which of them the side data is about.
    results = [event for event in out if isinstance(event, ToolResult)]
    if (not data and seconds is None) or len(results) != 1:
        return out
    complete = msgspec.structs.replace(results[0], metadata=data, duration=seconds)
    return tuple(complete if event is results[0] else event for event in out)


def _read_blocks(memo: Memo, content: msgspec.Raw, parent: str | None, speaker: str) -> Out:
    try:
        blocks = _raws(content)
    except Refusal as error:
        # Block by block: one that changed its shape costs nothing beside it.
        return (Unrecognized(memo.frame, memo.turn, f"{speaker}.message.content", str(error)),)
    out: list[AnyEvent] = []
    for index, raw in enumerate(blocks):
        block, odd = decoded(memo, Block, bytes(raw), f"{speaker}.content")
        out += odd
        out += _read_block(memo, block, index, parent, speaker)
    return tuple(out) or memo.ignore(f"{speaker}.empty" if speaker == "assistant" else "user.text")


def _read_block(memo: Memo, block: Block, index: int, parent: str | None, speaker: str) -> list[AnyEvent]:
    frame, turn = memo.frame, memo.turn
    match block.type:
        case "text" if speaker == "assistant" and block.text:
            return [Text(frame, turn, block.text, parent)]
        case "thinking" if block.thinking:
            return [Thinking(frame, turn, block.thinking, parent)]
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            call = block.id or f"frame{frame}.{index}"  # a CLI may give no id; this one is unique in the run
            return [ToolCall(frame, turn, call, block.name, block.input or {}, parent)]
        case kind if kind.endswith("tool_result"):
            # By the end of its name: results of MCP and of the server's own tools have the same shape.
            return _read_tool_result(memo, block, parent)
        case "text" | "thinking" | "redacted_thinking" | "image" | "document":
            return []
        case kind:
            return [Unrecognized(frame, turn, f"{speaker}.content.{kind or 'untyped'}")]


def _read_tool_result(memo: Memo, block: Block, parent: str | None) -> list[AnyEvent]:
    out: list[AnyEvent] = []
    text = _result_text(memo, block.content, out)
    out.append(ToolResult(memo.frame, memo.turn, block.tool_use_id, text, bool(block.is_error), parent))
    return out


def _result_text(memo: Memo, content: msgspec.Raw, out: list[AnyEvent]) -> str:
    """Whole text of a result; what its parts hold that is not modelled is added to `out`."""
    if bytes(content) in (b"", b"null"):
        return ""
    try:
        parts = msgspec.json.decode(content, type=str | list[msgspec.Raw])
    except Refusal as error:
        out.append(Unrecognized(memo.frame, memo.turn, "user.tool_result.content", str(error)))
        return ""
    if isinstance(parts, str):
        return parts
    texts: list[str] = []
    for raw in parts:
        part, odd = decoded(memo, Block, bytes(raw), "user.tool_result.content")
        out += odd
        if part.type == "text":
            texts.append(part.text)
        elif part.type not in QUIET_PARTS:
            out.append(Unrecognized(memo.frame, memo.turn, f"user.tool_result.{part.type or 'untyped'}"))
    return "\n".join(texts)


def read_limit(memo: Memo, info: LimitInfo, *, rejected: bool) -> tuple[AnyEvent, ...]:
    """A usage limit that stops the turn, or one that is near or paid for, which is only a notice."""
    windows, resets_at = info.windows or {}, reset_time(info.resets_at)
    data = {"kind": info.kind, "resets_at": resets_at, "windows": windows}
    if rejected and not info.overage:
        state_of(memo).limited = True
        return (LimitReached(memo.frame, memo.turn, info.kind, resets_at),)
    if rejected:
        return (
            Notice(memo.frame, memo.turn, "limit_overage", "the limit is passed, extra usage is paid", data),
        )
    states = {info.status, *(window.get("status") for window in windows.values())}
    if "allowed_warning" in states:
        return (Notice(memo.frame, memo.turn, "limit_near", "a usage limit is near", data),)
    return ()
