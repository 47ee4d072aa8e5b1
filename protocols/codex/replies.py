"""The requests of the host to `codex app-server` after its thread is open, and their replies.

Guarantees: each request of the host has one answer. A prompt and a piece of steering are answered by what they became:
`Steered` when a turn that ran took them in. What needs the id of a turn that has not begun waits for it, and is
refused when no turn comes. Replies are matched by number; one without a request is `Misplaced`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor.protocols import jsonrpc
from proctor.protocols.attachment import Attachment, parts, text_part
from proctor.protocols.codex.command import schema_of
from proctor.protocols.codex.handshake import read_hello, read_thread
from proctor.protocols.codex.questions import write_answer
from proctor.protocols.codex.turns import refuse_prompt, state_of, take_in
from proctor.protocols.codex.wire import TurnMoved
from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import (
    Answered,
    AnyEvent,
    AnyRequest,
    Decision,
    EndSession,
    HookVerdict,
    Interrupt,
    Prompt,
    SetModel,
    SetPermissionMode,
    Steer,
    Steered,
    StopTask,
    ToolReturn,
)

TOO_LARGE = b"input_too_large"
"""In the data of the refusal of a prompt over 1,048,576 characters."""

OWN = frozenset(("clean",))
"""Requests of ours that no host waits for, and whose failure changes nothing."""


def write(memo: Memo, request: AnyRequest) -> bytes:
    """The bytes for a request; none for one that has to wait. Raises Misuse for requests that Codex does not take."""
    match request:
        case Decision() | ToolReturn():
            return write_answer(memo, request)
        case EndSession() | HookVerdict():
            raise Misuse(f"Codex does not support {request!r}", request="write")
        case _ if memo.session_id is None:
            schema_of(memo.launch)  # a fault of the host's is its own to hear, not the reader's
            state_of(memo).early.append(request)
            memo.pending[request.id] = "early"
            return b""
        case _:
            return _ask(memo, request)


def _ask(memo: Memo, request: AnyRequest) -> bytes:
    match request:
        case Prompt():
            return _send(memo, request, "prompt", "turn/start", _turn(memo, request))
        case Steer() | Interrupt():
            return _ask_of_turn(memo, request)
        case SetModel():
            return _send(memo, request, "set_model", "thread/settings/update", {"model": request.model})
        case SetPermissionMode():
            params = {"approvalPolicy": request.mode}
            return _send(memo, request, "set_permission_mode", "thread/settings/update", params)
        case StopTask():
            params = {"processId": request.task}
            return _send(memo, request, "stop_task", "thread/backgroundTerminals/terminate", params)
        case _:
            raise Misuse(f"Codex does not support {request!r}", request="write")


def _ask_of_turn(memo: Memo, request: Steer | Interrupt) -> bytes:
    own = state_of(memo)
    # `turn/interrupt` and `turn/steer` need the id of the turn, which comes with its beginning.
    if own.current is None and memo.prompts:
        own.held.append(request)
        memo.pending[request.id] = "held"
        return b""
    turn = own.current or ""
    if isinstance(request, Interrupt):
        return _send(memo, request, "interrupt", "turn/interrupt", {"turnId": turn})
    params = {"expectedTurnId": turn, "input": [text_part(request.text)]}
    return _send(memo, request, "steer", "turn/steer", params)


def _send(memo: Memo, request: AnyRequest, kind: str, method: str, params: dict[str, Any]) -> bytes:
    whole = {"threadId": memo.session_id, **params}
    note = request.model if isinstance(request, SetModel) else None
    return jsonrpc.ask(memo, kind, method, whole, request=request.id, note=note, tag=False)


def _picture(attachment: Attachment) -> dict[str, Any]:
    return {"type": "image", "url": attachment.url}


def _turn(memo: Memo, prompt: Prompt) -> dict[str, Any]:
    content = parts(prompt.text, prompt.attachments, prompt.blocks, _picture)
    schema = schema_of(memo.launch) if prompt.schema is None else prompt.schema
    return {"input": content} if schema is None else {"input": content, "outputSchema": schema}


def release(memo: Memo) -> Out:
    """Write the requests that waited for a turn, or refuse them where none runs."""
    own = state_of(memo)
    # Swapped out first: what is written here may have to wait again.
    held, own.held = own.held, []
    for request in held:
        memo.pending.pop(request.id, None)
    if own.current is not None:
        return tuple(Send(_ask(memo, request)) for request in held)
    return tuple(Answered(memo.frame, memo.turn, request.id, "no turn is running") for request in held)


# -- replies


def read_reply(memo: Memo, message: jsonrpc.Message) -> Out:
    """The reply to a request of ours."""
    return jsonrpc.read_reply(memo, message, _READERS, _read_answer)


def _read_thread(memo: Memo, message: jsonrpc.Message, pending: jsonrpc.PendingRequest) -> Out:
    opened = read_thread(memo, message)
    own = state_of(memo)
    # Swapped out first, as `write` may put a request back.
    early, own.early = own.early, []
    for request in early:
        memo.pending.pop(request.id, None)
    return (*opened, *(Send(data) for request in early if (data := write(memo, request))))


def _read_prompt(memo: Memo, message: jsonrpc.Message, pending: jsonrpc.PendingRequest) -> Out:
    if (fault := message.error) is not None:
        # 0.169 refuses a prompt above 1,048,576 characters by this word.
        large = TOO_LARGE in bytes(fault.data)
        gone = refuse_prompt(
            memo, pending.request, "prompt_too_long" if large else "invalid_request", fault.message
        )
        # Without a prompt no turn will come, so what waits for one is refused.
        return (*gone, *release(memo)) if not memo.prompts else tuple(gone)
    moved, odd = jsonrpc.result(memo, TurnMoved, message, "turn")
    events, steered = take_in(memo, moved.turn.id, pending.request)
    out: list[AnyEvent] = [*odd, *events]
    if steered:
        out.append(Steered(memo.frame, memo.turn, pending.request))
    return tuple(out)


def _read_steer(memo: Memo, message: jsonrpc.Message, pending: jsonrpc.PendingRequest) -> Out:
    if message.error is not None:
        return _read_answer(memo, message, pending)
    return (Steered(memo.frame, memo.turn, pending.request),)


def _read_answer(memo: Memo, message: jsonrpc.Message, pending: jsonrpc.PendingRequest) -> Out:
    error = None if message.error is None else message.error.message or "refused"
    if pending.kind in OWN:
        return ()
    if error is None and isinstance(pending.note, str):
        memo.model = pending.note
    return (Answered(memo.frame, memo.turn, pending.request, error),)


_READERS: Mapping[str, jsonrpc.ReplyReader] = {
    "initialize": read_hello,
    "prompt": _read_prompt,
    "steer": _read_steer,
    "thread": _read_thread,
}
