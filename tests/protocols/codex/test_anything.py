from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocols.codex import CODEX, CODEX_EXEC
from proctor.protocols.codex.frames import NOTICES, QUIET
from proctor.protocols.codex.items import TOOLS
from proctor.protocols.codex.questions import KINDS
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import HostTool, Launch
from proctor.protocols.vocabulary import HOST, Prompt
from tests.protocols.shapes import shapes
from tests.simulation.search import share

SHAPES = shapes(5)
FIELDS = """
    threadId turnId item itemId delta error willRetry turn thread tokenUsage rateLimits requestId tool arguments callId
    name status command cwd permissions serverName _meta id type text summary content changes result success
    contentItems receiverThreadIds codexErrorInfo message additionalDetails primary resetsAt usedPercent last
"""
METHODS = """
    error item/started item/completed item/agentMessage/delta item/reasoning/textDelta turn/started turn/completed
    thread/started thread/tokenUsage/updated account/rateLimits/updated serverRequest/resolved item/tool/call
    mcpServer/startupStatus/updated new/method
"""
TYPES = """
    thread.started turn.started turn.completed turn.failed item.started item.completed item.updated error new
"""
KNOWN = st.sampled_from(FIELDS.split())
METHOD = st.sampled_from([*METHODS.split(), *KINDS, *sorted(NOTICES), min(QUIET)])
KIND = st.sampled_from([*TOOLS, "agentMessage", "reasoning", "new", "agent_message", "command_execution"])
WORDS = st.sampled_from(["thread-0", "T1", "p", "failed", "interrupted", "completed", "other"])
INNER = st.dictionaries(KNOWN, SHAPES | KIND | WORDS, max_size=5)
PARAMS = st.dictionaries(KNOWN, SHAPES | INNER | KIND | WORDS, max_size=6)
BYTES = st.binary(max_size=12)
IDS = st.integers(0, 5) | st.text(max_size=3) | st.none()


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    message: dict[str, Any] = {}
    if draw(st.booleans()):
        message["method"] = draw(METHOD)
        message["params"] = draw(PARAMS | SHAPES)
    else:
        message[draw(st.sampled_from(["result", "error"]))] = draw(PARAMS | SHAPES)
    if draw(st.booleans()):
        message["id"] = draw(IDS)
    return message


@st.composite
def lines(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(TYPES.split()))
    fields: dict[str, Any] = draw(
        st.dictionaries(st.sampled_from(["item", "usage", "error", "message", "thread_id"]), INNER | SHAPES)
    )
    return {**fields, "type": kind}


def session() -> Conversation:
    """Our thread is open and a prompt is on its way."""
    tool = HostTool(name="p", description="", schema={})
    talk = Conversation(CODEX, launch=Launch(executable=(), host_tools=(tool,), json_schema="{}"))
    talk.greet()
    talk.receive(b'{"id":1,"result":{}}\n{"id":2,"result":{"thread":{"id":"thread-0"}}}\n')
    talk.send(Prompt("p", "x"))
    return talk


def accounted(talk: Conversation, data: bytes) -> None:
    before, quiet = talk.frames, talk.memo.quiet.total()
    events = [*talk.receive(data), *talk.receive(b"")]
    found = [item for item in data.split(b"\n") if item.strip()]
    assert talk.frames - before == len(found)
    spoke = len({event.frame for event in events} - {HOST})
    assert spoke + talk.memo.quiet.total() - quiet == len(found)


def joined(frames: list[Any]) -> bytes:
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


@settings(max_examples=share(400), deadline=None)
@given(st.lists(messages(), max_size=6), st.booleans())
def test_messages_of_any_shape_never_raise_and_are_accounted_for(frames: list[Any], running: bool) -> None:
    talk = session()
    if running:
        talk.receive(b'{"method":"turn/started","params":{"threadId":"thread-0","turn":{"id":"T1"}}}\n')
    accounted(talk, joined(frames))


@settings(max_examples=share(200), deadline=None)
@given(st.lists(messages(), max_size=4))
def test_a_greeting_of_any_shape_never_raises(frames: list[Any]) -> None:
    talk = Conversation(CODEX)
    talk.greet()
    talk.send(Prompt("p", "x"))
    accounted(talk, joined(frames))


@pytest.mark.covers("R116")
@settings(max_examples=share(200), deadline=None)
@given(st.lists(lines(), max_size=5))
def test_lines_of_a_run_of_any_shape_never_raise_and_are_accounted_for(frames: list[Any]) -> None:
    talk = Conversation(CODEX_EXEC, mode="oneshot")
    talk.greet()
    talk.send(Prompt("p", "x"))
    accounted(talk, joined(frames))


@pytest.mark.covers("R116")
@settings(max_examples=share(200), deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_bytes_of_any_kind_never_raise_and_are_accounted_for(data: bytes, oneshot: bool) -> None:
    talk = session()
    if oneshot:
        talk = Conversation(CODEX_EXEC, mode="oneshot")
        talk.greet()
    accounted(talk, data)


@pytest.mark.covers("R116")
@settings(max_examples=share(200), deadline=None)
@given(
    BYTES | BYTES.map(lambda data: b'"' + data + b'"'),
    st.sampled_from(["id", "method", "params", "result", "requestId", "item"]),
)
def test_bytes_inside_of_a_message_never_raise(data: bytes, place: str) -> None:
    talk = session()
    whole = {
        "id": b"7",
        "method": b'"serverRequest/resolved"',
        "params": b'{"threadId":"thread-0"}',
        place: data,
    }
    line = b"{" + b",".join(b'"' + name.encode() + b'":' + value for name, value in whole.items()) + b"}"
    accounted(talk, line.replace(b"\n", b" ") + b"\n")
