from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from proctor.actors.scripted.launch import SCRIPTED_WIRES
from proctor.protocols import vocabulary as v
from proctor.protocols.claude import CLAUDE
from proctor.protocols.claude.dialect import launch as claude_launch
from proctor.protocols.codex import CODEX, CODEX_EXEC
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Dialect, Launch
from proctor.protocols.opencode import OPENCODE, OPENCODE_RUN
from tests.protocols.claude.player import play as play_claude
from tests.protocols.codex.player import play as play_codex
from tests.protocols.lines import INIT, RESULT, delta, line, session
from tests.protocols.opencode.player import play as play_opencode
from tests.tables import each_row

ODD = line(type="hologram", scene={"depth": 3})
LOST = line(type="control_response", response={"subtype": "success", "request_id": "nobodys"})


def started() -> Conversation:
    talk = session()
    talk.send(v.Prompt("p", "hi"))
    return talk


@pytest.mark.covers("R066")
def test_a_thousand_lines_are_a_thousand_objects() -> None:
    talk = started()
    talk.receive(INIT)
    events = talk.receive(b"".join(delta(str(n)) for n in range(1000)))
    assert [event.text for event in events if isinstance(event, v.TextDelta)] == [str(n) for n in range(1000)]
    assert len({event.frame for event in events}) == len(events) == 1000


@pytest.mark.covers("R069", "R077", "L21")
def test_an_unknown_kind_of_frame_is_an_event_that_leads_to_its_line_and_ends_nothing() -> None:
    talk = started()
    said = [INIT, ODD, delta("on"), RESULT]
    before = talk.frames
    events = talk.receive(b"".join(said))
    [odd] = [event for event in events if isinstance(event, v.Unrecognized)]
    assert (odd.kind, said[odd.frame - before], talk.unrecognized) == ("hologram", ODD, 1)
    assert [type(event) for event in events][-2:] == [v.TextDelta, v.TurnEnded]


@pytest.mark.covers("R074", "R079")
def test_good_and_bad_lines_of_each_kind_are_told_apart_and_counted() -> None:
    talk = started()
    events = talk.receive(INIT + b"npm warn old\n" + ODD + LOST + delta("a") + b"[1]\n" + RESULT)
    assert [(event.reason) for event in events if isinstance(event, v.Garbled)] == ["not_json", "not_object"]
    assert (talk.garbled, talk.unrecognized, talk.misplaced) == (2, 1, 1)
    good = [event for event in events if not isinstance(event, (v.Garbled, v.Unrecognized, v.Misplaced))]
    assert len(good) == len(events) - 4 > 0
    assert [type(event) for event in good][-2:] == [v.TextDelta, v.TurnEnded]


STREAMING: Sequence[tuple[Dialect, Launch, str]] = (
    (CLAUDE, Launch(executable=("x",)), "--output-format=stream-json"),
    (CLAUDE, Launch(executable=("x",), mode="oneshot"), "--output-format=stream-json"),
    (CODEX, Launch(executable=("x",)), "app-server"),
    (CODEX_EXEC, Launch(executable=("x",), mode="oneshot"), "--json"),
    (OPENCODE, Launch(executable=("x",)), "acp"),
    (OPENCODE_RUN, Launch(executable=("x",), mode="oneshot"), "--format=json"),
)


@pytest.mark.covers("R078")
@each_row(("dialect", "wanted", "word"), STREAMING)
def test_every_command_line_is_asked_for_a_stream(dialect: Dialect, wanted: Launch, word: str) -> None:
    assert word in dialect.launch(wanted).argv


@pytest.mark.covers("R078")
def test_a_document_over_several_lines_is_no_event_of_the_stream() -> None:
    document = json.dumps({"type": "result", "result": "x"}, indent=1).encode() + b"\n"
    talk = started()
    assert {type(event) for event in talk.receive(INIT + document) if event.frame > 1} <= {
        v.Garbled,
        v.Notice,
    }


@pytest.mark.covers("R015")
@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ((), []),
        (("Read",), ["--allowedTools=Read"]),
        (("Read", "Bash(git log:*)", "Edit"), ["--allowedTools=Read,Bash(git log:*),Edit"]),
    ],
)
def test_allowed_tools_are_one_option_and_none_is_no_option(tools: tuple[str, ...], words: list[str]) -> None:
    argv = claude_launch(Launch(executable=("claude",), allowed_tools=tools)).argv
    assert [word for word in argv if word.startswith("--allowedTools")] == words


@pytest.mark.covers("R015")
def test_a_command_line_without_an_option_for_allowed_tools_says_so() -> None:
    wanted = Launch(executable=("x",), allowed_tools=("Read",))
    for dialect in (CODEX, SCRIPTED_WIRES["acp"].dialect):
        assert "allowed_tools" in dialect.launch(wanted).ignored
    assert "Read" in json.dumps(dict(OPENCODE.launch(wanted).joined))


Play = Callable[[str], tuple[Any, list[Any]]]
TOLD: Sequence[tuple[Play, str, set[type]]] = (
    (play_claude, "d_subagent", {v.Text, v.ToolCall, v.ToolResult}),
    (play_claude, "b_thinking", {v.Thinking, v.Text}),
    (play_codex, "app_tool", {v.Text, v.ToolCall, v.ToolResult}),
    (play_codex, "app_reasoning", {v.Thinking, v.Text}),
    (play_opencode, "run_tool3", {v.Text, v.ToolCall, v.ToolResult}),
    (play_opencode, "run_reasoning_thinking", {v.Thinking, v.Text}),
)


@pytest.mark.covers("R081", "R082")
@each_row(("play", "name", "kinds"), TOLD, ids=[name for _, name, _ in TOLD])
def test_starts_content_and_ends_of_a_recording_are_typed(play: Play, name: str, kinds: set[type]) -> None:
    _, events = play(name)
    [start, *_] = [event for event in events if isinstance(event, v.Started)]
    [begun, *_] = [event for event in events if isinstance(event, v.TurnStarted)]
    assert (bool(start.session_id), events.index(start) < events.index(begun)) == (True, True)
    assert kinds | {v.Started, v.TurnStarted, v.TurnEnded} <= {type(event) for event in events}


GOOD = ((play_claude, "b_stream"), (play_codex, "app_text"), (play_opencode, "run_text"))
BAD = ((play_claude, "i_401"), (play_codex, "app_err_401"), (play_opencode, "run_err_401"))


@pytest.mark.covers("R083")
@pytest.mark.parametrize(("play", "name"), GOOD, ids=[name for _, name in GOOD])
def test_a_good_end_says_tokens_and_session(play: Play, name: str) -> None:
    _, events = play(name)
    [end] = [event for event in events if isinstance(event, v.TurnEnded)]
    assert (end.ending, end.error) == ("completed", None)
    assert end.usage is not None
    assert end.usage.output_tokens
    assert end.session_id


@pytest.mark.covers("R083")
@pytest.mark.parametrize(("play", "name"), BAD, ids=[name for _, name in BAD])
def test_a_bad_end_says_its_kind_and_its_reason(play: Play, name: str) -> None:
    _, events = play(name)
    end = [event for event in events if isinstance(event, v.TurnEnded)][-1]
    assert end.ending == "authentication"
    assert end.error


@pytest.mark.covers("R021")
def test_the_model_that_answered_is_told_and_not_the_one_that_was_asked_for() -> None:
    talk = session(launch=Launch(executable=("x",), model="sonnet"))
    talk.send(v.Prompt("p", "hi"))
    [end] = [event for event in talk.receive(INIT + RESULT) if isinstance(event, v.TurnEnded)]
    assert end.model == "m"
