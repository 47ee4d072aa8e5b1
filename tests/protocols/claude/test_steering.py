from __future__ import annotations

import json

import pytest

from proctor.protocols.claude.dialect import PERMISSION_MODES, write
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Memo
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import (
    Answered,
    Interrupt,
    Notice,
    Prompt,
    SetPermissionMode,
    Steer,
    Steered,
    StopTask,
    TurnEnded,
    TurnStarted,
)
from tests.protocols.lines import line, reply, session
from tests.tables import each_row

ONE, TWO = "5f0c8a9e-7a8b-4c1d-9e2f-0a1b2c3d4e5f", "6f0c8a9e-7a8b-4c1d-9e2f-0a1b2c3d4e5f"


def init(*prompts: str, version: str = "2.1.330") -> bytes:
    ids = {"user_message_uuids": [*prompts]} if prompts else {}
    return line(type="system", subtype="init", session_id="s", claude_code_version=version, **ids)


def result(*prompts: str) -> bytes:
    ids = {"user_message_uuids": [*prompts]} if prompts else {}
    end = {"subtype": "success", "is_error": False, "result": "ok", "num_turns": 1, "session_id": "s"}
    return line(type="result", **end, **ids)


def lifecycle(prompt: str, state: str) -> bytes:
    return line(type="command_lifecycle", command_uuid=prompt, state=state)


def echo(prompt: str) -> bytes:
    return line(type="user", uuid=prompt, isReplay=True, message={"role": "user", "content": "x"})


def working(version: str = "2.1.330") -> Conversation:
    """A session in the turn of the prompt ONE."""
    talk = session()
    talk.send(Prompt(ONE, "go"))
    talk.receive(init(*([ONE] if version == "2.1.330" else []), version=version))
    return talk


def test_a_steer_is_a_message_under_its_id() -> None:
    message = json.loads(working().send(Steer(TWO, "/faster")))
    assert (message["type"], message["uuid"], message["message"]["content"]) == ("user", TWO, "/faster")
    assert message["client_composed"] is True


def test_a_steer_that_could_not_be_followed_is_misuse() -> None:
    talk = working()
    with pytest.raises(Misuse, match="must be a UUID"):
        talk.send(Steer("s1", "faster"))
    assert [*talk.memo.prompts] == [ONE]


def test_only_a_turn_that_runs_is_steered() -> None:
    with pytest.raises(Misuse, match="phase 'idle'"):
        session().send(Steer(TWO, "faster"))


@pytest.mark.covers("L40")
@pytest.mark.parametrize(
    ("version", "taken"), [("2.1.330", lifecycle(TWO, "started")), ("2.1.197", echo(TWO))]
)
@pytest.mark.parametrize("request_", [Steer(TWO, "faster"), Prompt(TWO, "and this")])
def test_what_is_taken_into_the_turn_that_runs_is_told_once(
    version: str, taken: bytes, request_: Steer | Prompt
) -> None:
    talk = working(version)
    talk.send(request_)
    assert talk.receive(lifecycle(TWO, "queued")) == []
    assert talk.receive(taken + taken) == [Steered(3, "t1", TWO)]
    (end,) = [event for event in talk.receive(result()) if isinstance(event, TurnEnded)]
    assert (end.turn, end.prompts) == ("t1", (ONE, TWO))
    assert (talk.phase, [*talk.memo.prompts]) == ("idle", [])


def test_an_init_that_is_repeated_for_a_steer_tells_that_it_was_taken_in() -> None:
    talk = working()
    talk.send(Steer(TWO, "faster"))
    assert talk.receive(init(ONE, TWO)) == [Steered(2, "t1", TWO)]
    assert talk.receive(init(ONE, TWO)) == []


def test_a_result_that_answers_a_steer_tells_that_it_was_taken_in() -> None:
    talk = working()
    talk.send(Steer(TWO, "faster"))
    steered, end = talk.receive(result(ONE, TWO))
    assert steered == Steered(2, "t1", TWO)
    assert isinstance(end, TurnEnded)
    assert end.prompts == (ONE, TWO)


@pytest.mark.covers("L40")
@pytest.mark.parametrize("version", ["2.1.197", "2.1.330"])
def test_a_steer_that_came_too_late_has_a_turn_of_its_own(version: str) -> None:
    talk = working(version)
    new = version == "2.1.330"
    talk.send(Steer(TWO, "faster"))
    (end,) = talk.receive(result(*([ONE] if new else [])))
    assert isinstance(end, TurnEnded)
    assert (end.prompts, talk.phase) == ((ONE,), "working")
    begun = talk.receive(
        lifecycle(TWO, "started") + init(*([TWO] if new else []), version=version) + echo(TWO)
    )
    assert [event for event in begun if isinstance(event, (TurnStarted, Steered))] == [
        TurnStarted(4, "t2", True, (TWO,))
    ]


def test_a_steer_that_could_not_be_written_is_forgotten() -> None:
    talk = working()
    steer = Steer(TWO, "faster")
    talk.send(steer)
    talk.forget(steer)
    assert (talk.phase, [*talk.memo.prompts]) == ("working", [ONE])


@pytest.mark.parametrize(
    ("said", "kept"), [({"still_queued": [TWO]}, [TWO]), ({"still_queued": []}, []), ({}, [TWO])]
)
def test_an_interrupt_tells_of_each_prompt_that_waits_behind_it(
    said: dict[str, list[str]], kept: list[str]
) -> None:
    talk = working()
    talk.send(Prompt(TWO, "and then"))
    talk.send(Interrupt("i1"))
    answered, *fates = talk.receive(reply("i1", **said))
    assert answered == Answered(2, "t1", "i1", None, dict(said))
    assert [fate.data["prompt"] for fate in fates if isinstance(fate, Notice)] == kept
    assert {fate.code for fate in fates if isinstance(fate, Notice)} <= {"prompt_queued"}


def test_an_interrupt_that_was_refused_tells_of_no_fates() -> None:
    talk = working()
    talk.send(Prompt(TWO, "and then"))
    talk.send(Interrupt("i1"))
    body = {"subtype": "error", "request_id": "i1", "error": "no"}
    assert talk.receive(line(type="control_response", response=body)) == [Answered(2, "t1", "i1", "no", {})]


def test_a_task_is_stopped_by_its_id() -> None:
    asked = json.loads(write(Memo(), StopTask("s1", "b0")))["request"]
    assert asked == {"subtype": "stop_task", "task_id": "b0"}


@each_row("mode", ["manual", *sorted(PERMISSION_MODES)])
def test_a_permission_mode_is_asked_for_in_the_clis_word(mode: str) -> None:
    asked = json.loads(write(Memo(version="2.1.197"), SetPermissionMode("m1", mode)))["request"]
    wanted = "default" if mode == "manual" else mode
    assert asked == {"subtype": "set_permission_mode", "mode": wanted}


def test_a_mode_that_an_old_version_would_believe_is_misuse() -> None:
    memo = Memo(version="2.1.197")
    with pytest.raises(Misuse, match="'lenient' is not a permission mode"):
        write(memo, SetPermissionMode("m1", "lenient"))
    assert memo.pending == {}
    assert b"lenient" in write(Memo(version="2.1.330"), SetPermissionMode("m1", "lenient"))
