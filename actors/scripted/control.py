"""What the host may ask in Claude Code's wire between and during turns, one function for each subtype."""

from __future__ import annotations

from proctor.actors.scripted import frames
from proctor.actors.scripted.frames import as_list
from proctor.actors.scripted.wires.server import SERVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn, TypeAlias

    from proctor.actors.scripted.wires.claude import ClaudeVoice

    Frame: TypeAlias = dict[str, Any]

MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")


class Refusal(Exception):
    """A request of the host that is answered with an error."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


def reply(voice: ClaudeVoice, request: str, subtype: str, body: Frame) -> None:
    """Answer a control request, in the real CLI's words where it refuses."""
    response: Frame = {"subtype": "success", "request_id": request}
    try:
        answer = REQUESTS.get(subtype, unsupported)(voice, body)
    except Refusal as refusal:
        response.update(subtype="error", error=str(refusal), error_code=refusal.code)
    else:
        response.update({} if answer is None else {"response": answer})
    voice.write_frame({"type": "control_response", "response": response})
    if subtype == "set_permission_mode" and response["subtype"] == "success":
        voice.emit({"type": "system", "subtype": "status", "status": None, "permissionMode": voice.mode})


def carry_out(voice: ClaudeVoice, subtype: str, body: Frame) -> None:
    """What a request does to the queue, when a recording gives the reply."""
    if subtype in ("interrupt", "cancel_async_message"):
        REQUESTS[subtype](voice, body)


def initialize(voice: ClaudeVoice, body: Frame) -> Frame:
    voice.server.declared = SERVER in as_list(body.get("sdkMcpServers"))
    return frames.greeting(voice.agent.model, voice.mode, voice.agent.script.agent)


def interrupt(voice: ClaudeVoice, body: Frame) -> Frame:
    if voice.agent.asking is not None:
        voice.write_frame({"type": "control_cancel_request", "request_id": voice.agent.asking})
    waiting = list(voice.agent.queue)[0 if voice.agent.performance is not None else 1 :]
    uuids = [prompt.uuid for prompt in waiting if prompt.uuid is not None]
    if not body.get("cancel_queued"):
        return {"still_queued": uuids}
    for prompt in waiting:
        voice.agent.queue.remove(prompt)
        voice.lifecycle(prompt, "cancelled")
    return {"still_queued": [], "cancelled": uuids}


def set_model(voice: ClaudeVoice, body: Frame) -> Frame:
    voice.agent.model = body.get("model") or voice.agent.model
    text = f"<local-command-stdout>Set model to `{voice.agent.model}`</local-command-stdout>"
    voice.emit(frames.user(text, isReplay=True))
    return {"model": voice.agent.model}


def set_permission_mode(voice: ClaudeVoice, body: Frame) -> Frame:
    mode = body.get("mode")
    if mode not in MODES:
        raise Refusal(f"Cannot set permission mode: must be one of {', '.join(MODES)}", "invalid_mode")
    if mode == "bypassPermissions" and not voice.agent.flags.has("dangerously-skip-permissions"):
        text = "Cannot set permission mode to bypassPermissions because the session was not launched with "
        raise Refusal(text + "--dangerously-skip-permissions", "bypass_not_launched")
    voice.mode = mode
    return {"mode": mode}


def cancel_async_message(voice: ClaudeVoice, body: Frame) -> Frame:
    found = [prompt for prompt in voice.agent.queue if prompt.uuid == body.get("message_uuid")]
    for prompt in found:
        voice.agent.queue.remove(prompt)
        voice.lifecycle(prompt, "cancelled")
    return {"cancelled": bool(found)}


def binary_version(voice: ClaudeVoice, _body: Frame) -> Frame:
    return {"version": voice.agent.script.agent.get("version", frames.VERSION)}


def unsupported(_voice: ClaudeVoice, body: Frame) -> NoReturn:
    raise Refusal(f"Unsupported control request subtype: {body['subtype']}", "unsupported_request")


REQUESTS: Mapping[str, Callable[[ClaudeVoice, Frame], Frame | None]] = {
    "initialize": initialize,
    "interrupt": interrupt,
    "set_model": set_model,
    "set_permission_mode": set_permission_mode,
    "cancel_async_message": cancel_async_message,
    "end_session": lambda _voice, _body: None,
    "set_max_thinking_tokens": lambda _voice, _body: None,
    "mcp_status": lambda _voice, _body: {"mcpServers": []},
    "mcp_set_servers": lambda _voice, _body: {"added": [], "removed": [], "errors": {}},
    "stop_task": lambda _voice, _body: {},
    "get_binary_version": binary_version,
}
