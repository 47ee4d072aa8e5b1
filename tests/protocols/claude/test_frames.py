from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.protocols.claude.frames import read
from proctor.protocols.dialect import Memo, Mode, Send
from proctor.protocols.vocabulary import (
    Answered,
    AnyEvent,
    LimitReached,
    Misplaced,
    Notice,
    Prompt,
    Started,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    TurnEnded,
    TurnStarted,
    Unrecognized,
)
from tests.protocols.lines import RESULT, ended, in_phase, session
from tests.tables import each_row

Block = dict[str, Any]


def told(memo: Memo | None = None, **frame: Any) -> list[AnyEvent | Send]:
    """What one frame gives, in the turn `t1`."""
    return [*read(memo or Memo(frame=7, turn="t1"), json.dumps(frame).encode())]


def assistant(*blocks: Block, **more: Any) -> list[AnyEvent | Send]:
    return told(type="assistant", message={"content": [*blocks]}, **more)


def user(*blocks: Block) -> list[AnyEvent | Send]:
    return told(type="user", message={"content": [*blocks]})


def stream(memo: Memo, event: Block, **more: Any) -> list[AnyEvent | Send]:
    return told(memo, type="stream_event", event=event, **more)


def odd(kind: str) -> Unrecognized:
    return Unrecognized(7, "t1", kind)


def kinds(events: list[AnyEvent | Send]) -> list[str]:
    return [event.kind for event in events if isinstance(event, Unrecognized)]


@pytest.mark.covers("R074")
@each_row(
    ("frame", "path"),
    [
        ({"type": "hologram"}, "hologram"),
        ({}, "untyped"),
        ({"type": "system", "subtype": "hologram"}, "system.hologram"),
        ({"type": "system"}, "system.untyped"),
        ({"type": "stream_event", "event": {"type": "hologram"}}, "stream_event.hologram"),
        (
            {"type": "stream_event", "event": {"type": "content_block_delta", "delta": {"type": "hologram"}}},
            "stream_event.content_block_delta.hologram",
        ),
        ({"type": "control_request", "request": {"subtype": "can_use_tool"}}, "control_request.request_id"),
    ],
)
def test_what_is_not_modelled_is_named_by_its_path(frame: Block, path: str) -> None:
    assert told(**frame) == [odd(path)]


@pytest.mark.covers("L21")
def test_a_type_that_is_no_text_is_unrecognized() -> None:
    (event,) = told(type=5)
    assert isinstance(event, Unrecognized)
    assert event.kind == "untyped"


def test_a_new_kind_of_block_costs_only_itself() -> None:
    text = {"type": "text", "text": "a"}
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"x": 1}}
    assert assistant(text, {"type": "hologram", "text": 5}, call) == [
        Text(7, "t1", "a"),
        Unrecognized(7, "t1", "assistant.content.text", "Expected `str`, got `int`"),
        odd("assistant.content.hologram"),
        ToolCall(7, "t1", "c", "Bash", {"x": 1}),
    ]


def test_a_tool_input_of_another_shape_costs_only_the_input() -> None:
    events = assistant({"type": "tool_use", "id": "c", "name": "Bash", "input": "ls"})
    assert kinds(events) == ["assistant.content.input"]
    assert ToolCall(7, "t1", "c", "Bash") in events


def test_a_block_that_is_no_object_costs_only_itself() -> None:
    events = told(type="assistant", message={"content": [5, {"type": "text", "text": "a"}]})
    assert kinds(events) == ["assistant.content", "assistant.content.untyped"]
    assert events[-1] == Text(7, "t1", "a")


def test_content_of_another_shape_is_unrecognized() -> None:
    assert kinds(told(type="assistant", message={"content": {"a": 1}})) == ["assistant.message.content"]
    assert kinds(told(type="assistant", message=5)) == ["assistant.message", "assistant.message.content"]


def test_a_result_whose_usage_changed_its_shape_still_ends_its_turn() -> None:
    talk = session()
    talk.send(Prompt("p", "x"))
    frame = {"type": "result", "is_error": False, "result": "ok", "usage": [1], "num_turns": "many"}
    events = talk.receive(json.dumps(frame).encode() + b"\n")
    assert {*kinds([*events])} == {"result.num_turns", "result.usage"}
    end = events[-1]
    assert isinstance(end, TurnEnded)
    assert (end.text, end.usage, end.model_turns) == ("ok", None, None)


def test_an_init_whose_tools_changed_their_shape_still_starts() -> None:
    events = told(type="system", subtype="init", session_id="s", tools=[{"name": "Bash"}])
    assert [type(event) for event in events] == [Unrecognized, Started, TurnStarted]


def test_an_unknown_part_of_a_tool_result_is_named_beside_its_text() -> None:
    content = [
        {"type": "text", "text": "a"},
        {"type": "hologram"},
        {"type": "image"},
        {"type": "text", "text": "b"},
    ]
    assert user({"type": "tool_result", "tool_use_id": "c", "content": content, "is_error": True}) == [
        odd("user.tool_result.hologram"),
        ToolResult(7, "t1", "c", "a\nb", is_error=True),
    ]


@pytest.mark.parametrize("content", [None, []])
def test_a_tool_result_without_content_is_empty(content: Any) -> None:
    assert user({"type": "tool_result", "tool_use_id": "c", "content": content}) == [
        ToolResult(7, "t1", "c", "")
    ]


@pytest.mark.covers("R086", "C04")
def test_one_message_with_four_blocks_gives_four_events_in_order() -> None:
    call: Block = {"type": "tool_use", "name": "Bash", "input": {}}
    text = {"type": "text", "text": "a"}
    events = assistant(text, call | {"id": "1"}, {"type": "thinking", "thinking": "hm"}, call | {"id": "2"})
    assert [type(event) for event in events] == [Text, ToolCall, Thinking, ToolCall]


@pytest.mark.covers("R087")
def test_a_call_without_an_id_gets_one() -> None:
    calls = assistant({"type": "tool_use", "name": "a"}, {"type": "tool_use", "name": "b"})
    assert [event.id for event in calls if isinstance(event, ToolCall)] == ["frame7.0", "frame7.1"]


def test_tools_that_run_at_the_server_are_calls_and_results_too() -> None:
    events = assistant(
        {"type": "server_tool_use", "id": "c", "name": "web_search", "input": {"query": "x"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "c",
            "content": [{"type": "text", "text": "found"}],
        },
    )
    assert events == [
        ToolCall(7, "t1", "c", "web_search", {"query": "x"}),
        ToolResult(7, "t1", "c", "found"),
    ]


@pytest.mark.covers("R088")
@pytest.mark.parametrize("blocks", [[], [{"type": "text", "text": ""}], [{"type": "redacted_thinking"}]])
def test_blocks_that_say_nothing_give_no_event(blocks: list[Block]) -> None:
    memo = Memo()
    assert told(memo, type="assistant", message={"content": blocks}) == []
    assert memo.quiet == {"assistant.empty": 1}


START: Block = {"type": "message_start", "message": {"id": "m1"}}
DELTA: Block = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}


def codes(events: list[AnyEvent | Send]) -> list[str]:
    return [event.code for event in events if isinstance(event, Notice)]


def test_a_stream_that_is_whole_is_not_void() -> None:
    memo = Memo()
    events = [e for step in ("message_delta", "message_stop") for e in stream(memo, {"type": step})]
    assert stream(memo, START) + stream(memo, DELTA) + events == [TextDelta(-1, None, "a")]


@pytest.mark.parametrize("after", [{"type": "message_stop"}, START | {"message": {"id": "m2"}}])
def test_the_pieces_of_a_stream_that_was_cut_are_void(after: Block) -> None:
    memo = Memo()
    stream(memo, START)
    stream(memo, DELTA)
    (notice,) = stream(memo, after, abandoned_blocks=[0])
    assert isinstance(notice, Notice)
    assert (notice.code, notice.data) == ("attempt_void", {"message": "m1", "parent": None})


def test_a_stream_that_is_cut_is_void_once() -> None:
    memo = Memo()
    steps = [
        START,
        DELTA,
        {"type": "message_stop"},
        START,
        DELTA,
        {"type": "message_delta"},
        {"type": "message_stop"},
    ]
    assert codes([event for step in steps for event in stream(memo, step)]) == ["attempt_void"]


def test_the_stream_of_a_subagent_does_not_void_the_agents_own() -> None:
    memo = Memo()
    stream(memo, START)
    stream(memo, START, parent_tool_use_id="c")
    (notice,) = stream(memo, {"type": "message_stop"}, parent_tool_use_id="c")
    assert isinstance(notice, Notice)
    assert notice.data["parent"] == "c"


def limit(**info: Any) -> list[AnyEvent | Send]:
    return told(type="rate_limit_event", rate_limit_info=info)


@each_row(
    ("info", "expected"),
    [
        ({"status": "rejected", "resetsAt": 5, "rateLimitType": "weekly"}, LimitReached),
        ({"status": "rejected"}, LimitReached),
        ({"status": "rejected", "isUsingOverage": True}, "limit_overage"),
        ({"status": "allowed_warning"}, "limit_near"),
        ({"status": "allowed", "unifiedWindows": {"w": {"status": "allowed_warning"}}}, "limit_near"),
        ({"status": "allowed"}, None),
    ],
)
def test_only_a_rejection_is_a_limit_reached(info: Block, expected: Any) -> None:
    events = limit(**info)
    assert [event.code if isinstance(event, Notice) else type(event) for event in events] == (
        [expected] if expected else []
    )


def test_a_limit_that_only_the_answer_tells_of_is_reached_too() -> None:
    params = {"rate_limit_info": {"resetsAt": 9, "rateLimitType": "five_hour"}}
    events = assistant(error="rate_limit", api_error="usage_limit_reached", api_error_params=params)
    assert events[0] == LimitReached(7, "t1", "five_hour", 9.0)
    assert codes(events) == ["api_failure"]


def test_a_failure_of_a_subagent_is_not_the_turns() -> None:
    memo = Memo()
    told(
        memo, type="assistant", error="authentication_failed", parent_tool_use_id="c", message={"content": []}
    )
    (end,) = told(memo, type="result", subtype="success", is_error=True)
    assert isinstance(end, TurnEnded)
    assert end.ending == "api_error"


def test_a_reply_that_nobody_waits_for_is_misplaced() -> None:
    assert told(type="control_response", response={"request_id": "x"}) == [
        Misplaced(7, "t1", "control_response", "")
    ]
    assert told(type="control_cancel_request", request_id="x") == [
        Misplaced(7, "t1", "control_cancel_request", "")
    ]


def test_a_refused_request_says_why() -> None:
    memo = Memo(pending={"r": "set_model"})
    reply = {"subtype": "error", "request_id": "r", "error": "no such model"}
    assert told(memo, type="control_response", response=reply) == [Answered(-1, None, "r", "no such model")]


def test_a_new_model_is_remembered() -> None:
    memo = Memo(pending={"r": "set_model"})
    reply = {"subtype": "success", "request_id": "r", "response": {"model": "haiku"}}
    told(memo, type="control_response", response=reply)
    assert memo.model == "haiku"


@pytest.mark.parametrize("subtype", ["hook_callback", "mcp_message", "elicitation", "hologram"])
def test_a_request_that_nobody_serves_is_refused_at_once(subtype: str) -> None:
    send, notice = told(type="control_request", request_id="r", request={"subtype": subtype})
    assert isinstance(send, Send)
    assert send.data.endswith(b"\n")  # C18
    assert json.loads(send.data)["response"]["subtype"] == "error"
    assert isinstance(notice, Notice)
    assert notice.data["kind"] == subtype


@pytest.mark.parametrize(
    ("fields", "codes_"),
    [
        ({"exit_code": 0, "outcome": "success"}, []),
        ({"exit_code": 2, "stderr": "no", "outcome": "error"}, ["hook_failed"]),
    ],
)
def test_a_hook_that_failed_is_a_notice(fields: Block, codes_: list[str]) -> None:
    assert codes(told(type="system", subtype="hook_response", hook_name="h", **fields)) == codes_


@pytest.mark.parametrize(
    ("fields", "codes_"),
    [
        ({"status": "requesting"}, []),
        ({"status": "compacting"}, ["compacting"]),
        ({"status": None, "compact_result": "success"}, []),
        ({"status": None, "compact_result": "failed"}, ["compaction_failed"]),
    ],
)
def test_a_compaction_is_told(fields: Block, codes_: list[str]) -> None:
    assert codes(told(type="system", subtype="status", **fields)) == codes_


@pytest.mark.parametrize("kind", ["keep_alive", "tool_progress", "transcript_mirror"])
def test_noise_is_counted_by_kind(kind: str) -> None:
    memo = Memo()
    assert told(memo, type=kind) == []
    assert memo.quiet == {kind: 1}


@pytest.mark.parametrize("nested", ["[" * 50_000 + "]" * 50_000, '{"a":' * 50_000 + "1" + "}" * 50_000])
def test_nesting_without_end_is_not_followed(nested: str) -> None:
    memo = Memo(frame=7, turn="t1")
    for kind in (
        '"type":"new"',
        '"type":"system","subtype":"task_started"',
        '"type":"assistant"',
        '"type":"result"',
    ):
        line = f'{{{kind},"message":{nested}}}'.encode()
        assert read(memo, line)


@pytest.mark.parametrize(
    ("beside", "seconds"),
    [
        ({"durationMs": 250}, 0.25),
        ({"totalDurationMs": 2000, "durationMs": 1}, 2.0),
        ({"stdout": 'no "durationMs" of its own'}, None),
        ({"durationMs": "soon"}, None),
    ],
)
def test_the_result_of_a_tool_has_the_time_that_it_took(beside: Block, seconds: float | None) -> None:
    memo = Memo()
    block = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
    [result] = told(memo, type="user", message={"content": [block]}, tool_use_result=beside)
    assert isinstance(result, ToolResult)
    assert (result.duration, result.metadata) == (seconds, {})


@pytest.mark.parametrize(("mode", "phase"), [("session", "idle"), ("oneshot", "ending")])
def test_a_second_result_of_one_prompt_ends_no_turn(mode: Mode, phase: str) -> None:
    talk = in_phase("working", mode)
    [end] = [event for event in talk.receive(RESULT) if isinstance(event, TurnEnded)]
    assert (end.turn, end.prompts) == ("t1", ("p1",))
    events = talk.receive(ended(subtype="success", is_error=False, result="more"))
    assert [(event.kind, event.phase) for event in events if isinstance(event, Misplaced)] == [
        ("turn_ended", phase)
    ]
    assert [event for event in events if isinstance(event, TurnEnded | TurnStarted)] == []
    assert talk.misplaced == 1
