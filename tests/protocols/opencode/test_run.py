from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Launch
from proctor.protocols.errors import Misuse
from proctor.protocols.opencode import OPENCODE_RUN
from proctor.protocols.vocabulary import (
    Garbled,
    Misplaced,
    Notice,
    Prompt,
    Started,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    TurnEnded,
    TurnStarted,
    Unrecognized,
    Usage,
)
from tests.protocols.opencode.endings import ENDINGS
from tests.protocols.opencode.player import NAMES, by_size, exit_status, play, stdout
from tests.protocols.recorded import all_hold, assert_every_line_is_told_or_quiet, by_byte, lines_of, of
from tests.protocols.shapes import shapes
from tests.simulation.search import share
from tests.tables import each_row


def every_line_of_a_recording_gives_events_or_is_counted_as_quiet(name: str) -> None:
    assert_every_line_is_told_or_quiet(*play(name), len(lines_of(stdout(name))))


def nothing_in_a_recording_is_odd_but_the_line_that_was_lost(name: str) -> None:
    odd = [e for e in play(name)[1] if isinstance(e, (Garbled, Unrecognized, Misplaced))]
    assert [type(event) for event in odd] == ([Garbled] if name == "run_stalled_reader" else [])


def the_cut_of_the_bytes_changes_nothing(name: str) -> None:
    _, events = play(name)
    assert play(name, by_size(7))[1] == events
    assert play(name, by_size(4096))[1] == events
    if len(stdout(name)) < 5000:
        assert play(name, by_byte)[1] == events


def the_turn_of_a_recording_ends_as_expected(name: str) -> None:
    ends = of(play(name)[1], TurnEnded)
    assert [end.ending for end in ends] == ([ENDINGS[name]] if name in ENDINGS else [])
    assert all(end.prompts == ("p",) for end in ends)


def a_good_end_is_one_that_left_with_status_0_and_has_an_answer(name: str) -> None:
    _, events = play(name)
    for end in of(events, TurnEnded):
        if end.ending == "completed":
            assert exit_status(name) == 0
            assert end.text == of(events, Text)[-1].text
        else:
            assert end.error


def test_a_run_that_leaves_with_status_0_and_no_answer_has_not_ended_its_turn() -> None:
    talk, events = play("run_external_dir")
    assert exit_status("run_external_dir") == 0
    assert of(events, TurnEnded) == []
    assert talk.memo.open_turns


def tokens_are_the_sum_of_all_steps(name: str) -> None:
    if ENDINGS.get(name) != "completed":
        return
    frames: list[dict[str, Any]] = [json.loads(line) for line in stdout(name).splitlines()]
    counts = [frame["part"]["tokens"] for frame in frames if frame["type"] == "step_finish"]
    [end] = of(play(name)[1], TurnEnded)
    assert end.usage == Usage(
        sum(c["input"] for c in counts), sum(c["output"] + c["reasoning"] for c in counts), 0, 0
    )
    assert end.model_turns == len(counts)


def test_tokens_of_thought_count_as_output_and_costs_are_summed() -> None:
    talk = Conversation(OPENCODE_RUN, mode="oneshot")
    talk.greet()
    talk.send(Prompt("p", "x"))
    tokens = {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}}
    steps = [{"reason": reason, "tokens": tokens, "cost": 0.25} for reason in ("tool-calls", "stop")]
    lines = [json.dumps({"type": "step_finish", "sessionID": "s", "part": step}) + "\n" for step in steps]
    [*_, end] = talk.receive("".join(lines).encode())
    assert isinstance(end, TurnEnded)
    assert (end.usage, end.cost_usd) == (Usage(2, 10, 8, 10), 0.5)


def test_a_tool_is_told_with_its_result_when_it_is_over() -> None:
    _, events = play("run_tool")
    [call], [result] = of(events, ToolCall), of(events, ToolResult)
    assert (call.name, call.input["command"]) == ("bash", "echo hi")
    assert (result.id, result.text, result.is_error) == (call.id, "hi\n", False)
    assert of(play("run_external_dir")[1], ToolResult)[0].is_error


def test_thoughts_are_told_where_they_are_shown() -> None:
    assert len(of(play("run_reasoning_thinking")[1], Thinking)) == 1


def test_a_run_names_its_session_once_and_then_begins_its_turn() -> None:
    for name in ("run_text", "run_tool3"):
        _, events = play(name)
        assert [type(event) for event in events[:2]] == [Started, TurnStarted]
        assert len(of(events, Started)) == len(of(events, TurnStarted)) == 1


def test_a_run_that_would_go_on_for_ever_is_given_up_once_and_early() -> None:
    _, events = play("run_endearly")
    [notice], [end] = of(events, Notice), of(events, TurnEnded)
    assert notice.code == "endless_turn"
    assert end.frame < 30
    assert of(events, Misplaced) == []


@pytest.mark.covers("R003", "R014", "R187")
def test_the_prompt_goes_by_stdin_and_the_command_line_names_what_is_wanted() -> None:
    wanted = Launch(
        executable=("/o",),
        mode="oneshot",
        model="p/m",
        resume="ses_1",
        fork=True,
        permission_mode="plan",
        effort="high",
        extra=("--pure",),
        secret="xyz",
    )
    command = OPENCODE_RUN.launch(wanted)
    assert command.argv == (
        *("/o", "run", "--format=json", "--model=p/m", "--session=ses_1", "--agent=plan"),
        *("--variant=high", "--fork", "--thinking", "--pure"),
    )
    assert command.env["OPENCODE_SERVER_PASSWORD"] == "xyz"
    assert command.ignored == ()
    talk = Conversation(OPENCODE_RUN, mode="oneshot")
    assert talk.greet() == b""
    assert talk.send(Prompt("p", "-x $HOME\n")) == b"-x $HOME\n"
    assert talk.closes_stdin


def test_blocks_are_refused_where_only_text_is_taken() -> None:
    talk = Conversation(OPENCODE_RUN, mode="oneshot")
    talk.greet()
    with pytest.raises(Misuse, match="takes text, not content blocks"):
        talk.send(Prompt("p", "x", blocks=({"type": "image"},)))


SHAPES = shapes(3)
TYPES = st.sampled_from(["step_start", "text", "reasoning", "tool_use", "step_finish", "error", "new"])
WORDS = st.sampled_from(["stop", "length", "tool-calls", "unknown", "completed", "error", "s1"])
FIELDS = [
    "text",
    "tool",
    "callID",
    "state",
    "status",
    "input",
    "output",
    "reason",
    "tokens",
    "cache",
    "cost",
    "name",
    "data",
    "message",
]
PARTS = st.dictionaries(
    st.sampled_from(FIELDS),
    SHAPES | WORDS | st.dictionaries(st.sampled_from(FIELDS), SHAPES | WORDS, max_size=3),
    max_size=4,
)
FRAMES = st.fixed_dictionaries(
    {"type": TYPES | SHAPES},
    optional={"part": PARTS | SHAPES, "error": PARTS | SHAPES, "sessionID": WORDS | SHAPES},
)


@pytest.mark.covers("R116")
@settings(max_examples=share(150), deadline=None)
@given(st.lists(FRAMES, max_size=3) | st.binary(max_size=200), st.booleans())
def test_whatever_is_written_never_raises_and_is_accounted_for(
    written: list[Any] | bytes, prompted: bool
) -> None:
    data = (
        written
        if isinstance(written, bytes)
        else b"".join(json.dumps(frame).encode() + b"\n" for frame in written)
    )
    talk = Conversation(OPENCODE_RUN, mode="oneshot")
    talk.greet()
    if prompted:
        talk.send(Prompt("p", "x"))
    events = [*talk.receive(data), *talk.receive(b"")]
    lines = [item for item in data.split(b"\n") if item.strip()]
    assert len({event.frame for event in events}) + talk.memo.quiet.total() == len(lines)


CHECKS = (
    every_line_of_a_recording_gives_events_or_is_counted_as_quiet,
    nothing_in_a_recording_is_odd_but_the_line_that_was_lost,
    the_cut_of_the_bytes_changes_nothing,
    the_turn_of_a_recording_ends_as_expected,
    a_good_end_is_one_that_left_with_status_0_and_has_an_answer,
    tokens_are_the_sum_of_all_steps,
)


@pytest.mark.covers("P06", "R012", "R089", "R090")
@each_row("name", NAMES)
def test_a_recording_keeps_every_check(name: str) -> None:
    all_hold(CHECKS, name)
