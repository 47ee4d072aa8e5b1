"""Conversations in which Claude Code asks the host: what it says, and what it is owed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import HostHook, HostTool, Launch
from proctor.protocols.vocabulary import AnyEvent
from tests.protocols.lines import line, reply

ADD = HostTool(name="add", description="Add two numbers.", schema={"type": "object"})
BEFORE = HostHook(name="before", point="PreToolUse", matcher="Bash", timeout=2.0)


def hosting(
    *, tools: Sequence[HostTool] = (), hooks: Sequence[HostHook] = (), **greeted: Any
) -> Conversation:
    """A session with these tools and hooks whose greeting was answered so."""
    launch = Launch(executable=(), host_tools=tuple(tools), host_hooks=tuple(hooks))
    talk = Conversation(CLAUDE, launch=launch)
    talk.greet()
    talk.receive(reply("greeting", **greeted))
    return talk


def asks(request: str, subtype: str, **body: Any) -> bytes:
    """The CLI asks the host."""
    return line(type="control_request", request_id=request, request={"subtype": subtype, **body})


def message(request: str, method: str, *, server: str = "host", **rest: Any) -> bytes:
    """A message of the CLI's MCP client; `id` and `params` are JSON-RPC's."""
    return asks(
        request, "mcp_message", server_name=server, message={"jsonrpc": "2.0", "method": method, **rest}
    )


def call(request: str, name: str = "add", *, number: object = 2, **arguments: Any) -> bytes:
    """The CLI's MCP client calls a tool."""
    meta = {"claudecode/toolUseId": "toolu_1", "progressToken": 2}
    params = {"name": name, "arguments": arguments, "_meta": meta}
    return message(request, "tools/call", id=number, params=params)


def owed(talk: Conversation) -> list[dict[str, Any]]:
    """The replies that are owed, without what is around each."""
    frames = [json.loads(text) for text in talk.data_to_send().splitlines()]
    assert all(frame["type"] == "control_response" for frame in frames)
    return [frame["response"] for frame in frames]


def served(talk: Conversation, data: bytes) -> tuple[list[AnyEvent], dict[str, Any]]:
    """What one message of the MCP client gives: the events, and the one reply of the server."""
    events = talk.receive(data)
    (answer,) = owed(talk)
    assert answer["subtype"] == "success"
    found: dict[str, Any] = answer["response"]["mcp_response"]
    return events, found
