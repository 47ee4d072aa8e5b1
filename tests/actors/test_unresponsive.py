"""Agents whose command line does not respond, over peers that are functions, on the virtual clock."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, get_args

import pytest
import trio
from attrs import astuple
from trio.testing import MockClock

import proctor
from proctor.actors.operations.health import agent_problems
from proctor.actors.process.liveness import (
    CHECK_INTERVAL,
    CONDITION_RULES,
    REPLY_TIMEOUT,
    Bound,
    ConditionRule,
)
from proctor.actors.runs import ask
from proctor.actors.transport.memory import PeerStreams
from proctor.runtime.processes.condition import Condition, GuardState, PipeState, ProcessState
from tests.actors.far_end import codes, log_of
from tests.actors.spoken import CUT, spec_of, spoken_plan
from tests.protocols.lines import INIT, assistant, ended, line, reply

TOOL = assistant({"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "make"}})
RESULT = line(
    type="user",
    message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]},
)
SHUTDOWN = 5.0
"""Of `spoken_plan`: all graces of the stop sequence fit into it."""

Act = Callable[[PeerStreams], Awaitable[int | None]]


class Peer:
    """Claude Code's wire as far as these tests need it. A prompt that is a key of `acts` is acted on and not answered.

    `deaf` lists control requests that get no reply; `starts` counts the processes, `controls` what they were asked.
    """

    def __init__(self, *deaf: str, **acts: Act) -> None:
        self.deaf = set(deaf)
        self.acts = acts
        self.starts = 0
        self.controls = list[str]()

    async def __call__(self, side: PeerStreams) -> int | None:
        self.starts += 1
        open_turn = False
        async for said in side.lines():
            frame: dict[str, Any] = json.loads(said)
            if frame["type"] == "control_request":
                kind: str = frame["request"]["subtype"]
                self.controls.append(kind)
                if kind in self.deaf and self.starts == 1:
                    continue
                await side.send_all(reply(frame["request_id"], pid=1))
                if kind == "interrupt" and open_turn:
                    open_turn = False
                    await side.send_all(ended(**CUT))
                if kind == "end_session":
                    return None
                continue
            text: str = frame["message"]["content"]
            open_turn = True
            await side.send_all(INIT)
            if text in self.acts and self.starts == 1:
                if (status := await self.acts[text](side)) is not None:
                    return status
                continue
            open_turn = False
            await side.send_all(ended(subtype="success", is_error=False, result=f"{self.starts}: {text}"))
        return None


async def begin_a_tool(side: PeerStreams) -> None:
    await side.send_all(TOOL)


async def close_stdout(side: PeerStreams) -> None:
    side.end_output()
    await trio.sleep_forever()


async def be_stopped(side: PeerStreams) -> None:
    side.shown = Condition(process="stopped", guard="running")
    await trio.sleep_forever()


async def lost(agent: proctor.Agent, prompt: str) -> proctor.MaybeExecuted:
    with pytest.raises(proctor.MaybeExecuted) as raised:
        await agent.ask(prompt)
    return raised.value


# what hung


async def test_a_cli_that_closes_its_stdout_and_stays_ends_its_turn_and_the_conversation_resumes(
    autojump_clock: MockClock,
) -> None:
    peer = Peer(act=close_stdout)
    async with proctor.open_supervisor([spec_of(peer, final=5.0)]) as sup:
        agent = sup.agent("agent")
        with trio.fail_after(5.0 + SHUTDOWN + 1):
            error = await lost(agent, "act")
            answer = await agent.ask("next")
        resumed = (await agent.status()).session_id
    assert error.outcome == "crashed"
    assert "its stdout has ended, and it did not exit within 5 s" in str(error)
    assert (answer.text, answer.session_id) == ("2: next", resumed)


async def test_a_cli_that_closes_its_stdout_between_two_turns_is_replaced(autojump_clock: MockClock) -> None:
    peer = Peer()

    async def after_its_turn(side: PeerStreams) -> None:
        await side.send_all(ended(subtype="success", is_error=False, result="done"))
        await close_stdout(side)

    peer.acts["act"] = after_its_turn
    async with proctor.open_supervisor([spec_of(peer)]) as sup:
        agent = sup.agent("agent")
        assert (await agent.ask("act")).text == "done"
        await trio.sleep(0.5 + SHUTDOWN)
        assert [event.outcome for event in await log_of(agent) if isinstance(event, proctor.Exited)] == [
            "crashed"
        ]
        assert (await agent.ask("next")).text == "2: next"
        assert (await agent.status()).incarnation == 2


async def test_a_cli_that_answers_no_interrupt_in_mid_tool_is_stopped_and_the_conversation_resumes(
    autojump_clock: MockClock,
) -> None:
    peer = Peer("interrupt", act=begin_a_tool)
    async with proctor.open_supervisor([spec_of(peer, silence=5.0)]) as sup:
        agent = sup.agent("agent")
        with pytest.raises(proctor.AskTimeout):
            await agent.ask("act", timeout=1.0)
        with trio.fail_after(2 * REPLY_TIMEOUT + SHUTDOWN + 1):
            assert (await agent.ask("next")).text == "2: next"
        events = await log_of(agent)
    assert peer.controls.count("interrupt") == 3  # asked, asked again, and by the stop sequence
    assert {"unresponsive", "stalled", "resumed"} <= {*codes(events)}


async def test_a_cli_without_a_word_for_an_interrupt_is_stopped_when_its_caller_leaves(
    autojump_clock: MockClock,
) -> None:
    starts = 0

    async def first_hang_then_answer(side: PeerStreams) -> None:
        nonlocal starts
        starts += 1
        while await side.receive_some():
            pass  # its prompt is all of stdin
        await side.send_all(INIT)
        await side.send_all(TOOL)
        if starts == 1:
            await trio.sleep_forever()
        await side.send_all(ended(subtype="success", is_error=False, result=f"process {starts}"))

    spec = spec_of(first_hang_then_answer, mode="oneshot", silence=math.inf)
    async with proctor.open_supervisor([spec]) as sup:
        agent = sup.agent("agent")
        with pytest.raises(proctor.AskTimeout):
            await agent.ask("act", timeout=1.0)
        with trio.fail_after(SHUTDOWN + 1):
            assert (await agent.ask("next")).text == "process 2"
        assert (await agent.status()).incarnation == 1  # no restart is spent on it


async def test_a_tool_that_gives_no_sign_of_life_has_a_bound_of_its_own(autojump_clock: MockClock) -> None:
    peer = Peer(act=begin_a_tool)
    async with proctor.open_supervisor([spec_of(peer, silence=5.0, tool_silence=1800.0)]) as sup:
        began = trio.current_time()
        error = await lost(sup.agent("agent"), "act")
        assert 1800.0 < trio.current_time() - began < 1800.0 + SHUTDOWN + 1
    assert error.outcome == "stalled"
    assert "no output for 1800 s while a tool runs: Bash (c1)" in str(error)


async def test_a_tool_is_bounded_by_an_hour_without_an_option(autojump_clock: MockClock) -> None:
    async with proctor.open_supervisor([spec_of(Peer(act=begin_a_tool))]) as sup:
        began = trio.current_time()
        await lost(sup.agent("agent"), "act")
        assert 3600.0 < trio.current_time() - began < 3600.0 + SHUTDOWN + 1


async def test_a_stopped_process_is_found_at_once_whatever_the_silence_may_last(
    autojump_clock: MockClock,
) -> None:
    spec = spec_of(Peer(act=be_stopped), silence=math.inf, tool_silence=math.inf)
    async with proctor.open_supervisor([spec]) as sup:
        agent = sup.agent("agent")
        with trio.fail_after(2 * CHECK_INTERVAL + SHUTDOWN + 1):
            error = await lost(agent, "act")
            assert (await agent.ask("next")).text == "2: next"
    assert "found stopped twice within 3 s: process stopped, guard running" in str(error)


async def test_a_process_that_was_stopped_for_a_moment_goes_on(autojump_clock: MockClock) -> None:
    async def pause(side: PeerStreams) -> None:
        side.shown = Condition(process="stopped")
        await trio.sleep(CHECK_INTERVAL * 1.5)
        side.shown = Condition()
        await trio.sleep(CHECK_INTERVAL * 3)
        await side.send_all(ended(subtype="success", is_error=False, result="well"))

    async with proctor.open_supervisor([spec_of(Peer(act=pause))]) as sup:
        assert (await sup.agent("agent").ask("act")).text == "well"


async def test_an_idle_cli_that_answers_no_request_is_replaced(autojump_clock: MockClock) -> None:
    peer = Peer("set_model")
    async with proctor.open_supervisor([spec_of(peer)]) as sup:
        agent = sup.agent("agent")
        await agent.ask("hi")
        assert (await agent.set_model("m2")).fate == "expired"
        await trio.sleep(2 * REPLY_TIMEOUT + SHUTDOWN)
        assert peer.controls.count("set_model") == 2
        assert (await agent.ask("next")).text == "2: next"


async def test_a_cli_that_works_may_leave_a_request_unanswered(autojump_clock: MockClock) -> None:
    async def talk(side: PeerStreams) -> None:
        for _ in range(60):
            await trio.sleep(1)
            await side.send_all(TOOL)
            await side.send_all(RESULT)
        await side.send_all(ended(subtype="success", is_error=False, result="done"))

    async with proctor.open_supervisor([spec_of(Peer("set_model", act=talk))]) as sup:
        agent = sup.agent("agent")
        async with agent.stream("act") as turn:
            await anext(turn)
            assert not await agent.set_model("m2")
            await trio.sleep(REPLY_TIMEOUT / 2)
            assert "no answer to 'set_model' for 10 s" in (await agent.status()).unresponsive
            assert (await turn.finish()).text == "done"
        status = await agent.status()
    assert (status.incarnation, status.unresponsive) == (1, "")


async def test_a_late_answer_takes_the_suspicion_back(autojump_clock: MockClock) -> None:
    peer = Peer("interrupt", act=begin_a_tool)
    async with proctor.open_supervisor([spec_of(peer, silence=1000.0)]) as sup:
        agent = sup.agent("agent")
        async with agent.stream("act") as turn:
            await anext(turn)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(agent.interrupt)
                await trio.sleep(REPLY_TIMEOUT / 2)
                peer.deaf.clear()  # the first was lost; it answers when it is asked again
            assert (await turn.finish()).outcome == "interrupted"
        status = await agent.status()
    assert (status.incarnation, status.unresponsive, status.state) == (1, "", "idle")


async def test_a_cli_that_takes_no_more_input_and_stays_is_replaced(autojump_clock: MockClock) -> None:
    async def take_no_more(side: PeerStreams) -> None:
        await side.send_all(ended(subtype="success", is_error=False, result="done"))
        side.end_input()
        await trio.sleep_forever()

    async with proctor.open_supervisor([spec_of(Peer(act=take_no_more), final=5.0)]) as sup:
        agent = sup.agent("agent")
        assert (await agent.ask("act")).text == "done"
        with trio.fail_after(5.0 + SHUTDOWN + 1):
            error = await lost(agent, "too much")
            assert (await agent.ask("next")).text == "2: next"
    assert "it takes no more input" in str(error)


async def test_the_evidence_of_a_stall_is_in_the_status_and_in_the_check_of_readiness(
    autojump_clock: MockClock,
) -> None:
    async with (
        proctor.open_supervisor([spec_of(Peer(act=be_stopped))]) as sup,
        trio.open_nursery() as nursery,
    ):
        agent = sup.agent("agent")
        nursery.start_soon(lost, agent, "act")
        await trio.sleep(2 * CHECK_INTERVAL + 0.5)
        status = await agent.status()
        assert status.state == "stalled"
        assert status.evidence == status.unresponsive
        assert status.unresponsive.startswith(
            "found stopped twice within 3 s: process stopped, guard running"
        )
        assert await agent_problems({"agent": agent}) == f"agent is stalled: {status.unresponsive}"
        assert (await agent.ask("next")).text == "2: next"
        assert await agent_problems({"agent": agent}) is None


async def test_a_run_without_a_tree_says_what_was_found(autojump_clock: MockClock) -> None:
    answer = await ask(spoken_plan(Peer(act=be_stopped)), "act", timeout=None)
    assert answer.outcome == "stalled"
    assert "found stopped twice" in (answer.error or "")


async def test_the_next_request_is_not_sent_to_a_process_that_is_being_stopped(
    autojump_clock: MockClock,
) -> None:
    async def wake_up_and_answer(side: PeerStreams) -> None:
        side.shown = Condition(process="stopped")
        while side.shown.process == "stopped":  # noqa: ASYNC110  # until the stop sequence continues it
            await trio.sleep(0.1)
        await side.send_all(ended(subtype="success", is_error=False, result="late"))

    async with proctor.open_supervisor([spec_of(Peer(act=wake_up_and_answer))]) as sup:
        agent = sup.agent("agent")
        assert (await agent.ask("act")).text == "late"
        assert (await agent.ask("next")).text == "2: next"


# the table of the peer's conditions

SILENCE, FINAL = 20.0, 5.0
BOUNDS: Mapping[Bound, float] = {
    "status": 0.0,
    "exit": max(FINAL, 2 * CHECK_INTERVAL),
    "stopped": 2 * CHECK_INTERVAL,
    "silence": SILENCE,
}
SHAPES = sorted({(c.stdout, c.process, c.guard) for c in CONDITION_RULES})


def conditions(stdout: str, process: str, guard: str) -> list[tuple[Condition, ConditionRule]]:
    return [
        (c, cell)
        for c, cell in CONDITION_RULES.items()
        if (c.stdout, c.process, c.guard) == (stdout, process, guard)
    ]


def entering(condition: Condition, cell: ConditionRule) -> Act:
    async def act(side: PeerStreams) -> int | None:
        if cell.bound == "status":
            return 3  # the exit is seen at once
        if condition.stdout == "closed":
            side.end_output()
        if condition.stdin == "closed":
            side.end_input()
        side.shown = condition
        await trio.sleep_forever()
        return None

    return act


def test_the_table_has_every_condition_once() -> None:
    axes = [get_args(axis) for axis in (PipeState, PipeState, PipeState, ProcessState, GuardState)]
    assert {astuple(condition) for condition in CONDITION_RULES} == {*itertools.product(*axes)}


@pytest.mark.parametrize(("stdout", "process", "guard"), SHAPES)
async def test_a_turn_ends_in_every_condition_of_its_peer_within_the_bound_of_the_table(
    stdout: str, process: str, guard: str, autojump_clock: MockClock
) -> None:
    for condition, cell in conditions(stdout, process, guard):
        spec = spec_of(Peer(act=entering(condition, cell)), silence=SILENCE, final=FINAL)
        async with proctor.open_supervisor([spec]) as sup:
            agent = sup.agent("agent")
            with trio.fail_after(BOUNDS[cell.bound] + SHUTDOWN + 1):
                assert (await lost(agent, "act")).outcome == cell.outcome, condition
                assert (await agent.ask("next")).text == "2: next"


@pytest.mark.parametrize(("stdout", "process", "guard"), SHAPES)
async def test_an_idle_agent_in_any_condition_of_its_peer_answers_again_within_the_bound_of_the_table(
    stdout: str, process: str, guard: str, autojump_clock: MockClock
) -> None:
    for condition, cell in conditions(stdout, process, guard):
        enter = entering(condition, cell)

        async def after_its_turn(side: PeerStreams, enter: Act = enter) -> int | None:
            await side.send_all(ended(subtype="success", is_error=False, result="done"))
            return await enter(side)

        spec = spec_of(Peer(act=after_its_turn), silence=SILENCE, final=FINAL)
        async with proctor.open_supervisor([spec]) as sup:
            agent = sup.agent("agent")
            assert (await agent.ask("act")).text == "done"
            with trio.fail_after(max(BOUNDS[cell.bound], FINAL) + SHUTDOWN + 1):
                with suppress(proctor.MaybeExecuted):
                    await agent.ask("lost perhaps")
                assert (await agent.ask("next")).text.startswith("2: ")
