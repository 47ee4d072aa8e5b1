"""Claude Code's frames, one line at a time, as events: the reading half of its dialect.

Guarantees: `read` raises on no bytes. What a frame holds that is not modelled becomes `Unrecognized` with its path
and costs nothing beside it: blocks are decoded one by one, and a known frame with a changed field is decoded without
that field. A frame that means nothing to a consumer is counted by kind in `Memo.quiet`.

Requests of the CLI that no host of ours serves (dialogs, hooks and servers that are not registered) are refused at
once, because the CLI waits for the reply without a clock of its own.

Text deltas come before the block they belong to. When the attempt that streamed them fails, no block follows: a
`Notice(code="attempt_void")` voids the pieces since the last whole block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proctor.protocols.claude.content_blocks import read_assistant, read_limit, read_user
from proctor.protocols.claude.control import read_cancel, read_reply, read_request
from proctor.protocols.claude.turns import begin_turn, end_turn, follow, state_of
from proctor.protocols.claude.wire import (
    WIRE,
    AnyWire,
    ApiRetry,
    Assistant,
    ControlCancel,
    ControlRequest,
    ControlResponse,
    HookResponse,
    Init,
    Lifecycle,
    RateLimit,
    Reset,
    Result,
    Status,
    StreamEvent,
    System,
    Untyped,
    User,
    Wire,
)
from proctor.protocols.dialect import Memo, Out, Run
from proctor.protocols.lenient import Refusal, decoded, garbled, loosely, repaired, unrecognized
from proctor.protocols.vocabulary import (
    AnyEvent,
    Notice,
    Retrying,
    Started,
    TextDelta,
    Thinking,
    Unrecognized,
)

QUIET = frozenset(
    (
        "active_goal",
        "files_persisted",
        "keep_alive",
        "memory_recall",
        "plugin_install",
        "prompt_suggestion",
        "tool_progress",
        "tool_use_summary",
        "transcript_mirror",
    )
)
"""Types and subtypes that mean nothing to a consumer, seen or documented."""

QUIET_SYSTEM = QUIET | {
    "hook_started",
    "session_state_changed",
    "session_title_changed",
    "thinking_tokens",
    "ui_invalidate",
}

QUIET_API = frozenset(("message_delta", "content_block_start", "content_block_stop", "ping", "error"))
QUIET_DELTAS = frozenset(
    ("text_delta", "thinking_delta", "input_json_delta", "signature_delta", "citations_delta")
)

NOTICES: Mapping[str, tuple[str, str]] = {
    "auth_status": ("auth_status", "error"),
    "background_tasks_changed": ("background_tasks", ""),
    "compact_boundary": ("compacted", ""),
    "informational": ("informational", "content"),
    "model_fallback": ("model_fallback", "content"),
    "model_refusal_no_fallback": ("model_refused", "content"),
    "notification": ("notification", "text"),
    "permission_denied": ("permission_denied", "message"),
    "task_notification": ("task_ended", "summary"),
    "task_progress": ("task_progress", "description"),
    "task_started": ("task_started", "description"),
    "task_updated": ("task_updated", ""),
    "worker_shutting_down": ("worker_shutting_down", "reason"),
}
"""Subtype (or type) to the code of its `Notice` and the field that holds its text."""

ENVELOPE = frozenset(("type", "subtype", "uuid", "session_id", "prompt"))

_decode = msgspec.json.Decoder(AnyWire).decode
_fields = msgspec.json.Decoder(dict[str, Any]).decode


def read(memo: Memo, line: bytes) -> Out:
    """The events of one line, and the replies that it calls for."""
    try:
        frame = _decode(line)
    except Refusal:
        return _read_odd(memo, line)
    # Nearly all lines of a streaming turn are deltas: they pass without a look at the table.
    if frame.__class__ is StreamEvent and (text := frame.event.delta.text):
        return (TextDelta(memo.frame, memo.turn, text, frame.parent_tool_use_id),)
    return _HANDLERS[type(frame)](memo, frame, line)


def read_delta(memo: Memo, line: bytes) -> TextDelta | None:
    """The event of a line that `read_lines` gives one text delta for; None, and nothing done, for any other."""
    if b'"text_delta"' not in line:  # a look that saves decoding twice what is something else
        return None
    try:
        frame = _decode(line)
    except Refusal:
        return None
    if not isinstance(frame, StreamEvent) or not (text := frame.event.delta.text):
        return None
    memo.frame += 1
    return TextDelta(memo.frame, memo.turn, text, frame.parent_tool_use_id)


def read_lines(memo: Memo, lines: Sequence[bytes]) -> Iterator[Run | Out]:
    """The events that `read` gives of each line, in order; the text deltas that follow each other come as one list."""
    number, run = memo.frame, Run()
    for line in lines:
        number += 1
        try:
            frame = _decode(line)
        except Refusal:
            frame = None
        if isinstance(frame, StreamEvent) and (text := frame.event.delta.text):
            run.append(TextDelta(number, memo.turn, text, frame.parent_tool_use_id))
            continue
        if run:
            memo.frame = number - 1
            yield run
            run = []
        memo.frame = number
        yield _read_odd(memo, line) if frame is None else _HANDLERS[type(frame)](memo, frame, line)
    memo.frame = number
    if run:
        yield run


def _read_odd(memo: Memo, line: bytes) -> Out:
    if (bad := garbled(memo, line)) is not None:
        return (bad,)
    try:
        line = repaired(line)
        frame = _decode(line)
    except Refusal:
        return _read_loosely(memo, line)
    return _HANDLERS[type(frame)](memo, frame, line)


def _read_loosely(memo: Memo, line: bytes) -> Out:
    named, odd = loosely(Untyped, line, "frame")
    if named.type in QUIET:
        return memo.ignore(named.type)
    if named.type in NOTICES:
        return (_notice(memo, named.type, line),)
    kind = WIRE.get(named.type)
    if kind is None:
        error = odd[0][1] if odd else None
        return (Unrecognized(memo.frame, memo.turn, named.type or "untyped", error),)
    frame, bad = loosely(kind, line, named.type)
    quiet = memo.quiet.copy()
    out = (*unrecognized(memo, bad), *_HANDLERS[kind](memo, frame, line))
    if bad:
        memo.quiet = quiet  # a frame that gave an event is not quiet
    return out


def _notice(memo: Memo, kind: str, line: bytes) -> AnyEvent:
    code, text_field = NOTICES[kind]
    try:
        fields = _fields(line)
    except Refusal as error:
        return Unrecognized(memo.frame, memo.turn, kind, str(error))
    text = fields.pop(text_field, "")
    data = {name: value for name, value in fields.items() if name not in ENVELOPE}
    return Notice(memo.frame, memo.turn, code, text if isinstance(text, str) else "", data)


def _read_stream_event(memo: Memo, frame: StreamEvent, line: bytes) -> Out:
    kind = frame.event.type
    if kind == "content_block_delta":
        return _read_delta(memo, frame)
    streams = state_of(memo).streams
    parent = frame.parent_tool_use_id
    if kind == "message_start":
        # A message that begins while another streams: the attempt before it broke off without an end.
        void = _void(memo, parent)
        streams[parent] = frame.event.message.id or ""
        return void or memo.ignore("stream_event.message_start")
    # A whole message has this; one that broke off never does.
    if kind == "message_delta":
        streams.pop(parent, None)
    if kind == "message_stop":
        return _void(memo, parent) or memo.ignore("stream_event.message_stop")
    if kind in QUIET_API:
        return memo.ignore(f"stream_event.{kind}")
    return (Unrecognized(memo.frame, memo.turn, f"stream_event.{kind}"),)


def _read_delta(memo: Memo, frame: StreamEvent) -> Out:
    delta = frame.event.delta
    if delta.text:
        return (TextDelta(memo.frame, memo.turn, delta.text, frame.parent_tool_use_id),)
    if delta.thinking:
        return (Thinking(memo.frame, memo.turn, delta.thinking, frame.parent_tool_use_id, partial=True),)
    if delta.type in QUIET_DELTAS:
        return memo.ignore(f"stream_event.{delta.type}")
    return (Unrecognized(memo.frame, memo.turn, f"stream_event.content_block_delta.{delta.type}"),)


def _void(memo: Memo, parent: str | None) -> tuple[AnyEvent, ...]:
    """The attempt that streams ends here, without the `message_delta` that a whole message has."""
    message = state_of(memo).streams.pop(parent, None)
    if message is None:
        return ()
    text = "the stream was cut; discard its pieces since the last complete block"
    return (Notice(memo.frame, memo.turn, "attempt_void", text, {"message": message, "parent": parent}),)


def _read_system(memo: Memo, frame: System, line: bytes) -> Out:
    kind = frame.subtype
    if kind in QUIET_SYSTEM:
        return memo.ignore(f"system.{kind}")
    if kind in _SYSTEM:
        return _SYSTEM[kind](memo, line)
    if kind == "model_refusal_no_fallback":
        state_of(memo).model_refused = True
    if kind in NOTICES:
        return (_notice(memo, kind, line),)
    return (Unrecognized(memo.frame, memo.turn, f"system.{kind or 'untyped'}"),)


def _read_init(memo: Memo, line: bytes) -> Out:
    init, odd = decoded(memo, Init, line, "system.init")
    memo.version = init.claude_code_version or memo.version
    memo.model = init.model or memo.model
    # `init` is repeated for each turn; only a change of the session is news.
    moved = init.session_id is not None and init.session_id != memo.session_id
    memo.session_id = init.session_id or memo.session_id
    begun = begin_turn(memo, init)
    started = [_started(memo, init)] if moved else []
    return (*odd, *started, *begun) or memo.ignore("system.init")


def _started(memo: Memo, init: Init) -> Started:
    return Started(
        memo.frame,
        memo.turn,
        init.session_id or "",
        model=init.model,
        cwd=init.cwd,
        version=init.claude_code_version,
        permission_mode=init.permission_mode,
        tools=tuple(init.tools),
        mcp_servers={server.name: server.status for server in init.mcp_servers},
    )


def _read_retry(memo: Memo, line: bytes) -> Out:
    retry, odd = decoded(memo, ApiRetry, line, "system.api_retry")
    delay = retry.retry_delay_ms / 1000
    tried = Retrying(
        memo.frame, memo.turn, retry.attempt, retry.max_retries, delay, retry.error_status, retry.error
    )
    return (*odd, tried)


def _read_status(memo: Memo, line: bytes) -> Out:
    status, odd = decoded(memo, Status, line, "system.status")
    if status.status == "compacting":
        return (*odd, Notice(memo.frame, memo.turn, "compacting"))
    if status.compact_result == "failed":
        return (*odd, Notice(memo.frame, memo.turn, "compaction_failed", status.compact_error or ""))
    return tuple(odd) or memo.ignore("system.status")


def _read_hook(memo: Memo, line: bytes) -> Out:
    hook, odd = decoded(memo, HookResponse, line, "system.hook_response")
    if hook.exit_code in (0, None) and hook.outcome in ("success", None):
        return tuple(odd) or memo.ignore("system.hook_response")
    data = {"hook": hook.hook_name, "outcome": hook.outcome, "exit_code": hook.exit_code}
    return (*odd, Notice(memo.frame, memo.turn, "hook_failed", hook.stderr or "", data))


_SYSTEM: Mapping[str, Callable[[Memo, bytes], Out]] = {
    "init": _read_init,
    "api_retry": _read_retry,
    "status": _read_status,
    "hook_response": _read_hook,
}


def _read_reset(memo: Memo, frame: Reset, line: bytes) -> Out:
    # `/clear` sets the totals of the CLI to zero.
    memo.total_cost_usd = 0.0
    memo.resumed = False
    data = {"trigger": frame.trigger}
    return (Notice(memo.frame, memo.turn, "conversation_reset", "the conversation starts anew", data),)


def _read_rate_limit(memo: Memo, frame: RateLimit, line: bytes) -> Out:
    info = frame.rate_limit_info
    return read_limit(memo, info, rejected=info.status == "rejected") or memo.ignore("rate_limit_event")


_HANDLERS: Mapping[type[Wire], Callable[[Memo, Any, bytes], Out]] = {
    StreamEvent: _read_stream_event,
    Assistant: read_assistant,
    User: read_user,
    System: _read_system,
    Result: lambda memo, frame, line: tuple(end_turn(memo, frame)),
    ControlRequest: read_request,
    ControlCancel: read_cancel,
    ControlResponse: read_reply,
    RateLimit: _read_rate_limit,
    Lifecycle: lambda memo, frame, line: follow(memo, frame),
    Reset: _read_reset,
}
