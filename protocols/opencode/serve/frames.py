"""What an OpenCode server says, read: its events and its replies.

Events of other sessions of the same directory are counted and passed over. Of the sessions that the tools of ours
open, the questions are ours to answer and their tools a sign of life; what is said there stays there. A question to
the user is declined, because nobody is there to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from proctor.protocols.acp import voided
from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.lenient import Refusal, decoded, garbled, loosely, repaired
from proctor.protocols.opencode.serve import turns
from proctor.protocols.opencode.serve.mcp_servers import plain
from proctor.protocols.opencode.serve.replies import read_reply, resync
from proctor.protocols.opencode.serve.state import QUESTION, Account, ask, notes
from proctor.protocols.opencode.serve.wire import (
    QUIET,
    QUIET_KINDS,
    REPLY,
    RESUBSCRIBED,
    Frame,
    Info,
    Part,
    Properties,
)
from proctor.protocols.vocabulary import (
    ApprovalRequested,
    ApprovalWithdrawn,
    Garbled,
    Notice,
    Retrying,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    Unrecognized,
)

_decode = msgspec.json.Decoder(Frame).decode
_CLOCK = 2**36
"""Event ids begin with so many milliseconds of the Unix time, then count."""


def read(memo: Memo, line: bytes) -> Out:
    """One line, an event or a reply."""
    frame = _framed(memo, line)
    if isinstance(frame, Garbled):
        return (frame,)
    if frame.type == REPLY:
        return read_reply(memo, frame)
    if frame.type == RESUBSCRIBED:
        return resync(memo)
    reader = _READERS.get(frame.type)
    if reader is not None:
        return _read_event(memo, frame, reader)
    if frame.type in QUIET or frame.type.startswith(QUIET_KINDS):
        return memo.hush(frame.type)
    return (Unrecognized(memo.frame, memo.turn, frame.type or "untyped"),)


def _framed(memo: Memo, line: bytes) -> Frame | Garbled:
    try:
        return _decode(line)
    except Refusal:
        pass
    if (bad := garbled(memo, line)) is not None:
        return bad
    try:
        return _decode(repaired(line))
    except Refusal:
        return loosely(Frame, line, "frame")[0]


def _read_event(memo: Memo, frame: Frame, reader: Reader) -> Out:
    told, lost = decoded(memo, Properties, bytes(frame.properties) or b"{}", frame.type)
    own = notes(memo)
    if told.info.parentID in own.family and frame.type == "session.created":
        own.family.add(told.sessionID)
    if told.sessionID == memo.session_id and memo.session_id is not None:
        return (*lost, *reader(memo, frame, told))
    if told.sessionID in own.family and frame.type in _SHARED:
        return (*lost, *reader(memo, frame, told))
    return memo.hush("other session")


def _session(memo: Memo, frame: Frame, told: Properties) -> Out:
    return memo.hush(frame.type)


def _status(memo: Memo, frame: Frame, told: Properties) -> Out:
    match told.status.type:
        case "busy":
            started = turns.begin(memo)
            return started or memo.hush("session.status")
        case "retry":
            status, delay = told.status, _until(told.status.next, frame.id)
            begun = turns.begin(memo)
            retrying = Retrying(memo.frame, memo.turn, status.attempt, None, delay, None, status.message)
            return (*begun, *_void(memo), retrying)
        case "idle":
            return memo.hush("session.status")
        case kind:
            return (Unrecognized(memo.frame, memo.turn, f"session.status.{kind}"),)


def _void(memo: Memo) -> Out:
    """What the step said so far was never said: the call of the model that said it broke."""
    account = notes(memo).account
    message, account.streaming = account.streaming, ""
    if not message:
        return ()
    texts = 0
    if account.speaker == message:
        texts = len(account.texts)
        account.texts, account.gap = [], False
    return (voided(memo.frame, memo.turn, message, None, texts),)


def _until(then: int, id: str) -> float:
    """Seconds from an event to a Unix time in milliseconds, 0 where the event does not tell its own."""
    try:
        now = int(id.removeprefix("evt_")[:12], 16) >> 12
    except ValueError:
        return 0.0
    return ((then - now) % _CLOCK) / 1000


def _idle(memo: Memo, frame: Frame, told: Properties) -> Out:
    return turns.idle(memo)


def _error(memo: Memo, frame: Frame, told: Properties) -> Out:
    if told.error is None:
        return memo.hush(frame.type)
    if not memo.open_turns:
        text = told.error.data.message or told.error.name
        return (Notice(memo.frame, None, "session_error", text, {"name": told.error.name}),)
    account = notes(memo).account
    if account.error is None or told.error.name != "MessageAbortedError":
        account.error = told.error  # our own abort of a broken turn does not hide what broke it
    return memo.hush(frame.type)


def _message(memo: Memo, frame: Frame, told: Properties) -> Out:
    own, info = notes(memo), told.info
    is_new = info.id not in own.roles
    own.roles[info.id] = info.role
    if info.role == "user" and is_new:
        return turns.take_prompt(memo) or memo.hush(frame.type)
    if info.role == "assistant" and memo.open_turns:
        account = own.account
        if is_new:
            account.messages.add(info.id)
        if info.id in account.messages:  # not the late word on one of an earlier turn
            _note_message(account, info, skim=memo.skim)
    return memo.hush(frame.type)


def _note_message(account: Account, info: Info, *, skim: bool) -> None:
    account.error = account.error or info.error
    if info.modelID:
        account.model = f"{info.providerID}/{info.modelID}"
    if info.structured is not None:
        account.structured, account.gap = (None, True) if skim else (info.structured, False)


def _part(memo: Memo, frame: Frame, told: Properties) -> Out:
    own, part = notes(memo), told.part
    if own.roles.get(part.messageID) != "assistant":
        return memo.hush(frame.type)  # the user's own, or what an aborted turn leaves
    own.kinds[part.id] = part.type
    match part.type:
        case "text" | "reasoning":
            return _finished(memo, part)
        case "tool":
            return _tool(memo, part)
        case "step-finish":
            own.account.streaming = ""
            hopeless = turns.step(memo, part) if memo.open_turns else False
            return (Send(_abort(memo)),) if hopeless else memo.hush(part.type)
        case _:
            return memo.hush(frame.type)


def _abort(memo: Memo) -> bytes:
    return ask(memo, "abort", "POST", f"/session/{memo.session_id}/abort")


def _finished(memo: Memo, part: Part) -> Out:
    if part.time is None or part.time.end is None or not part.text:
        return memo.hush(part.type)
    account = notes(memo).account
    account.streaming = part.messageID
    if part.type == "reasoning":
        return (Thinking(memo.frame, memo.turn, part.text),)
    if account.speaker != part.messageID:
        account.speaker, account.texts, account.gap = part.messageID, [], False
    if memo.skim:
        account.gap = True
        return ()
    account.texts.append(part.text)
    return (Text(memo.frame, memo.turn, part.text),)


def _tool(memo: Memo, part: Part) -> Out:
    own, state = notes(memo), part.state
    if memo.skim and state.status == "running":
        return ()  # told when it ends, with what it was given
    call = (
        ()
        if part.callID in own.running
        else (ToolCall(memo.frame, memo.turn, part.callID, plain(memo.launch, part.tool), state.input),)
    )
    match state.status:
        case "running":
            own.running.add(part.callID)
            return call or memo.hush("tool")
        case "completed" | "error":
            own.running.discard(part.callID)
            failed = state.status == "error"
            said, seconds = state.error if failed else state.output, state.time.seconds
            return (*call, ToolResult(memo.frame, memo.turn, part.callID, said, failed, duration=seconds))
        case _:
            return memo.hush("tool")


def _delta(memo: Memo, frame: Frame, told: Properties) -> Out:
    own = notes(memo)
    if told.field != "text" or own.roles.get(told.messageID) != "assistant":
        return memo.hush(frame.type)
    own.account.streaming = told.messageID
    if not memo.launch.partial:
        return memo.hush(frame.type)
    if own.kinds.get(told.partID) == "reasoning":
        return (Thinking(memo.frame, memo.turn, told.delta, partial=True),)
    return (TextDelta(memo.frame, memo.turn, told.delta),)


def _asked(memo: Memo, frame: Frame, told: Properties) -> Out:
    if told.id in memo.approvals:
        return memo.hush(frame.type)
    asked = {"patterns": list(told.patterns), **told.metadata}
    memo.approvals[told.id] = asked
    tool = plain(memo.launch, told.permission)
    notes(memo).asking[told.id] = tool
    call = None if told.tool is None else told.tool.callID
    what = ", ".join(told.patterns) or None
    return (ApprovalRequested(memo.frame, memo.turn, told.id, tool, asked, what, call),)


def _replied(memo: Memo, frame: Frame, told: Properties) -> Out:
    notes(memo).asking.pop(told.requestID, None)
    if memo.approvals.pop(told.requestID, None) is None:
        return memo.hush(frame.type)
    return (ApprovalWithdrawn(memo.frame, memo.turn, told.requestID),)


def _question(memo: Memo, frame: Frame, told: Properties) -> Out:
    if told.questions:
        return _asked_user(memo, told)
    declined = Notice(
        memo.frame, memo.turn, "question_declined", "the agent asked its user, who is not there"
    )
    return (Send(ask(memo, "question", "POST", f"/question/{told.id}/reject")), declined)


def _asked_user(memo: Memo, told: Properties) -> Out:
    """A question to the user is a tool that waits for its answers, as it is with other CLIs."""
    memo.approvals[told.id] = asked = {"questions": told.questions}
    notes(memo).asking[told.id] = QUESTION
    call = None if told.tool is None else told.tool.callID
    what = str(told.questions[0].get("question") or "") or None
    return (ApprovalRequested(memo.frame, memo.turn, told.id, QUESTION, asked, what, call),)


Reader = Callable[[Memo, Frame, Properties], Out]
_READERS: Mapping[str, Reader] = {
    "session.created": _session,
    "session.updated": _session,
    "session.status": _status,
    "session.idle": _idle,
    "session.error": _error,
    "message.updated": _message,
    "message.part.updated": _part,
    "message.part.delta": _delta,
    "permission.asked": _asked,
    "permission.replied": _replied,
    "question.asked": _question,
    "question.replied": _replied,
    "question.rejected": _replied,
}
_SHARED = frozenset(
    {"permission.asked", "permission.replied", "question.asked", "question.replied", "question.rejected"}
)
"""Events that are ours to answer also where a session of a tool raises them."""
