"""What is answered to a request of the CLI that came in a line too long to be kept.

Guarantees: nothing is allowed and nothing is run on what was not read. A question is denied, a tool of the host gives
an error, a hook blocks; where a hook has nothing to block, it is passed, because the CLI waits for any answer.
"""

from __future__ import annotations

from proctor.protocols.dialect import Dialect, Memo
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import (
    ApprovalRequested,
    Decision,
    HookCalled,
    HookVerdict,
    Notice,
    ToolRequested,
    ToolReturn,
)

UNREAD = (ApprovalRequested, ToolRequested, HookCalled)
"""The events that wait for an answer of the host."""

WHY = "what the tool was given is too large to be judged"


def refuse(
    dialect: Dialect, memo: Memo, event: ApprovalRequested | ToolRequested | HookCalled
) -> tuple[bytes, Notice]:
    """The bytes that answer the request, and the notice in its place; the memo holds it no more."""
    match event:
        case ApprovalRequested(id=request, tool=what):
            code, data = "approval_refused", dialect.write(memo, Decision(request, allow=False, message=WHY))
            del memo.approvals[request]
        case ToolRequested(id=request, tool=what):
            code, data = "tool_refused", dialect.write(memo, ToolReturn(request, WHY, is_error=True))
            del memo.calls[request]
        case HookCalled(id=request, hook=what):
            code, data = "hook_refused", _blocked(dialect, memo, request)
            del memo.calls[request]
    return data, Notice(event.frame, event.turn, code, WHY, {"id": request, "tool": what})


def _blocked(dialect: Dialect, memo: Memo, request: str) -> bytes:
    try:
        return dialect.write(memo, HookVerdict(request, allow=False, reason=WHY))
    except Misuse:
        return dialect.write(memo, HookVerdict(request))
