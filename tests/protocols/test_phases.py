from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Dialect, Memo, Mode, Out, Phase
from proctor.protocols.errors import Misuse, UnknownApproval
from proctor.protocols.phases import EVENTS, REQUESTS, REST
from proctor.protocols.vocabulary import (
    Answered,
    AnyEvent,
    AnyRequest,
    Decision,
    EndSession,
    Exited,
    Garbled,
    Interrupt,
    Misplaced,
    Prompt,
    SetModel,
    SetPermissionMode,
    StopTask,
    TurnEnded,
    TurnStarted,
    Unrecognized,
)
from tests.protocols.lines import ASKED, in_phase, session
from tests.tables import each_row

PHASES = get_args(Phase)
OUTSIDE = (Garbled, Unrecognized, Misplaced, Exited)
REQUEST_OF: dict[type[Any], AnyRequest] = {
    Prompt: Prompt("p2", "x"),
    Decision: Decision("a1", allow=True),
    Interrupt: Interrupt("i1"),
    SetModel: SetModel("m1", "opus"),
    SetPermissionMode: SetPermissionMode("m2", "plan"),
    StopTask: StopTask("s1", "task"),
    EndSession: EndSession("e1"),
}


def test_the_tables_cover_every_phase() -> None:
    assert sorted(EVENTS) == sorted(PHASES)
    assert [sorted(cells) for cells in REQUESTS.values()] == [sorted(PHASES)] * 2
    assert sorted(REQUESTS) == sorted(get_args(Mode))


def test_every_event_has_a_cell_somewhere_or_stands_outside_of_phases() -> None:
    placed = {kind for cells in EVENTS.values() for kind in cells}
    assert placed | {*OUTSIDE} == {*get_args(AnyEvent)}
    assert not placed & {*OUTSIDE}


def saying(*events: AnyEvent) -> Dialect:
    """A dialect in which each line is the number of an event."""

    def read(memo: Memo, line: bytes) -> Out:
        event = events[int(line)]
        memo.greeted = True
        if isinstance(event, TurnStarted):
            memo.open_turn()
        if isinstance(event, TurnEnded) and memo.open_turns:
            memo.close_turn(memo.open_turns[-1], ())
        return (event,)

    return Dialect(
        name="numbers",
        launch=CLAUDE.launch,
        greet=lambda memo: b"hello",
        read=read,
        write=lambda memo, request: b"",
        stop=(),
    )


SAMPLES: list[AnyEvent] = [
    msgspec.convert({"type": kind.__struct_config__.tag, "frame": 0, "turn": None} | more, kind)
    for kind in get_args(AnyEvent)
    if kind not in OUTSIDE
    for more in [
        {
            "session_id": "s",
            "text": "t",
            "id": "i",
            "name": "n",
            "tool": "t",
            "attempt": 1,
            "code": "c",
            "ending": "completed",
            "request": "r",
            "hook": "h",
            "point": "p",
        }
    ]
]


@each_row("event", SAMPLES, ids=lambda event: type(event).__name__)
@each_row("phase", [phase for phase in PHASES if phase != "ended"])
def test_an_event_moves_the_phase_as_its_cell_says(phase: Phase, event: AnyEvent) -> None:
    talk = Conversation(saying(TurnStarted(0, "t"), event, Answered(0, None, "greeting")))
    talk.greet()
    for said in {"greeting": (), "idle": (b"2\n",), "working": (b"0\n",), "ending": (b"2\n",)}[phase]:
        talk.receive(said)
    if phase == "ending":
        talk.send(EndSession("e"))
    assert talk.phase == phase
    events = talk.receive(b"1\n")
    cell = EVENTS[phase].get(type(event))
    if cell is None:
        assert events == [Misplaced(0, None, str(event.__struct_config__.tag), phase)]
        assert (talk.phase, talk.misplaced) == (phase, 1)
    else:
        assert events == [event]
        assert talk.phase == ("idle" if cell == REST else cell)


@each_row("kind", REQUEST_OF, ids=lambda kind: kind.__name__)
@each_row("phase", PHASES)
@each_row("mode", get_args(Mode))
def test_a_request_moves_the_phase_as_its_cell_says(mode: Mode, phase: Phase, kind: type[Any]) -> None:
    if mode == "oneshot" and phase == "greeting":
        return  # a one-shot run has no greeting to wait for
    talk = in_phase(phase, mode)
    talk.memo.approvals["a1"] = {}
    cell = REQUESTS[mode][phase].get(kind)
    if cell is None:
        with pytest.raises(Misuse, match=f"cannot be sent in phase '{phase}' of a {mode} conversation"):
            talk.send(REQUEST_OF[kind])
        assert talk.phase == phase
    else:
        assert talk.send(REQUEST_OF[kind])
        assert talk.phase == cell


def test_a_prompt_after_the_end_is_refused_by_name() -> None:
    talk = in_phase("ended")
    with pytest.raises(Misuse) as caught:
        talk.send(Prompt("p", "x"))
    assert str(caught.value) == "a 'prompt' request cannot be sent in phase 'ended' of a session conversation"
    assert (caught.value.request, caught.value.phase) == ("prompt", "ended")


@pytest.mark.covers("C22")
def test_a_second_prompt_to_a_one_shot_run_is_refused() -> None:
    talk = Conversation(CLAUDE, mode="oneshot")
    assert talk.greet() == b""
    assert talk.closes_stdin
    assert talk.send(Prompt("p1", "one")) == b"one"
    with pytest.raises(Misuse, match="cannot be sent in phase 'working' of a oneshot conversation"):
        talk.send(Prompt("p2", "two"))


def test_a_decision_for_a_question_that_is_not_open_is_refused() -> None:
    talk = session()
    with pytest.raises(UnknownApproval, match=r"no open approval has the id 'a9' \(phase 'idle'\)"):
        talk.send(Decision("a9", allow=True))


def test_a_question_is_decided_once() -> None:
    talk = in_phase("working")
    talk.receive(ASKED)
    assert b'"allow"' in talk.send(Decision("a1", allow=True))
    with pytest.raises(UnknownApproval):
        talk.send(Decision("a1", allow=False))


def test_an_id_that_waits_for_its_answer_is_not_used_again() -> None:
    talk = in_phase("working")
    for request in (Prompt("p1", "again"), Interrupt("i")):
        if isinstance(request, Interrupt):
            talk.send(request)
        with pytest.raises(Misuse, match="was sent before and is not answered yet"):
            talk.send(request)


def test_a_greeting_is_sent_once() -> None:
    talk = Conversation(CLAUDE)
    assert talk.greet().endswith(b"\n")
    with pytest.raises(Misuse, match=r"the greeting was sent before \(phase 'greeting'\)"):
        talk.greet()


def test_bytes_after_the_end_are_refused_and_a_second_end_gives_nothing() -> None:
    talk = in_phase("ended")
    assert talk.receive(b"") == []
    with pytest.raises(Misuse, match="after the end of the stream"):
        talk.receive(b"x")


@pytest.mark.covers("C20")
def test_a_request_that_could_not_be_written_is_forgotten() -> None:
    talk = session()
    for request in (Prompt("p", "x"), Interrupt("i"), EndSession("e")):
        talk.send(request)
        talk.forget(request)
    assert (talk.phase, list(talk.memo.prompts), talk.memo.pending) == ("idle", [], {})
