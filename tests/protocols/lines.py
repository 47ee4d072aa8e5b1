"""Lines that Claude Code may write, and conversations brought to a phase by them."""

from __future__ import annotations

import json
from typing import Any

from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Mode, Phase
from proctor.protocols.vocabulary import (
    EndSession,
    Prompt,
)


def line(**frame: Any) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def delta(text: str) -> bytes:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return line(type="stream_event", event=event, parent_tool_use_id=None)


def assistant(*blocks: dict[str, Any]) -> bytes:
    return line(type="assistant", session_id="s", message={"role": "assistant", "content": list(blocks)})


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def ended(**facts: Any) -> bytes:
    """What ends a turn."""
    return line(**{"type": "result", "session_id": "s", "num_turns": 1, **facts})


def reply(request: str, **response: Any) -> bytes:
    """It agrees to a request of the host."""
    body = {"subtype": "success", "request_id": request, "response": response}
    return line(type="control_response", response=body)


INIT = line(type="system", subtype="init", session_id="s", claude_code_version="2.1.330", model="m")
RESULT = ended(subtype="success", is_error=False, result="ok")
GREETED = reply("greeting", pid=1)
ASKED = line(
    type="control_request",
    request_id="a1",
    request={"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}},
)


def session(**options: Any) -> Conversation:
    talk = Conversation(CLAUDE, **options)
    talk.greet()
    talk.receive(GREETED)
    return talk


def in_phase(phase: Phase, mode: Mode = "session") -> Conversation:
    """A conversation brought to a phase by what is said in it."""
    talk = Conversation(CLAUDE, mode=mode)
    if phase == "greeting":
        return talk
    talk.greet()
    if mode == "session":
        talk.receive(GREETED)
    if phase in ("working", "ending"):
        talk.send(Prompt("p1", "hi"))
        talk.receive(INIT)
    if phase == "ending" and mode == "session":
        talk.send(EndSession("e0"))
    elif phase == "ending":
        talk.receive(RESULT)
    elif phase == "ended":
        talk.receive(b"")
    return talk
