"""The bound on starts of agents in progress."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.process.start_slots import HOLD_TIME, STARTS_PER_CORE, usable_cores
from proctor.actors.runs import ask
from proctor.actors.specs import agent_spec
from proctor.actors.transport.memory import Peer, PeerStreams
from proctor.runtime.spec import ChildSpec
from tests.actors.spoken import deaf, speaks, spoken_plan, unwanted

BOUND = STARTS_PER_CORE * usable_cores()


class Greeter:
    """Far ends that greet after `seconds`; `most` have started at once and not greeted."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._now = self.most = 0

    async def live(self, side: PeerStreams) -> int | None:
        self._now += 1
        self.most = max(self.most, self._now)
        await trio.sleep(self._seconds)
        self._now -= 1
        return await speaks(side)


def agents(number: int, far_end: Peer, prefix: str = "a") -> Sequence[ChildSpec]:
    return [agent_spec(f"{prefix}{n}", spoken_plan(far_end), {"restart": "temporary"}) for n in range(number)]


def tree(children: Sequence[ChildSpec]) -> AbstractAsyncContextManager[proctor.Supervisor]:
    return proctor.open_supervisor(children, strategy="one_for_one")


async def test_no_more_agents_start_at_once_than_the_cores_can_take(autojump_clock: MockClock) -> None:
    greeter, begin = Greeter(0.5), trio.current_time()
    async with tree(agents(2 * BOUND, greeter.live)):
        assert greeter.most == BOUND
        assert trio.current_time() - begin == pytest.approx(1.0, abs=0.1)


async def test_silent_command_lines_hold_their_slots_for_five_seconds_only(autojump_clock: MockClock) -> None:
    begin = trio.current_time()
    async with proctor.open_dynamic_supervisor() as pool, trio.open_nursery() as nursery:
        for spec in agents(2 * BOUND, deaf, "silent"):
            nursery.start_soon(pool.start_child, spec)
        await trio.testing.wait_all_tasks_blocked()
        await pool.start_child(*agents(1, speaks))
        assert trio.current_time() - begin == pytest.approx(2 * HOLD_TIME, abs=0.1)
        nursery.cancel_scope.cancel("the silent ones never start")


async def test_the_wait_for_a_slot_is_not_part_of_the_greeting_s_time(autojump_clock: MockClock) -> None:
    slow = agent_spec("slow", spoken_plan(Greeter(0.9).live, greeting=1.0), {})
    begin = trio.current_time()
    async with proctor.open_dynamic_supervisor() as pool, trio.open_nursery() as nursery:
        for spec in agents(BOUND, deaf, "silent"):
            nursery.start_soon(pool.start_child, spec)
        await trio.testing.wait_all_tasks_blocked()
        await pool.start_child(slow)
        assert trio.current_time() - begin == pytest.approx(HOLD_TIME + 0.9, abs=0.1)
        nursery.cancel_scope.cancel("the silent ones never start")


async def test_a_start_that_ends_before_its_greeting_gives_its_slot_back(autojump_clock: MockClock) -> None:
    async def dies(side: PeerStreams) -> int:
        side.complain(b"out of order")
        return 3

    begin = trio.current_time()
    for _ in range(BOUND + 1):
        with pytest.raises(proctor.StartRefused, match="out of order"):
            await ask(spoken_plan(dies), "hello")
    assert trio.current_time() - begin < HOLD_TIME


async def test_a_start_that_is_cancelled_in_the_queue_takes_no_slot(autojump_clock: MockClock) -> None:
    begin = trio.current_time()
    async with proctor.open_dynamic_supervisor() as pool, trio.open_nursery() as nursery:
        for spec in agents(BOUND, deaf, "silent"):
            nursery.start_soon(pool.start_child, spec)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(BOUND):
            with trio.move_on_after(0.01):
                await ask(spoken_plan(unwanted), "hello")
        await pool.start_child(*agents(1, speaks))
        assert trio.current_time() - begin == pytest.approx(HOLD_TIME, abs=0.1)
        nursery.cancel_scope.cancel("the silent ones never start")
