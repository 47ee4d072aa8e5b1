from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import proctor
from proctor.actors.limits.admission import TreeLimits, admission_for
from proctor.actors.outcomes import OUTCOMES, Outcome, Reaction
from proctor.actors.plan.plan import claude_plan
from proctor.protocols import vocabulary as v
from tests.actors.far_end import Step, agent_of, codes, log_of, write_script

REPLY: Sequence[Step] = ({"reply": "{prompt}"},)
LONG: Sequence[Step] = ({"say": "begun"}, {"sleep": 60}, {"reply": "no"})


def ending(word: str) -> Sequence[Step]:
    return ({"end": word}, {"turn": "next"}, {"reply": "{prompt}"})


async def no_deed(sup: proctor.Supervisor) -> None: ...


async def interrupt(sup: proctor.Supervisor) -> None:
    await sup.agent("a").interrupt()


async def kill_the_actor(sup: proctor.Supervisor) -> None:
    sup.name("a").kill()


async def kill_the_process(sup: proctor.Supervisor) -> None:
    os.killpg((await sup.agent("a").status()).pid or 0, signal.SIGKILL)


async def terminate(sup: proctor.Supervisor) -> None:
    await sup.terminate_child("a")


CELLS = [
    ("ok", REPLY, (), no_deed, "idle", 1),
    ("failed", ending("api_error"), (), no_deed, "idle", 1),
    ("limited", REPLY, ("limit:600",), no_deed, "idle", 1),
    ("interrupted", LONG, (), interrupt, "idle", 1),
    ("exhausted", ending("max_turns"), (), no_deed, "idle", 1),
    ("authentication", ending("authentication"), (), no_deed, "failed", 1),
    ("configuration", ending("model_not_found"), (), no_deed, "failed", 1),
    ("stalled", [{"say": "begun"}, {"fault": "hang"}], (), no_deed, "idle", 2),
    ("killed", LONG, (), kill_the_actor, "idle", 2),
    ("killed_by_system", LONG, (), kill_the_process, "idle", 2),
    ("crashed", [{"say": "begun"}, {"fault": "exit:3"}], (), no_deed, "idle", 2),
    ("no_answer", [{"say": "begun"}, {"fault": "exit:0"}], (), no_deed, "idle", 2),
    ("garbled", [{"say": "begun"}, {"fault": "garbage:20"}, {"sleep": 60}], (), no_deed, "idle", 2),
]
"""What ends a turn, its label, and the agent afterwards: its state, and the number of its process."""


@pytest.mark.covers("L25", "L30", "L32", "L36", "L38")
@pytest.mark.parametrize(("outcome", "steps", "faults", "deed", "state", "incarnation"), CELLS)
async def test_an_outcome_has_the_reaction_of_its_table(
    outcome: str,
    steps: Sequence[Step],
    faults: tuple[str, ...],
    deed: Callable[[proctor.Supervisor], Awaitable[None]],
    state: str,
    incarnation: int,
    tmp_path: Path,
) -> None:  # L25, L30, L32, L36-L38
    spec = agent_of(
        tmp_path, steps, *faults, restart="transient", park=False, silence=0.8, shutdown=1, account="own"
    )
    async with proctor.open_supervisor([spec]) as sup:
        agent = sup.agent("a")
        async with agent.stream("one") as turn:
            async for event in turn:
                if isinstance(event, v.Text | v.TurnEnded):
                    break
            await deed(sup)
            assert await _end(turn) == outcome
        with trio.fail_after(10):
            while (status := await agent.status()).state in ("starting", "backoff", "working"):  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert (status.state, status.incarnation) == (state, incarnation)


async def _end(turn: proctor.Turn) -> str:
    try:
        return (await turn.finish()).outcome
    except proctor.MaybeExecuted as lost:
        return lost.outcome


def test_each_outcome_and_each_reaction_has_such_a_cell() -> None:
    elsewhere = {"stopped", "deadline"}  # an owner's own word: of a stopped tree, and of a run without one
    assert {outcome for outcome, *_ in CELLS} | elsewhere == set(get_args(Outcome))
    seen = {OUTCOMES[outcome].reaction for outcome in get_args(Outcome)}
    assert seen == set(get_args(Reaction))


@pytest.mark.covers("L36")
async def test_a_process_that_leaves_after_a_refused_login_is_not_started_again_until_asked(
    tmp_path: Path,
) -> None:
    spec = agent_of(tmp_path, ending("authentication"), restart="permanent")
    async with proctor.open_supervisor([spec], intensity=0) as sup:
        agent = sup.agent("a")
        assert (await agent.ask("one")).outcome == "authentication"
        async with agent.events() as log:
            os.killpg((await agent.status()).pid or 0, signal.SIGTERM)
            async for event in log:
                if isinstance(event, v.Exited):
                    break
        await trio.testing.wait_all_tasks_blocked()
        status = await agent.status()
        assert (status.state, status.pid, status.incarnation) == ("failed", None, 1)
        assert (await agent.steer("x")).why.startswith("no process is running: failed (authentication: ")
        answer = await agent.ask("two")
        seen = await log_of(agent)
    assert (answer.outcome, answer.text) == ("ok", "two")
    assert "odd_state" not in codes(seen)


@pytest.mark.covers("L10")
async def test_a_prompt_that_is_lost_is_not_told_by_the_turn_before_it(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, REPLY, "lost_prompt@turn=2@once", restart="transient")
    async with proctor.open_supervisor([spec]) as sup:
        agent = sup.agent("a")
        assert (await agent.ask("one")).ok
        with pytest.raises(proctor.MaybeExecuted) as caught:
            await agent.ask("two")
        assert (await agent.ask("three")).text == "three"
        status = await agent.status()
    assert (caught.value.outcome, status.incarnation) == ("no_answer", 2)


@pytest.mark.covers("L38")
async def test_a_process_that_leaves_while_its_agent_is_parked_is_no_crash(tmp_path: Path) -> None:
    script: Sequence[Step] = ({"fault": "limit:2@once"}, {"reply": "late: {prompt}"})
    spec = agent_of(tmp_path, script, restart="transient")
    async with proctor.open_supervisor([spec], intensity=0) as sup:
        agent = sup.agent("a")
        states = list[str]()
        async with agent.stream("one") as turn:
            async for event in turn:
                if isinstance(event, v.TurnEnded) and event.ending == "limit":
                    os.killpg((await agent.status()).pid or 0, signal.SIGINT)
                if isinstance(event, v.Exited):
                    states.append((await agent.status()).state)
        status = await agent.status()
    assert (turn.answer.text, states) == ("late: one", ["parked"])
    assert (status.state, status.incarnation) == ("idle", 1)


@pytest.mark.covers("R118")
async def test_each_attempt_of_a_request_is_told_with_its_number_and_its_cause(
    tmp_path: Path,
) -> None:
    spec = agent_of(tmp_path, REPLY, "crash@turn=1@once", on_crash="retry")
    async with proctor.open_supervisor([spec]) as sup, sup.agent("a").stream("one") as turn:
        events = [event async for event in turn]
    sent = [event for event in events if isinstance(event, v.Notice) and event.code == "sent"]
    assert [(notice.data["attempt"], notice.text) for notice in sent] == [
        (1, "asked"),
        (2, "the process that had it has ended"),
    ]


async def test_a_one_shot_agent_never_surprises_the_state_table(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, REPLY, mode="oneshot")
    async with proctor.open_supervisor([spec]) as sup:
        agent = sup.agent("a")
        assert (await agent.status()).state == "idle"
        for prompt in ("one", "two"):
            await agent.ask(prompt)
        seen = await log_of(agent)
        status = await agent.status()
    assert "odd_state" not in codes(seen)
    assert status.state == "idle"


async def test_many_that_come_back_at_once_are_asked_in_steps(autojump_clock: MockClock) -> None:
    fellows = TreeLimits(stagger=5.0)
    gates = [admission_for(claude_plan(f"a{n}", {}), f"root/a{n}", fellows) for n in range(4)]
    for gate in gates:
        gate.on_restart()
    holds = [gate.admit(again=True) for gate in gates]
    assert [hold and (hold.seconds, hold.why) for hold in holds] == [
        None,
        *((5.0 * n, "waiting while other agents restart") for n in (1, 2, 3)),
    ]
    await trio.sleep(5)
    assert [gate.admit(again=True) is None for gate in gates] == [True, True, False, False]


async def test_agents_that_were_all_killed_go_on_one_after_the_other(tmp_path: Path) -> None:
    cut: Sequence[Step] = (
        {"turn": "after", "incarnation": 2},
        {"reply": "back"},
        {"turn": "before"},
        {"say": "begun"},
        {"sleep": 60},
    )
    times = list[float]()
    specs = [proctor.scripted(n, write_script(tmp_path, cut), on_crash="retry", shutdown=3) for n in "abc"]
    async with (
        proctor.open_supervisor(specs, intensity=5, stagger=1.6) as sup,
        trio.open_nursery() as nursery,
    ):

        async def ask(name: str) -> None:
            async with sup.agent(name).stream("x") as turn:
                async for event in turn:
                    if isinstance(event, v.Text) and event.text == "begun":
                        os.killpg((await sup.agent(name).status()).pid or 0, signal.SIGKILL)
                    elif isinstance(event, v.Notice) and event.data.get("attempt") == 2:
                        times.append(trio.current_time())
                assert turn.answer.text == "back"

        for name in "abc":
            nursery.start_soon(ask, name)
    assert len(times) == 3
    assert all(later - sooner > 0.3 for sooner, later in pairwise(times))
