"""Tool calls of an Agent Client Protocol agent, and its permission requests.

Guarantees: every tool is announced once as `ToolCall`, when its input is complete, and before its question and result. A
question that cannot be answered as decided is rejected, never allowed. A call without input has its title as input. A
truncated input cannot be checked: its question is refused, unless the question repeats the input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from proctor.protocols import jsonrpc
from proctor.protocols.acp.delta_batch import end_run
from proctor.protocols.acp.profile import ToolName
from proctor.protocols.acp.state import Call, PendingQuestion, SessionState, state_of
from proctor.protocols.acp.turns import begin, deny_unseen
from proctor.protocols.acp.wire import Block, Cancelled, Question, Update, Updated
from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.lenient import Refusal, member, refuse_unread, value
from proctor.protocols.mcp import side_data
from proctor.protocols.vocabulary import (
    AnyEvent,
    ApprovalRequested,
    ApprovalWithdrawn,
    Decision,
    ToolCall,
    ToolResult,
)

ENDED = frozenset(("completed", "failed"))
ALLOWING = ("allow_once",)
LASTING = ("allow_always", "allow_once")
REJECTING = ("reject_once", "reject_always")
"""Kinds of options in the order of preference. What was allowed once is not made a rule."""
KINDS = frozenset((*LASTING, *REJECTING))

_HEAD = 64
"""Bytes of a part of a call in which its type stands."""

CANCELLED: Mapping[str, Any] = {"outcome": {"outcome": "cancelled"}}


def read_tool(memo: Memo, frame: Updated, parent: str | None) -> list[AnyEvent]:
    """A `tool_call` or `tool_call_update`."""
    update = frame.update
    out = [*begin(memo), *end_run(memo, parent)]
    call = _merged(memo, update, parent)
    ended = update.status in ENDED
    named = update.session_update == "tool_call_update" and bool(call.input)
    if ended or named or update.status == "in_progress":
        out += _announce(memo, call)
    if ended:
        del state_of(memo).calls[call.id]
        text, beside = _result(update, call), side_data(value(update.raw_output))
        failed = update.status == "failed"
        out.append(ToolResult(memo.frame, memo.turn, call.id, text, failed, call.parent, beside))
    return out


def _merged(memo: Memo, update: Update, parent: str | None) -> Call:
    kept = state_of(memo)
    identity = (
        update.tool_call_id or f"frame{memo.frame}"
    )  # a CLI may give no id; this one is unique in the run
    call = kept.calls.get(identity)
    if call is None:
        call = kept.calls[identity] = Call(identity, parent=parent)
        call.name = _name(update, identity, kept.profile.tool_name)
    has_input = bytes(update.raw_input) not in (b"", b"null")
    if memo.truncated:
        call.unread = call.unread or has_input
        return call
    call.unread = call.unread and not has_input
    call.title = update.title or call.title
    # After the announcement the input stays as it was shown.
    if not call.announced:
        call.input = _object(update.raw_input) or call.input
    call.output += _terminal(update.meta)
    call.changes = _changes(update) or call.changes
    return call


def _changes(update: Update) -> tuple[dict[str, Any], ...]:
    """The file changes that the content of a call shows."""
    parts = update.content if isinstance(update.content, list) else []
    shown = [value(raw) for raw in parts if b'"diff"' in memoryview(raw)[:_HEAD].tobytes()]
    return tuple(cast("dict[str, Any]", one) for one in shown if member(one, "type") == "diff")


def _name(update: Update, identity: str, rule: ToolName) -> str:
    named = update.name
    # Gemini 0.61 names the tool only in the id of the call.
    if not named and rule == "id_prefix" and (match := re.match(r"(.+)__\1_\d+_\d+$", identity)):
        named = match[1]
    elif not named and rule == "first_title":
        named = update.title or ""
    return named or update.kind or update.title or "tool"


def _announce(memo: Memo, call: Call) -> list[AnyEvent]:
    if call.announced:
        return []
    kept = state_of(memo).turn
    kept.calls += 1
    kept.fruitless = 0
    if memo.truncated:
        return []
    call.announced = True
    if not call.input and call.title:
        call.input = {"title": call.title}
    return [ToolCall(memo.frame, memo.turn, call.id, call.name, call.input, call.parent)]


def _object(raw: msgspec.Raw) -> dict[str, Any]:
    data = value(raw)
    if isinstance(data, dict):
        return cast("dict[str, Any]", data)
    return {} if data in (None, "", []) else {"input": data}


def _terminal(meta: msgspec.Raw) -> list[str]:
    """The output of a terminal of the agent's own, which codex-acp sends beside the call."""
    data = member(value(meta), "terminal_output_delta", "data")
    return [data] if isinstance(data, str) else []


def _result(update: Update, call: Call) -> str:
    output = value(update.raw_output)
    outputs = (output, member(output, "output"), member(output, "error"))
    data = next((text for text in outputs if isinstance(text, str)), None)
    return data if data is not None else "\n".join(_texts(update)) or "".join(call.output)


def _texts(update: Update) -> list[str]:
    parts = update.content if isinstance(update.content, list) else []
    texts: list[str] = []
    for raw in parts:
        try:
            part = msgspec.json.decode(raw, type=Block)
            inner = msgspec.json.decode(part.content, type=Block) if bytes(part.content) else part
        except Refusal:
            continue  # pictures, differences and terminals have no text; they stay in the frame
        if inner.text:
            texts.append(inner.text)
    return texts


def read_question(memo: Memo, message: jsonrpc.Message) -> Out:
    """A `session/request_permission`."""
    body, odd = jsonrpc.params(memo, Question, message)
    kept, key = state_of(memo), message.key
    parent = None if body.session_id in ("", memo.session_id) else body.session_id
    before = [*begin(memo), *end_run(memo, parent)]
    call = _merged(memo, body.tool_call, parent)
    announced = _announce(memo, call)
    # Reversed, so that the first option of a kind counts.
    options = {option.kind: option.option_id for option in reversed(body.options)}
    kept.questions[key] = PendingQuestion(options, call, body.options)
    memo.approvals[key] = call.input
    # with one option of each kind, a yes and a no say all
    is_plain = len(options) == len(body.options) and options.keys() <= KINDS
    question = ApprovalRequested(
        memo.frame,
        memo.turn,
        key,
        call.name,
        call.input,
        call.title or None,
        call.id,
        lasting="allow_always" in options,
        options=() if is_plain else tuple(option.name or option.option_id for option in body.options),
        changes=call.changes,
    )
    if not call.unread or memo.truncated:
        return (*odd, *before, *announced, question)
    refusal, notice = refuse_unread(write_decision, memo, question)
    return (*odd, *before, *announced, Send(refusal), notice)


def write_decision(memo: Memo, decision: Decision) -> bytes:
    """The answer to a question. A changed input cannot be passed on, so that the tool is rejected instead."""
    kept = state_of(memo)
    pending = kept.questions.pop(decision.id)
    unchanged = decision.input is None or decision.input == memo.approvals[decision.id]
    allow = decision.allow and unchanged
    if allow and decision.option is not None:
        chosen = next((one for one in pending.choices if decision.option in (one.name, one.option_id)), None)
        allow = chosen is not None and not chosen.kind.startswith("reject")
        option = None if chosen is None else chosen.option_id
    else:
        kinds = REJECTING if not allow else LASTING if decision.always else ALLOWING
        # By kind, not by id: the ids of options differ from agent to agent.
        option = next((pending.options[kind] for kind in kinds if kind in pending.options), None)
    if not allow or option is None:
        _deny(kept, pending.call)
    # Without a fitting option the question is cancelled, never allowed.
    if option is None:
        return jsonrpc.answer(decision.id, CANCELLED)
    return jsonrpc.answer(decision.id, {"outcome": {"outcome": "selected", "optionId": option}})


def _deny(kept: SessionState, call: Call) -> None:
    call.denied = True
    kept.turn.denied.append(call.name)
    kept.turn.answered = False


def settle_questions(memo: Memo) -> bytes:
    """Every open question answered as cancelled, as the protocol asks of a host that interrupts."""
    kept = state_of(memo)
    answers = b"".join(jsonrpc.answer(question, CANCELLED) for question in kept.questions)
    for question in kept.questions:
        memo.approvals.pop(question, None)
    # The agent reports the end of its turn later: only then are they withdrawn for the host.
    kept.settled += kept.questions
    kept.questions.clear()
    return answers


def read_cancel(memo: Memo, message: jsonrpc.Message) -> Out:
    """The agent takes a question back; it is answered as cancelled, and the host gets an event."""
    cancelled, odd = jsonrpc.params(memo, Cancelled, message)
    key = bytes(cancelled.request_id).decode()
    if state_of(memo).questions.pop(key, None) is None:
        return tuple(odd) or memo.ignore("$/cancel_request")
    memo.approvals.pop(key, None)
    withdrawn = ApprovalWithdrawn(memo.frame, memo.turn, key)
    return (*odd, Send(jsonrpc.answer(key, CANCELLED)), withdrawn)


def silent_rejections(memo: Memo) -> list[AnyEvent]:
    """The results of denied tools, where the agent goes on without a word about them."""
    kept = state_of(memo)
    return deny_unseen(memo, kept) if kept.profile.rejection_is_silent else []
