from __future__ import annotations

import json

import pytest

from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.vocabulary import (
    AnyEvent,
    ApprovalRequested,
    Garbled,
    Misplaced,
    Notice,
    Prompt,
    Started,
    TurnEnded,
    TurnStarted,
)
from tests.protocols.lines import ASKED, GREETED, INIT, RESULT, in_phase, line, session
from tests.tables import each_row


@pytest.mark.covers("C19")
def test_three_turns_on_one_conversation() -> None:
    talk = session()
    ends: list[AnyEvent] = []
    for prompt in ("p1", "p2", "p3"):
        talk.send(Prompt(prompt, "x"))
        ends += [event for event in talk.receive(INIT + RESULT) if isinstance(event, TurnEnded)]
        assert talk.phase == "idle"
    assert [(end.turn, end.prompts) for end in ends if isinstance(end, TurnEnded)] == [
        ("t1", ("p1",)),
        ("t2", ("p2",)),
        ("t3", ("p3",)),
    ]


def test_a_conversation_works_until_its_last_prompt_is_answered() -> None:
    talk = session()
    talk.send(Prompt("p1", "x"))
    talk.send(Prompt("p2", "y"))
    talk.receive(INIT + RESULT)
    phases = [talk.phase]
    talk.receive(INIT + RESULT)
    assert [*phases, talk.phase] == ["working", "idle"]


def test_a_prompt_before_the_greeting_is_answered_has_its_turn() -> None:
    talk = Conversation(CLAUDE)
    talk.greet()
    talk.send(Prompt("p1", "x"))
    phases = [talk.phase]
    talk.receive(GREETED)
    assert [*phases, talk.phase] == ["greeting", "working"]


def test_a_result_that_ends_nothing_is_misplaced() -> None:
    talk = session()
    assert talk.receive(RESULT) == [Misplaced(1, None, "turn_ended", "idle")]


def test_a_turn_whose_beginning_was_lost_begins_with_its_result() -> None:
    talk = session()
    talk.send(Prompt("p1", "x"))
    kinds = [type(event) for event in talk.receive(b"{broken\n" + RESULT)]
    assert kinds == [Garbled, TurnStarted, TurnEnded]


def test_a_turn_whose_result_was_lost_ends_when_the_next_begins() -> None:
    talk = session()
    talk.send(Prompt("p1", "x"))
    talk.send(Prompt("p2", "y"))
    first, second = (
        json.dumps(json.loads(INIT) | {"user_message_uuids": [p]}).encode() + b"\n" for p in ("p1", "p2")
    )
    talk.receive(first)
    ended, begun = talk.receive(b"{broken\n" + second)[1:]
    assert isinstance(ended, TurnEnded)
    assert isinstance(begun, TurnStarted)
    assert (ended.turn, ended.ending, ended.detail, ended.prompts) == ("t1", "error", "unseen", ("p1",))
    assert (begun.turn, begun.prompts, list(talk.memo.prompts)) == ("t2", ("p2",), ["p2"])


def test_an_init_that_comes_again_begins_no_second_turn() -> None:
    talk = session()
    talk.send(Prompt("p1", "x"))
    again = json.dumps(json.loads(INIT) | {"user_message_uuids": ["p1"]}).encode() + b"\n"
    assert [type(event) for event in talk.receive(again * 2)] == [Started, TurnStarted]


@each_row(
    ("known", "version", "total", "cost"),
    [
        (None, "2.1.330", 0.5, None),
        (0.2, "2.1.330", 0.5, 0.3),
        (0.6, "2.1.330", 0.5, None),
        (0.2, "2.1.197", 0.5, 0.5),
        (None, "2.1.197", 0.5, 0.5),
        (0.2, "2.1.250", 0.5, None),
    ],
)
def test_the_cost_of_a_resumed_turn_is_what_it_added_or_not_known(
    known: float | None, version: str, total: float, cost: float | None
) -> None:
    talk = session(resumed=True, total_cost_usd=known)
    talk.send(Prompt("p1", "x"))
    talk.receive(line(type="system", subtype="init", session_id="s", claude_code_version=version))
    talk.receive(line(type="result", subtype="success", total_cost_usd=total))
    talk.send(Prompt("p2", "x"))
    assert talk.memo.total_cost_usd == total
    (end,) = talk.receive(INIT + line(type="result", subtype="success", total_cost_usd=total + 0.1))[-1:]
    assert isinstance(end, TurnEnded)
    assert end.cost_usd == pytest.approx(0.1)


def test_started_is_told_before_its_turn() -> None:
    talk = session()
    talk.send(Prompt("p", "x"))
    assert [type(event) for event in talk.receive(INIT)] == [Started, TurnStarted]


def test_an_approval_names_the_turn_that_it_holds_up() -> None:
    talk = in_phase("working")
    (event,) = talk.receive(ASKED)
    assert isinstance(event, ApprovalRequested)
    assert (event.turn, event.tool, event.input) == ("t1", "Bash", {"command": "ls"})


@pytest.mark.covers("L05")
@pytest.mark.parametrize(
    ("version", "code"),
    [("2.1.196", "version_too_old"), ("2.1.331", "version_newer"), ("2.1.250", None), ("odd", None)],
)
def test_a_version_that_was_never_tested_is_remarked_once(version: str, code: str | None) -> None:
    talk = session()
    init = line(type="system", subtype="init", session_id="s", claude_code_version=version)
    notices = [event.code for event in talk.receive(init + init) if isinstance(event, Notice)]
    assert notices == ([code] if code else [])
