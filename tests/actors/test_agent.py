from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import proctor
from proctor.actors.agent.agent_state import MAX_QUEUED
from proctor.actors.agent.messages import Submit
from proctor.actors.agent.request import Request
from proctor.protocols import vocabulary as v
from proctor.runtime.events import ChildRestarting
from proctor.runtime.exits import NoProc
from tests.actors.far_end import HELLO, Step, agent_of, codes, log_of
from tests.runtime.stage import heard
from tests.tables import each_row

COUNTING: Sequence[Step] = ({"reply": "{turn}: {prompt}"},)
CUT_ONCE: Sequence[Step] = (
    {"turn": "after", "incarnation": 2},
    {"reply": "process {incarnation}: {prompt}"},
    {"turn": "before"},
    {"say": "begun"},
    {"fault": "crash@once"},
    {"reply": "never"},
)


async def test_an_agent_answers_by_name(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, COUNTING)]) as sup:
        agent = sup.agent("a")
        assert (await agent.ask("one")).text == "1: one"
        assert (await agent.ask("two")).text == "2: two"
        status = await agent.status()
    assert (status.state, status.turns, status.incarnation, status.queued) == ("idle", 2, 1, 0)
    assert status.cost_usd is not None


async def test_requests_are_taken_one_at_a_time_and_in_order(tmp_path: Path) -> None:
    answers = list[str]()
    async with proctor.open_supervisor([agent_of(tmp_path, COUNTING)]) as sup, trio.open_nursery() as nursery:

        async def ask(prompt: str) -> None:
            answers.append((await sup.agent("a").ask(prompt)).text)

        for n in range(5):
            nursery.start_soon(ask, f"p{n}")
            await trio.testing.wait_all_tasks_blocked()
    assert [text.partition(":")[0] for text in sorted(answers)] == ["1", "2", "3", "4", "5"]


async def test_a_request_in_flight_fails_when_its_process_is_killed(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, CUT_ONCE)]) as sup:
        agent = sup.agent("a")
        with pytest.raises(
            proctor.MaybeExecuted, match=r"a ended in mid-turn \(killed_by_system\)"
        ) as caught:
            await agent.ask("one")
        assert [e.text for e in caught.value.partial if isinstance(e, v.Text)] == ["begun"]
        again = await agent.ask("two")  # waits out the restart
        status = await agent.status()
    assert again.text == "process 2: two"
    assert status.incarnation == 2


@pytest.mark.parametrize(("on_crash", "told"), [("resume", "Continue where you stopped."), ("retry", "one")])
async def test_a_request_in_flight_goes_on_in_the_same_session(
    on_crash: str, told: str, tmp_path: Path
) -> None:
    spec = agent_of(tmp_path, CUT_ONCE, on_crash="resume" if on_crash == "resume" else "retry")
    async with proctor.open_supervisor([spec]) as sup, sup.agent("a").stream("one") as turn:
        events = [event async for event in turn]
    assert turn.answer.text == f"process 2: {told}"
    sessions = {e.session_id for e in events if isinstance(e, v.Started)}
    assert sessions == {turn.answer.session_id}
    assert "resumed" in codes(events)


async def test_requests_that_waited_survive_the_crash(tmp_path: Path) -> None:
    answers = dict[str, str]()
    async with proctor.open_supervisor([agent_of(tmp_path, CUT_ONCE)]) as sup, trio.open_nursery() as nursery:

        async def ask(prompt: str) -> None:
            try:
                answers[prompt] = (await sup.agent("a").ask(prompt)).text
            except proctor.MaybeExecuted:
                answers[prompt] = "lost"

        for prompt in ("one", "two", "three"):
            nursery.start_soon(ask, prompt)
            await trio.testing.wait_all_tasks_blocked()
    assert answers == {"one": "lost", "two": "process 2: two", "three": "process 2: three"}


@pytest.mark.covers("L37")
async def test_a_refused_resume_is_forked_and_then_started_afresh(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, HELLO, "refuse_resume", resume="3c9b9a52-44a1-4d64-9a84-ff86a2cbb2a7")
    async with proctor.open_supervisor([spec]) as sup:
        seen = await log_of(sup.agent("a"))
        answer = await sup.agent("a").ask("hi")
    assert answer.outcome == "ok"
    assert codes(seen).count("resume_refused") == 2
    refusals = [e.text for e in seen if isinstance(e, v.Notice) and e.code == "resume_refused"]
    assert refusals[0].endswith("; trying a fork of the session")
    assert refusals[1].endswith("; starting a new session")


@pytest.mark.covers("L38")
async def test_a_usage_limit_parks_the_agent_and_costs_no_restart(tmp_path: Path) -> None:
    script: Sequence[Step] = ({"fault": "limit:1@once"}, {"reply": "late: {prompt}"})
    async with proctor.open_supervisor([agent_of(tmp_path, script)], intensity=0) as sup:
        agent = sup.agent("a")
        async with agent.stream("one") as turn:
            async for event in turn:
                if isinstance(event, v.TurnEnded) and event.ending == "limit":
                    status = await agent.status()
                    assert (status.state, status.until is not None) == ("parked", True)
        status = await agent.status()
    assert turn.answer.outcome == "ok"
    assert turn.answer.text.startswith("late: ")
    assert (status.state, status.incarnation) == ("idle", 1)


async def test_a_process_that_dies_while_its_agent_is_parked_costs_no_request(tmp_path: Path) -> None:
    script: Sequence[Step] = ({"fault": "limit:2@once"}, {"reply": "late: {prompt}"})
    async with proctor.open_supervisor([agent_of(tmp_path, script)]) as sup:
        agent = sup.agent("a")
        async with agent.stream("one") as turn:
            async for event in turn:
                if isinstance(event, v.TurnEnded) and event.ending == "limit":
                    os.killpg((await agent.status()).pid or 0, signal.SIGKILL)
        status = await agent.status()
    assert (turn.answer.outcome, status.incarnation) == ("ok", 2)


async def test_without_parking_a_usage_limit_is_the_answer(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, HELLO, "limit:600", park=False)]) as sup:
        answer = await sup.agent("a").ask("one")
    assert answer.outcome == "limited"
    assert answer.resets_at is not None


async def test_a_parked_request_can_be_withdrawn(tmp_path: Path) -> None:
    script: Sequence[Step] = ({"fault": "limit:600@once"}, {"reply": "{prompt}"})
    async with proctor.open_supervisor([agent_of(tmp_path, script)]) as sup:
        agent = sup.agent("a")
        async with agent.stream("one") as turn:
            async for event in turn:
                if isinstance(event, v.TurnEnded):
                    break
        status = await agent.status()
        assert (status.state, status.until) == ("idle", None)
        async with agent.stream("two") as turn:  # is parked before it is asked
            async for event in turn:
                if isinstance(event, v.Notice) and event.code == "parked":
                    break
        assert [r.queued for r in [await agent.status()]] == [0]


@pytest.mark.covers("L36")
async def test_an_agent_that_cannot_come_back_is_failed_without_a_loop_and_tries_when_asked(
    tmp_path: Path,
) -> None:
    spec = agent_of(tmp_path, COUNTING)
    [script] = tmp_path.glob("script-*")  # noqa: ASYNC240
    async with proctor.open_supervisor([spec], intensity=1) as sup:
        agent = sup.agent("a")
        await agent.ask("one")
        away = await trio.Path(script).rename(tmp_path / "away")
        os.kill((await agent.status()).pid or 0, signal.SIGKILL)
        with trio.fail_after(20):
            while (status := await agent.status()).state != "failed":  # noqa: ASYNC110  nobody tells
                await trio.sleep(0.01)
        assert (status.incarnation, status.pid) == (2, None)
        assert script.name in status.evidence
        refused = await agent.ask("two")
        assert (refused.outcome, refused.ending) == ("configuration", "refused_start")
        await away.rename(script)
        assert (await agent.ask("three")).outcome == "ok"
        assert (await agent.status()).incarnation == 2


@pytest.mark.covers("L36")
async def test_a_refused_login_is_shown_and_does_not_loop(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, HELLO, "auth:1@turn=1")], intensity=0) as sup:
        agent = sup.agent("a")
        answer = await agent.ask("one")
        status = await agent.status()
        assert (answer.outcome, status.state, status.incarnation) == ("authentication", "failed", 1)
        assert (await agent.ask("two")).outcome == "ok"  # the login was mended meanwhile
        assert (await agent.status()).state == "idle"


async def test_a_deadline_interrupts_the_turn_and_keeps_the_session(tmp_path: Path) -> None:
    script: Sequence[Step] = (
        {"say": "begun"},
        {"sleep": 60},
        {"reply": "never"},
        {"turn": "next"},
        {"reply": "next"},
    )
    async with proctor.open_supervisor([agent_of(tmp_path, script)]) as sup:
        agent = sup.agent("a")
        with pytest.raises(
            proctor.AskTimeout, match=r"a did not finish the turn within 0\.5 s; it was interrupted"
        ):
            await agent.ask("one", timeout=0.5)
        answer = await agent.ask("two", timeout=20)
        status = await agent.status()
    assert answer.text == "next"
    assert status.incarnation == 1


async def test_leaving_a_stream_early_withdraws_what_waits(tmp_path: Path) -> None:
    script: Sequence[Step] = ({"sleep": 0.5}, {"reply": "{turn}: {prompt}"})
    async with proctor.open_supervisor([agent_of(tmp_path, script)]) as sup:
        agent = sup.agent("a")
        async with agent.stream("one") as first:
            async with agent.stream("never sent"):
                pass
            await first.finish()
        assert (await agent.ask("two")).text == "2: two"


async def test_stopping_the_tree_ends_an_open_turn_with_a_reason(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, [{"say": "begun"}, {"fault": "hang"}])
    async with proctor.open_supervisor([spec]) as sup, sup.agent("a").stream("one") as turn:
        await _until_text(turn)
        await sup.stop()
        assert await _end_of(turn) in ("interrupted", "stopped")


async def test_a_request_that_waited_when_the_tree_stopped_was_not_executed(tmp_path: Path) -> None:
    ends = dict[str, str]()
    spec = agent_of(tmp_path, [{"say": "begun"}, {"sleep": 60}, {"reply": "never"}])
    async with proctor.open_supervisor([spec]) as sup, trio.open_nursery() as nursery:

        async def ask(prompt: str) -> None:
            try:
                ends[prompt] = (await sup.agent("a").ask(prompt)).outcome
            except (proctor.NotExecuted, proctor.MaybeExecuted) as error:
                ends[prompt] = type(error).__name__

        nursery.start_soon(ask, "first")
        async with sup.agent("a").events(since=0) as log:
            async for event in log:
                if isinstance(event, v.Text):
                    break
        nursery.start_soon(ask, "second")
        await trio.testing.wait_all_tasks_blocked()
        await sup.stop()
    assert ends == {"first": "interrupted", "second": "NotExecuted"}


@pytest.mark.parametrize("on_crash", ["fail", "resume"])
async def test_a_stalled_turn_is_a_crash_also_when_the_cli_still_hears_the_interrupt(
    on_crash: str, tmp_path: Path
) -> None:
    script: Sequence[Step] = (
        {"say": "begun"},
        {"sleep": 60},
        {"reply": "no"},
        {"turn": "2", "incarnation": 2},
        {"reply": "{prompt}"},
    )
    spec = agent_of(tmp_path, script, silence=0.8, on_crash="resume" if on_crash == "resume" else "fail")
    async with proctor.open_supervisor([spec]) as sup, sup.agent("a").stream("one") as turn:
        if on_crash == "fail":
            with pytest.raises(proctor.MaybeExecuted, match=r"a ended in mid-turn \(stalled\)"):
                await turn.finish()
        else:
            assert (await turn.finish()).text == "Continue where you stopped."


async def test_a_request_that_nobody_waits_for_any_more_is_not_served_after_a_new_start(
    tmp_path: Path,
) -> None:
    spec = agent_of(
        tmp_path,
        [{"say": "begun"}, {"sleep": 60}, {"reply": "no"}, {"turn": "2"}, {"reply": "{turn}: {prompt}"}],
    )
    async with proctor.open_supervisor([spec]) as sup:
        agent = sup.agent("a")
        async with agent.stream("first") as turn, agent.stream("second") as waiting:
            await _until_text(turn)
            await sup.terminate_child("a")
            with pytest.raises(proctor.NotExecuted):
                await waiting.finish()
        await sup.restart_child("a")
        assert (await agent.ask("third")).text == "2: third"


async def test_the_queue_is_bounded_and_says_so(tmp_path: Path) -> None:
    refused = list[str]()
    spec = agent_of(tmp_path, [{"sleep": 60}, {"reply": "no"}])
    async with proctor.open_supervisor([spec]) as sup:
        agent = sup.agent("a")
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                try:
                    await agent.ask("x")
                except proctor.NotExecuted as error:
                    refused.append(str(error))

            for _ in range(1 + MAX_QUEUED + 3):
                nursery.start_soon(wait)
            with trio.fail_after(20):
                while len(refused) < 3:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel("seen")
    assert refused == ["a did not take the request: 1000 requests are already queued"] * 3


async def test_a_request_whose_caller_gave_up_before_it_was_heard_is_never_sent(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, COUNTING)]) as sup:
        await sup.name("a").call(Submit(Request("ticket", "never", withdrawn=True)))
        assert (await sup.agent("a").ask("one")).text == "1: one"


async def test_an_open_question_is_a_state_and_its_answer_ends_it(tmp_path: Path) -> None:
    answered = trio.Event()

    async def policy(question: v.ApprovalRequested) -> bool:
        await answered.wait()
        return True

    script: Sequence[Step] = (
        {"tool": "Bash", "input": {"command": "x"}, "ask": True, "result": "ok", "seconds": 0.3},
        {"reply": "done"},
    )
    states = list[str]()
    async with proctor.open_supervisor([agent_of(tmp_path, script, permission=policy)]) as sup:
        agent = sup.agent("a")
        async with agent.stream("go") as turn:
            async for event in turn:
                if isinstance(event, v.ApprovalRequested):
                    states.append((await agent.status()).state)
                    answered.set()
                if isinstance(event, v.Notice) and event.code == "approval":
                    states.append((await agent.status()).state)
        states.append((await agent.status()).state)
    assert states == ["blocked", "working", "idle"]


async def test_no_happening_surprises_the_state_table(tmp_path: Path) -> None:
    script: Sequence[Step] = (
        {"fault": "limit:1@once"},
        {"tool": "Bash", "input": {}, "ask": True, "result": "x"},
        {"reply": "y"},
    )
    seen = list[v.AnyEvent]()
    async with proctor.open_supervisor(
        [agent_of(tmp_path, script, "crash@turn=3@once=k", on_crash="retry")]
    ) as sup:
        agent = sup.agent("a")
        async with agent.events(since=0) as log:
            for prompt in ("one", "two", "three", "four"):
                await agent.ask(prompt, timeout=30)
            await sup.stop()
            seen += [event async for event in log]
    assert [e.text for e in seen if isinstance(e, v.Notice) and e.code == "odd_state"] == []
    assert any(isinstance(e, v.Exited) for e in seen)


async def test_a_stopped_agent_that_would_repeat_ends_its_turns_too(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, [{"say": "begun"}, {"fault": "hang"}], on_crash="resume")
    async with proctor.open_supervisor([spec]) as sup, sup.agent("a").stream("one") as turn:
        await _until_text(turn)
        await sup.terminate_child("a")
        with trio.fail_after(10):
            assert await _end_of(turn) in ("interrupted", "stopped")


@pytest.mark.covers("S35")
async def test_an_agent_that_keeps_dying_ends_the_tree_and_its_turns(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, HELLO, "crash", on_crash="retry")
    with trio.fail_after(20), pytest.raises(proctor.MaxRestartsExceeded) as caught:
        async with proctor.open_supervisor([spec], intensity=2, period=60) as sup:
            await sup.agent("a").ask("one")
    assert len(caught.value.exceptions) == 3
    assert isinstance(caught.value.__cause__, proctor.MaybeExecuted | None)


@pytest.mark.covers("M14")
async def test_asking_somebody_who_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path)]) as sup:
        with trio.fail_after(30), pytest.raises(NoProc):
            await sup.agent("nobody").ask("one")


async def test_an_agent_cannot_start_without_its_program(tmp_path: Path) -> None:
    spec = proctor.claude("a", executable=str(tmp_path / "claude"))
    with pytest.raises(proctor.StartError, match="Claude Code is not installed"):
        async with proctor.open_supervisor([spec]):
            pass


async def test_a_one_shot_agent_starts_a_process_for_each_request(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, COUNTING, mode="oneshot")
    async with proctor.open_supervisor([spec], intensity=0) as sup:
        agent = sup.agent("a")
        assert (await agent.status()).pid is None
        first = await agent.ask("one")
        second = await agent.ask("two")
    assert [first.text, second.text] == ["1: one", "2: two"]
    assert first.session_id == second.session_id


@pytest.mark.covers("P01", "R041")
async def test_a_killed_idle_agent_is_back_with_its_session(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, COUNTING)]) as sup:
        agent = sup.agent("a")
        first = await agent.ask("one")
        pid = (await agent.status()).pid
        assert pid is not None
        os.killpg(pid, signal.SIGKILL)
        async with agent.events() as log:
            async for event in log:
                if isinstance(event, v.Exited):
                    break
        second = await agent.ask("two")
    assert second.text == "2: two"
    assert first.session_id == second.session_id


@pytest.mark.covers("S37")
async def test_brutal_kill_leaves_nothing(tmp_path: Path) -> None:
    spec = agent_of(
        tmp_path, [{"tool": "Bash", "input": {}, "run": "sleep 100", "result": "x"}], shutdown="brutal_kill"
    )
    async with proctor.open_supervisor([spec]) as sup, sup.agent("a").stream("one") as turn:
        async for event in turn:
            if isinstance(event, v.ToolCall):
                break
        pid = (await sup.agent("a").status()).pid
        assert pid is not None
        with trio.fail_after(30):
            await sup.stop()
    assert not await trio.Path(f"/proc/{pid}").exists()


@pytest.mark.covers("R014")
async def test_interrupt_and_model_reach_the_cli(tmp_path: Path) -> None:
    script: Sequence[Step] = (
        {"say": "begun"},
        {"sleep": 60},
        {"reply": "no"},
        {"turn": "next"},
        {"reply": "{model}"},
    )
    async with proctor.open_supervisor([agent_of(tmp_path, script)]) as sup:
        agent = sup.agent("a")
        async with agent.stream("one") as turn:
            await _until_text(turn)
            assert await agent.interrupt()
            assert (await turn.finish()).outcome == "interrupted"
        assert await agent.set_model("other")
        assert (await agent.ask("two")).text == "other"


@pytest.mark.covers("R006")
async def test_two_trees_do_not_see_each_other(tmp_path: Path) -> None:
    async with (
        proctor.open_supervisor([agent_of(tmp_path, [{"reply": "left"}])]) as left,
        proctor.open_supervisor([agent_of(tmp_path, [{"reply": "right"}])]) as right,
    ):
        assert (await left.agent("a").ask("x")).text == "left"
        assert (await right.agent("a").ask("x")).text == "right"


@each_row(
    ("options", "text"),
    [
        (
            {"modle": "x"},
            r"unknown option 'modle' \(did you mean 'mode' or 'model'\?\)",
        ),
        ({"home": "shared"}, "home 'shared' is not a choice; accepted: user, private"),
        (
            {"permission": "maybe"},
            "permission 'maybe' is not a choice; accepted: deny, allow, ask, rules, or a function",
        ),
        ({"cwd": "/no/such/place"}, "cwd must be the path of a directory, got '/no/such/place'"),
        ({"silence": 0}, "silence must be a number of seconds above 0, got 0"),
        ({"on_crash": "pray"}, "on_crash 'pray' is not a choice; accepted: fail, resume, retry"),
        ({"restart": "often"}, "restart of 'a' is 'often'"),
    ],
)
def test_a_wrong_option_is_named_before_anything_starts(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        proctor.claude("a", **options)


async def _until_text(turn: proctor.Turn) -> None:
    async for event in turn:
        if isinstance(event, v.Text):
            return


async def _end_of(turn: proctor.Turn) -> str:
    """How it ended: by the interrupt of the stop ladder where the CLI still heard it, else with its process."""
    try:
        return (await turn.finish()).outcome
    except proctor.MaybeExecuted as error:
        return error.outcome


@pytest.mark.covers("S63", "S64")
async def test_agents_come_and_go_under_a_dynamic_supervisor(tmp_path: Path) -> None:
    async with proctor.open_dynamic_supervisor(max_children=1) as sup:
        agent = await sup.start_child(agent_of(tmp_path, COUNTING))
        with pytest.raises(proctor.MaxChildren):
            await sup.start_child(agent_of(tmp_path, COUNTING))
        assert (await sup.agent("a").ask("one")).text == "1: one"
        await sup.terminate_child(agent)
        await sup.start_child(agent_of(tmp_path, COUNTING))
        assert (await sup.agent("a").ask("again")).text == "1: again"


@pytest.mark.covers("X1", "X17")
async def test_an_agent_that_is_put_off_is_asked_when_it_is_back(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, CUT_ONCE, backoff=proctor.Backoff(min_delay=0.2, jitter=0))
    async with proctor.open_supervisor([spec], seed=1) as sup:
        events = sup.events()
        with pytest.raises(proctor.MaybeExecuted):
            await sup.agent("a").ask("one")
        assert (await sup.agent("a").ask("two")).text == "process 2: two"
    delays = [event.delay for event in heard(events) if isinstance(event, ChildRestarting)]
    assert delays == [0.2]
