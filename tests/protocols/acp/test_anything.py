from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocols.acp import CODEX_ACP, GEMINI, GENERIC, OPENCODE, acp_dialect
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Launch
from proctor.protocols.vocabulary import HOST, Prompt
from tests.protocols.acp.lines import INITIALIZED, OPENED, reply
from tests.protocols.shapes import shapes
from tests.simulation.search import share

SHAPES = shapes(3)
FIELDS = [
    "sessionId",
    "update",
    "sessionUpdate",
    "content",
    "type",
    "text",
    "messageId",
    "toolCallId",
    "name",
    "title",
    "kind",
    "status",
    "rawInput",
    "rawOutput",
    "cost",
    "amount",
    "entries",
    "_meta",
    "toolCall",
    "options",
    "optionId",
    "stopReason",
    "usage",
    "inputTokens",
    "quota",
    "token_count",
    "model_usage",
    "configOptions",
    "category",
    "currentValue",
    "modes",
    "models",
    "protocolVersion",
    "agentCapabilities",
    "agentInfo",
    "sessionCapabilities",
    "requestId",
    "codex",
    "threadStatus",
    "terminal_output_delta",
    "data",
    "code",
    "message",
]
METHODS = [
    "session/update",
    "session/request_permission",
    "$/cancel_request",
    "_x/y",
    "fs/read_text_file",
    "new",
]
UPDATES = [
    "agent_message_chunk",
    "agent_thought_chunk",
    "user_message_chunk",
    "tool_call",
    "tool_call_update",
    "usage_update",
    "plan",
    "session_info_update",
    "available_commands_update",
    "new",
]
WORDS = st.sampled_from([*UPDATES, "completed", "failed", "in_progress", "end_turn", "s1", "text", "USD"])
INNER = st.dictionaries(st.sampled_from(FIELDS), SHAPES | WORDS, max_size=3)
NESTED = st.dictionaries(st.sampled_from(FIELDS), SHAPES | WORDS | INNER, max_size=4)


@st.composite
def frames(draw: st.DrawFn) -> dict[str, Any]:
    fields: dict[str, Any] = {"jsonrpc": "2.0"}
    if draw(st.booleans()):
        fields["method"] = draw(st.sampled_from(METHODS) | SHAPES)
    if draw(st.booleans()):
        fields["id"] = draw(st.integers(0, 6) | SHAPES)
    for name in draw(st.sets(st.sampled_from(["params", "result", "error"]))):
        fields[name] = draw(NESTED | SHAPES)
    if draw(st.booleans()):
        update = {"sessionUpdate": draw(st.sampled_from(UPDATES)), **draw(NESTED)}
        fields |= {"method": "session/update", "params": {"sessionId": "s1", "update": update}}
    return fields


def accounted(talk: Conversation, data: bytes) -> None:
    before = talk.memo.quiet.total()
    start = talk.frames
    events = [*talk.receive(data), *talk.receive(b"")]
    lines = [item for item in data.split(b"\n") if item.strip()]
    assert talk.frames - start == len(lines)
    assert len({e.frame for e in events} - {HOST}) + talk.memo.quiet.total() - before == len(lines)


PROFILE = st.sampled_from([GENERIC, OPENCODE, GEMINI, CODEX_ACP])


@settings(max_examples=share(150), deadline=None)
@given(st.lists(frames(), max_size=3), PROFILE, st.booleans(), st.sampled_from([80, 2**20]))
def test_frames_of_any_shape_never_raise_and_are_accounted_for(
    sent: list[Any], profile: Any, opened: bool, limit: int
) -> None:
    talk = Conversation(acp_dialect(profile), launch=Launch(executable=("a",)), max_line=limit)
    talk.greet()
    if opened and limit > 80:
        talk.receive(reply(1, **INITIALIZED) + reply(2, **OPENED))
    talk.send(Prompt("p", "x"))
    accounted(talk, b"".join(json.dumps(frame).encode() + b"\n" for frame in sent))


@pytest.mark.covers("R116")
@settings(max_examples=share(300), deadline=None)
@given(st.binary(max_size=300))
def test_bytes_of_any_kind_never_raise_and_are_accounted_for(data: bytes) -> None:
    accounted(Conversation(acp_dialect()), data)
