"""Replies of an OpenCode server, by what was asked; and what is asked when events may have been missed.

The stream of events cannot be taken up where it broke. After a gap the session is read again: a turn that has ended
meanwhile ends with the last message's words, questions that are open are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.lenient import decoded, decoded_or
from proctor.protocols.opencode.serve import mcp_servers, turns
from proctor.protocols.opencode.serve.state import Account, Kind, PendingRequest, ask, state_of
from proctor.protocols.opencode.serve.wire import Connected, Frame, Info, Status, Whole
from proctor.protocols.opencode.wire import Error
from proctor.protocols.vocabulary import Answered, AnyEvent, Misplaced, Notice, Started, Text, Unrecognized


def read_reply(memo: Memo, frame: Frame) -> Out:
    """The reply to a request of ours; one without a request is `Misplaced`."""
    pending = state_of(memo).pending.pop(frame.request, None)
    if pending is None:
        return (Misplaced(memo.frame, memo.turn, "reply", ""),)
    memo.pending.pop(pending.request, None)
    return _REPLIES[pending.kind](memo, pending, frame)


def resync(memo: Memo) -> Out:
    """Ask how the session stands; the words of a message are asked for when it rests."""
    if memo.session_id is None:
        return memo.ignore("http.resubscribed")
    notice = Notice(
        memo.frame, memo.turn, "events_missed", "the stream of events broke; the session is read again"
    )
    return (notice, Send(ask(memo, "states", "GET", "/session/status")))


def _fault(memo: Memo, frame: Frame) -> Error:
    return decoded(memo, Error, bytes(frame.body) or b"{}", "error")[0]


def _why(memo: Memo, frame: Frame) -> str:
    return _fault(memo, frame).data.message or f"the server answered with status {frame.status}"


def _on_session(memo: Memo, pending: PendingRequest, frame: Frame) -> Out:
    if frame.status >= 400:
        memo.refused = _why(memo, frame)
        return memo.ignore("session refused")
    info, lost = decoded(memo, Info, bytes(frame.body) or b"{}", "session")
    if not info.id:
        memo.refused = "the server made a session without an id"
        return (*lost, Unrecognized(memo.frame, memo.turn, "session.id", memo.refused))
    own = state_of(memo)
    memo.session_id, memo.version, memo.model = info.id, info.version or None, own.model
    own.family.add(info.id)
    rules = [] if pending.kind == "session" else [_rule(memo, info.id)]
    memo.greeted = True
    started = Started(memo.frame, None, info.id, own.model, info.directory or None, memo.version)
    return (*lost, *rules, started, Answered(memo.frame, None, "greeting"))


def _rule(memo: Memo, session: str) -> Send:
    """A copy of a session has the rules of the first one."""
    body = {"permission": mcp_servers.session_rules(memo.launch)}
    return Send(ask(memo, "rules", "PATCH", f"/session/{session}", body))


def _on_server(memo: Memo, pending: PendingRequest, frame: Frame) -> Out:
    """The states of the servers: a failure is a notice, it ends nothing."""
    if frame.status >= 400:
        return (Notice(memo.frame, memo.turn, "mcp_server", _why(memo, frame)),)
    states = decoded_or(
        dict[str, Connected](), dict[str, Connected], frame.body
    )  # not in the reply to a server's removal
    own = {mcp_servers.name_of(memo.launch, name): name for name in memo.launch.mcp}
    failed = {
        own[name]: state.error for name, state in states.items() if name in own and state.status == "failed"
    }
    notices = [
        Notice(memo.frame, memo.turn, "mcp_server", error, {"server": name}) for name, error in failed.items()
    ]
    return (*notices,) or memo.ignore("server answered")


def _on_prompt(memo: Memo, pending: PendingRequest, frame: Frame) -> Out:
    if frame.status < 400:
        return memo.ignore("prompt taken")
    return turns.refused(memo, pending.request, _fault(memo, frame), frame.status)


def _on_answered(memo: Memo, pending: PendingRequest, frame: Frame) -> Out:
    error = _why(memo, frame) if frame.status >= 400 else None
    if not pending.request:
        return memo.ignore(f"{pending.kind} answered")
    return (Answered(memo.frame, memo.turn, pending.request, error),)


def _on_decision(memo: Memo, pending: PendingRequest, frame: Frame) -> Out:
    if frame.status < 400:
        return memo.ignore("decision taken")
    text = _why(memo, frame)
    return (Notice(memo.frame, memo.turn, "approval_late", text, {"id": pending.request}),)


def _on_states(memo: Memo, pending: PendingRequest, frame: Frame) -> Out:
    if (states := decoded_or(None, dict[str, Status], frame.body)) is None:
        return memo.ignore("states unread")
    state = states.get(memo.session_id or "")
    # Still at work: its end will come as an event.
    if state is not None and state.type != "idle":
        return turns.begin(memo) or memo.ignore("still working")
    if not memo.open_turns and not memo.prompts:
        return memo.ignore("at rest")
    return (Send(ask(memo, "messages", "GET", f"/session/{memo.session_id}/message")),)


def _on_messages(memo: Memo, pending: PendingRequest, frame: Frame) -> Out:
    messages = decoded_or((), tuple[Whole, ...], frame.body)
    own = state_of(memo)
    begun: tuple[AnyEvent, ...] = ()
    if not memo.open_turns:
        own.seen += own.sent
        own.sent.clear()
        begun = turns.begin(memo)
    last = _last_words(messages)
    account = _reckoned(memo, last, own.account)
    # The last message may have been read before the stream broke.
    missed = () if last is None or last.info.id == own.account.speaker else tuple(account.texts)
    own.account = account
    return (*begun, *(Text(memo.frame, memo.turn, text) for text in missed), *turns.end(memo))


def _last_words(messages: tuple[Whole, ...]) -> Whole | None:
    spoken = [message for message in messages if message.info.role == "assistant"]
    return spoken[-1] if spoken else None


def _reckoned(memo: Memo, last: Whole | None, account: Account) -> Account:
    if last is None:
        return account
    account.error = account.error or last.info.error
    account.structured = None if memo.truncated else last.info.structured
    texts = [part.text for part in last.parts if part.type == "text" and part.text and not memo.truncated]
    reasons = [part.reason for part in last.parts if part.type == "step-finish"]
    reason = reasons[-1] if reasons else ""
    model = f"{last.info.providerID}/{last.info.modelID}" if last.info.modelID else account.model
    return Account(
        speaker=last.info.id,
        texts=texts,
        reason=reason,
        messages={last.info.id},
        steps=account.steps,
        cost=account.cost,
        usage=account.usage,
        model=model,
        structured=account.structured,
        gap=memo.truncated,
        error=account.error,
        denied=account.denied,
    )


_REPLIES: Mapping[Kind, Callable[[Memo, PendingRequest, Frame], Out]] = {
    "session": _on_session,
    "fork": _on_session,
    "prompt": _on_prompt,
    "abort": _on_answered,
    "model": _on_answered,
    "question": _on_answered,
    "decision": _on_decision,
    "states": _on_states,
    "messages": _on_messages,
    "server": _on_server,
    "rules": _on_answered,
}
