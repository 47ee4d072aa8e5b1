"""The control protocol of Claude Code, as far as it comes from the CLI: questions, replies, cancellations.

Guarantees: every question is either passed on as `ApprovalRequested` or refused at once with a reply owed, because
the CLI waits for it without a clock of its own. Replies are matched by id; one that nobody waits for is `Misplaced`,
unless it is the echo of a decision of ours (`--replay-user-messages` echoes those too).
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.protocols.claude.turns import notes
from proctor.protocols.claude.wire import ControlCancel, ControlRequest, ControlResponse
from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.vocabulary import (
    Answered,
    ApprovalRequested,
    ApprovalWithdrawn,
    Misplaced,
    Notice,
    Unrecognized,
)

GREETING = "greeting"
"""The id of the `initialize` request."""


def read_request(memo: Memo, frame: ControlRequest, line: bytes) -> Out:
    """A question of the CLI: passed on when it is about a tool, refused at once when it is not."""
    asked = frame.request
    if not frame.request_id:
        return (Unrecognized(memo.frame, memo.turn, "control_request.request_id"),)
    if asked.subtype != "can_use_tool":
        return _refuse(memo, frame)
    memo.approvals[frame.request_id] = asked.input
    if memo.turn is not None and asked.agent_id is None:
        notes(memo).questions[frame.request_id] = memo.turn
    question = ApprovalRequested(
        memo.frame,
        memo.turn,
        frame.request_id,
        asked.tool_name,
        asked.input,
        asked.description or asked.decision_reason,
        asked.tool_use_id,
    )
    return (question,)


def _refuse(memo: Memo, frame: ControlRequest) -> Out:
    asked = frame.request
    reply = {"subtype": "error", "request_id": frame.request_id, "error": "not supported by this host"}
    data = {"kind": asked.subtype, "callback": asked.callback_id, "server": asked.server_name}
    notice = Notice(memo.frame, memo.turn, "request_refused", f"{asked.subtype!r} is not served here", data)
    notes(memo).decided.append(frame.request_id)
    return (Send(msgspec.json.encode({"type": "control_response", "response": reply}) + b"\n"), notice)


def read_cancel(memo: Memo, frame: ControlCancel, line: bytes) -> Out:
    """A question that needs no answer any more; the CLI expects no reply to this."""
    if memo.approvals.pop(frame.request_id, None) is not None:
        return (ApprovalWithdrawn(memo.frame, memo.turn, frame.request_id),)
    if frame.request_id in notes(memo).decided:
        return memo.hush("control_cancel_request")
    return (Misplaced(memo.frame, memo.turn, "control_cancel_request", ""),)


def read_reply(memo: Memo, frame: ControlResponse, line: bytes) -> Out:
    """The reply to a request of ours, or the echo of a decision of ours."""
    reply = frame.response
    kind = memo.asked.pop(reply.request_id, None)
    if kind is None:
        if reply.request_id in notes(memo).decided:
            return memo.hush("control_response.echo")
        return (Misplaced(memo.frame, memo.turn, "control_response", ""),)
    data = reply.response or {}
    error = (reply.error or "refused") if reply.subtype != "success" else None
    if kind == GREETING:
        return (_greeted(memo, data, error),)
    if kind == "set_model" and isinstance(model := data.get("model"), str):
        memo.model = model
    return (Answered(memo.frame, memo.turn, reply.request_id, error, data),)


def _greeted(memo: Memo, data: dict[str, Any], error: str | None) -> Answered:
    memo.greeted = True
    version = data.get("claude_code_version")
    if isinstance(version, str):
        memo.version = version
    short = {name: value for name, value in data.items() if not isinstance(value, (list, dict))}
    return Answered(memo.frame, memo.turn, GREETING, error, short)
