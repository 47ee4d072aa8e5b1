from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from proctor.protocols.vocabulary import (
    ApprovalRequested,
    ApprovalWithdrawn,
    Garbled,
    LimitReached,
    Misplaced,
    Notice,
    Retrying,
    Started,
    Steered,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolRequested,
    ToolResult,
    TurnEnded,
    TurnStarted,
    Unrecognized,
    Usage,
)
from tests.protocols.codex.endings import ENDINGS
from tests.protocols.codex.player import APP, EXEC, NAMES, play, recording
from tests.protocols.recorded import (
    all_hold,
    assert_each_turn_ends_once,
    assert_every_line_is_told_or_quiet,
    at_random,
    by_byte,
    by_line,
    lines_of,
    of,
)
from tests.tables import each_row

OTHERS = ("app_resume", "app_two_threads")  # here the usage of other threads and turns is told as well
CUT_BY_BYTE = [name for name in NAMES if 0 < len(recording(name).stdout) <= 12_000][::6]
COUNTED = [name for name in APP if ENDINGS[name] and name not in OTHERS]
IN_DELTAS = ("app_text", "app_two_turns", "app_err_quota", "app_schema")


def frames(name: str) -> list[dict[str, Any]]:
    """The frames of a recording as plain objects."""
    if name == "exec_version":
        return []
    return [json.loads(line) for line in lines_of(recording(name).stdout)]


def own_thread(name: str) -> str | None:
    return next(
        (frame["result"]["thread"]["id"] for frame in frames(name) if "thread" in frame.get("result", {})),
        None,
    )


def test_every_kind_of_recording_is_there() -> None:
    assert sorted(ENDINGS) == NAMES
    assert len(APP) > 50
    assert len(EXEC) > 80


def every_line_of_a_recording_gives_events_or_is_counted_as_quiet(name: str) -> None:
    assert_every_line_is_told_or_quiet(*play(name), len(lines_of(recording(name).stdout)))


def nothing_in_a_recording_is_odd_but_what_was_made_so(name: str) -> None:
    odd = [event for event in play(name)[1] if isinstance(event, (Garbled, Unrecognized, Misplaced))]
    assert [type(event) for event in odd] == ([Garbled] if name == "exec_version" else [])


def the_cut_of_the_bytes_changes_nothing(name: str) -> None:
    events = play(name)[1]
    assert play(name, by_line)[1] == events
    assert play(name, at_random(name))[1] == events


def bytes_that_come_one_by_one_give_the_same_events(name: str) -> None:
    if name in CUT_BY_BYTE:
        assert play(name, by_byte)[1] == play(name)[1]


def the_turns_of_a_recording_end_as_expected(name: str) -> None:
    ends = of(play(name)[1], TurnEnded)
    assert [(end.ending, len(end.prompts)) for end in ends] == [*ENDINGS[name]]


def each_turn_that_ends_has_begun_and_ends_once(name: str) -> None:
    assert_each_turn_ends_once(play(name)[1])


def a_prompt_is_answered_once_and_no_question_is_left_where_all_turns_ended(name: str) -> None:
    talk, events = play(name)
    answered = Counter(prompt for end in of(events, TurnEnded) for prompt in end.prompts)
    assert set(answered.values()) <= {1}
    if len(of(events, TurnStarted)) == len(of(events, TurnEnded)) and ENDINGS[name]:
        assert (talk.memo.open_turns, talk.memo.approvals, talk.memo.calls) == ([], {}, {})
        assert not talk.memo.prompts


def no_event_is_empty(name: str) -> None:
    said = [event for event in play(name)[1] if isinstance(event, (Text, TextDelta, Thinking))]
    assert all(event.text for event in said)


def completed(name: str, *kinds: str) -> list[dict[str, Any]]:
    """The items of our thread that were completed."""
    thread = own_thread(name)
    found: list[dict[str, Any]] = []
    for frame in frames(name):
        if frame.get("method") == "item/completed" and frame["params"]["threadId"] == thread:
            found.append(frame["params"]["item"])
        elif frame.get("type") == "item.completed":
            found.append(frame["item"])
    return [item for item in found if item["type"] in kinds]


def the_text_of_a_recording_survives_in_order(name: str) -> None:
    raw = [item["text"] for item in completed(name, "agentMessage", "agent_message")]
    assert [event.text for event in of(play(name)[1], Text)] == raw


def the_results_of_its_commands_survive(name: str) -> None:
    raw = [
        item.get("aggregatedOutput") or item.get("aggregated_output")
        for item in completed(name, "commandExecution", "command_execution")
    ]
    events = play(name)[1]
    calls = {call.id for call in of(events, ToolCall) if call.name == "shell"}
    results = [event.text for event in of(events, ToolResult) if event.id in calls]
    assert [text for text in results if text not in ("", "failed", "declined")] == [
        text for text in raw if text
    ]
    assert len(results) == len(raw)


def every_result_has_its_call(name: str) -> None:
    called: set[str] = set()
    for event in play(name)[1]:
        if isinstance(event, ToolCall):
            called.add(event.id)
        elif isinstance(event, ToolResult):
            assert event.id in called


def the_tokens_of_the_turns_are_those_of_the_calls_of_its_model(name: str) -> None:
    if name not in COUNTED:
        return
    updates = [
        f["params"]["tokenUsage"]["last"]
        for f in frames(name)
        if f.get("method") == "thread/tokenUsage/updated"
    ]
    usages = [end.usage for end in of(play(name)[1], TurnEnded) if end.usage is not None]
    assert sum(usage.input_tokens or 0 for usage in usages) == sum(u["inputTokens"] for u in updates)
    assert sum(usage.output_tokens or 0 for usage in usages) == sum(u["outputTokens"] for u in updates)


def test_what_a_thread_had_spent_before_is_not_its_next_turns() -> None:
    [ended] = of(play("app_resume")[1], TurnEnded)
    assert ended.usage == Usage(100, 20, 0, 0)


@pytest.mark.covers("R089")
def test_the_usage_of_a_resumed_run_is_not_known() -> None:
    first, again = (of(play(name)[1], TurnEnded)[0] for name in ("exec_resume_first", "exec_resume"))
    assert first.usage == Usage(100, 20, 0, 0)
    assert again.usage is None


def the_deltas_of_a_message_are_its_text(name: str) -> None:
    events = play(name)[1]
    deltas = "".join(event.text for event in of(events, TextDelta))
    assert name not in IN_DELTAS or deltas == "".join(event.text for event in of(events, Text))


def test_what_a_dropped_stream_had_said_is_void_each_time() -> None:
    events = play("app_err_drop")[1]
    voids = [event for event in of(events, Notice) if event.code == "attempt_void"]
    assert len(voids) == 6
    assert [retry.attempt for retry in of(events, Retrying)] == [1, 2, 3, 4, 5]
    assert of(events, Text) == []


def test_retries_name_the_status_and_their_bound() -> None:
    retries = of(play("app_err_401")[1], Retrying)
    assert {(retry.max_attempts, retry.status) for retry in retries} == {(5, 401)}
    ended = of(play("app_err_401")[1], TurnEnded)[0]
    assert (ended.status, ended.detail) == (401, "httpConnectionFailed")
    assert "Incorrect API key" in (ended.error or "")


def test_a_retry_without_a_number_has_no_bound() -> None:
    [retry] = of(play("app_interrupt_conn_refused")[1], Retrying)
    assert (retry.attempt, retry.max_attempts, retry.error) == (
        0,
        None,
        "Connection failed: error sending request",
    )


@pytest.mark.parametrize("name", ["app_err_quota", "exec_err_429_quota"])
def test_a_used_up_quota_is_a_limit_reached_once(name: str) -> None:
    assert len(of(play(name)[1], LimitReached)) == 1


def test_a_thread_names_itself_with_the_version_of_its_server() -> None:
    [started] = of(play("app_text")[1], Started)
    assert (started.version, started.model, started.permission_mode) == ("0.169.0", "gpt-5.5", "never")
    assert started.session_id == own_thread("app_text")


def test_a_thread_that_another_process_has_open_refuses_the_session() -> None:
    talk, _ = play("app_resume_busy")
    assert talk.memo.refused is not None
    assert "active writer" in talk.memo.refused
    assert not talk.memo.greeted


@pytest.mark.parametrize(
    ("name", "tool", "reason"),
    [
        ("app_approval_decline", "shell", "need to write outside"),
        ("app_patch_approval", "apply_patch", None),
        ("app_mcp_tool", "mcp__tiny__ping", 'Allow the tiny MCP server to run tool "ping"?'),
    ],
)
def test_an_approval_names_the_tool_and_its_call(name: str, tool: str, reason: str | None) -> None:
    events = play(name)[1]
    [asked] = of(events, ApprovalRequested)
    [call] = [call for call in of(events, ToolCall) if call.name == tool]
    assert (asked.tool, asked.tool_call) == (tool, call.id)
    assert asked.input.items() >= call.input.items()
    assert reason is None or asked.description == reason


def test_a_declined_tool_is_named_by_its_turn() -> None:
    events = play("app_approval_decline")[1]
    [result] = of(events, ToolResult)
    assert (result.is_error, result.text) == (True, "declined")
    assert of(events, TurnEnded)[0].denied_tools == ("shell",)


def test_an_interrupt_withdraws_the_question_that_held_up_the_turn() -> None:
    events = play("app_interrupt_approval")[1]
    [asked] = of(events, ApprovalRequested)
    assert [event.id for event in of(events, ApprovalWithdrawn)] == [asked.id]


def test_a_tool_of_the_host_is_asked_for_under_its_name() -> None:
    events = play("app_dynamic_tool")[1]
    [asked] = of(events, ToolRequested)
    [result] = of(events, ToolResult)
    assert (asked.tool, asked.input, asked.tool_call) == ("proctor_report", {"x": "hello"}, result.id)
    assert (result.text, result.is_error) == ("noted", False)


@pytest.mark.covers("L40")
def test_what_is_sent_in_mid_turn_is_taken_into_the_turn() -> None:
    events = play("app_steer")[1]
    assert [event.request for event in of(events, Steered)] == ["request-3", "request-4"]
    assert of(events, TurnEnded)[0].prompts == ("request-2", "request-4")


def test_an_answer_by_a_schema_is_data() -> None:
    [ended] = of(play("app_schema")[1], TurnEnded)
    assert ended.structured_output == {"answer": "forty-two", "n": 42}


def test_another_thread_is_never_our_answer() -> None:
    events = play("app_two_threads")[1]
    [ended] = of(events, TurnEnded)
    assert (ended.text, ended.prompts) == ("alpha beta gamma delta", ("request-3",))
    assert {event.text for event in of(events, Text)} == {"alpha beta gamma delta"}
    told = [notice.text for notice in of(events, Notice) if notice.code == "subagent"]
    assert told == ["one two three four"]


def test_both_spellings_of_an_item_tell_the_same() -> None:
    app, run = (of(play(name)[1], ToolCall)[0] for name in ("app_tool", "exec_tool"))
    assert (app.name, app.input["command"]) == (run.name, run.input["command"])


def test_a_web_search_whose_line_names_its_id_twice_is_read() -> None:
    [call] = of(play("exec_web_search")[1], ToolCall)
    assert (call.name, call.input["query"]) == ("web_search", "proctor")


def test_an_mcp_server_that_did_not_start_is_told() -> None:
    told = [
        notice.data["server"]
        for notice in of(play("app_mcp_crash")[1], Notice)
        if notice.code == "mcp_server"
    ]
    assert told == ["tiny"]


CHECKS = (
    every_line_of_a_recording_gives_events_or_is_counted_as_quiet,
    nothing_in_a_recording_is_odd_but_what_was_made_so,
    the_cut_of_the_bytes_changes_nothing,
    bytes_that_come_one_by_one_give_the_same_events,
    the_turns_of_a_recording_end_as_expected,
    each_turn_that_ends_has_begun_and_ends_once,
    a_prompt_is_answered_once_and_no_question_is_left_where_all_turns_ended,
    no_event_is_empty,
    the_text_of_a_recording_survives_in_order,
    the_results_of_its_commands_survive,
    every_result_has_its_call,
    the_tokens_of_the_turns_are_those_of_the_calls_of_its_model,
    the_deltas_of_a_message_are_its_text,
)


@pytest.mark.covers("P06", "R012", "R088", "R086", "R090", "R085")
@each_row("name", NAMES)
def test_a_recording_keeps_every_check(name: str) -> None:
    all_hold(CHECKS, name)
