"""Conversations with an OpenCode server, played from recordings or from events written down here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Launch
from proctor.protocols.opencode.serve.dialect import OPENCODE_SERVE
from proctor.protocols.vocabulary import AnyEvent, Interrupt, Prompt

RECORDED = Path(__file__).parents[2] / "transcripts" / "opencode_serve"
SESSION = "ses_1"


def line(**frame: Any) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def event(kind: str, session: str = SESSION, **properties: Any) -> bytes:
    return line(id="evt_1fff48e9c001x", type=kind, properties={"sessionID": session, **properties})


def reply(request: str, status: int = 200, body: Any = None) -> bytes:
    return line(type="http.reply", request=request, status=status, body=body)


BUSY = event("session.status", status={"type": "busy"})
IDLE = event("session.status", status={"type": "idle"}) + event("session.idle")


def user(id: str) -> bytes:
    return event("message.updated", info={"id": id, "role": "user"})


def answer(id: str, text: str, reason: str = "stop", **facts: Any) -> bytes:
    """A message of the model with one text and the end of its step."""
    info = {"id": id, "role": "assistant", "modelID": "m1", "providerID": "fake", **facts}
    part = {"messageID": id, "sessionID": SESSION}
    tokens = {"input": 100, "output": 20, "reasoning": 0, "cache": {"read": 1, "write": 2}}
    return (
        event("message.updated", info=info)
        + event(
            "message.part.updated",
            part={**part, "id": f"{id}t", "type": "text", "text": text, "time": {"end": 1}},
        )
        + event(
            "message.part.updated",
            part={
                **part,
                "id": f"{id}f",
                "type": "step-finish",
                "reason": reason,
                "tokens": tokens,
                "cost": 0.25,
            },
        )
    )


def asked(data: bytes) -> list[dict[str, Any]]:
    """The requests in these bytes."""
    return [json.loads(one) for one in data.splitlines()]


def greeted(**wanted: Any) -> Conversation:
    talk = Conversation(OPENCODE_SERVE, launch=Launch(executable=(), cwd="/w", **wanted))
    [hello] = asked(talk.greet())
    talk.receive(reply(hello["key"], body={"id": SESSION, "directory": "/w", "version": "1.18.33"}))
    return talk


def prompted(*ids: str, **wanted: Any) -> Conversation:
    """A conversation whose server has taken these prompts."""
    talk = greeted(**wanted)
    for id in ids:
        [sent] = asked(talk.send(Prompt(id, id)))
        talk.receive(reply(sent["key"], 204))
    return talk


def requests(recording: str) -> Iterator[dict[str, Any]]:
    for one in (RECORDED / f"{recording}.http.ndjson").read_bytes().splitlines():
        yield json.loads(one)


def sessions(recording: str) -> Sequence[str]:
    return [one["reply"]["id"] for one in requests(recording) if one["path"] == "/session"]


def replayed(recording: str, session: str, *, cut: int = 0) -> tuple[Conversation, list[AnyEvent]]:
    """The recorded events, all of them, as the agent of one session hears them; `cut` at every so many bytes."""
    talk = Conversation(OPENCODE_SERVE, launch=Launch(executable=(), cwd="/w"))
    [hello] = asked(talk.greet())
    made = next(
        one["reply"]
        for one in requests(recording)
        if one["path"] == "/session" and one["reply"]["id"] == session
    )
    events = list(talk.receive(reply(hello["key"], body=made)))
    said = [
        one for one in requests(recording) if one["path"] in _prompting(session) and "parts" in one["body"]
    ]
    for number, one in enumerate(said):
        [sent] = asked(talk.send(Prompt(f"p{number}", one["body"]["parts"][0]["text"])))
        events += talk.receive(reply(sent["key"], 204))
    if any(one["path"] == f"/session/{session}/abort" for one in requests(recording)):
        talk.send(Interrupt("i1"))
    data = (RECORDED / f"{recording}.events.ndjson").read_bytes()
    step = cut or len(data)
    for start in range(0, len(data), step):
        events += talk.receive(data[start : start + step])
    return talk, events


def _prompting(session: str) -> tuple[str, str]:
    return f"/session/{session}/message", f"/session/{session}/prompt_async"
