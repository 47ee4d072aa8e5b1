"""The frames of an Agent Client Protocol agent, read as events.

Guarantees: `read` raises on no bytes; every line gives an event or is counted in `Memo.quiet`. Unknown methods and updates are
`Unrecognized`. Requests that this host does not support are refused at once, because the agent waits without a timeout.
Extensions (`_name`) are ignored, and so is everything before the session is ready: the history of a loaded session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proctor.protocols import jsonrpc
from proctor.protocols.acp.delta_batch import add_chunk
from proctor.protocols.acp.handshake import read_history, read_initialized, read_opened, read_set
from proctor.protocols.acp.profile import Profile
from proctor.protocols.acp.state import SessionState, state_of
from proctor.protocols.acp.tools import read_cancel, read_question, read_tool, silent_rejections
from proctor.protocols.acp.turns import begin, end_turn, endless
from proctor.protocols.acp.wire import Block, Updated
from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.lenient import member, value
from proctor.protocols.vocabulary import Answered, Garbled, Notice, Unrecognized

QUIET = frozenset(
    (
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
        "user_message_chunk",
    )
)
"""Updates that mean nothing to a consumer."""


def read(profile: Profile, memo: Memo, line: bytes) -> Out:
    """The events of one line, and the replies that it calls for."""
    state_of(memo, profile)
    message = jsonrpc.read(memo, line)
    if isinstance(message, Garbled):
        return (message,)
    if message.method == "session/update":
        return _read_update(memo, message)
    if message.kind == "reply":
        return _read_reply(memo, message)
    reader = _METHODS.get(message.method)
    if reader is not None and (message.kind == "request") == (message.method in REQUESTS):
        return reader(memo, message)
    # Extensions begin with `_`, general ones with `$/`: unknown ones are allowed.
    if not message.method.startswith(("_", "$/")):
        return jsonrpc.unknown(memo, message)
    memo.ignore(message.method)
    # A request is refused all the same, or the agent waits for its reply.
    replies = jsonrpc.unknown(memo, message)
    return tuple(reply for reply in replies if isinstance(reply, Send))


def _read_update(memo: Memo, message: jsonrpc.Message) -> Out:
    frame, odd = jsonrpc.params(memo, Updated, message)
    kind = frame.update.session_update
    if not memo.greeted:
        # Before the session is ready all updates are those of the history.
        events = (*odd, *read_history(memo, kind))
        return (
            events
            if any(not isinstance(e, Send) for e in events)
            else (*events, *memo.ignore(f"greeting.{kind}"))
        )
    parent = None if frame.session_id in ("", memo.session_id) else frame.session_id
    reader = _UPDATES.get(kind)
    if reader is not None:
        events = reader(memo, frame, parent)
    elif kind in QUIET:
        events = ()
    else:
        events = (Unrecognized(memo.frame, memo.turn, f"session/update.{kind or 'untyped'}"),)
    return (*odd, *events) or memo.ignore(kind)


def _read_chunk(memo: Memo, frame: Updated, parent: str | None) -> Out:
    content, message = frame.update.content, frame.update.message_id
    thought = frame.update.session_update == "agent_thought_chunk"
    text = content.text if isinstance(content, Block) and content.type == "text" else ""
    if not text:
        return ()
    kept = state_of(memo)
    before = [*begin(memo), *silent_rejections(memo)]
    if kept.turn.failed and message is None and not thought:
        kept.turn.failure = (kept.turn.failure or "") + text
        return (*before, Notice(memo.frame, memo.turn, "api_failure", text.strip()))
    events = add_chunk(memo, text, thought=thought, message=message, parent=parent)
    return (*before, *events, *_counted(memo, kept, message, thought=thought))


def _counted(memo: Memo, kept: SessionState, message: str | None, *, thought: bool) -> Out:
    """A message that was not there before is another call of the model."""
    turn, bound = kept.turn, kept.profile.fruitless
    # Thoughts, and agents without message ids, are not counted.
    if thought or message is None or message in turn.steps or not memo.open_turns:
        return ()
    turn.steps.add(message)
    turn.fruitless += 1
    looping = bound is not None and turn.fruitless > bound and not turn.endless
    return endless(memo) if looping else ()


def _read_tool(memo: Memo, frame: Updated, parent: str | None) -> Out:
    return (*silent_rejections(memo), *read_tool(memo, frame, parent))


def _read_usage(memo: Memo, frame: Updated, parent: str | None) -> Out:
    cost = frame.update.cost
    # An amount in another currency would be added to US dollars.
    if cost is not None and cost.amount is not None and cost.currency in ("", "USD") and parent is None:
        state_of(memo).cost = cost.amount
    if parent is None:
        memo.context_tokens, memo.context_window = frame.update.used, frame.update.size
    return ()


def _read_info(memo: Memo, frame: Updated, parent: str | None) -> Out:
    kept = state_of(memo)
    *path, sign = kept.profile.failure_sign or ("",)
    if path and parent is None:
        kept.turn.failed = kept.turn.failed or member(value(frame.update.meta), *path) == sign
    return ()


def _read_plan(memo: Memo, frame: Updated, parent: str | None) -> Out:
    data = {"entries": frame.update.entries}
    return (*begin(memo), Notice(memo.frame, memo.turn, "plan", "", data))


_UPDATES: Mapping[str, Callable[[Memo, Updated, str | None], Out]] = {
    "agent_message_chunk": _read_chunk,
    "agent_thought_chunk": _read_chunk,
    "tool_call": _read_tool,
    "tool_call_update": _read_tool,
    "usage_update": _read_usage,
    "session_info_update": _read_info,
    "plan": _read_plan,
}

REQUESTS = frozenset(("session/request_permission",))
_METHODS: Mapping[str, Callable[[Memo, jsonrpc.Message], Out]] = {
    "session/request_permission": read_question,
    "$/cancel_request": read_cancel,
}


def _read_reply(memo: Memo, message: jsonrpc.Message) -> Out:
    out = jsonrpc.read_reply(memo, message, _REPLIES, _read_answer)
    return out if any(not isinstance(event, Send) for event in out) else (*out, *memo.ignore("reply"))


def _read_answer(memo: Memo, message: jsonrpc.Message, pending: jsonrpc.PendingRequest) -> Out:
    error = None if message.error is None else message.error.message or str(message.error.code)
    return (Answered(memo.frame, memo.turn, pending.request, error),) if pending.request else ()


_REPLIES: Mapping[str, jsonrpc.ReplyReader] = {
    "initialize": read_initialized,
    "open": read_opened,
    "set": read_set,
    "prompt": end_turn,
}
