"""The control protocol of Claude Code, as far as it comes from the CLI: questions, replies, cancellations.

Guarantees: every question is passed on (an approval, a hook, a tool of the host), answered here (the rest of the
host's MCP server), or refused at once, because the CLI waits for the reply without a clock of its own. Replies are
matched by id; one without a request is `Misplaced`, unless it is the echo of a reply of ours
(`--replay-user-messages` echoes those too).

A greeting is refused (`Memo.refused`) where the CLI cannot keep the host's hooks, or refuses them.
What becomes of prompts queued behind a turn that we interrupt: each that the CLI still holds is a notice
`prompt_queued`, and has its turn later; each that it drops is a notice `prompt_cancelled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from proctor.protocols.claude import hooks, mcp_host
from proctor.protocols.claude.replies import refused
from proctor.protocols.claude.turns import state_of
from proctor.protocols.claude.wire import AskedOfHost, ControlCancel, ControlRequest, ControlResponse, Reply
from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.lenient import decoded_or
from proctor.protocols.vocabulary import (
    Answered,
    AnyEvent,
    ApprovalRequested,
    ApprovalWithdrawn,
    Misplaced,
    Notice,
    RequestWithdrawn,
    Unrecognized,
)

GREETING = "greeting"
"""The id of the `initialize` request."""


def read_request(memo: Memo, frame: ControlRequest, line: bytes) -> Out:
    """A question of the CLI."""
    # Without an id no reply can reach the CLI, which then waits.
    if not frame.request_id:
        return (Unrecognized(memo.frame, memo.turn, "control_request.request_id"),)
    match frame.request.subtype:
        case "can_use_tool":
            return _read_question(memo, frame)
        case "hook_callback" if hooks.is_registered(memo, frame):
            return hooks.read_callback(memo, frame)
        case "mcp_message" if mcp_host.is_served(memo, frame):
            return mcp_host.read_message(memo, frame)
        case _:
            return _refuse(memo, frame)


def _read_question(memo: Memo, frame: ControlRequest) -> Out:
    body = frame.request
    memo.approvals[frame.request_id] = body.input
    # A subagent asks on its own beside the turn, so the end of the turn does not settle its question.
    if memo.turn is not None and body.agent_id is None:
        state_of(memo).questions[frame.request_id] = memo.turn
    # a question to the user is answered anew each time
    lasting = not body.requires_user_interaction
    if lasting:
        state_of(memo).rules[frame.request_id] = _session_rules(body)
    question = ApprovalRequested(
        memo.frame,
        memo.turn,
        frame.request_id,
        body.tool_name,
        body.input,
        body.description or body.decision_reason,
        body.tool_use_id,
        lasting,
    )
    return (question,)


def _session_rules(body: AskedOfHost) -> list[dict[str, Any]]:
    """The permissions that let this use of the tool pass from now on: the rules that the CLI suggests, for the session only, else the whole tool.

    Its other suggestions, such as another permission mode, let other tools pass as well.
    """
    suggested = decoded_or(list[dict[str, Any]](), list[dict[str, Any]], body.permission_suggestions)
    rules = [{**one, "destination": "session"} for one in suggested if one.get("type") == "addRules"]
    whole = {"type": "addRules", "rules": [{"toolName": body.tool_name}], "behavior": "allow"}
    return rules or [{**whole, "destination": "session"}]


def _refuse(memo: Memo, frame: ControlRequest) -> Out:
    body = frame.request
    data = {"kind": body.subtype, "callback": body.callback_id, "server": body.server_name}
    notice = Notice(memo.frame, memo.turn, "request_refused", f"{body.subtype!r} is not supported here", data)
    return (Send(refused(memo, frame.request_id, "not supported by this host")), notice)


def read_cancel(memo: Memo, frame: ControlCancel, line: bytes) -> Out:
    """A question that needs no answer any more; the CLI expects no reply to this."""
    request = frame.request_id
    state_of(memo).rules.pop(request, None)
    if memo.approvals.pop(request, None) is not None:
        return (ApprovalWithdrawn(memo.frame, memo.turn, request),)
    if request in memo.calls:
        mcp_host.forget(memo, request)
        return (RequestWithdrawn(memo.frame, memo.turn, request),)
    # A cancellation may cross our reply: what was answered is not odd.
    if request in state_of(memo).decided:
        return memo.ignore("control_cancel_request")
    return (Misplaced(memo.frame, memo.turn, "control_cancel_request", ""),)


def read_reply(memo: Memo, frame: ControlResponse, line: bytes) -> Out:
    """The reply to a request of ours, or the echo of a decision of ours."""
    reply = frame.response
    kind = memo.pending.pop(reply.request_id, None)
    if kind is None:
        # `--replay-user-messages` echoes our own replies as well (2.1.197).
        if reply.request_id in state_of(memo).decided:
            return memo.ignore("control_response.echo")
        return (Misplaced(memo.frame, memo.turn, "control_response", ""),)
    data = reply.response or {}
    # Anything but success is a refusal: a reply that is not understood must not count as agreed.
    error = (reply.error or "refused") if reply.subtype != "success" else None
    if kind == GREETING:
        return (_greeted(memo, data, error),)
    answered = Answered(memo.frame, memo.turn, reply.request_id, error, data)
    return (answered, *(_EFFECTS[kind](memo, reply) if kind in _EFFECTS and error is None else ()))


def _model_set(memo: Memo, reply: Reply) -> list[AnyEvent]:
    if isinstance(model := (reply.response or {}).get("model"), str):
        memo.model = model
    return []


def _interrupted(memo: Memo, reply: Reply) -> list[AnyEvent]:
    """2.1.330 names the prompts it still holds. 2.1.197 does not; there too all that wait have their turn later."""
    named = (reply.response or {}).get("still_queued")
    try:
        kept = msgspec.convert(named, list[str])
    except msgspec.ValidationError:
        kept = memo.waiting_prompts()
    text = "a queued prompt survives the interrupt and gets its turn"
    return [Notice(memo.frame, memo.turn, "prompt_queued", text, {"prompt": prompt}) for prompt in kept]


_EFFECTS: Mapping[str, Callable[[Memo, Reply], list[AnyEvent]]] = {
    "set_model": _model_set,
    "interrupt": _interrupted,
}
"""What a request that was agreed to brings besides its `Answered`."""


def _greeted(memo: Memo, data: dict[str, Any], error: str | None) -> Answered:
    launch = memo.launch
    version = data.get("claude_code_version")
    if isinstance(version, str):
        memo.version = version
    # Refused as a whole: hooks and tools of the host were part of this request.
    if error is not None and (launch.host_hooks or launch.host_tools):
        memo.refused = f"the CLI did not accept the host's tools and hooks: {error}"
    else:
        # 2.1.197 lets the tool run when a hook fails, so hooks that must block are refused there.
        memo.refused = hooks.refusal(launch, data)
    memo.greeted = memo.refused is None
    # The lists of commands and models are long, and say nothing about this session.
    short = {name: value for name, value in data.items() if not isinstance(value, (list, dict))}
    return Answered(memo.frame, memo.turn, GREETING, error, short)
