from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from proctor.protocols.vocabulary import (
    Answered,
    ApprovalRequested,
    ApprovalWithdrawn,
    Exited,
    Garbled,
    LimitReached,
    Misplaced,
    Notice,
    Retrying,
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
from tests.protocols.claude.endings import ENDINGS, RESUMED
from tests.protocols.claude.player import NAMES, play, recording
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

NOT_STREAM_JSON = {"a_json_verbose", "a_text", "m_no_auth_text"}
TRIMMED = {"n_small_deltas", "n_text20_partial"}
CUT_BY_BYTE = [name for name in NAMES if 0 < len(recording(name).stdout) <= 20_000][::6]
IN_DELTAS = [name for name in NAMES if name.startswith("c_") or name == "i_drop_once_partial"]


def frames(name: str) -> list[dict[str, Any]]:
    """The frames of a recording as plain objects."""
    if name in NOT_STREAM_JSON:
        return []
    return [json.loads(line) for line in lines_of(recording(name).stdout)]


def every_line_of_a_recording_gives_events_or_is_counted_as_quiet(name: str) -> None:
    assert_every_line_is_told_or_quiet(*play(name), len(lines_of(recording(name).stdout)))


def nothing_in_a_recording_is_odd_but_what_was_made_so(name: str) -> None:
    _, events = play(name)
    odd = [event for event in events if isinstance(event, (Garbled, Unrecognized, Misplaced))]
    if name in NOT_STREAM_JSON:
        assert [type(event) for event in odd] == [Garbled]
    elif name in TRIMMED:
        assert [event.kind for event in of(odd, Unrecognized)] == ["__elided__"]
    else:
        assert odd == []


def the_cut_of_the_bytes_changes_nothing(name: str) -> None:
    _, events = play(name)
    assert play(name, by_line)[1] == events
    assert play(name, at_random(name))[1] == events


def bytes_that_come_one_by_one_give_the_same_events(name: str) -> None:
    if name in CUT_BY_BYTE:
        assert play(name, by_byte)[1] == play(name)[1]


def test_every_recording_has_its_expected_endings() -> None:
    assert sorted(ENDINGS) == NAMES


def the_turns_of_a_recording_end_as_expected(name: str) -> None:
    _, events = play(name)
    assert [(end.ending, len(end.prompts)) for end in of(events, TurnEnded)] == [*ENDINGS[name]]


def each_turn_that_ends_has_begun_and_ends_once(name: str) -> None:
    assert_each_turn_ends_once(play(name)[1])


def a_prompt_is_answered_once_and_none_is_left_where_all_turns_ended(name: str) -> None:
    talk, events = play(name)
    answered = Counter(prompt for end in of(events, TurnEnded) for prompt in end.prompts)
    assert set(answered.values()) <= {1}
    if len(of(events, TurnStarted)) == len(of(events, TurnEnded)) and ENDINGS[name]:
        dropped = {
            notice.data["prompt"] for notice in of(events, Notice) if notice.code == "prompt_cancelled"
        }
        assert {*talk.memo.prompts} - dropped == ({"prompt-5"} if name == "m_bad_json_after" else set())
        assert talk.memo.open_turns == []
        assert talk.memo.approvals == {}


def no_event_is_empty(name: str) -> None:
    _, events = play(name)
    said = [event for event in events if isinstance(event, (Text, TextDelta, Thinking))]
    assert all(event.text for event in said)


def the_token_totals_of_a_recording_survive(name: str) -> None:
    def total(counts: Iterable[int | None]) -> int:
        return sum(count or 0 for count in counts)

    raw = [frame["usage"] for frame in frames(name) if frame.get("type") == "result"]
    usages = [end.usage for end in of(play(name)[1], TurnEnded) if end.usage is not None]
    assert total(u.input_tokens for u in usages) == total(u["input_tokens"] for u in raw)
    assert total(u.output_tokens for u in usages) == total(u["output_tokens"] for u in raw)
    cached = total(u["cache_read_input_tokens"] for u in raw)
    assert total(u.cache_read_tokens for u in usages) == cached
    written = total(u["cache_creation_input_tokens"] for u in raw)
    assert total(u.cache_write_tokens for u in usages) == written


def raw_blocks(name: str, speaker: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    found: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for frame in frames(name):
        if frame.get("type") == speaker and isinstance(frame["message"]["content"], list):
            found += [(frame, block) for block in frame["message"]["content"]]
    return found


def raw_result_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: list[dict[str, Any]] = content or []
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def the_tool_results_of_a_recording_survive(name: str) -> None:
    raw = [
        (block["tool_use_id"], raw_result_text(block.get("content")), block.get("is_error") or False)
        for _, block in raw_blocks(name, "user")
        if block["type"] == "tool_result"
    ]
    assert [(e.id, e.text, e.is_error) for e in of(play(name)[1], ToolResult)] == raw


def the_text_and_tool_calls_of_a_recording_survive_in_order(name: str) -> None:
    raw = [
        block["text"] if block["type"] == "text" else (block["id"], block["name"], block["input"])
        for frame, block in raw_blocks(name, "assistant")
        if block["type"] in ("text", "tool_use") and not frame.get("error")
    ]
    said = [event for event in play(name)[1] if isinstance(event, (Text, ToolCall))]
    assert [e.text if isinstance(e, Text) else (e.id, e.name, e.input) for e in said] == raw


def the_deltas_of_a_block_are_its_text(name: str) -> None:
    events = play(name)[1]
    deltas = "".join(event.text for event in of(events, TextDelta))
    assert name not in IN_DELTAS or deltas == "".join(event.text for event in of(events, Text))


def the_costs_of_the_turns_add_up_to_the_last_total(name: str) -> None:
    ends = of(play(name)[1], TurnEnded)
    if name.startswith("e_slash"):
        return  # `/clear` sets the total back
    costs = [end.cost_usd for end in ends]
    assert None not in costs
    assert sum(cost or 0 for cost in costs) == pytest.approx(ends[-1].total_cost_usd if ends else 0)


def test_a_session_names_itself_once_until_it_is_cleared() -> None:
    started = of(play("e_slash")[1], Started)
    assert [event.session_id[:8] for event in started] == ["4e5d5f0b", "365bdedd"]
    assert (started[0].version, started[0].model) == ("2.1.330", "claude-opus-5-5")
    assert "Bash" in started[0].tools


def test_the_cost_after_a_clear_is_counted_from_zero() -> None:
    costs = [end.cost_usd for end in of(play("e_slash")[1], TurnEnded)]
    assert costs == pytest.approx([8e-5, 18e-5, 0, 6e-5, 0, 0, 6e-5])


def test_queued_prompts_are_answered_by_one_turn() -> None:
    record = recording("e_queue")
    uuids = [
        json.loads(step.data)["uuid"] for step in record.steps if not step.output and b'"user"' in step.data
    ]
    ends = of(play("e_queue")[1], TurnEnded)
    assert [end.prompts for end in ends] == [(uuids[0],), (uuids[1], uuids[2])]


def test_a_prompt_written_while_a_tool_runs_belongs_to_the_running_turn() -> None:
    end = of(play("e_queue_mid")[1], TurnEnded)[0]
    assert (end.turn, len(end.prompts)) == ("t1", 2)


@pytest.mark.parametrize(
    ("name", "gone"), [("e_interrupt_cancel_all", "d59984da"), ("e_cancel_async", "0104b4cf")]
)
def test_a_queued_prompt_that_was_cancelled_is_reported_and_forgotten(name: str, gone: str) -> None:
    talk, events = play(name)
    notices = [event for event in of(events, Notice) if event.code == "prompt_cancelled"]
    assert [notice.data["prompt"][:8] for notice in notices] == [gone]
    assert not talk.memo.prompts


def test_two_results_that_come_together_end_two_turns() -> None:
    events = play("d_subagent")[1]
    assert [(end.turn, end.solicited) for end in of(events, TurnEnded)] == [("t1", True), ("t2", False)]


def test_a_subagent_speaks_under_the_tool_call_that_made_it() -> None:
    events = play("d_subagent")[1]
    agent = of(events, ToolCall)[0]
    inner = [event.parent for event in events if isinstance(event, (ToolCall, Text)) and event.parent]
    assert agent.name == "Agent"
    assert inner == [agent.id, agent.id]


def test_a_turn_that_a_restart_went_on_with_names_the_prompt_of_the_process_before() -> None:
    for name in RESUMED.split():
        end = of(play(name)[1], TurnEnded)[0]
        assert (len(end.prompts), end.solicited) == (1, False)


def test_an_approval_that_an_interrupt_withdraws_cannot_be_decided() -> None:
    talk, events = play("e_perm_cancel")
    asked, withdrawn = of(events, ApprovalRequested), of(events, ApprovalWithdrawn)
    assert [event.id for event in asked] == [event.id for event in withdrawn]
    assert asked[0].tool_call == of(events, ToolCall)[0].id
    assert not talk.memo.approvals


def test_an_approval_that_nobody_decided_is_moot_when_its_turn_has_ended() -> None:
    events = play("e_eof_perm")[1]
    kinds = [type(event) for event in events if isinstance(event, (ApprovalWithdrawn, TurnEnded))]
    assert kinds == [ApprovalWithdrawn, TurnEnded]


@pytest.mark.parametrize("name", ["e_sdk_mcp", "e_sdk_mcp_flag"])
def test_what_no_host_serves_is_refused_at_once(name: str) -> None:
    talk, events = play(name)
    owed = [json.loads(line) for line in talk.data_to_send().splitlines()]
    refused = [event for event in of(events, Notice) if event.code == "request_refused"]
    asked = [f["request_id"] for f in frames(name) if f["type"] == "control_request"]
    assert [reply["response"]["request_id"] for reply in owed] == asked
    assert {reply["response"]["subtype"] for reply in owed} == {"error"}
    assert len(refused) == len(asked)


def test_a_usage_limit_is_told_with_the_time_it_ends() -> None:
    events = play("o_rate_limit_rejected")[1]
    assert of(events, LimitReached) == [LimitReached(1, "t1", "five_hour", 1795298457.0)]
    end = of(events, TurnEnded)[0]
    assert (end.ending, end.status, end.detail) == ("limit", 429, "usage_limit_reached")


def test_a_usage_limit_that_is_near_is_a_notice() -> None:
    notices = of(play("o_rate_limit_oauth")[1], Notice)
    assert [(notice.code, notice.data["resets_at"]) for notice in notices] == [("limit_near", 1795298457.0)]


def test_a_busy_server_is_no_usage_limit() -> None:
    events = play("i_429")[1]
    assert of(events, LimitReached) == []
    assert [(e.attempt, e.max_attempts, e.delay, e.status) for e in of(events, Retrying)] == [
        (1, 2, 0.53, 429),
        (2, 2, 1.094, 429),
    ]


@pytest.mark.covers("L31")
def test_a_wrong_key_is_told_apart_although_the_result_says_success() -> None:
    end = of(play("i_401_r2@2.1.197")[1], TurnEnded)[0]
    assert (end.ending, end.text, end.error) == (
        "authentication",
        None,
        "Invalid API key · Fix external API key",
    )
    assert (end.status, end.detail) == (401, "authentication_failed")


def test_the_text_of_an_api_failure_is_not_the_agents() -> None:
    events = play("i_500")[1]
    assert of(events, Text) == []
    assert [notice.data for notice in of(events, Notice)] == [{"error": "server_error", "status": 500}]


@pytest.mark.covers("R083", "R091", "L25")
def test_a_turn_over_its_limit_gives_a_typed_end_with_the_session() -> None:
    end = of(play("j_max_turns")[1], TurnEnded)[0]
    assert (end.ending, end.error) == ("max_turns", "Reached maximum number of turns (2)")
    assert end.session_id
    assert end.model_turns == 3


def test_a_refused_start_gives_no_session_id() -> None:  # the one it writes is made up
    talk, events = play("f_resume_missing")
    end = of(events, TurnEnded)[0]
    assert end.session_id is None
    assert talk.memo.session_id is None
    assert end.error == "No conversation found with session ID: cb3d329d-a2e7-4b6a-8978-7c257a35fc4a"


@pytest.mark.covers("R089")
def test_zeros_after_an_interrupt_are_no_usage() -> None:
    end = of(play("e_session")[1], TurnEnded)[3]
    assert end.usage is None
    assert end.cost_usd == pytest.approx(0.00618)


def test_a_structured_answer_arrives_as_an_object() -> None:
    end = of(play("g_schema_fix")[1], TurnEnded)[0]
    assert end.structured_output == {"name": "x", "n": 3}


def test_denied_tools_are_named_at_the_end() -> None:
    events = play("d_denied")[1]
    assert of(events, TurnEnded)[0].denied_tools == ("Write",)
    assert [notice.code for notice in of(events, Notice)] == ["permission_denied"]


def test_background_work_is_announced() -> None:
    notices = of(play("d_bash_timeout")[1], Notice)
    assert [notice.code for notice in notices] == [
        "background_tasks",
        "task_started",
        "task_updated",
        "task_ended",
        "background_tasks",
    ]
    assert [len(notice.data["tasks"]) for notice in notices if notice.code == "background_tasks"] == [1, 0]


def test_a_fallback_model_and_a_failed_mcp_server_are_visible() -> None:
    fallback = next(e for e in of(play("i_529_fallback")[1], Notice) if e.code == "model_fallback")
    assert fallback.data["fallback_model"] == "claude-haiku-4-5"
    assert of(play("h_mcp_dead")[1], Started)[0].mcp_servers == {"tiny": "failed"}


def test_a_reply_names_the_request_and_its_refusal() -> None:
    answered = {event.request: event.error for event in of(play("e_session")[1], Answered)}
    assert (answered["greeting"], answered["int-1"]) == (None, None)
    assert (answered["c-2"] or "").startswith("Cannot set permission mode")


def test_a_conversation_never_says_that_a_process_exited() -> None:
    assert not any(of(play(name)[1], Exited) for name in NAMES[:40])


CHECKS = (
    every_line_of_a_recording_gives_events_or_is_counted_as_quiet,
    nothing_in_a_recording_is_odd_but_what_was_made_so,
    the_cut_of_the_bytes_changes_nothing,
    bytes_that_come_one_by_one_give_the_same_events,
    the_turns_of_a_recording_end_as_expected,
    each_turn_that_ends_has_begun_and_ends_once,
    a_prompt_is_answered_once_and_none_is_left_where_all_turns_ended,
    no_event_is_empty,
    the_token_totals_of_a_recording_survive,
    the_tool_results_of_a_recording_survive,
    the_text_and_tool_calls_of_a_recording_survive_in_order,
    the_deltas_of_a_block_are_its_text,
    the_costs_of_the_turns_add_up_to_the_last_total,
)


@pytest.mark.covers("P06", "R012", "R088", "R090", "C03", "R086", "C04", "R085")
@each_row("name", NAMES)
def test_a_recording_keeps_every_check(name: str) -> None:
    all_hold(CHECKS, name)
