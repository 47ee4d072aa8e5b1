"""A program whose loop was held by somebody's computation: nobody is judged by what he had no turn for."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    CallTimeout,
    ChildSpec,
    ExitReason,
    Killed,
    Probe,
    Shutdown,
    StartError,
    dynamic_supervisor_spec,
    open_supervisor,
)
from proctor.runtime.supervision.dynamic import DynamicSupervisor
from tests.runtime.stage import Notes, settled


class Needs(Actor):
    """Needs some seconds, in two parts, to terminate."""

    async def init(self, notes: Notes, seconds: float) -> None:
        self.notes, self.seconds = notes, seconds

    async def terminate(self, reason: ExitReason) -> None:
        await trio.sleep(self.seconds / 2)
        await trio.sleep(self.seconds / 2)
        self.notes.append("terminated")


@pytest.mark.covers("S38")
async def test_children_that_need_less_than_their_grace_are_not_killed_after_a_stall(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([dynamic_supervisor_spec("pool")]) as sup:
        pool = sup.supervisor("pool", DynamicSupervisor)
        for _ in range(40):
            await pool.start_child(ChildSpec("a", Needs, (notes, 0.1), shutdown=1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.terminate_child, "pool")
            while pool.tree().children[0].state != "stopping":
                await trio.lowlevel.checkpoint()
            autojump_clock.jump(5)
    assert notes == ["terminated"] * 40


@pytest.mark.covers("S36")
async def test_one_after_the_other_is_not_killed_after_a_stall_either(autojump_clock: MockClock) -> None:
    notes: Notes = []
    children = [ChildSpec(str(k), Needs, (notes, 0.1), shutdown=1) for k in range(5)]
    async with open_supervisor(children) as sup, trio.open_nursery() as nursery:
        nursery.start_soon(sup.stop)
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        autojump_clock.jump(5)
    assert notes == ["terminated"] * 5


@pytest.mark.covers("S38")
async def test_a_child_that_hangs_is_killed_after_a_stall_all_the_same(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([ChildSpec("a", Needs, (notes, 1000), shutdown=1, name="a")]) as sup:
        ref = sup.name("a").ref()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.terminate_child, "a")
            await settled(0.001)
            autojump_clock.jump(5)
            stalled = trio.current_time()
        assert ref.exit_reason == Killed()
        assert trio.current_time() <= stalled + 1
    assert notes == []


class Answers(Actor):
    """Answers after some steps of its own."""

    async def handle_call(self, msg: Any, from_: object) -> Any:
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        return msg


@pytest.mark.covers("M16")
async def test_calls_whose_answers_need_no_time_are_answered_after_a_stall(
    autojump_clock: MockClock,
) -> None:
    answers: list[int] = []
    children = [ChildSpec(str(number), Answers) for number in range(30)]
    async with open_supervisor(children) as sup, trio.open_nursery() as nursery:

        async def call(number: int) -> None:
            answers.append(await sup.child(str(number)).call(number, timeout=1))

        for number in range(30):
            nursery.start_soon(call, number)
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        autojump_clock.jump(5)
    assert sorted(answers) == list(range(30))


@pytest.mark.covers("X14")
async def test_calls_that_wait_in_one_mailbox_are_answered_after_a_stall(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([ChildSpec("a", Answers, name="a")]) as sup:
        requests = [sup.name("a").send_request(number, 1) for number in range(30)]
        autojump_clock.jump(5)
        assert [await request.wait() for request in requests] == list(range(30))


@pytest.mark.covers("M16")
async def test_a_call_that_is_not_answered_times_out_after_a_stall_all_the_same(
    autojump_clock: MockClock,
) -> None:
    class Silent(Actor):
        async def handle_call(self, msg: Any, from_: object) -> Any:
            await trio.sleep_forever()

    async with open_supervisor([ChildSpec("a", Silent, name="a")]) as sup:
        request = sup.name("a").send_request("?", 1)
        await settled(0.001)
        autojump_clock.jump(5)
        with pytest.raises(CallTimeout):
            await request.wait()


@pytest.mark.covers("X4")
async def test_a_start_that_needs_less_than_its_time_is_ready_after_a_stall(
    autojump_clock: MockClock,
) -> None:
    async def slow(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(0.1)
        await trio.sleep(0.1)
        task_status.started()
        await trio.sleep_forever()

    async with open_supervisor() as sup, trio.open_nursery() as nursery:
        nursery.start_soon(sup.start_child, ChildSpec("slow", slow, start_timeout=1))
        while not sup.tree().children:
            await trio.lowlevel.checkpoint()
        autojump_clock.jump(5)


@pytest.mark.covers("X4")
async def test_a_start_that_hangs_fails_after_a_stall_all_the_same(autojump_clock: MockClock) -> None:
    async def hangs(*, task_status: trio.TaskStatus[None]) -> None:
        autojump_clock.jump(5)
        await trio.sleep_forever()

    async with open_supervisor() as sup:
        with pytest.raises(StartError):
            await sup.start_child(ChildSpec("hangs", hangs, start_timeout=1))


@pytest.mark.covers("X6")
async def test_a_child_that_beats_in_time_is_well_after_a_stall(autojump_clock: MockClock) -> None:
    ends: list[ExitReason] = []

    class Beats(Actor):
        async def init(self) -> None:
            self.nursery.start_soon(self.keep_beating)

        async def keep_beating(self) -> None:
            while True:
                await trio.sleep(0.3)
                await trio.sleep(0.3)
                self.beat()

        async def terminate(self, reason: ExitReason) -> None:
            ends.append(reason)

    async with open_supervisor([ChildSpec("a", Beats, watchdog=1, restart="temporary")]):
        for _ in range(10):
            await trio.sleep(3.1)
            autojump_clock.jump(5)
        await trio.sleep(3)
    assert ends == [Shutdown()]


@pytest.mark.covers("X7")
async def test_a_probe_that_needs_less_than_its_time_has_not_failed_after_a_stall(
    autojump_clock: MockClock,
) -> None:
    tries: list[str] = []

    async def check() -> None:
        tries.append("begun")
        if len(tries) == 1:
            autojump_clock.jump(5)
        await trio.sleep(0.1)
        tries.append("well")

    async def child(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()

    probe = Probe(check=check, period=10, timeout=1, failures=1)
    async with open_supervisor([ChildSpec("a", child, probe=probe)], intensity=0):
        await trio.sleep(15)
    assert tries == ["begun", "well"] * 2


@pytest.mark.covers("S38")
async def test_a_loop_that_is_held_on_the_real_clock_costs_nobody_its_clean_up() -> None:
    notes: Notes = []
    async with open_supervisor([dynamic_supervisor_spec("pool")]) as sup:
        pool = sup.supervisor("pool", DynamicSupervisor)
        for _ in range(40):
            await pool.start_child(ChildSpec("a", Needs, (notes, 0.02), shutdown=0.3))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.terminate_child, "pool")
            while pool.tree().children[0].state != "stopping":
                await trio.lowlevel.checkpoint()
            time.sleep(1)  # noqa: ASYNC251  # holds the loop: this is the subject
    assert notes == ["terminated"] * 40
