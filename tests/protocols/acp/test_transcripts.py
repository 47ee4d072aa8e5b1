from __future__ import annotations

import json

import pytest

from proctor.protocols.vocabulary import (
    Answered,
    ApprovalRequested,
    ApprovalWithdrawn,
    Garbled,
    Misplaced,
    Notice,
    Started,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    TurnEnded,
    TurnStarted,
    Unrecognized,
    Usage,
)
from tests.protocols.acp.endings import ENDINGS
from tests.protocols.acp.player import NAMES, play, stdin, stdout
from tests.protocols.recorded import (
    SIZES,
    all_hold,
    assert_every_line_is_told_or_quiet,
    at_random,
    by_byte,
    by_line,
    of,
)
from tests.tables import each_row

CUT_BY_BYTE = ("gemini_text", "opencode_permission_reject", "codex-acp_text")
BROKEN = {"codex-acp_mixed", "claude-acp_mixed"}
"""The recorded host wrote a line that is no JSON, and these agents answer it."""


def every_line_of_a_recording_gives_events_or_is_counted_as_quiet(name: str) -> None:
    assert_every_line_is_told_or_quiet(*play(name), len(stdout(name)))


def nothing_in_a_recording_is_odd_but_what_was_made_so(name: str) -> None:
    odd = [e for e in play(name)[1] if isinstance(e, (Garbled, Unrecognized, Misplaced))]
    assert [type(event) for event in odd] == ([Misplaced] if name in BROKEN else [])


def the_cut_of_the_bytes_changes_nothing(name: str) -> None:
    _, events = play(name)
    assert play(name, by_line)[1] == events
    assert play(name, at_random(name, SIZES[:-1]))[1] == events


def bytes_that_come_one_by_one_give_the_same_events(name: str) -> None:
    if name in CUT_BY_BYTE:
        assert play(name, by_byte)[1] == play(name)[1]


def test_every_recording_has_its_expected_endings() -> None:
    assert sorted(ENDINGS) == NAMES


def the_turns_of_a_recording_end_as_expected(name: str) -> None:
    ends = of(play(name)[1], TurnEnded)
    assert [(end.ending, end.detail) for end in ends] == [*ENDINGS[name]]
    assert all(end.error or end.ending in ("completed", "interrupted") for end in ends)


def each_prompt_has_a_turn_of_its_own_that_begins_before_it_ends(name: str) -> None:
    _, events = play(name)
    begun = {event.turn: event.prompts for event in of(events, TurnStarted)}
    ends = of(events, TurnEnded)
    assert all(begun[end.turn] == end.prompts and len(end.prompts) == 1 for end in ends)
    assert len({end.prompts for end in ends}) == len(ends)


def the_pieces_of_a_text_are_the_whole_blocks_and_all_that_was_recorded(name: str) -> None:
    _, events = play(name)
    failures = "".join(e.text + "\n\n" for e in of(events, Notice) if e.code == "api_failure")
    said = "".join(event.text for event in of(events, TextDelta))
    finished = "".join(event.text for event in of(events, Text))
    assert said.startswith(finished)  # a run that the end of the process cut has no whole block
    assert sorted(said + failures) == sorted(raw_text(name, "agent_message_chunk"))
    thought = "".join(event.text for event in of(events, Thinking) if event.partial)
    assert thought == raw_text(name, "agent_thought_chunk")


def raw_text(name: str, kind: str) -> str:
    frames = [json.loads(line) for line in stdout(name)]
    opened = next(at for at, line in enumerate(stdout(name)) if b"available_commands_update" in line)
    updates = [frame["params"]["update"] for frame in frames[opened:] if "update" in frame.get("params", {})]
    return "".join(update["content"]["text"] for update in updates if update["sessionUpdate"] == kind)


def a_tool_is_told_once_and_before_its_question_and_its_result(name: str) -> None:
    known: set[str] = set()
    ended: set[str] = set()
    for event in play(name)[1]:
        match event:
            case ToolCall(id=call):
                assert call not in known
                known.add(call)
            case ApprovalRequested(tool_call=call):
                assert call in known
            case ToolResult(id=call):
                assert call in known - ended
                ended.add(call)
            case _:
                pass


def no_event_is_empty(name: str) -> None:
    said = [e for e in play(name)[1] if isinstance(e, (Text, TextDelta, Thinking))]
    assert all(event.text for event in said)


@pytest.mark.parametrize(
    ("name", "call", "result"),
    [
        ("claude-acp_text", ("Bash", "echo hi"), "hi"),
        ("codex-acp_text", ("exec_command", "echo hi"), "hi\n"),
        ("opencode_text", ("bash", "echo hi"), "hi\n"),
    ],
)
def test_a_tool_call_has_its_name_its_input_and_its_output(
    name: str, call: tuple[str, str], result: str
) -> None:
    _, events = play(name)
    [told], [got] = of(events, ToolCall), of(events, ToolResult)
    assert (told.name, told.input["command"]) == call
    assert (got.id, got.text, got.is_error) == (told.id, result, False)


def test_an_agent_that_sends_no_input_is_judged_by_the_title_of_the_call() -> None:
    [asked] = of(play("gemini_permission_reject")[1], ApprovalRequested)
    assert (asked.tool, asked.input) == ("run_shell_command", {"title": "touch made-by-acp.txt"})
    assert asked.description == "touch made-by-acp.txt"


def test_a_denied_tool_that_the_agent_is_silent_about_has_a_result_before_what_is_said_next() -> None:
    _, events = play("gemini_permission_reject")
    kinds = [type(e) for e in events if isinstance(e, (ApprovalRequested, ToolResult, TextDelta))]
    assert kinds[:3] == [ApprovalRequested, ToolResult, TextDelta]
    assert of(events, ToolResult)[0].is_error


@each_row("name", [name for name in NAMES if name.endswith(("_reject", "permission_cancelled"))])
def test_denied_tools_are_named_at_the_end_and_are_errors(name: str) -> None:
    _, events = play(name)
    [end] = of(events, TurnEnded)
    assert len(end.denied_tools) == 1
    assert [result.is_error for result in of(events, ToolResult)] == [True]


def test_an_interrupt_withdraws_the_questions_that_were_open() -> None:
    talk, events = play("claude-acp_mixed")
    asked, withdrawn = of(events, ApprovalRequested), of(events, ApprovalWithdrawn)
    assert [event.id for event in asked] == ["0", "1", "2"]
    assert [event.id for event in withdrawn] == []  # the recorded host had answered before it interrupted
    assert not talk.memo.approvals


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_load")])
def test_the_history_of_a_loaded_session_is_no_part_of_any_turn(name: str) -> None:
    talk, events = play(name)
    first = of(events, TurnStarted)[0]
    before = [type(event) for event in events if event.frame < first.frame and event.turn is None]
    assert set(before) == {Started, Answered}
    assert talk.memo.quiet["greeting.agent_message_chunk"] == 1
    loaded = next(m["params"]["sessionId"] for m in stdin(name) if m.get("method") == "session/load")
    assert of(events, Started)[0].session_id == loaded


@pytest.mark.covers("R089")
@pytest.mark.parametrize(
    ("name", "usages"),
    [
        ("claude-acp_text", [(100, 20), (200, 40)]),
        ("codex-acp_text", [(100, 20), (200, 40)]),
        ("gemini_text", [(100, 20), (200, 40)]),
        ("opencode_text", [(100, 20), None]),
    ],
)
def test_tokens_are_those_of_the_whole_turn_or_none(name: str, usages: list[tuple[int, int] | None]) -> None:
    found = [end.usage for end in of(play(name)[1], TurnEnded)]
    assert [_tokens(usage) for usage in found] == usages


def _tokens(usage: Usage | None) -> tuple[int | None, int | None] | None:
    return None if usage is None else (usage.input_tokens, usage.output_tokens)


def test_the_costs_of_the_turns_add_up_to_the_total() -> None:
    ends = of(play("claude-acp_mixed")[1], TurnEnded)
    assert sum(end.cost_usd or 0 for end in ends) == pytest.approx(0.0136)
    assert ends[-1].total_cost_usd == pytest.approx(0.0136)


def test_the_first_cost_of_a_resumed_session_is_not_known() -> None:
    assert of(play("claude-acp_load")[1], TurnEnded)[0].cost_usd is None


def test_an_error_that_comes_as_the_agents_text_is_not_its_text() -> None:
    events = play("codex-acp_mixed")[1]
    end = next(end for end in of(events, TurnEnded) if end.ending == "invalid_request")
    assert end.text is None
    assert "Bad request from the fake" in (end.error or "")
    [notice] = [n for n in of(events, Notice) if n.code == "api_failure"]
    assert "Bad request from the fake" in notice.text


def test_a_session_names_its_model_its_mode_and_the_version_of_the_agent() -> None:
    started = {name: of(play(f"{name}_text")[1], Started)[0] for name in ("opencode", "gemini", "codex-acp")}
    assert {name: (e.model, e.permission_mode, e.version) for name, e in started.items()} == {
        "opencode": ("fake/m1", "build", "1.18.33"),
        "gemini": ("gemini-2.5-pro", "default", "0.61.0"),
        "codex-acp": ("gpt-5.5", "agent", "2.6.0"),
    }


CHECKS = (
    every_line_of_a_recording_gives_events_or_is_counted_as_quiet,
    nothing_in_a_recording_is_odd_but_what_was_made_so,
    the_cut_of_the_bytes_changes_nothing,
    bytes_that_come_one_by_one_give_the_same_events,
    the_turns_of_a_recording_end_as_expected,
    each_prompt_has_a_turn_of_its_own_that_begins_before_it_ends,
    the_pieces_of_a_text_are_the_whole_blocks_and_all_that_was_recorded,
    a_tool_is_told_once_and_before_its_question_and_its_result,
    no_event_is_empty,
)


@pytest.mark.covers("P06", "R012", "R085", "R090", "R086", "R088")
@each_row("name", NAMES)
def test_a_recording_keeps_every_check(name: str) -> None:
    all_hold(CHECKS, name)
