from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.protocols.codex import CODEX_EXEC
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Launch
from proctor.protocols.vocabulary import (
    AnyEvent,
    LimitReached,
    Misplaced,
    Notice,
    Prompt,
    Retrying,
    Started,
    TurnEnded,
    TurnStarted,
    Unrecognized,
    Usage,
)
from tests.tables import each_row

THREAD = "01a1ffcf-1353-7073-9324-79551515936a"
TURN = {"type": "turn.started"}
SPENT = {"type": "turn.completed", "usage": {"input_tokens": 100, "output_tokens": 20}}


def opened(thread: str = THREAD) -> dict[str, Any]:
    return {"type": "thread.started", "thread_id": thread}


def message(text: str) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": text}}


def run(*lines: dict[str, Any], **launch: Any) -> list[AnyEvent]:
    """The events of a run that says these lines."""
    wanted = Launch(executable=(), mode="oneshot", **launch)
    talk = Conversation(CODEX_EXEC, launch=wanted, resumed="resume" in launch)
    talk.greet()
    talk.send(Prompt("p1", "go"))
    return talk.receive(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def end_of(events: list[AnyEvent]) -> TurnEnded:
    [end] = [event for event in events if isinstance(event, TurnEnded)]
    return end


def test_a_run_is_one_turn_that_answers_its_prompt() -> None:
    events = run(opened(), TURN, message("hi"), SPENT)
    end = end_of(events)
    assert (end.ending, end.text, end.prompts, end.session_id) == ("completed", "hi", ("p1",), THREAD)
    assert end.usage == Usage(100, 20)


@pytest.mark.parametrize(
    ("resume", "fork"), [(THREAD, False), (THREAD.upper(), False), ("f" + THREAD[1:], True)]
)
def test_a_thread_that_goes_on_is_no_surprise(resume: str, fork: bool) -> None:
    assert [type(event) for event in run(opened(), resume=resume, fork=fork)] == [Started]


def test_another_thread_than_the_one_that_was_resumed_is_told() -> None:
    _, told = run(opened("f" + THREAD[1:]), resume=THREAD)
    assert isinstance(told, Notice)
    assert (told.code, told.data) == ("session_changed", {"session": THREAD})


@pytest.mark.covers("R089")
@pytest.mark.parametrize("fork", [False, True])
def test_the_usage_of_a_thread_with_a_past_is_not_the_runs(fork: bool) -> None:
    assert end_of(run(opened(), TURN, SPENT, resume=THREAD, fork=fork)).usage is None


def test_an_error_line_is_no_end() -> None:
    again = {
        "type": "error",
        "message": "Reconnecting... 2/5 (unexpected status 503 Service Unavailable: no, url: u)",
    }
    network = {"type": "error", "message": "Reconnecting... waiting for network (Connection failed)"}
    events = run(opened(), TURN, again, network, message("hi"), SPENT)
    first, second = [event for event in events if isinstance(event, Retrying)]
    assert (first.attempt, first.max_attempts, first.status) == (2, 5, 503)
    assert (second.attempt, second.max_attempts) == (0, None)
    assert end_of(events).ending == "completed"


@each_row(
    ("said", "ending"),
    [
        ("unexpected status 401 Unauthorized: no", "authentication"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "overloaded"),
        ("unexpected status 418 I'm a teapot", "api_error"),
        ("You've hit your usage limit.", "limit"),
        ("Codex ran out of room in the model's context window.", "prompt_too_long"),
        ("Selected model is at capacity.", "overloaded"),
        ("something new", "error"),
        ("", "error"),
    ],
)
def test_the_cause_is_found_in_the_words(said: str, ending: str) -> None:
    events = run(opened(), TURN, {"type": "turn.failed", "error": {"message": said}})
    assert end_of(events).ending == ending
    assert any(isinstance(event, LimitReached) for event in events) == (ending == "limit")


def test_a_limit_is_reached_once_though_it_is_said_twice() -> None:
    said = "You've hit your usage limit."
    events = run(
        TURN, {"type": "error", "message": said}, {"type": "turn.failed", "error": {"message": said}}
    )
    assert len([event for event in events if isinstance(event, LimitReached)]) == 1


def test_an_answer_that_is_not_what_its_schema_asks_for_is_a_failure() -> None:
    good, bad = (end_of(run(TURN, message(text), SPENT, json_schema="{}")) for text in ('{"n": 1}', "one"))
    assert (good.ending, good.structured_output) == ("completed", {"n": 1})
    assert (bad.ending, bad.structured_output) == ("schema_unmet", None)


def test_an_end_whose_beginning_was_lost_begins_first() -> None:
    assert [type(event) for event in run(SPENT)] == [TurnStarted, TurnEnded]


def test_a_second_beginning_is_misplaced() -> None:
    assert [type(event) for event in run(TURN, TURN)] == [TurnStarted, Misplaced]


def test_an_item_in_another_shape_costs_only_itself() -> None:
    odd = {"type": "item.completed", "item": ["new"]}
    changed = {"type": "turn.completed", "usage": "new"}
    events = run(TURN, odd, changed)
    assert [type(event) for event in events] == [TurnStarted, Unrecognized, Unrecognized, TurnEnded]
