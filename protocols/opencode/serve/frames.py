"""The events and replies of an OpenCode server, read.

Events of other sessions of the same directory are counted and passed over. Of the sessions that the tools of ours
open, the questions are ours to answer and their tools a sign of life; their text is not reported. A question to
the user is declined, because there is no user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from proctor.protocols.acp import voided
from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.lenient import Refusal, decoded, recovered
from proctor.protocols.opencode.serve import turns
from proctor.protocols.opencode.serve.mcp_servers import plain
from proctor.protocols.opencode.serve.replies import read_reply, resync
from proctor.protocols.opencode.serve.state import QUESTION, Account, ask, state_of
from proctor.protocols.opencode.serve.wire import (
    QUIET,
    QUIET_KINDS,
    REPLY,
    RESUBSCRIBED,
    Frame,
    Info,
    Properties,
)
from proctor.protocols.opencode.wire import Part
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
        return memo.ignore(frame.type)
    return (Unrecognized(memo.frame, memo.turn, frame.type or "untyped"),)


def _framed(memo: Memo, line: bytes) -> Frame | Garbled:
    try:
        return _decode(line)
    except Refusal:
        read = recovered(memo, Frame, line)
        return read if isinstance(read, Garbled) else read[0]


def _read_event(memo: Memo, frame: Frame, reader: Reader) -> Out:
    event, lost = decoded(memo, Properties, bytes(frame.properties) or b"{}", frame.type)
    own = state_of(memo)
    # A session that a tool of ours has opened: its questions are ours to answer.
    if event.info.parentID in own.family and frame.type == "session.created":
        own.family.add(event.sessionID)
    if event.sessionID == memo.session_id and memo.session_id is not None:
        return (*lost, *reader(memo, frame, event))
    if event.sessionID in own.family and frame.type in _SHARED:
        return (*lost, *reader(memo, frame, event))
    return memo.ignore("other session")


def _session(memo: Memo, frame: Frame, event: Properties) -> Out:
    return memo.ignore(frame.type)


def _status(memo: Memo, frame: Frame, event: Properties) -> Out:
    match event.status.type:
        case "busy":
            started = turns.begin(memo)
            return started or memo.ignore("session.status")
        case "retry":
            status, delay = event.status, _until(event.status.next, frame.id)
            begun = turns.begin(memo)
            retrying = Retrying(memo.frame, memo.turn, status.attempt, None, delay, None, status.message)
            return (*begun, *_void(memo), retrying)
        case "idle":
            return memo.ignore("session.status")
        case kind:
            return (Unrecognized(memo.frame, memo.turn, f"session.status.{kind}"),)


def _void(memo: Memo) -> Out:
    """Void the text of the step so far: the model call that wrote it failed."""
    account = state_of(memo).account
    message, account.streaming = account.streaming, ""
    if not message:
        return ()
    texts = 0
    if account.speaker == message:
        texts = len(account.texts)
        # Whole texts of that message are void as well: the server repeats the whole step.
        account.texts, account.gap = [], False
    return (voided(memo.frame, memo.turn, message, None, texts),)


def _until(then: int, id: str) -> float:
    """Seconds from an event to a Unix time in milliseconds, 0 where the event does not tell its own."""
    try:
        now = int(id.removeprefix("evt_")[:12], 16) >> 12
    except ValueError:
        return 0.0
    return ((then - now) % _CLOCK) / 1000


def _idle(memo: Memo, frame: Frame, event: Properties) -> Out:
    return turns.idle(memo)


def _error(memo: Memo, frame: Frame, event: Properties) -> Out:
    if event.error is None:
        return memo.ignore(frame.type)
    if not memo.open_turns:
        text = event.error.data.message or event.error.name
        return (Notice(memo.frame, None, "session_error", text, {"name": event.error.name}),)
    account = state_of(memo).account
    if account.error is None or event.error.name != "MessageAbortedError":
        account.error = event.error  # our own abort of a broken turn does not hide what broke it
    return memo.ignore(frame.type)


def _message(memo: Memo, frame: Frame, event: Properties) -> Out:
    own, info = state_of(memo), event.info
    is_new = info.id not in own.roles
    own.roles[info.id] = info.role
    if info.role == "user" and is_new:
        return turns.take_prompt(memo) or memo.ignore(frame.type)
    if info.role == "assistant" and memo.open_turns:
        account = own.account
        if is_new:
            account.messages.add(info.id)
        if info.id in account.messages:  # not the late word on one of an earlier turn
            _note_message(account, info, truncated=memo.truncated)
    return memo.ignore(frame.type)


def _note_message(account: Account, info: Info, *, truncated: bool) -> None:
    account.error = account.error or info.error
    if info.modelID:
        account.model = f"{info.providerID}/{info.modelID}"
    if info.structured is not None:
        account.structured, account.gap = (None, True) if truncated else (info.structured, False)


def _part(memo: Memo, frame: Frame, event: Properties) -> Out:
    own, part = state_of(memo), event.part
    if own.roles.get(part.messageID) != "assistant":
        return memo.ignore(frame.type)  # the user's own, or what an aborted turn leaves
    own.kinds[part.id] = part.type
    match part.type:
        case "text" | "reasoning":
            return _finished(memo, part)
        case "tool":
            return _tool(memo, part)
        case "step-finish":
            own.account.streaming = ""
            hopeless = turns.step(memo, part) if memo.open_turns else False
            # The model is asked again at once, 2 to 3 times a second, when an answer has no finish reason
            # (1.18.33).
            return (Send(_abort(memo)),) if hopeless else memo.ignore(part.type)
        case _:
            return memo.ignore(frame.type)


def _abort(memo: Memo) -> bytes:
    return ask(memo, "abort", "POST", f"/session/{memo.session_id}/abort")


def _finished(memo: Memo, part: Part) -> Out:
    if part.time is None or part.time.end is None or not part.text:
        return memo.ignore(part.type)
    account = state_of(memo).account
    account.streaming = part.messageID
    if part.type == "reasoning":
        return (Thinking(memo.frame, memo.turn, part.text),)
    if account.speaker != part.messageID:
        account.speaker, account.texts, account.gap = part.messageID, [], False
    if memo.truncated:
        account.gap = True
        return ()
    account.texts.append(part.text)
    return (Text(memo.frame, memo.turn, part.text),)


def _tool(memo: Memo, part: Part) -> Out:
    own, state = state_of(memo), part.state
    if memo.truncated and state.status == "running":
        return ()  # reported when it ends, with its input
    call = (
        ()
        # `running` is reported several times for one call.
        if part.call in own.running
        else (ToolCall(memo.frame, memo.turn, part.call, plain(memo.launch, part.tool), state.input or {}),)
    )
    match state.status:
        case "running":
            own.running.add(part.call)
            return call or memo.ignore("tool")
        case "completed" | "error":
            own.running.discard(part.call)
            failed = state.status == "error"
            text, seconds = state.error if failed else state.output, state.time.seconds
            return (*call, ToolResult(memo.frame, memo.turn, part.call, text, failed, duration=seconds))
        case _:
            return memo.ignore("tool")


def _delta(memo: Memo, frame: Frame, event: Properties) -> Out:
    own = state_of(memo)
    if event.field != "text" or own.roles.get(event.messageID) != "assistant":
        return memo.ignore(frame.type)
    own.account.streaming = event.messageID
    if not memo.launch.partial:
        return memo.ignore(frame.type)
    if own.kinds.get(event.partID) == "reasoning":
        return (Thinking(memo.frame, memo.turn, event.delta, partial=True),)
    return (TextDelta(memo.frame, memo.turn, event.delta),)


def _permission(memo: Memo, frame: Frame, event: Properties) -> Out:
    # The server repeats open questions after a gap in its events.
    if event.id in memo.approvals:
        return memo.ignore(frame.type)
    question = {"patterns": list(event.patterns), **event.metadata}
    memo.approvals[event.id] = question
    tool = plain(memo.launch, event.permission)
    state_of(memo).questions[event.id] = tool
    what = ", ".join(event.patterns) or None
    return (
        ApprovalRequested(
            memo.frame, memo.turn, event.id, tool, question, what, event.tool.call, bool(event.always)
        ),
    )


def _replied(memo: Memo, frame: Frame, event: Properties) -> Out:
    state_of(memo).questions.pop(event.requestID, None)
    if memo.approvals.pop(event.requestID, None) is None:
        # Answered by us: our own reply comes back as an event.
        return memo.ignore(frame.type)
    return (ApprovalWithdrawn(memo.frame, memo.turn, event.requestID),)


def _question(memo: Memo, frame: Frame, event: Properties) -> Out:
    if event.questions:
        return _ask_user(memo, event)
    declined = Notice(
        memo.frame, memo.turn, "question_declined", "the agent asked its user, who is not there"
    )
    return (Send(ask(memo, "question", "POST", f"/question/{event.id}/reject")), declined)


def _ask_user(memo: Memo, event: Properties) -> Out:
    """A question to the user is a tool that waits for its answers, as it is with other CLIs."""
    memo.approvals[event.id] = question = {"questions": event.questions}
    state_of(memo).questions[event.id] = QUESTION
    what = str(event.questions[0].get("question") or "") or None
    return (ApprovalRequested(memo.frame, memo.turn, event.id, QUESTION, question, what, event.tool.call),)


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
    "permission.asked": _permission,
    "permission.replied": _replied,
    "question.asked": _question,
    "question.replied": _replied,
    "question.rejected": _replied,
}
_SHARED = frozenset(
    {"permission.asked", "permission.replied", "question.asked", "question.replied", "question.rejected"}
)
"""Events that are ours to answer also where a session of a tool raises them."""
