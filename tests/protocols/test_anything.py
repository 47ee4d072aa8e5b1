from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.vocabulary import (
    HOST,
    Prompt,
)
from tests.protocols.shapes import shapes
from tests.simulation.search import share

SHAPES = shapes(5)
FIELDS = """
    type subtype session_id event delta message content result is_error errors usage request request_id response tools
    rate_limit_info mcp_servers user_message_uuids origin command_uuid state parent_tool_use_id tasks
"""
TYPES = """
    system stream_event assistant user result control_request control_response control_cancel_request
    rate_limit_event command_lifecycle conversation_reset keep_alive new
"""
SUBTYPES = """
    init status api_retry hook_response can_use_tool success task_started informational new
"""
KNOWN = FIELDS.split()
SOME_SUBTYPE = st.sampled_from(SUBTYPES.split())
INNER = st.dictionaries(st.sampled_from(KNOWN), SHAPES | SOME_SUBTYPE, max_size=5)
HEADS = st.fixed_dictionaries({"type": st.sampled_from(TYPES.split()), "subtype": SOME_SUBTYPE | SHAPES})
NESTED = st.dictionaries(st.sampled_from(["message", "request", "event"]), INNER)


@st.composite
def shaped_frames(draw: st.DrawFn) -> dict[str, Any]:
    fields: dict[str, Any] = draw(st.dictionaries(st.sampled_from(KNOWN), SHAPES | INNER, max_size=6))
    return {**fields, **draw(HEADS), **draw(NESTED)}


def accounted(talk: Conversation, data: bytes) -> None:
    events = [*talk.receive(data), *talk.receive(b"")]
    lines = [item for item in data.split(b"\n") if item.strip()]
    assert talk.frames == len(lines)
    assert len({event.frame for event in events} - {HOST}) + talk.memo.quiet.total() == len(lines)


@pytest.mark.covers("R116")
@settings(max_examples=share(300), deadline=None)
@given(st.lists(shaped_frames(), max_size=4), st.sampled_from([60, 2**20]))
def test_frames_of_any_shape_never_raise_and_are_accounted_for(frames: list[Any], limit: int) -> None:
    talk = Conversation(CLAUDE, mode="oneshot", max_line=limit)
    talk.greet()
    talk.send(Prompt("p", "x"))
    accounted(talk, b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))


@pytest.mark.covers("R116")
@settings(max_examples=share(300), deadline=None)
@given(st.binary(max_size=300))
def test_bytes_of_any_kind_never_raise_and_are_accounted_for(data: bytes) -> None:
    accounted(Conversation(CLAUDE), data)
