"""The handshake: from a new process to a session that takes prompts.

The steps are `initialize`; a new, resumed, loaded or forked session; the settings of the launch, one by one, because each may
change the next. `session/resume` is preferred to `session/load`: it replays no history. A refused step is written to
`Memo.refused`; nothing else is started instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor.protocols import jsonrpc
from proctor.protocols.acp.state import SessionState, state_of
from proctor.protocols.acp.turns import describe_fault, send_held
from proctor.protocols.acp.wire import Initialized, Opened
from proctor.protocols.dialect import Memo, Out, Send
from proctor.protocols.errors import Misuse
from proctor.protocols.mcp import Server
from proctor.protocols.vocabulary import Answered, AnyEvent, Notice, Started

VERSION = 1
GREETING = "greeting"
"""Id of the request that the last reply of the greeting answers."""

SETTINGS: Mapping[str, str] = {
    "model": "model",
    "permission_mode": "mode",
    "effort": "thought_level",
}
"""Field of a launch → category of the option that sets it, in the order in which they are made."""


def greet(memo: Memo) -> bytes:
    """The first request. No file or terminal of the host's is offered: an agent has its own."""
    offered = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    params = {
        "protocolVersion": VERSION,
        "clientCapabilities": offered,
        "clientInfo": {"name": "proctor", "title": "proctor", "version": "1"},
    }
    return jsonrpc.ask(memo, "initialize", "initialize", params)


def read_initialized(memo: Memo, message: jsonrpc.Message, pending: jsonrpc.PendingRequest) -> Out:
    """Note the version and the capabilities of the agent, and open the session."""
    if message.error is not None:
        return _refused(memo, describe_fault(message.error))
    reply, odd = jsonrpc.result(memo, Initialized, message, "initialize")
    if reply.protocol_version != VERSION:
        return (*odd, *_refused(memo, f"it speaks version {reply.protocol_version} of the protocol"))
    kept = state_of(memo)
    kept.abilities = reply.agent_capabilities
    kept.version = memo.version = reply.agent_info.version if reply.agent_info else None
    method = _opening(memo, kept)
    if method is None:
        what = "fork" if memo.launch.fork else "resume"
        return (*odd, *_refused(memo, f"this agent cannot {what} a session"))
    taken, left = _servers(memo, kept)
    params: dict[str, Any] = {"cwd": memo.launch.cwd, "mcpServers": taken}
    if method != "session/new":
        params["sessionId"] = memo.launch.resume
    return (*odd, *left, Send(jsonrpc.ask(memo, "open", method, params, note=method)))


def _opening(memo: Memo, kept: SessionState) -> str | None:
    can = kept.abilities
    if memo.launch.resume is None:
        return "session/new"
    if memo.launch.fork:
        return "session/fork" if "fork" in can.session_capabilities else None
    # `session/load` would replay the whole history as updates.
    if "resume" in can.session_capabilities:
        return "session/resume"
    return "session/load" if can.load_session else None


def server(name: str, options: Server) -> dict[str, Any]:
    """An MCP server in the protocol's shape."""
    if options.url:
        return {"type": "http", "name": name, "url": options.url, "headers": _pairs(options.headers)}
    return {
        "name": name,
        "command": options.command,
        "args": [*options.args],
        "env": _pairs(options.env),
    }


def _pairs(named: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in named.items()]


def _servers(memo: Memo, kept: SessionState) -> tuple[list[dict[str, Any]], list[AnyEvent]]:
    """The servers that this agent takes; the events name the others. A command is taken by all."""
    if kept.profile.servers == "launch":
        return [], []
    by_http = kept.abilities.mcp_capabilities.http
    taken = {name: one for name, one in memo.launch.mcp.items() if by_http or not one.url}
    return [server(name, one) for name, one in taken.items()], [
        *_not_taken(memo, sorted(memo.launch.mcp.keys() - taken.keys())),
        *_trusting(memo, kept),
    ]


def _not_taken(memo: Memo, names: list[str]) -> list[Notice]:
    texts = [f"this agent takes no MCP server by HTTP: {name}" for name in names]
    return [Notice(memo.frame, memo.turn, "option_ignored", text, {"option": "mcp"}) for text in texts]


def _trusting(memo: Memo, kept: SessionState) -> list[Notice]:
    variable = kept.profile.trust
    if not memo.launch.mcp or not variable or variable in memo.launch.env:
        return []
    text = f"it starts MCP servers only in a folder that its user trusts, or with {variable}=true in env"
    return [Notice(memo.frame, memo.turn, "mcp_needs_trust", text, {"name": variable})]


def read_opened(memo: Memo, message: jsonrpc.Message, pending: jsonrpc.PendingRequest) -> Out:
    """The session is there; its settings are made next."""
    if message.error is not None:
        return _refused(memo, describe_fault(message.error))
    reply, odd = jsonrpc.result(memo, Opened, message, "session")
    forked = memo.launch.fork and memo.launch.resume is not None
    session = reply.session_id or (None if forked else memo.launch.resume)
    if session is None:
        return (*odd, *_refused(memo, "the agent opened a session without an id"))
    kept = state_of(memo)
    memo.session_id = session
    _note_options(memo, kept, reply)
    options = {field: getattr(memo.launch, field) for field in SETTINGS if field not in kept.profile.flags}
    if kept.mode is not None:
        # Only an agent with modes can be set to one.
        options["permission_mode"] = options["permission_mode"] or kept.profile.mode
    kept.pending_settings.extend((field, value) for field, value in options.items() if value is not None)
    # Gemini answers `session/load` before it has sent the history (0.61): the session is ready only behind
    # that.
    kept.replaying = pending.note == "session/load" and bool(kept.profile.history_end)
    return tuple(odd) if kept.replaying else (*odd, *_next_setting(memo, kept))


def read_history(memo: Memo, kind: str) -> Out:
    """An update before the session is ready: history, which is quiet, or its end."""
    kept = state_of(memo)
    if kept.replaying and kind == kept.profile.history_end:
        kept.replaying = False
        return _next_setting(memo, kept)
    return ()


def _note_options(memo: Memo, kept: SessionState, reply: Opened) -> None:
    for option in reply.config_options or []:
        kept.options[option.category or option.id] = (option.id, option.current_value)
    if reply.modes is not None:
        kept.has_modes, kept.mode = True, reply.modes.current_mode_id
    if reply.models is not None:
        kept.has_models = True
        memo.model = reply.models.current_model_id or memo.model
    if isinstance(mode := kept.options.get("mode", ("", None))[1], str):
        kept.mode = mode
    if isinstance(model := kept.options.get("model", ("", None))[1], str):
        memo.model = model


def _next_setting(memo: Memo, kept: SessionState) -> Out:
    ignored: list[AnyEvent] = []
    while kept.pending_settings:
        field, value = kept.pending_settings.popleft()
        if value == _current(memo, kept, field):
            continue
        data = write_setting(memo, field, value)
        if data is not None:
            return (*ignored, Send(data))
        text = f"this agent cannot honour {field}"
        ignored.append(Notice(memo.frame, memo.turn, "option_ignored", text, {"option": field}))
    memo.greeted = True
    started = Started(
        memo.frame,
        memo.turn,
        memo.session_id or "",
        model=memo.model,
        cwd=memo.launch.cwd or None,
        version=kept.version,
        permission_mode=kept.mode,
    )
    ready = Answered(memo.frame, memo.turn, GREETING, None, {"session_id": memo.session_id})
    return (*ignored, started, ready, *send_held(memo))


def _current(memo: Memo, kept: SessionState, field: str) -> object:
    current = {"model": memo.model, "permission_mode": kept.mode}
    return current.get(field) or kept.options.get(SETTINGS[field], ("", None))[1]


def write_setting(memo: Memo, field: str, value: str, request: str = "") -> bytes | None:
    """The request for a setting, by whichever way this agent has; None where it has none."""
    kept = state_of(memo)
    session = {"sessionId": memo.session_id}
    option = kept.options.get(SETTINGS[field])
    if option is not None:
        method, params = "session/set_config_option", {**session, "configId": option[0], "value": value}
    elif field == "permission_mode" and kept.has_modes:
        method, params = "session/set_mode", {**session, "modeId": value}
    elif field == "model" and kept.has_models:
        method, params = "session/set_model", {**session, "modelId": value}
    else:
        return None
    return jsonrpc.ask(memo, "set", method, params, request=request, note=(field, value))


def set_now(memo: Memo, request: str, field: str, value: str) -> bytes:
    """A setting in mid-session. Raises Misuse where the agent offers none."""
    data = write_setting(memo, field, value, request)
    if data is None:
        raise Misuse(f"this agent cannot set its {field}", request=f"set_{field}")
    return data


def read_set(memo: Memo, message: jsonrpc.Message, pending: jsonrpc.PendingRequest) -> Out:
    """The reply to a setting: one of the greeting's, or one that the host made."""
    field, value = pending.note
    kept = state_of(memo)
    refusal = None if message.error is None else describe_fault(message.error)
    # A launch setting that is refused: to go on without it would be another agent than asked for.
    if refusal is not None and not pending.request:
        return _refused(memo, f"{field} {value!r}: {refusal}")
    odd: list[AnyEvent] = []
    if refusal is None:
        reply, odd = jsonrpc.result(memo, Opened, message, "setting")
        _note_options(memo, kept, reply)
        _note_setting(memo, kept, field, value)
    if not pending.request:
        return (*odd, *_next_setting(memo, kept))
    return (*odd, Answered(memo.frame, memo.turn, pending.request, refusal, {field: value}))


def _note_setting(memo: Memo, kept: SessionState, field: str, value: str) -> None:
    if field == "model":
        memo.model = value
    elif field == "permission_mode":
        kept.mode = value


def _refused(memo: Memo, why: str) -> Out:
    memo.refused = why
    return (Answered(memo.frame, memo.turn, GREETING, why),)
