"""OpenCode's server, session by session: its opening, its requests and its stop.

The far end is no process of the session's own, so the command of a launch only names it. Closed unless opened by the
server's configuration; here a session gets rules for the tools that its agent names. What a question of the server
is answered with holds for this once: nothing is remembered for other sessions.

Not here: the server's process and the carrying of requests and events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from proctor.protocols.acp import HONOURED, ignored
from proctor.protocols.attachment import Attachment, is_picture_or_pdf, parts, text_part
from proctor.protocols.dialect import Command, Dialect, Launch, Memo, StopStep, Version
from proctor.protocols.errors import Misuse
from proctor.protocols.opencode.serve import mcp_servers
from proctor.protocols.opencode.serve.frames import read
from proctor.protocols.opencode.serve.state import QUESTION, ask, state_of
from proctor.protocols.opencode.serve.turns import used
from proctor.protocols.vocabulary import AnyRequest, Decision, EndSession, Interrupt, Prompt, SetModel, Steer

ALL: Version = (0, 0, 0)
CAPABILITIES: Mapping[str, Version] = dict.fromkeys(
    (
        *("steer", "queue", "interrupt", "set_model", "approvals", "structured_output", "turn_schema"),
        *("resume", "fork", "deltas", "cost", "host_tools"),
    ),
    ALL,
)

_HONOURED = HONOURED - {"secret", "env", "extra"} | {
    *("json_schema", "append_system_prompt", "allowed_tools", "disallowed_tools"),
    "user_settings",  # the server's, which has its own
}


def launch(options: Launch) -> Command:
    """A name for the server, and the fields that it cannot honour. Raises NotUtf8."""
    options.require_utf8()
    return Command(argv=("opencode", "serve"), ignored=tuple(_ignored(options)))


def _ignored(options: Launch) -> Iterator[str]:
    yield from ignored(options, _HONOURED)
    if options.model is not None and "/" not in options.model:
        yield "model"  # a provider belongs to it


def greet(memo: Memo) -> bytes:
    """Open a session, look for the one to go on with, or copy it."""
    return mcp_servers.registrations(memo) + _open(memo, memo.launch)


def _open(memo: Memo, options: Launch) -> bytes:
    rules = {"permission": mcp_servers.session_rules(options)}
    if options.resume is None:
        return ask(memo, "session", "POST", "/session", rules)
    if options.fork:
        return ask(memo, "fork", "POST", f"/session/{options.resume}/fork", {})
    return ask(memo, "session", "PATCH", f"/session/{options.resume}", rules)


def write(memo: Memo, request: AnyRequest) -> bytes:
    """The bytes for a request. Raises Misuse for requests that a server's session does not take."""
    match request:
        case Prompt():
            content = parts(request.text, request.attachments, request.blocks, _file)
            return _prompt(memo, request.id, content, request.schema)
        case Steer():
            return _prompt(memo, request.id, [text_part(request.text)])
        case Decision():
            return _decision(memo, request)
        case Interrupt():
            memo.pending[request.id] = "interrupt"
            # Out of a back-off the server says nothing of an abort, so the end has to be judged by this.
            state_of(memo).aborting = bool(memo.open_turns or memo.prompts)
            return ask(memo, "abort", "POST", f"/session/{memo.session_id}/abort", request=request.id)
        case SetModel():
            return _set_model(memo, request)
        case EndSession():
            return mcp_servers.taken_away(memo)
        case _:
            raise Misuse(f"a session on a server does not support {request!r}", request="write")


def _decision(memo: Memo, decision: Decision) -> bytes:
    own = state_of(memo)
    tool = own.questions.pop(decision.id, decision.id)
    if tool == QUESTION:
        return _choice(memo, decision)
    answer = {"reply": "always" if decision.always else "once"}
    if not decision.allow:
        own.account.denied.append(tool)
        answer = {
            "reply": "reject",
            "message": decision.message or "denied",
        }  # with a message the turn goes on
    return ask(memo, "decision", "POST", f"/permission/{decision.id}/reply", answer, request=decision.id)


def _choice(memo: Memo, decision: Decision) -> bytes:
    """The answers to a question to the user, one list for each; without one for each it is turned down."""
    chosen = (decision.input or {}).get("answers") if decision.allow else None
    answers = cast("dict[str, Any]", chosen) if isinstance(chosen, dict) else {}
    questions = (decision.input or {}).get("questions")
    texts = (
        [str(one.get("question")) for one in cast("list[dict[str, Any]]", questions)]
        if isinstance(questions, list)
        else []
    )
    path = f"/question/{decision.id}"
    # Half an answer would be taken for all of it.
    if not texts or any(text not in answers for text in texts):
        return ask(memo, "question", "POST", f"{path}/reject", request=decision.id)
    body = {"answers": [[str(answers[text])] for text in texts]}
    return ask(memo, "question", "POST", f"{path}/reply", body, request=decision.id)


def _prompt(memo: Memo, id: str, parts: list[dict[str, Any]], schema: dict[str, Any] | None = None) -> bytes:
    state_of(memo).sent.append(id)
    body = {"parts": parts, **dict(_settings(memo))}
    if schema is not None:
        body["format"] = _format(schema)
    # `prompt_async` returns at once: the other call holds the connection for the length of the turn.
    return ask(memo, "prompt", "POST", f"/session/{memo.session_id}/prompt_async", body, request=id)


def _settings(memo: Memo) -> Iterator[tuple[str, Any]]:
    options, model = memo.launch, state_of(memo).model
    provider, _, name = (model or "").partition("/")
    if name:
        yield "model", {"providerID": provider, "modelID": name}
    if options.permission_mode is not None:
        yield "agent", options.permission_mode
    if options.append_system_prompt is not None:
        yield "system", options.append_system_prompt
    if options.effort is not None:
        yield "variant", options.effort
    if options.json_schema is not None:
        yield "format", _format(msgspec.Raw(options.json_schema.encode()))


def _format(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "schema": schema}


def _set_model(memo: Memo, request: SetModel) -> bytes:
    if "/" not in request.model:
        raise Misuse(f"model {request.model!r} names no provider: write PROVIDER/MODEL", request="set_model")
    state_of(memo).model = request.model
    memo.pending[request.id] = "set_model"
    return ask(memo, "model", "GET", f"/session/{memo.session_id}", request=request.id)


def _file(attachment: Attachment) -> dict[str, Any]:
    return {"type": "file", "mime": attachment.mime, "filename": attachment.name, "url": attachment.url}


OPENCODE_SERVE = Dialect(
    name="opencode-serve",
    used=used,
    launch=launch,
    greet=greet,
    read=read,
    write=write,
    takes=is_picture_or_pdf,
    stop=(
        StopStep("interrupt", 2.0),
        StopStep("end", 0.0),
        StopStep("close_stdin", 2.0),
        StopStep("kill", 0.0),
    ),
    oldest=(1, 18, 33),
    newest_tested=(1, 18, 33),
    capabilities=CAPABILITIES,
    relayed=frozenset({"session"}),
)
"""The dialect of a session on `opencode serve` 1.18.33. Its input's end leaves the session; the server keeps it."""
