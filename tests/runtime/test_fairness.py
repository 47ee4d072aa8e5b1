from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Backoff,
    ChildSpec,
    DynamicSupervisor,
    Shutdown,
    dynamic_supervisor_spec,
    open_supervisor,
    supervisor_spec,
)
from tests.runtime.stage import Boom, Notes, forever, player, settled

ENOUGH = 2000


class Crashes:
    """A child that crashes as soon as it is ready, in all of its first `ENOUGH` incarnations."""

    def __init__(self) -> None:
        self.number = 0

    async def __call__(self, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        self.number += 1
        if self.number < ENOUGH:
            raise Boom("at once")
        await trio.sleep_forever()

    def spec(self) -> ChildSpec:
        return ChildSpec("crashes", self)


@pytest.mark.covers("M6", "S55")
async def test_a_crash_loop_keeps_no_request_waiting() -> None:
    crashes = Crashes()
    async with open_supervisor([crashes.spec(), ChildSpec("a", forever)], intensity=ENOUGH) as sup:
        for request in range(1, 4):
            await sup.count_children()
            assert crashes.number < 8 * request
        await sup.terminate_child("a")
        await sup.terminate_child("crashes")
        assert crashes.number < 50


@pytest.mark.covers("M6", "S22")
async def test_a_crash_loop_of_a_group_keeps_no_request_waiting() -> None:
    crashes = Crashes()
    children = [crashes.spec(), ChildSpec("a", forever)]
    async with open_supervisor(children, strategy="one_for_all", intensity=ENOUGH) as sup:
        await sup.start_child(ChildSpec("b", forever))
        assert crashes.number < 8


@pytest.mark.covers("S55")
async def test_several_requests_are_answered_in_their_order_in_a_crash_loop() -> None:
    crashes, order = Crashes(), list[int]()
    async with open_supervisor([crashes.spec()], intensity=ENOUGH) as sup, trio.open_nursery() as nursery:

        async def ask(number: int, *, task_status: trio.TaskStatus[None]) -> None:
            task_status.started()
            await sup.count_children()
            order.append(number)

        for number in range(5):
            await nursery.start(ask, number)
    assert order == sorted(order)
    assert crashes.number < 50


@pytest.mark.covers("X1", "M6")
async def test_a_crash_loop_does_not_hold_up_a_siblings_back_off(mock_clock: MockClock) -> None:
    notes: Notes = []
    crashes, backoff = Crashes(), Backoff(min_delay=5, jitter=0)
    seen: list[int] = []
    slow = player("slow", notes, lambda number: seen.append(crashes.number), backoff=backoff)
    async with open_supervisor([slow], intensity=ENOUGH) as sup:
        sup.name("slow").kill()
        await settled()
        await sup.start_child(crashes.spec())
        mock_clock.jump(10)
        while len(seen) < 2:
            await trio.lowlevel.checkpoint()
        assert seen[1] < 50


@pytest.mark.covers("D4")
@pytest.mark.parametrize("how", ["stop", "exit"])
async def test_a_stop_ends_a_crash_loop_at_once(how: str) -> None:
    crashes = Crashes()
    low = supervisor_spec("low", [crashes.spec()], intensity=ENOUGH, restart="temporary")
    async with open_supervisor([low]) as sup:
        nested = sup.supervisor("low")
        stops: dict[str, Callable[[], Awaitable[object]]] = {
            "stop": nested.stop,
            "exit": lambda: sup.terminate_child("low"),
        }
        await stops[how]()
        assert crashes.number < 10
        assert nested.ref.exit_reason == Shutdown()


@pytest.mark.covers("M6")
async def test_exits_of_several_children_are_seen_before_a_request_while_nothing_is_restarted() -> None:
    async with open_supervisor([dynamic_supervisor_spec("pool")]) as sup:
        pool = sup.supervisor("pool", DynamicSupervisor)
        refs = [await pool.start_child(ChildSpec("a", forever, restart="temporary")) for _ in range(20)]
        for ref in refs:
            ref.kill()
        while any(ref.exit_reason is None for ref in refs):
            await trio.lowlevel.checkpoint()
        assert (await pool.count_children()).specs == 0
