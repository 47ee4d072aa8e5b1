from __future__ import annotations

import pytest

from proctor.protocols.vocabulary import (
    HookCalled,
    RequestWithdrawn,
    Steered,
    ToolCall,
    ToolRequested,
    TurnEnded,
)
from tests.protocols.claude.player import play
from tests.protocols.recorded import of


@pytest.mark.parametrize("name", ["e_host", "e_host@2.1.197"])
def test_tools_and_hooks_of_the_host_are_asked_for_and_answered(name: str) -> None:
    talk, events = play(name)
    asked = of(events, ToolRequested)
    assert [event.tool for event in asked] == ["add", "explode", "hold", "wait"]
    hooks = of(events, HookCalled)
    assert [event.input["tool_input"]["command"] for event in hooks] == ["touch deny.txt", "echo allowed"]
    calls = {event.id for event in of(events, ToolCall)}
    assert {event.tool_call for event in asked} | {event.tool_call for event in hooks} == calls
    assert [event.id for event in of(events, RequestWithdrawn)] == [asked[-1].id]
    assert talk.memo.calls == {}


@pytest.mark.covers("L40")
@pytest.mark.parametrize("name", ["e_host", "e_host@2.1.197", "e_queue_mid"])
def test_what_was_taken_into_a_turn_is_told_before_its_end(name: str) -> None:
    events = play(name)[1]
    (steered,) = of(events, Steered)
    end = next(event for event in of(events, TurnEnded) if event.turn == steered.turn)
    assert steered.request in end.prompts
    assert events.index(steered) < events.index(end)


def test_prompts_that_are_merged_into_one_turn_were_not_steered() -> None:
    assert of(play("e_queue")[1], Steered) == []


def test_a_hook_that_did_not_answer_in_time_is_withdrawn() -> None:
    events = play("e_hook_slow")[1]
    assert [event.id for event in of(events, RequestWithdrawn)] == [
        event.id for event in of(events, HookCalled)
    ]
