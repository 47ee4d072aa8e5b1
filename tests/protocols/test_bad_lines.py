from __future__ import annotations

import json

import pytest

from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.vocabulary import (
    Garbled,
    Notice,
    Prompt,
    Text,
    TextDelta,
    ToolResult,
    TurnEnded,
)
from tests.protocols.lines import GREETED, INIT, RESULT, delta, in_phase, line, session
from tests.tables import each_row


@pytest.mark.covers("R072", "R070", "R076")
def test_a_bad_line_costs_only_itself() -> None:
    talk = session()
    events = talk.receive(delta("a") + b"npm warn deprecated\n" + delta("b"))
    assert [type(event) for event in events] == [TextDelta, Garbled, TextDelta]
    bad = events[1]
    assert isinstance(bad, Garbled)
    assert (bad.frame, bad.reason, bad.head, bad.size) == (2, "not_json", "npm warn deprecated", 19)
    assert bad.offset == len(GREETED) + len(delta("a"))


@each_row(
    ("bad", "reason"),
    [
        (b"nonsense", "not_json"),
        (b'{"type":', "not_json"),
        (b"[" * 100_000, "not_json"),
        (b'{"type":"user\xff"}', "not_utf8"),
        (b"[1,2]", "not_object"),
        (b"null", "not_object"),
        (b"17", "not_object"),
    ],
)
def test_what_a_bad_line_is_not(bad: bytes, reason: str) -> None:
    (event,) = session().receive(bad + b"\n")
    assert isinstance(event, Garbled)
    assert (event.reason, event.size) == (reason, len(bad))
    assert len(event.head) <= 100


def test_each_bad_line_of_a_batch_is_found_where_it_stands() -> None:
    talk = Conversation(CLAUDE)
    data = b"x\n\nyy\r\n" + delta("a") + b"zzz\n"
    bad = [event for event in talk.receive(data) if isinstance(event, Garbled)]
    assert [data[event.offset : event.offset + event.size].strip() for event in bad] == [b"x", b"yy", b"zzz"]
    assert [event.frame for event in bad] == [0, 2, 4]


@pytest.mark.covers("R067")
def test_blank_lines_count_as_lines_and_are_no_frames() -> None:
    talk = session()
    (event,) = talk.receive(b"\n \r\n" + delta("a"))
    assert event.frame == 3
    assert talk.frames == 2


@pytest.mark.covers("R071")
@pytest.mark.parametrize(
    ("data", "exhausted"),
    [
        (b"x\n" * 4 + delta("a") + b"x\n" * 3, False),
        (b"x\n" * 5, True),
        (b"x\n\n" * 5, True),
        (b"x\n" * 3 + b'{"type":"new"}\n' + b"x\n" * 3, False),
    ],
)
def test_five_bad_lines_in_a_row_use_up_the_budget(data: bytes, exhausted: bool) -> None:
    talk = session()
    notices = [event for event in talk.receive(data + b"x\n") if isinstance(event, Notice)]
    assert talk.exhausted == exhausted
    assert [notice.code for notice in notices] == ["too_many_garbled"] * exhausted


def test_a_last_line_that_was_cut_is_told_apart() -> None:
    talk = session()
    talk.receive(delta("a")[:-9])
    (event,) = talk.receive(b"")
    assert isinstance(event, Garbled)
    assert (event.reason, talk.phase) == ("cut", "ended")


def test_a_last_line_without_its_newline_is_a_frame() -> None:
    talk = in_phase("working")
    talk.receive(RESULT[:-1])
    assert [type(event) for event in talk.receive(b"")] == [TurnEnded]


def test_half_a_surrogate_pair_spoils_no_frame() -> None:
    talk = in_phase("working")
    bad = rb'{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"a\ud83d"}}}'
    said = rb'{"type":"assistant","message":{"content":[{"type":"text","text":"b\ud83d"}]}}'
    events = talk.receive(bad + b"\n" + said + b"\n")
    assert [event.text for event in events if isinstance(event, (TextDelta, Text))] == ["a?", "b?"]


@pytest.mark.covers("C07")
def test_an_oversized_result_still_ends_its_turn() -> None:
    talk = Conversation(CLAUDE, mode="oneshot", max_line=5000)
    talk.greet()
    talk.send(Prompt("p", "x"))
    big = json.loads(RESULT) | {"result": "y" * 100_000, "structured_output": {"a": "z" * 9000}}
    talk.receive(INIT)
    garbled, end = talk.receive(line(**big))
    assert isinstance(garbled, Garbled)
    assert isinstance(end, TurnEnded)
    assert (garbled.reason, garbled.offset, garbled.size) == ("oversized", len(INIT), len(line(**big)) - 1)
    assert (end.ending, end.text, end.structured_output, end.prompts) == ("completed", None, None, ("p",))
    assert "was not kept" in (end.error or "")
    assert talk.phase == "ending"


def test_what_an_oversized_line_says_is_not_believed() -> None:
    talk = Conversation(CLAUDE, mode="oneshot", max_line=2000)
    talk.greet()
    block = {"type": "tool_result", "tool_use_id": "t", "content": "y" * 100_000}
    said = {"type": "text", "text": "y" * 100_000}
    events = talk.receive(line(type="user", message={"content": [block]}))
    events += talk.receive(
        line(type="assistant", message={"content": [said]}) + delta("z" * 9000) + delta("ok")
    )
    assert [type(event) for event in events] == [Garbled, Garbled, Garbled, TextDelta]
    assert (talk.frames, talk.garbled, talk.memo.quiet.total(), talk.exhausted) == (4, 3, 0, False)
    assert not any(isinstance(event, ToolResult) for event in events)


def test_a_tool_input_that_is_too_large_to_be_judged_is_denied() -> None:
    talk = Conversation(CLAUDE, max_line=2000)
    talk.greet()
    talk.receive(GREETED + INIT)
    asked = {"subtype": "can_use_tool", "tool_name": "Write", "input": {"content": "y" * 9000}}
    events = talk.receive(line(type="control_request", request_id="a1", request=asked))
    assert [type(event) for event in events] == [Garbled, Notice]
    reply = json.loads(talk.data_to_send())["response"]
    assert (reply["request_id"], reply["response"]["behavior"]) == ("a1", "deny")
    assert talk.memo.approvals == {}


def test_an_oversized_line_that_is_no_json_is_only_that() -> None:
    talk = Conversation(CLAUDE, max_line=100)
    assert [type(event) for event in talk.receive(b"x" * 1000 + b"\n" + b"{" * 200 + b"\n")] == [Garbled] * 2


@pytest.mark.covers("C07")
def test_a_20_mb_line_below_the_limit_is_whole() -> None:
    talk = in_phase("working")
    result = json.loads(RESULT) | {"result": "y" * 20_000_000}
    data = line(**result)
    events = [event for at in range(0, len(data), 65536) for event in talk.receive(data[at : at + 65536])]
    (end,) = events
    assert isinstance(end, TurnEnded)
    assert len(end.text or "") == 20_000_000
