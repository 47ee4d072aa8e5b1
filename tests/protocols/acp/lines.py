"""Lines that an agent may write, and conversations brought past their greeting by them."""

from __future__ import annotations

import json
from typing import Any

from proctor.protocols.acp import GENERIC, Profile, acp_dialect
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Launch
from proctor.protocols.vocabulary import Prompt

Json = dict[str, Any]

INITIALIZED: Json = {
    "protocolVersion": 1,
    "agentInfo": {"name": "agent", "version": "1.2.3"},
    "agentCapabilities": {"loadSession": True, "sessionCapabilities": {"resume": {}, "fork": {}}},
}
MODEL: Json = {"id": "which", "category": "model", "currentValue": "small", "options": []}
OPENED: Json = {"sessionId": "s1", "configOptions": [MODEL], "modes": {"currentModeId": "ask"}}
OPTIONS: list[Json] = [
    {"optionId": "a", "kind": "allow_always"},
    {"optionId": "b", "kind": "allow_once"},
    {"optionId": "c", "kind": "reject_once"},
]


def line(**frame: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n"


def reply(number: int, **result: Any) -> bytes:
    return line(id=number, result=result)


def fault(number: int, code: int, message: str, **more: Any) -> bytes:
    return line(id=number, error={"code": code, "message": message, **more})


def update(kind: str, session: str = "s1", **fields: Any) -> bytes:
    params = {"sessionId": session, "update": {"sessionUpdate": kind, **fields}}
    return line(method="session/update", params=params)


def chunk(text: str, message: str = "m1", session: str = "s1") -> bytes:
    return update("agent_message_chunk", session, messageId=message, content={"type": "text", "text": text})


def question(key: object = 7, options: list[Json] = OPTIONS, **call: Any) -> bytes:
    asked = {"toolCallId": "t", "title": "ls", "kind": "execute", "rawInput": {"command": "ls"}, **call}
    params = {"sessionId": "s1", "toolCall": asked, "options": options}
    return line(id=key, method="session/request_permission", params=params)


def sent(data: bytes) -> list[Json]:
    """What a host writes, as objects without the `jsonrpc` member."""
    found: list[Json] = [json.loads(each) for each in data.splitlines()]
    assert all(each.pop("jsonrpc") == "2.0" for each in found)
    return found


def talk_to(profile: Profile = GENERIC, **launch: Any) -> Conversation:
    """A conversation that has greeted and was answered nothing yet."""
    talk = Conversation(acp_dialect(profile), launch=Launch(executable=("agent",), cwd="/x", **launch))
    talk.greet()
    return talk


def session(profile: Profile = GENERIC, *prompts: str, opened: Json = OPENED) -> Conversation:
    """A conversation with a session, and these prompts sent."""
    talk = talk_to(profile)
    talk.receive(reply(1, **INITIALIZED) + reply(2, **opened))
    talk.data_to_send()
    for prompt in prompts:
        talk.send(Prompt(prompt, prompt))
    return talk
