"""What an agent does must not depend on how its far end is reached (R094)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.errors import GreetingTimeout, NotExecuted
from proctor.actors.plan.plan import Plan
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.actors.runs import ask
from proctor.actors.specs import agent_spec
from proctor.actors.transport.memory import PeerStreams
from proctor.protocols import vocabulary as v
from proctor.runtime.exits import ExitStatus, Normal
from proctor.runtime.spec import ChildSpec
from tests.actors.far_end import Step, plan_of
from tests.actors.spoken import spoken_plan

MakePlan = Callable[..., Plan]


def scripted_plan(folder: Path, **options: Any) -> Plan:
    steps: list[Step] = [
        {"turn": "crash", "when": "^crash$"},
        {"fault": "stderr:20"},
        {"fault": "exit:3"},
        {"turn": "hang", "when": "^hang$"},
        {"fault": "hang"},
        {"turn": "wait", "when": "^wait$"},
        {"sleep": 600},
        {"reply": "too late"},
        {"turn": "rest"},
        {"reply": "{turn}: {prompt}"},
    ]
    return plan_of(folder, steps, **options)


def function_plan(folder: Path, **options: Any) -> Plan:
    return spoken_plan(**options)


@pytest.fixture(params=[scripted_plan, function_plan], ids=["process", "function"])
def make(request: pytest.FixtureRequest) -> MakePlan:
    found: MakePlan = request.param
    return found


def agent_of(plan: Plan) -> ChildSpec:
    return agent_spec("agent", attrs.evolve(plan, shutdown=3.0), {"shutdown": 3})


@pytest.mark.covers("R094")
async def test_a_run_gives_the_text_and_leaves_by_itself(make: MakePlan, tmp_path: Path) -> None:
    answer = await ask(make(tmp_path), "hello", timeout=30)
    assert (answer.outcome, answer.text, answer.exit) == ("ok", "1: hello", Normal())


@pytest.mark.covers("R094", "C19", "C22")
async def test_two_turns_are_two_answers_of_one_session(make: MakePlan, tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(make(tmp_path))]) as sup:
        answers = [await sup.agent("agent").ask(text, timeout=30) for text in ("one", "two")]
        status = await sup.agent("agent").status()
    assert [answer.text for answer in answers] == ["1: one", "2: two"]
    assert len({answer.session_id for answer in answers}) == 1
    assert (status.state, status.turns, status.incarnation) == ("idle", 2, 1)


@pytest.mark.covers("R094")
async def test_an_interrupt_ends_the_turn_and_not_the_session(make: MakePlan, tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(make(tmp_path))]) as sup:
        agent = sup.agent("agent")
        async with agent.stream("wait") as turn:
            async for event in turn:
                if isinstance(event, v.TurnStarted):
                    assert await agent.interrupt()
        assert turn.answer.outcome == "interrupted"
        assert (await agent.ask("on", timeout=30)).text.endswith(": on")


@pytest.mark.covers("R094")
async def test_a_crash_in_mid_turn_says_how_and_the_next_request_meets_a_new_far_end(
    make: MakePlan, tmp_path: Path
) -> None:
    async with proctor.open_supervisor([agent_of(make(tmp_path))]) as sup:
        agent = sup.agent("agent")
        with pytest.raises(proctor.MaybeExecuted, match=r"agent ended in mid-turn \(crashed\)"):
            await agent.ask("crash", timeout=30)
        assert (await agent.ask("again", timeout=30)).text.endswith(": again")
        assert (await agent.status()).incarnation == 2


@pytest.mark.covers("R112")
async def test_a_crash_is_an_exit_status_with_its_last_words(make: MakePlan, tmp_path: Path) -> None:
    answer = await ask(make(tmp_path), "crash", timeout=30)
    assert (answer.outcome, answer.exit) == ("crashed", ExitStatus(3))
    assert isinstance(answer.exit, ExitStatus)
    assert answer.exit.stderr.strip()
    assert answer.stderr.strip() == answer.exit.stderr.decode().strip()


@pytest.mark.covers("R094")
async def test_a_turn_without_a_sign_of_life_is_stalled(make: MakePlan, tmp_path: Path) -> None:
    answer = await ask(make(tmp_path, silence=0.5), "hang", timeout=30)
    assert answer.outcome == "stalled"


async def test_an_agent_without_a_process_waits_a_day_in_no_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    start = trio.current_time()
    answer = await ask(spoken_plan(silence=86400.0), "hang", timeout=None)
    assert answer.outcome == "stalled"
    assert trio.current_time() - start >= 86400


async def test_a_far_end_that_does_not_greet_is_given_up(autojump_clock: MockClock) -> None:
    async def mute(side: PeerStreams) -> int | None:
        side.complain(b"thinking")
        await trio.sleep_forever()
        return None

    with pytest.raises(
        GreetingTimeout, match="did not answer the greeting within 60 s; stderr ends 'thinking'"
    ):
        await ask(spoken_plan(mute), "hello")


async def test_where_there_is_no_process_asking_for_it_says_so(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.ndjson")
    live = AgentProcess(spoken_plan(), log, RunDirectory(tmp_path, "agent"))
    with pytest.raises(NotExecuted, match="was never started"):
        live.transport.close()
    async with trio.open_nursery() as nursery:
        await nursery.start(live.serve)
        with pytest.raises(NotExecuted, match="has no process of its own"):
            live.process.kill()
        assert live.pid is None
        await live.stop("owner")
    log.release()
    assert (live.exit, live.outcome) == (Normal(), "stopped")
