"""Turns of an Agent Client Protocol session: their beginning, their end and its cause.

The agent has one prompt at a time; others wait here, because agents disagree on a second prompt (one cancels the first, one
mixes the answers). The reply to a prompt ends its turn, and questions that are still open are withdrawn. The cause comes
from tables: stop reason, error code, error text. Costs are running totals, so a turn's share is a difference, and None
where the total before is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from proctor.protocols import jsonrpc
from proctor.protocols.acp.delta_batch import end_runs
from proctor.protocols.acp.profile import Profile, UsageRule
from proctor.protocols.acp.state import SessionState, TurnState, state_of
from proctor.protocols.acp.wire import Prompted
from proctor.protocols.attachment import PICTURES, Attachment, UnsupportedAttachment, parts
from proctor.protocols.causes import cause_of
from proctor.protocols.dialect import Memo, OpenTurn, Out, Send, Used
from proctor.protocols.lenient import UNKEPT, member, value
from proctor.protocols.turns import begin_turn
from proctor.protocols.turns import end_turn as close_turn
from proctor.protocols.vocabulary import (
    HOST,
    AnyEvent,
    ApprovalWithdrawn,
    Ending,
    Notice,
    Prompt,
    ToolResult,
    TurnEnded,
    Usage,
)

STOP_REASONS: Mapping[str, Ending] = {
    "end_turn": "completed",
    "max_tokens": "error",
    "max_turn_requests": "max_turns",
    "refusal": "model_refused",
    "cancelled": "interrupted",
}

WORDS: Mapping[str, str] = {
    "max_tokens": "the answer was cut at the limit of tokens",
    "max_turn_requests": "the agent's limit of model calls for a turn was reached",
    "refusal": "the agent refused to go on",
    "no_answer": "the turn ended without an answer",
    "rejected": "the turn ended without an answer when a tool was rejected",
    "endless": "the model was called again and again without progress; the turn was ended",
}
"""What went wrong, for a person, where the agent gives only its word for it."""


def write_prompt(memo: Memo, prompt: Prompt) -> bytes:
    """The bytes of a prompt; none yet for one that has to wait."""
    kept = state_of(memo)
    # Before the greeting it is not known what the agent takes.
    if not memo.greeted and (media := [a for a in prompt.attachments if a.text is None]):
        raise UnsupportedAttachment(
            f"{kept.profile.name}, which has not reported its capabilities yet,", media[0]
        )
    # Agents disagree on a second prompt: one cancels the first, one mixes the answers.
    if not memo.greeted or kept.current is not None:
        kept.held.append(prompt)
        return b""
    return _ask(memo, kept, prompt)


def _ask(memo: Memo, kept: SessionState, prompt: Prompt) -> bytes:
    kept.current = prompt.id
    blocks = parts(prompt.text, prompt.attachments, prompt.blocks, _carried)
    params = {"sessionId": memo.session_id, "prompt": blocks}
    return jsonrpc.ask(memo, "prompt", "session/prompt", params, request=prompt.id)


def _carried(attachment: Attachment) -> dict[str, Any]:
    kind = attachment.mime.partition("/")[0]
    return {"type": kind, "mimeType": attachment.mime, "data": attachment.base64}


def takes(memo: Memo, attachment: Attachment) -> bool:
    """Pictures and sounds, where this agent reported so in the greeting. Resources of bytes are left out by some, silently."""
    if not memo.greeted:
        return attachment.mime.startswith(("image/", "audio/"))
    abilities = state_of(memo).abilities.prompt_capabilities
    if attachment.mime.startswith("audio/"):
        return abilities.audio
    return abilities.image and attachment.mime in PICTURES


def send_held(memo: Memo) -> Out:
    """The next prompt that waited, unless the host took it back."""
    kept = state_of(memo)
    while kept.held and kept.current is None:
        prompt = kept.held.popleft()
        # The host may have taken it back while it waited.
        if prompt.id in memo.prompts:
            return (Send(_ask(memo, kept, prompt)),)
    return ()


def begin(memo: Memo) -> list[AnyEvent]:
    """The turn of the prompt that the agent works on, unless it has begun."""
    current = state_of(memo).current
    if current is None or memo.open_turns:
        return []
    return [*end_runs(memo), begin_turn(memo, [current])]


def end_turn(memo: Memo, message: jsonrpc.Message, pending: jsonrpc.PendingRequest) -> Out:
    """The reply to a prompt: the end of its turn, and the next prompt that waited."""
    reply, odd = jsonrpc.result(memo, Prompted, message, "session/prompt")
    kept = state_of(memo)
    begun = begin(memo)
    turn = memo.open_turns[-1]  # one prompt is with the agent at a time
    closing = [*end_runs(memo), *_withdrawn(memo, kept), *deny_unseen(memo, kept)]
    ended = _ended(memo, kept, turn, message.error, reply)
    kept.turn, kept.current = TurnState(), None
    # A tool may go on after the end of its turn: what was announced still gets its result.
    kept.calls = {key: call for key, call in kept.calls.items() if call.announced}
    return (*odd, *begun, *closing, ended, *send_held(memo))


def _withdrawn(memo: Memo, kept: SessionState) -> list[AnyEvent]:
    """Withdraw the questions that need no answer any more: settled by an interrupt, or left open by the agent."""
    ids = [*kept.settled, *kept.questions]
    kept.settled.clear()
    kept.questions.clear()
    for question in ids:
        memo.approvals.pop(question, None)
    return [ApprovalWithdrawn(memo.frame, memo.turn, question) for question in ids]


def deny_unseen(memo: Memo, kept: SessionState) -> list[AnyEvent]:
    """The results of denied tools that the agent says nothing about."""
    unseen = [call for call in kept.calls.values() if call.denied]
    for call in unseen:
        del kept.calls[call.id]
    text, frame = "permission denied", HOST if memo.truncated else memo.frame
    return [ToolResult(frame, memo.turn, call.id, text, True, call.parent) for call in unseen]


def _ended(
    memo: Memo, kept: SessionState, turn: OpenTurn, fault: jsonrpc.Fault | None, reply: Prompted
) -> TurnEnded:
    ending, detail, error = _verdict(kept, fault, reply)
    cost = _share(memo, kept.cost)
    counts = reply.meta.quota.model_usage if reply.meta and reply.meta.quota else None
    memo.model = next((count.model for count in counts or [] if count.model), memo.model)
    return close_turn(
        memo,
        turn,
        ending,
        text=kept.turn.text if detail in ("end_turn", "max_tokens") and ending != "api_error" else None,
        error=error,
        detail=detail,
        usage=_USAGES[kept.profile.usage](reply, kept.turn) if fault is None else None,
        cost_usd=cost,
        total_cost_usd=kept.cost,
        denied_tools=tuple(kept.turn.denied),
    )


def _verdict(
    kept: SessionState, fault: jsonrpc.Fault | None, reply: Prompted
) -> tuple[Ending, str | None, str | None]:
    """The ending of the turn, the agent's word for it, and a text for a person."""
    turn, word = kept.turn, reply.stop_reason
    if turn.endless:
        return "api_error", "endless", WORDS["endless"]
    if fault is not None:
        text = describe_fault(fault)
        return cause(kept.profile, fault.code, text), str(fault.code), text
    if turn.failure is not None and word == "end_turn":
        return cause(kept.profile, 0, turn.failure), "failed", turn.failure
    # OpenCode calls it a good end when a rejected tool cut the turn off.
    cut = kept.profile.rejection_ends_turn and turn.denied and not turn.answered
    if word == "end_turn" and cut:
        return "interrupted", "rejected", WORDS["rejected"]
    # An agent whose model failed may still say `end_turn`, with nothing written.
    if word == "end_turn" and turn.text is None and not turn.gap and not turn.calls:
        return "error", "no_answer", WORDS["no_answer"]
    return STOP_REASONS.get(word, "error"), word or None, WORDS.get(word) or (UNKEPT if turn.gap else None)


def cause(profile: Profile, code: int, text: str) -> Ending:
    """The ending of a turn by the code of its error, else by its text, which separates a usage limit from a busy API."""
    return cause_of(text, profile.texts, status=profile.codes.get(code))


def describe_fault(fault: jsonrpc.Fault) -> str:
    """An error for a person: its message, and the details that some agents put beside it."""
    data = value(fault.data)
    details = data if isinstance(data, str) else member(data, "details")
    text = fault.message or f"error {fault.code}"
    return f"{text}: {details}" if isinstance(details, str) and details else text


def used(memo: Memo) -> Used:
    """The cost of the running turn so far, where the agent tells the session's between turns."""
    state = memo.own.get("acp")
    total = state.cost if isinstance(state, SessionState) else None
    before = None if memo.resumed else memo.total_cost_usd
    is_known = total is not None and before is not None and total >= before
    return None, (total or 0.0) - (before or 0.0) if is_known else None


def _share(memo: Memo, total: float | None) -> float | None:
    if total is None:
        return None
    # The first total of a resumed session has its past in it.
    before = None if memo.resumed else memo.total_cost_usd
    memo.total_cost_usd, memo.resumed = total, False
    return total - before if before is not None and total >= before else None


def _of_turn(reply: Prompted, turn: TurnState) -> Usage | None:
    tokens = reply.usage
    if tokens is None:
        return None
    usage = Usage(
        tokens.input_tokens, tokens.output_tokens, tokens.cached_read_tokens, tokens.cached_write_tokens
    )
    return (
        usage if any(msgspec.structs.astuple(usage)) else None
    )  # zeros are written where nothing was counted


# OpenCode's counts are those of the last model call: right only where there was one.
def _of_last_call(reply: Prompted, turn: TurnState) -> Usage | None:
    return _of_turn(reply, turn) if not turn.calls and len(turn.steps) == 1 else None


def _of_quota(reply: Prompted, turn: TurnState) -> Usage | None:
    count = reply.meta.quota.token_count if reply.meta and reply.meta.quota else None
    return None if count is None else Usage(count.input_tokens, count.output_tokens)


_USAGES: Mapping[UsageRule, Any] = {"turn": _of_turn, "last_call": _of_last_call, "quota": _of_quota}


def endless(memo: Memo) -> Out:
    """A turn in which the model is called for ever is interrupted; its reply then ends it."""
    kept = state_of(memo)
    kept.turn.endless = True
    text = f"{kept.turn.fruitless} model calls in a row brought only text; the turn is interrupted"
    stop = jsonrpc.notify("session/cancel", {"sessionId": memo.session_id})
    return (Notice(memo.frame, memo.turn, "endless_turn", text), Send(stop))
