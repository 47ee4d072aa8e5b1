"""What the host may ask of the scripted agent between and during turns, one function for each subtype."""

from __future__ import annotations

import time

from proctor.actors.scripted import frames
from proctor.actors.scripted.faults import fire_due

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn, TypeAlias

    from proctor.actors.scripted.agent import Agent

    Frame: TypeAlias = dict[str, Any]

MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")


class Refusal(Exception):
    """A request of the host that is answered with an error."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


def reply(agent: Agent, request: str, subtype: str, body: Frame) -> None:
    """Answer a control request, in the real CLI's words where it refuses."""
    response: Frame = {"subtype": "success", "request_id": request}
    try:
        answer = REQUESTS.get(subtype, unsupported)(agent, body)
    except Refusal as refusal:
        response.update(subtype="error", error=str(refusal), error_code=refusal.code)
    else:
        response.update({} if answer is None else {"response": answer})
    agent.write_frame({"type": "control_response", "response": response})
    if subtype == "set_permission_mode" and response["subtype"] == "success":
        agent.emit({"type": "system", "subtype": "status", "status": None, "permissionMode": agent.mode})


def carry_out(agent: Agent, subtype: str, body: Frame) -> None:
    """What a request does to the queue, when a recording gives the reply."""
    if subtype in ("interrupt", "cancel_async_message"):
        REQUESTS[subtype](agent, body)


def initialize(agent: Agent, _body: Frame) -> Frame:
    fire_due(agent)
    agent.recite_greeting()
    time.sleep(agent.script.agent.get("greeting", 0))
    return frames.greeting(agent.model, agent.mode, agent.script.agent)


def interrupt(agent: Agent, body: Frame) -> Frame:
    if agent.asking is not None:
        agent.write_frame({"type": "control_cancel_request", "request_id": agent.asking})
    waiting = list(agent.queue)[0 if agent.performance is not None else 1 :]
    uuids = [prompt.uuid for prompt in waiting if prompt.uuid is not None]
    if not body.get("cancel_queued"):
        return {"still_queued": uuids}
    for prompt in waiting:
        agent.queue.remove(prompt)
        agent.lifecycle(prompt, "cancelled")
    return {"still_queued": [], "cancelled": uuids}


def set_model(agent: Agent, body: Frame) -> Frame:
    agent.model = body.get("model") or agent.model
    text = f"<local-command-stdout>Set model to `{agent.model}`</local-command-stdout>"
    agent.emit(frames.user(text, isReplay=True))
    return {"model": agent.model}


def set_permission_mode(agent: Agent, body: Frame) -> Frame:
    mode = body.get("mode")
    if mode not in MODES:
        raise Refusal(f"Cannot set permission mode: must be one of {', '.join(MODES)}", "invalid_mode")
    if mode == "bypassPermissions" and not agent.flags.has("dangerously-skip-permissions"):
        text = "Cannot set permission mode to bypassPermissions because the session was not launched with "
        raise Refusal(text + "--dangerously-skip-permissions", "bypass_not_launched")
    agent.mode = mode
    return {"mode": mode}


def cancel_async_message(agent: Agent, body: Frame) -> Frame:
    found = [prompt for prompt in agent.queue if prompt.uuid == body.get("message_uuid")]
    for prompt in found:
        agent.queue.remove(prompt)
        agent.lifecycle(prompt, "cancelled")
    return {"cancelled": bool(found)}


def unsupported(_agent: Agent, body: Frame) -> NoReturn:
    raise Refusal(f"Unsupported control request subtype: {body['subtype']}", "unsupported_request")


REQUESTS: Mapping[str, Callable[[Agent, Frame], Frame | None]] = {
    "initialize": initialize,
    "interrupt": interrupt,
    "set_model": set_model,
    "set_permission_mode": set_permission_mode,
    "cancel_async_message": cancel_async_message,
    "end_session": lambda _agent, _body: None,
    "set_max_thinking_tokens": lambda _agent, _body: None,
    "mcp_status": lambda _agent, _body: {"mcpServers": []},
    "mcp_set_servers": lambda _agent, _body: {"added": [], "removed": [], "errors": {}},
    "stop_task": lambda _agent, _body: {},
    "get_binary_version": lambda agent, _body: {"version": agent.script.agent.get("version", frames.VERSION)},
}
