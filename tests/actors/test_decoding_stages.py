"""Lines that are not of the protocol end a run however they arrive, and validators have the last word on what is said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.errors import BadOption, StartRefused
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import claude_plan
from proctor.actors.runs import ask, stream
from proctor.actors.specs import agent_spec
from proctor.actors.transport.memory import PeerStreams
from proctor.protocols import vocabulary as v
from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.vocabulary import Garbled, Notice, Prompt, TextDelta, TurnEnded, Unrecognized
from tests.actors.spoken import GOOD, spoken_plan
from tests.protocols.lines import INIT, RESULT, assistant, delta, ended, line, reply, session, text

BAD = {
    "not JSON": b"npm warn old\n",
    "not an object": b"[1, 2]\n",
    "without a type": line(no="type"),
    "of the wrong shape": line(type="assistant", message=[]),
    "a type that is no text": line(type=17),
}
CUTS = ("one write", "a byte at a time", "a write for each line", "with a pause", "and exits")


def writes(data: bytes, cut: str) -> Sequence[bytes]:
    if cut == "a byte at a time":
        return [data[at : at + 1] for at in range(len(data))]
    return data.splitlines(keepends=True) if cut in ("a write for each line", "with a pause") else [data]


def saying(data: bytes, cut: str) -> Any:
    async def live(side: PeerStreams) -> int | None:
        async for said in side.lines():
            frame: dict[str, Any] = json.loads(said)
            if frame["type"] == "control_request":
                await side.send_all(reply(frame["request_id"], pid=1))
                continue
            for part in writes(data, cut):
                await side.send_all(part)
                if cut == "with a pause":
                    await trio.sleep(0.5)
            if cut == "and exits":
                return 0
        return None

    return live


@pytest.mark.covers("R071")
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_five_bad_lines_in_a_row_end_a_run_however_the_bytes_arrive(
    bad: bytes, cut: str, autojump_clock: MockClock
) -> None:
    data = INIT + bad * 5 + assistant(text("It is 4.")) + ended(**GOOD)
    async with stream(spoken_plan(saying(data, cut)), "x") as live:
        events = [event async for event in live]
    assert (live.answer.outcome, live.answer.error) == (
        "garbled",
        "5 consecutive lines did not follow its protocol",
    )
    assert not [event for event in events if isinstance(event, v.Text)]
    assert [e.code for e in events if isinstance(e, Notice)].count("too_many_garbled") == 1
    async with proctor.open_supervisor([agent_spec("agent", spoken_plan(saying(data, cut)), {})]) as sup:
        with pytest.raises(proctor.MaybeExecuted, match=r"\(garbled\): 5 consecutive lines") as raised:
            await sup.agent("agent").ask("x")
    assert raised.value.outcome == "garbled"


@pytest.mark.parametrize("cut", CUTS)
async def test_four_bad_lines_a_good_one_and_four_more_end_well(cut: str, autojump_clock: MockClock) -> None:
    bad = b"".join(list(BAD.values())[:4])
    answer = await ask(spoken_plan(saying(INIT + bad + delta("x") + bad + ended(**GOOD), cut)), "x")
    assert (answer.outcome, answer.text) == ("ok", "It is 4.")


def test_the_same_bytes_give_the_same_events_at_any_cut() -> None:
    data = INIT + b"x\n" * 3 + line(type="assistant", message=[]) + b"\n" + b"y\n" + RESULT + b"z\n\n"
    seen = list[list[v.AnyEvent]]()
    for size in (1, 2, 7, 50, len(data)):
        talk = session()
        talk.send(Prompt("p", "hi"))
        events = [event for at in range(0, len(data), size) for event in talk.receive(data[at : at + size])]
        seen.append(events + talk.receive(b""))
        assert (talk.exhausted, talk.garbled, talk.misshapen, talk.frames) == (True, 4, 1, 9)
    assert all(events == seen[0] for events in seen)
    assert isinstance(seen[0][-1], Notice)


@pytest.mark.covers("R077")
def test_a_kind_of_frame_that_is_not_known_is_no_bad_line() -> None:
    talk = session()
    talk.receive(line(type="hologram") * 50 + b"x\n" * 4 + line(type="hologram") + b"x\n" * 4)
    assert (talk.exhausted, talk.unrecognized) == (False, 51)


@pytest.mark.parametrize(("budget", "exhausted"), [(1, True), (6, False), (None, False)])
def test_the_budget_is_an_option(budget: int | None, exhausted: bool) -> None:
    talk = Conversation(CLAUDE, error_budget=budget)
    talk.receive(b"x\n" * 5)
    assert talk.exhausted == exhausted


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "5"])
def test_a_budget_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(BadOption, match="error_budget must be a whole number from 1 on, or None, got"):
        claude_plan("a", {"error_budget": wrong})


async def test_a_program_that_never_spoke_the_protocol_is_refused_with_that_reason(
    autojump_clock: MockClock,
) -> None:
    async def banner(side: PeerStreams) -> None:
        await side.send_all(b"Welcome to the shop\n" * 9)
        await trio.sleep_forever()

    with pytest.raises(StartRefused, match="3 consecutive lines did not follow its protocol"):
        await ask(spoken_plan(banner, error_budget=3), "x")


# -- validators


def no_four(event: v.AnyEvent) -> str | None:
    return "it says 4" if isinstance(event, (v.Text, TextDelta)) and "4" in event.text else None


def no_fault(event: v.AnyEvent) -> str | None:
    return None


def too_short(event: v.AnyEvent) -> str | None:
    return "too short" if isinstance(event, TurnEnded) else None


async def answered(*validators: Any, said: bytes = b"", **options: Any) -> tuple[Answer, list[v.AnyEvent]]:
    data = INIT + (said or delta("It is ") + delta("4") + assistant(text("It is 4."))) + ended(**GOOD)
    plan = spoken_plan(saying(data, "one write"), validators=validators, **options)
    async with stream(plan, "x") as live:
        events = [event async for event in live]
    return live.answer, events


@pytest.mark.covers("R075")
async def test_without_validators_everything_is_accepted(autojump_clock: MockClock) -> None:
    answer, events = await answered()
    assert answer.ok
    assert not [event for event in events if isinstance(event, Garbled)]


@pytest.mark.covers("R074", "R075")
async def test_an_event_that_a_validator_refuses_is_not_told_but_that_it_was_refused_is(
    autojump_clock: MockClock,
) -> None:
    answer, events = await answered(no_fault, no_four)
    assert [event.text for event in events if isinstance(event, (TextDelta, v.Text))] == ["It is "]
    bad = [event for event in events if isinstance(event, Garbled)]
    assert [(event.stage, event.reason, event.head, event.error) for event in bad] == [
        ("meaning", "refused", "text_delta", "it says 4"),
        ("meaning", "refused", "text", "it says 4"),
    ]
    assert all(event.size > 0 for event in bad)
    assert answer.ok  # its end was not refused


async def test_a_refused_end_of_a_turn_ends_it_as_failed(autojump_clock: MockClock) -> None:
    answer, _ = await answered(too_short)
    assert (answer.outcome, answer.text, answer.error) == ("failed", "", "a validator refused it: too short")


async def test_refused_lines_use_up_the_budget_and_are_counted_apart(autojump_clock: MockClock) -> None:
    answer, _ = await answered(no_four, said=delta("4") * 5)
    assert answer.outcome == "garbled"
    talk = Conversation(CLAUDE, validators=[no_four], error_budget=None)
    talk.receive(delta("4") * 6 + b"x\n" + line(type=17) + delta("5"))
    assert (talk.refused, talk.garbled, talk.misshapen) == (6, 1, 1)  # R079


@pytest.mark.covers("R074")
def test_each_failure_names_the_stage_that_was_not_passed() -> None:
    talk = Conversation(CLAUDE, validators=[no_four])
    events = talk.receive(b"x\n" + line(type="assistant", message=[]) + delta("4") + delta("5"))
    stages = [(event.frame, event.stage) for event in events if isinstance(event, (Garbled, Unrecognized))]
    assert list(dict.fromkeys(stages)) == [(0, "parse"), (1, "shape"), (2, "meaning")]
