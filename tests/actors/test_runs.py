from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
import trio

from proctor.actors.errors import AskNotSent, GreetingTimeout, StartRefused
from proctor.actors.outcomes import Outcome
from proctor.actors.runs import Run, ask, stream
from proctor.protocols import vocabulary as v
from proctor.runtime.exits import ExitStatus, Normal
from tests.actors.far_end import HELLO, Step, plan_of, played
from tests.runtime.belongings import belongings, belongings_at_first


def kinds(events: list[v.AnyEvent]) -> list[type]:
    return [type(event) for event in events]


@pytest.mark.covers("R063", "R008", "R009")
async def test_a_run_gives_its_events_and_the_same_answer_as_run(tmp_path: Path) -> None:
    answer, events = await played(plan_of(tmp_path))
    assert (answer.outcome, answer.text, answer.exit) == ("ok", "Hello! You said: hi", Normal())
    assert kinds(events)[-1] is v.Exited
    assert [e.text for e in events if isinstance(e, v.Text)] == ["Hello! You said: hi"]
    again = await ask(plan_of(tmp_path), "hi")
    assert (again.outcome, again.text, again.usage) == (answer.outcome, answer.text, answer.usage)


@pytest.mark.covers("R085", "R194", "R009")
async def test_the_first_event_comes_before_the_end(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, [{"reply": "slowly now", "deltas": 2, "delay": 0.2}])
    async with stream(plan, "hi") as live:
        async for event in live:
            if isinstance(event, v.TextDelta):
                assert live.incarnation.exit is None
                break
        answer = await live.finish()
    assert answer.text == "slowly now"


@pytest.mark.covers("C15", "R073", "L10", "L30", "L31", "L29", "R071", "R064", "C07")
@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("crash", "killed_by_system"),
        ("cut", "killed_by_system"),
        ("exit:4", "crashed"),
        ("mute", "crashed"),
        ("lost_prompt", "no_answer"),
        ("error_then_silence", "failed"),
        ("auth:1", "authentication"),
        ("limit:60", "limited"),
        ("exit_after_success:3", "ok"),
        ("linger", "ok"),
        ("ignore_eof", "ok"),
        ("ignore_term", "ok"),
        ("flood:20000", "ok"),
        ("garbage:4", "ok"),
        ("bad_utf8", "ok"),
        ("stderr:1MB", "ok"),
        ("retry:2", "ok"),
        ("oversized:40", "ok"),
        ("daemon:60", "ok"),
    ],
)
@pytest.mark.parametrize("mode", ["session", "oneshot"])
async def test_every_fault_has_one_outcome(fault: str, outcome: Outcome, mode: str, tmp_path: Path) -> None:
    chosen = plan_of(tmp_path, HELLO, fault, shutdown=1.0, mode="oneshot" if mode == "oneshot" else "session")
    answer, events = await played(chosen)
    assert answer.outcome == outcome, answer
    assert isinstance(events[-1], v.Exited)
    assert answer.text or outcome != "ok"
    assert (answer.error is None) == (outcome == "ok")


@pytest.mark.covers("R071", "R073")
@pytest.mark.parametrize("mode", ["session", "oneshot"])
async def test_a_cli_that_no_longer_speaks_its_protocol_is_stopped(mode: str, tmp_path: Path) -> None:
    script: list[Step] = [{"say": "so far"}, {"fault": "garbage:5"}, {"sleep": 60}, {"reply": "never"}]
    plan = plan_of(tmp_path, script, shutdown=1.0, mode="oneshot" if mode == "oneshot" else "session")
    answer, events = await played(plan)
    garbled = [e for e in events if isinstance(e, v.Garbled)]
    assert (len(garbled), "too_many_garbled" in [e.code for e in events if isinstance(e, v.Notice)]) == (
        5,
        True,
    )
    assert answer.outcome == "garbled"  # though the CLI may still say that it was interrupted


@pytest.mark.covers("R109", "L31")
async def test_exit_status_and_result_disagree_and_the_answer_says_so(tmp_path: Path) -> None:
    answer, _ = await played(plan_of(tmp_path, HELLO, "exit_after_success:3", mode="oneshot"))
    assert answer.ok
    assert answer.exit == ExitStatus(3)
    assert answer.notes == ("the CLI reported completed, its process ended with exit status 3",)


@pytest.mark.covers("R044", "R045")
async def test_a_hanging_turn_is_stopped_by_the_deadline_with_what_it_had_said(
    tmp_path: Path,
) -> None:
    plan = plan_of(tmp_path, [{"say": "so far"}, {"fault": "hang"}], shutdown=1.0)
    answer, events = await played(plan, timeout=2.0)
    assert (answer.outcome, answer.error) == ("deadline", "no answer before its process ended (shutdown)")
    assert [e.text for e in events if isinstance(e, v.Text)] == ["so far"]


async def test_a_turn_that_ends_by_our_own_interrupt_is_late_all_the_same(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, [{"say": "so far"}, {"sleep": 60}, {"reply": "never"}])
    answer, events = await played(plan, timeout=2.0)
    assert answer.outcome == "deadline"
    assert [e.ending for e in events if isinstance(e, v.TurnEnded)] == ["interrupted"]


@pytest.mark.covers("R046", "R047")
async def test_a_hanging_turn_is_stopped_by_the_silence_clock(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path, [{"say": "so far"}, {"fault": "stderr:100"}, {"fault": "hang"}], shutdown=1.0, silence=1.0
    )
    answer, events = await played(plan)
    assert answer.outcome == "stalled"
    [stalled] = [e for e in events if isinstance(e, v.Notice) and e.code == "stalled"]
    assert "no output for" in stalled.text
    assert "scripted: e" in stalled.text


async def test_a_tool_that_takes_long_is_not_silence(tmp_path: Path) -> None:
    script: list[Step] = [
        {"tool": "Bash", "input": {"command": "make"}, "result": "ok", "seconds": 2.5},
        {"reply": "done"},
    ]
    answer, _ = await played(plan_of(tmp_path, script, silence=1.0))
    assert answer.outcome == "ok"


@pytest.mark.covers("C23")
async def test_a_greeting_that_never_comes_is_given_up(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, HELLO, "silent_greeting", shutdown=0.5, greeting=0.3)
    with pytest.raises(GreetingTimeout, match=r"agent did not answer the greeting within 0\.3 s"):
        await ask(plan, "hi")


async def test_the_deadline_covers_the_start(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, HELLO, "silent_greeting", shutdown=0.5)
    with pytest.raises(AskNotSent, match=r"its prompt was never sent \(it was starting\)"):
        await ask(plan, "hi", timeout=0.3)


async def test_a_session_that_is_unknown_is_refused_in_the_clis_own_words(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, HELLO, resume="7e0f7f5e-7b5b-4d8e-8f3c-0e8a7a0f5f11")
    with pytest.raises(StartRefused, match="refused to resume session 7e0f7f5e") as caught:
        await ask(plan, "hi")
    assert caught.value.resumed == "7e0f7f5e-7b5b-4d8e-8f3c-0e8a7a0f5f11"


@pytest.mark.covers("R042")
async def test_what_the_body_raises_leaves_bare_and_nothing_stays(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, [{"fault": "hang"}], shutdown=0.5)
    runs = list[Run]()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with stream(plan, "hi") as live:
            runs.append(live)
            await anext(live)
            raise ZeroDivisionError
    assert runs[0].incarnation.exit is not None
    assert not runs[0].directory.exists()


async def test_asking_for_the_answer_too_early_is_an_error(tmp_path: Path) -> None:
    async with stream(plan_of(tmp_path), "hi") as live:
        with pytest.raises(RuntimeError, match="the run of agent has not ended"):
            _ = live.answer


@pytest.mark.covers("L22", "L27")
async def test_a_cancelled_run_goes_down_the_ladder(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, [{"say": "begun"}, {"fault": "hang"}], record=tmp_path / "runs")
    runs = list[Run]()
    with trio.CancelScope() as scope:
        async with stream(plan, "hi") as live:
            runs.append(live)
            async for event in live:
                if isinstance(event, v.Text):
                    scope.cancel("the caller cancelled")
    told = (runs[0].directory / "1" / "stdin.ndjson").read_text()
    assert '"interrupt"' in told
    assert '"end_session"' in told
    assert scope.cancelled_caught


@pytest.mark.covers("C12", "R039")
async def test_output_of_one_shot_runs_is_never_cut_short(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, [{"reply": "the last words"}], mode="oneshot")
    limit = trio.CapacityLimiter(4)
    texts = list[str]()

    async def one() -> None:
        async with limit:
            texts.append((await ask(plan, "hi")).text)

    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(one)
    assert texts == ["the last words"] * 30


@pytest.mark.covers("P07", "C14", "R031", "R036", "R146")
async def test_80_runs_half_of_them_cancelled_leave_nothing(
    tmp_path: Path, own_temporary_directory: Path
) -> None:
    plan = plan_of(tmp_path, [{"reply": "words and words", "deltas": 3, "delay": 0.01}], shutdown=1.0)
    chance = random.Random(20)
    limit = trio.CapacityLimiter(8)
    ended = dict[str, int]()

    async def one(cancelled: bool) -> None:
        async with limit:
            key = "cancelled"
            with trio.CancelScope() as scope:
                if cancelled:
                    scope.deadline = trio.current_time() + chance.uniform(0, 0.25)
                key = (await ask(plan, "hi")).outcome
            ended[key] = ended.get(key, 0) + 1

    await ask(plan, "warm up")
    before, files = belongings_at_first(), os.listdir(own_temporary_directory)
    async with trio.open_nursery() as nursery:
        for n in range(80):
            nursery.start_soon(one, n % 2 == 0)
    assert (belongings(), os.listdir(own_temporary_directory)) == (before, files)
    assert sum(ended.values()) == 80
    assert ended["ok"] >= 40
    assert set(ended) <= {"ok", "cancelled"}


@pytest.mark.covers("R041")
async def test_a_killed_agent_below_its_guard_is_noticed_at_once(tmp_path: Path) -> None:
    async with stream(plan_of(tmp_path, [{"say": "begun"}, {"fault": "hang"}]), "hi") as live:
        async for event in live:
            if isinstance(event, v.Text):
                os.kill(live.incarnation.process.leader_pid, signal.SIGKILL)
        assert live.answer.outcome == "killed_by_system"
