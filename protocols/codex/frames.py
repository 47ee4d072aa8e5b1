"""The messages of `codex app-server` as events, one line at a time: the reading half of its dialect.

Guarantees: `read` raises on no bytes. A message that means nothing to a consumer is counted in `Memo.quiet` by its
method; one that is not modelled is `Unrecognized`, and a request of that kind is refused as well.

A connection carries more threads than ours: each sub-agent has its own, with turns that begin and end among ours. What
is about another thread never is our answer: its items name as `parent` the tool call that made it, or are notices
where the call is not known.

Text deltas come before the item they belong to. A retry begins another item and repeats them: a
`Notice(code="attempt_void")` voids the pieces since the last whole block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from proctor.protocols import jsonrpc
from proctor.protocols.codex import items
from proctor.protocols.codex.errors import cause_of, ending_of
from proctor.protocols.codex.questions import read_request, read_resolved
from proctor.protocols.codex.replies import read_reply, release
from proctor.protocols.codex.turns import (
    begin_turn,
    count,
    end_turn,
    reach_limit,
    say,
    state_of,
    turn_of,
    void,
)
from proctor.protocols.codex.wire import (
    Delta,
    Failed,
    ItemMoved,
    LimitsUpdated,
    ServerStatus,
    ThreadStarted,
    TurnMoved,
    UsageUpdated,
)
from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.lenient import Refusal
from proctor.protocols.limits import reset_time
from proctor.protocols.vocabulary import (
    AnyEvent,
    Garbled,
    Misplaced,
    Notice,
    Retrying,
    TextDelta,
    Thinking,
    Unrecognized,
)

NEAR = 90.0
"""Percent of a usage window from which on a notice says so, once a window."""

TEXT_DELTA = "item/agentMessage/delta"

NOTICES: Mapping[str, tuple[str, str]] = {
    "autoApprovalReview/strictReviewRequired": ("approval_review", ""),
    "configWarning": ("config_warning", "summary"),
    "deprecationNotice": ("deprecation", "summary"),
    "guardianWarning": ("guardian_warning", "message"),
    "item/autoApprovalReview/completed": ("approval_review", ""),
    "model/rerouted": ("model_fallback", ""),
    "model/verification": ("model_verification", ""),
    "thread/closed": ("thread_closed", ""),
    "thread/compacted": ("compacted", ""),
    "turn/plan/updated": ("plan", "explanation"),
    "warning": ("warning", "message"),
    "windows/worldWritableWarning": ("warning", ""),
}
"""Method to the code of its `Notice` and the field that holds its text."""

_UNREPORTED = """
    account/gatewayOAuth/changed account/login/completed account/updated app/list/updated command/exec/outputDelta
    externalAgentConfig/import/completed externalAgentConfig/import/progress fs/changed
    fuzzyFileSearch/sessionCompleted fuzzyFileSearch/sessionUpdated hook/completed hook/started
    item/autoApprovalReview/started item/commandExecution/outputDelta item/commandExecution/terminalInteraction
    item/fileChange/outputDelta item/fileChange/patchUpdated item/mcpToolCall/progress item/plan/delta
    item/reasoning/summaryPartAdded mcpServer/event/stream/notification mcpServer/oauthLogin/completed
    model/safetyBuffering/updated modelProvider/authRecoveryCompleted modelProvider/authRecoveryStarted
    process/exited process/outputDelta project/changed remoteControl/status/changed skills/changed thread/archived
    thread/attachment/updated thread/deleted thread/environment/connected thread/environment/disconnected
    thread/goal/cleared thread/goal/updated thread/name/updated thread/prediction/updated thread/project/updated
    thread/queue/changed thread/readState/changed thread/realtime/closed thread/realtime/error
    thread/realtime/item/completed thread/realtime/item/started thread/realtime/item/transcript/delta
    thread/realtime/itemAdded thread/realtime/outputAudio/delta thread/realtime/sdp thread/realtime/started
    thread/realtime/transcript/delta thread/realtime/transcript/done thread/reverted thread/section/changed
    thread/settings/updated thread/status/changed thread/unarchived turn/diff/updated turn/moderationMetadata
    windowsSandbox/setupCompleted
"""

QUIET = frozenset(_UNREPORTED.split())
"""Methods that mean nothing to a consumer, seen or in the server's own list."""

_ATTEMPT = re.compile(r"(\d+)/(\d+)", re.ASCII)
_delta = msgspec.json.Decoder(Delta).decode
_fields = msgspec.json.Decoder(dict[str, Any]).decode


def read(memo: Memo, line: bytes) -> Out:
    """The events of one line, and the replies that it calls for."""
    message = jsonrpc.read(memo, line)
    if isinstance(message, Garbled):
        return (message,)
    out = _READERS[message.kind](memo, message)
    # A line that gives no event is counted, so that none is missing from the figures.
    if all(isinstance(each, Send) for each in out):
        memo.ignore(message.method or "reply")
    return out


def _read_notification(memo: Memo, message: jsonrpc.Message) -> Out:
    method = message.method
    if (handler := _HANDLERS.get(method)) is not None:
        return handler(memo, message)
    if method in QUIET:
        return ()
    if method in NOTICES:
        return (_notice(memo, message),)
    return jsonrpc.unknown(memo, message, tag=False)


def _notice(memo: Memo, message: jsonrpc.Message) -> AnyEvent:
    code, text_field = NOTICES[message.method]
    try:
        fields = _fields(bytes(message.params) or b"{}")
    except Refusal as error:
        return Unrecognized(memo.frame, memo.turn, message.method, str(error))
    text = fields.pop(text_field, "")
    data = {name: value for name, value in fields.items() if value is not None}
    return Notice(memo.frame, memo.turn, code, text if isinstance(text, str) else "", data)


def _is_ours(memo: Memo, thread: str | None) -> bool:
    return not thread or thread == memo.session_id


# -- text


def _read_delta(memo: Memo, message: jsonrpc.Message) -> Out:
    piece, odd, parent = _piece(memo, message)
    # A delta of a thread whose call is not known has no parent to stand under.
    if not piece.delta or (parent is None and not _is_ours(memo, piece.thread_id)):
        return tuple(odd)
    turn = turn_of(memo, piece.turn_id)
    if message.method == TEXT_DELTA:
        return (*odd, TextDelta(memo.frame, turn, piece.delta, parent))
    return (*odd, Thinking(memo.frame, turn, piece.delta, parent, partial=True))


def _piece(memo: Memo, message: jsonrpc.Message) -> tuple[Delta, list[AnyEvent], str | None]:
    odd: list[AnyEvent] = []
    try:
        piece = _delta(message.params)
    except Refusal:
        piece, odd = jsonrpc.params(memo, Delta, message)
    own = state_of(memo)
    parent = own.parents.get(piece.thread_id)
    if parent is not None or _is_ours(memo, piece.thread_id):
        own.streams.setdefault(piece.thread_id, set()).add(piece.item_id)
    return piece, odd, parent


# -- items


def _read_started(memo: Memo, message: jsonrpc.Message) -> Out:
    moved, odd = jsonrpc.params(memo, ItemMoved, message)
    parent = state_of(memo).parents.get(moved.thread_id)
    if parent is None and not _is_ours(memo, moved.thread_id):
        return tuple(odd)
    # A retry begins the message anew: the pieces before it are void.
    unsaid = void(memo, moved.thread_id) if moved.item.type in ("agentMessage", "reasoning") else []
    return (*odd, *unsaid, *items.starts(memo, moved.item, turn_of(memo, moved.turn_id), parent))


def _read_completed(memo: Memo, message: jsonrpc.Message) -> Out:
    moved, odd = jsonrpc.params(memo, ItemMoved, message)
    own, item = state_of(memo), moved.item
    # Whole now, so the end of the turn must not void it.
    own.streams.get(moved.thread_id, set[str]()).discard(item.id)
    parent = own.parents.get(moved.thread_id)
    if parent is None and not _is_ours(memo, moved.thread_id):
        return (*odd, *_foreign(memo, moved))
    # Only a message of this turn and of our own thread is the answer.
    if parent is None and item.type == "agentMessage" and moved.turn_id in ("", own.current) and item.text:
        say(memo, item.text)
    return (*odd, *items.completes(memo, item, turn_of(memo, moved.turn_id), parent))


def _foreign(memo: Memo, moved: ItemMoved) -> tuple[AnyEvent, ...]:
    """The notice of a text or tool of an agent whose caller is not known."""
    item = moved.item
    if item.type != "agentMessage" and item.type not in items.TOOLS:
        return ()
    tool = items.TOOLS.get(item.type)
    data = {"thread": moved.thread_id, "kind": item.type, "tool": tool.name(item) if tool else None}
    return (Notice(memo.frame, memo.turn, "subagent", item.text, data),)


# -- threads and turns


def _read_thread(memo: Memo, message: jsonrpc.Message) -> Out:
    started, odd = jsonrpc.params(memo, ThreadStarted, message)
    thread = started.thread
    # Our own thread: the reply to our request says the same.
    if memo.session_id is None or _is_ours(memo, thread.id):
        return tuple(odd)
    data = {"thread": thread.id, "parent": thread.parent_thread_id, "name": thread.agent_nickname}
    code = "thread_started" if thread.parent_thread_id is None else "subagent_started"
    return (*odd, Notice(memo.frame, memo.turn, code, "", data))


def _read_turn(memo: Memo, message: jsonrpc.Message) -> Out:
    moved, odd = jsonrpc.params(memo, TurnMoved, message)
    if not _is_ours(memo, moved.thread_id):
        return tuple(odd)
    return (*odd, *begin_turn(memo, moved.turn.id), *release(memo))


def _read_end(memo: Memo, message: jsonrpc.Message) -> Out:
    moved, odd = jsonrpc.params(memo, TurnMoved, message)
    turn = moved.turn
    if not _is_ours(memo, moved.thread_id):
        data = {"thread": moved.thread_id, "status": turn.status}
        unsaid = void(memo, moved.thread_id)
        return (*odd, *unsaid, Notice(memo.frame, memo.turn, "subagent_ended", "", data))
    # A late `turn/completed` of a turn that has ended here must not end the next one.
    if any(theirs == turn.id for theirs, _ in state_of(memo).ended):
        return (*odd, Misplaced(memo.frame, memo.turn, message.method, ""))
    ended = (*odd, *void(memo, moved.thread_id), *end_turn(memo, turn))
    released = release(memo)
    return (*ended, *released, _clean(memo)) if turn.status == "interrupted" else (*ended, *released)


def _clean(memo: Memo) -> Send:
    """End what an interrupt leaves running: a shell command lives on as a background terminal until it is cleaned up."""
    params = {"threadId": memo.session_id}
    return Send(jsonrpc.ask(memo, "clean", "thread/backgroundTerminals/clean", params, tag=False))


# -- faults and figures


def _read_error(memo: Memo, message: jsonrpc.Message) -> Out:
    failed, odd = jsonrpc.params(memo, Failed, message)
    cause = cause_of(failed.error)
    text = failed.error.additional_details or failed.error.message
    turn = turn_of(memo, failed.turn_id)
    unsaid = void(memo, failed.thread_id)
    if failed.will_retry:
        match = _ATTEMPT.search(failed.error.message)
        attempt, most = (int(match[1]), int(match[2])) if match else (0, None)
        return (*odd, *unsaid, Retrying(memo.frame, turn, attempt, most, 0.0, cause.status, text))
    data = {"error": cause.word, "status": cause.status}
    if not _is_ours(memo, failed.thread_id):
        data["thread"] = failed.thread_id
        return (*odd, *unsaid, Notice(memo.frame, turn, "subagent_failed", text, data))
    limit = reach_limit(memo) if ending_of(cause, text) == "limit" else []
    return (*odd, *unsaid, *limit, Notice(memo.frame, turn, "api_failure", text, data))


def _read_usage(memo: Memo, message: jsonrpc.Message) -> Out:
    usage, odd = jsonrpc.params(memo, UsageUpdated, message)
    # The numbers of another thread, or of a turn before, would be counted as this turn's.
    if _is_ours(memo, usage.thread_id) and usage.turn_id == state_of(memo).current:
        count(memo, usage.token_usage)
    return tuple(odd)


def _read_limits(memo: Memo, message: jsonrpc.Message) -> Out:
    updated, odd = jsonrpc.params(memo, LimitsUpdated, message)
    own = state_of(memo)
    own.limits = limits = updated.rate_limits
    near = [each for each in (limits.primary, limits.secondary) if each and each.used_percent >= NEAR]
    fullest = max(near, key=lambda window: window.used_percent, default=None)
    # The server repeats the figures after each call of the model: one notice for each window.
    if fullest is None or fullest.resets_at == own.warned:
        return tuple(odd)
    own.warned = fullest.resets_at
    data = {
        "limit": limits.limit_id,
        "used_percent": fullest.used_percent,
        "resets_at": reset_time(fullest.resets_at),
    }
    return (*odd, Notice(memo.frame, memo.turn, "limit_near", "a usage limit is near", data))


def _read_server(memo: Memo, message: jsonrpc.Message) -> Out:
    server, odd = jsonrpc.params(memo, ServerStatus, message)
    if server.status in ("starting", "ready"):
        return tuple(odd)
    data = {"server": server.name, "status": server.status}
    return (*odd, Notice(memo.frame, memo.turn, "mcp_server", server.error or "", data))


_HANDLERS: Mapping[str, Callable[[Memo, jsonrpc.Message], Out]] = {
    "account/rateLimits/updated": _read_limits,
    "error": _read_error,
    TEXT_DELTA: _read_delta,
    "item/completed": _read_completed,
    "item/reasoning/summaryTextDelta": _read_delta,
    "item/reasoning/textDelta": _read_delta,
    "item/started": _read_started,
    "mcpServer/startupStatus/updated": _read_server,
    "serverRequest/resolved": read_resolved,
    "thread/started": _read_thread,
    "thread/tokenUsage/updated": _read_usage,
    "turn/completed": _read_end,
    "turn/started": _read_turn,
}

_READERS: Mapping[jsonrpc.Kind, Callable[[Memo, jsonrpc.Message], Out]] = {
    "notification": _read_notification,
    "reply": read_reply,
    "request": read_request,
}
