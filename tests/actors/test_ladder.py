from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, claude_plan
from proctor.actors.process.stop_sequence import GRACE_SHARE, stop_steps
from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Mode
from proctor.protocols.vocabulary import Prompt
from proctor.runtime.processes.stopping import CONTINUE


def plan(shutdown: float = 1000.0, mode: Mode = "session") -> Plan:
    options: AgentOptions = {"mode": mode}
    return claude_plan("a", options, shutdown=shutdown)


def idle(mode: Mode = "session") -> Conversation:
    conversation = Conversation(CLAUDE, mode=mode)
    if greeting := conversation.greet():
        reply: dict[str, Any] = {
            "subtype": "success",
            "request_id": json.loads(greeting)["request_id"],
            "response": {},
        }
        conversation.receive(json.dumps({"type": "control_response", "response": reply}).encode() + b"\n")
    assert conversation.phase == "idle"
    return conversation


def test_an_idle_session_is_asked_to_end_and_not_interrupted() -> None:
    written = list[bytes]()

    def said(data: bytes) -> bytes:
        written.append(data)
        return data

    steps = stop_steps(plan(), idle(), said)
    assert [step.action for step in steps] == ["write", "close_stdin", "terminate", "kill"]
    assert [json.loads(data)["request"]["subtype"] for data in written] == ["end_session"]


def test_a_working_session_is_interrupted_first() -> None:
    conversation = idle()
    conversation.send(Prompt("4a5c2cf9-6a5c-4b0e-9c7c-0f4b0a3a6d10", "hi"))
    steps = stop_steps(plan(), conversation, lambda data: data)
    assert [json.loads(step.data)["request"]["subtype"] for step in steps if step.data] == [
        "interrupt",
        "end_session",
    ]


def test_a_one_shot_run_is_told_nothing_after_its_prompt() -> None:
    steps = stop_steps(plan(mode="oneshot"), idle("oneshot"), lambda data: data)
    assert [step.action for step in steps] == ["close_stdin", "terminate", "kill"]


@pytest.mark.parametrize("shutdown", [0.5, 2.0, 5.0])
def test_the_graces_fit_into_the_shutdown_time(shutdown: float) -> None:
    steps = stop_steps(plan(shutdown), idle(), lambda data: data)
    polite = sum(step.grace for step in steps if step.action != "kill")
    assert polite <= shutdown * GRACE_SHARE


def test_with_time_enough_the_graces_are_the_dialects() -> None:
    steps = stop_steps(plan(), idle(), lambda data: data)
    told = {rung.action: rung.grace for rung in CLAUDE.stop}
    assert [step.grace for step in steps] == [told[a] for a in ("end", "close_stdin", "terminate", "kill")]


def test_a_ladder_without_rungs_is_empty() -> None:
    bare = attrs.evolve(plan(), dialect=attrs.evolve(CLAUDE, stop=()))
    assert stop_steps(bare, idle(), lambda data: data) == ()


def test_a_stopped_process_is_continued_before_anything_is_said_to_it() -> None:
    steps = stop_steps(plan(), idle(), lambda data: data, wake=True)
    assert steps[0] == CONTINUE
    assert [step.action for step in steps] == ["signal", "write", "close_stdin", "terminate", "kill"]
