from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

import pytest
import trio
import trio.testing

import proctor
from proctor.actors.agent.agent_state import MAX_QUEUED
from proctor.actors.agent.messages import Control, Submit
from proctor.actors.agent.receipts import Receipt
from proctor.actors.agent.request import Request
from proctor.actors.plan.options import AgentOptions
from proctor.actors.specs import agent_spec
from proctor.protocols import vocabulary as v
from proctor.runtime.exits import NoProc
from proctor.runtime.spec import ChildSpec
from tests.actors.far_end import HELLO, Step, plan_of
from tests.actors.steered import Way, steerable

TOOL: Sequence[Step] = (
    {"tool": "Bash", "input": {"command": "x"}, "result": "ok", "seconds": 0.4},
    {"reply": "{turn}: {prompt}"},
)
LONG: Sequence[Step] = (
    {"say": "begun"},
    {"sleep": 60},
    {"reply": "no"},
    {"turn": "next"},
    {"reply": "{turn}: {prompt}"},
)
ASKING: Sequence[Step] = (
    {"tool": "Bash", "input": {"command": "x"}, "ask": True, "result": "ok"},
    {"reply": "done"},
)


def agent_of(
    folder: Path, way: Way, steps: Sequence[Step], *faults: str, **options: Unpack[AgentOptions]
) -> ChildSpec:
    plan = steerable(plan_of(folder, steps, *faults, shutdown=3.0, **options), way)
    return agent_spec("a", plan, {})


@asynccontextmanager
async def working(
    spec: ChildSpec, until: type[v.Event] = v.TurnStarted
) -> AsyncGenerator[tuple[proctor.Supervisor, proctor.Agent, proctor.Turn]]:
    """The agent in a turn that has come to the first such event."""
    async with proctor.open_supervisor([spec], intensity=3) as sup:
        agent = sup.agent("a")
        async with agent.stream("one") as turn:
            async for event in turn:
                if isinstance(event, until):
                    break
            yield sup, agent, turn


@pytest.mark.covers("L40")
@pytest.mark.parametrize(
    ("way", "fate", "why"),
    [
        ("taken", "delivered", ""),
        ("kept", "queued", "the turn ended first; the CLI keeps it for its next one"),
        ("denied", "refused", "Unsupported control request subtype: steer"),
        ("unheard", "expired", "the turn ended first (completed)"),
        ("unable", "refused", "this dialect has no way to send"),
    ],
)
async def test_what_is_said_into_a_running_turn_has_a_fate(
    way: Way, fate: str, why: str, tmp_path: Path
) -> None:
    async with working(agent_of(tmp_path, way, TOOL), v.ToolCall) as (_, agent, turn):
        with trio.fail_after(10):
            receipt = await agent.steer("hurry")
        answer = await turn.finish()
    assert (receipt.fate, receipt.why[: len(why)]) == (fate, why)
    assert answer.text == "1: one"


async def test_what_the_cli_keeps_is_a_turn_that_shows_in_the_state(tmp_path: Path) -> None:
    steps: Sequence[Step] = (*TOOL, {"turn": "own"}, {"say": "own"}, {"sleep": 60})
    states = list[str]()
    async with (
        working(agent_of(tmp_path, "kept", steps), v.ToolCall) as (_, agent, turn),
        agent.events() as log,
    ):
        receipt = await agent.steer("later")
        await turn.finish()
        async for event in log:
            if isinstance(event, v.Text) and event.text == "own":
                states.append((await agent.status()).state)
                assert await agent.interrupt()
            if isinstance(event, v.TurnEnded) and receipt.request in event.prompts:
                states.append((await agent.status()).state)
                break
    assert (receipt.fate, states) == ("queued", ["working", "idle"])


async def test_a_steer_waits_no_longer_than_it_is_told_to(tmp_path: Path) -> None:
    async with working(agent_of(tmp_path, "unheard", LONG)) as (_, agent, _turn):
        receipt = await agent.steer("hurry", timeout=0.2)
    assert (receipt.fate, receipt.why) == ("queued", "the CLI did not reply within 0.2 s")


async def test_an_idle_agent_refuses_what_needs_a_turn(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, "taken", HELLO)]) as sup:
        agent = sup.agent("a")
        fresh = [await agent.steer("x"), await agent.interrupt()]
        await agent.ask("one")
        later = [await agent.steer("x"), await agent.interrupt()]
    assert [receipt.fate for receipt in fresh + later] == ["refused"] * 4
    assert all(receipt.why.startswith("no turn is running: idle (") for receipt in fresh + later)


async def test_a_steer_right_behind_a_request_comes_after_it(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, "taken", TOOL)]) as sup:
        address = sup.name("a")
        for n in range(5):
            job = Request(f"job {n}", "one")
            request = address.send_request(Submit(job))
            steered = address.send_request(Control(v.Steer(f"steer {n}", "and")))
            turn = await request.wait()
            result = await steered.wait()
            assert result.refused is None, n
            assert (await turn.finish()).ok


async def test_a_blocked_agent_can_be_steered_and_its_question_answered(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, "taken", ASKING, permission="ask")
    receipts = list[Receipt]()
    async with working(spec, v.ApprovalRequested) as (_, agent, turn), trio.open_nursery() as nursery:
        assert (await agent.status()).state == "blocked"

        async def steer() -> None:
            receipts.append(await agent.steer("also"))

        nursery.start_soon(steer)
        async with agent.approvals() as approvals:
            async for approval in approvals:
                assert approval.allow()
                break
        await turn.finish()
    assert [receipt.fate for receipt in receipts] == ["delivered"]


async def test_a_parked_agent_refuses_to_be_steered(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, "taken", HELLO, "limit:600")
    async with working(spec, v.TurnEnded) as (_, agent, _turn):
        receipts = [await agent.steer("x"), await agent.interrupt()]
    assert [receipt.fate for receipt in receipts] == ["refused", "refused"]
    assert receipts[0].why.startswith("no turn is running: parked (usage limit of the account ")


async def test_what_was_said_to_a_process_that_dies_has_expired(tmp_path: Path) -> None:
    fates = list[str]()
    async with (
        working(agent_of(tmp_path, "unheard", LONG)) as (_, agent, _turn),
        trio.open_nursery() as nursery,
    ):

        async def steer() -> None:
            receipt = await agent.steer("x")
            fates.append(f"{receipt.fate}: {receipt.why}")

        nursery.start_soon(steer)
        await trio.testing.wait_all_tasks_blocked()
        os.killpg((await agent.status()).pid or 0, signal.SIGKILL)
    assert fates == ["expired: its process ended first (killed_by_system)"]


async def test_an_agent_between_two_processes_refuses_and_one_that_has_stopped_is_nobody(
    tmp_path: Path,
) -> None:
    plan = steerable(plan_of(tmp_path, LONG, shutdown=3.0), "taken")
    spec = agent_spec("a", plan, {"backoff": proctor.Backoff(min_delay=30, jitter=0)})
    async with working(spec) as (sup, agent, turn):
        os.killpg((await agent.status()).pid or 0, signal.SIGKILL)
        with pytest.raises(proctor.MaybeExecuted):
            await turn.finish()
        while (await agent.status()).state != "backoff":  # noqa: ASYNC110
            await trio.sleep(0.01)
        receipt = await agent.steer("x")
        await sup.terminate_child("a")
        for say in (agent.steer, agent.queue, agent.set_model):
            with pytest.raises(NoProc):
                await say("x")
    assert (receipt.fate, receipt.why) == ("refused", "no process is running: the agent is restarting")


async def test_what_is_said_while_the_agent_stops_has_expired(tmp_path: Path) -> None:
    fates = list[str]()
    spec = agent_of(tmp_path, "unheard", LONG, "linger", "ignore_term")
    async with working(spec) as (sup, agent, _turn), trio.open_nursery() as nursery:

        async def steer() -> None:
            fates.append((await agent.steer("x")).fate)

        nursery.start_soon(sup.terminate_child, "a")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(steer)
    assert fates in (["refused"], ["expired"])  # by the process that is being stopped, or by its end


async def test_a_queued_request_is_answered_in_a_turn_of_its_own_whoever_left(tmp_path: Path) -> None:
    async with working(agent_of(tmp_path, "taken", TOOL)) as (_, agent, turn):
        receipt = await agent.queue("two")
        with trio.move_on_after(0):
            await receipt.answer()
        first = await turn.finish()
        second = await receipt.answer()
        again = await receipt.answer()
    assert (receipt.fate, first.text, second.text) == ("queued", "1: one", "2: two")
    assert again == second


async def test_a_queued_request_survives_a_crash_and_one_that_was_never_sent_says_so(tmp_path: Path) -> None:
    steps: Sequence[Step] = (
        {"turn": "after", "incarnation": 2},
        {"reply": "process {incarnation}: {prompt}"},
        {"turn": "before"},
        {"say": "begun"},
        {"sleep": 60},
        {"reply": "never"},
    )
    async with working(agent_of(tmp_path, "taken", steps), v.Text) as (_, agent, turn):
        receipt = await agent.queue("two")
        os.killpg((await agent.status()).pid or 0, signal.SIGKILL)
        with pytest.raises(proctor.MaybeExecuted):
            await turn.finish()
        assert (await receipt.answer()).text == "process 2: two"
    async with working(agent_of(tmp_path, "taken", LONG)) as (sup, agent, _turn):
        receipt = await agent.queue("never")
        await sup.terminate_child("a")
        with pytest.raises(proctor.NotExecuted):
            await receipt.answer()


async def test_too_many_queued_requests_are_refused(tmp_path: Path) -> None:
    async with working(agent_of(tmp_path, "taken", LONG)) as (_, agent, _turn):
        receipts = [await agent.queue("x") for _ in range(MAX_QUEUED + 1)]
    assert all(receipts[:-1])
    assert (receipts[-1].fate, receipts[-1].why) == (
        "refused",
        f"a did not take the request: {MAX_QUEUED} requests are already queued".replace("a did", "agent did"),
    )


async def test_requests_beside_the_turn_tell_what_the_cli_said(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, "taken", HELLO)]) as sup:
        agent = sup.agent("a")
        receipts = [
            await agent.set_permission_mode("plan"),
            await agent.set_permission_mode("none of them"),
            await agent.stop_task("t1"),
            await agent.set_model("other"),
        ]
    assert [receipt.fate for receipt in receipts] == ["delivered", "refused", "delivered", "delivered"]
    assert receipts[1].why.startswith("Cannot set permission mode")


@pytest.mark.covers("R102")
async def test_a_cli_that_gives_no_word_of_an_interrupt_costs_the_caller_its_time_only(
    tmp_path: Path,
) -> None:
    # it hangs with the line of its text: before the next step of a script it would still hear
    spec = agent_of(tmp_path, "taken", [{"say": "begun"}, {"sleep": 60}], "hang@line=7")
    async with working(spec, v.Text) as (_, agent, _turn):
        receipt = await agent.interrupt(timeout=0.2)
        assert (await agent.status()).state == "working"
    assert (bool(receipt), receipt.fate) == (False, "expired")


async def test_an_event_leads_back_to_the_line_it_came_from(tmp_path: Path) -> None:
    async with working(agent_of(tmp_path, "taken", HELLO)) as (_, agent, turn):
        events = [event async for event in turn]
        [text] = [event for event in events if isinstance(event, v.Text)]
        line = await agent.raw(text)
        assert b'"assistant"' in line
        assert b"Hello! You said: one" in line
        for lost in (v.Notice(v.HOST, None, "x"), v.Text(3, None, "x"), v.Text(9999, text.turn, "x")):
            with pytest.raises(LookupError):
                await agent.raw(lost)
