from __future__ import annotations

import pytest
import trio

from proctor.runtime import (
    ActorExited,
    ChildSpec,
    Down,
    Killed,
    NoProc,
    Normal,
    Ref,
    Shutdown,
    open_supervisor,
    supervisor_spec,
)
from tests.runtime.stage import Notes, end, forever, player, settled


@pytest.mark.covers("M25")
async def test_a_monitor_gets_exactly_one_down() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, restart="temporary")]) as sup:
        ref = sup.name("a").ref()
        one, two = ref.monitor(), sup.name("a").monitor()
        assert one.down is None
        ref.kill()
        assert (await one).reason == (await one.wait()).reason == (await two).reason == Killed()
        assert (await one).ref is ref


@pytest.mark.covers("M25")
async def test_nobody_gives_a_down_at_once() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, restart="temporary")]) as sup:
        ref = sup.name("a").ref()
        await end(ref, Normal())
        assert ref.monitor().down == Down(ref, NoProc())
        name = sup.name("nobody")
        assert name.monitor().down == Down(name, NoProc())


@pytest.mark.covers("M25")
async def test_a_closed_monitor_gets_nothing() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, restart="temporary")]) as sup:
        ref = sup.name("a").ref()
        with ref.monitor() as closed, ref.monitor() as other:
            closed.close()
            ref.kill()
            await other
            assert closed.down is None


@pytest.mark.covers("M32")
async def test_a_monitor_stays_with_the_incarnation() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)]) as sup:
        first = sup.name("a").ref()
        with sup.name("a").monitor() as monitor:
            first.kill()
            assert (await monitor).reason == Killed()
            await settled()
            assert sup.name("a").is_alive()


async def test_several_tasks_may_wait_on_one_monitor() -> None:
    seen: list[Down] = []
    async with open_supervisor([ChildSpec("a", forever, restart="temporary")]) as sup:
        ref = sup.child("a").ref()
        monitor = ref.monitor()

        async def wait() -> None:
            seen.append(await monitor)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
            await settled()
            ref.exit(Shutdown("enough"))
    assert [down.reason for down in seen] == [Shutdown("enough")] * 2


@pytest.mark.covers("M28")
async def test_exit_and_kill() -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes)], restart="temporary")
    async with open_supervisor([inner]) as sup:
        ref: Ref = sup.name("a").ref()
        ref.exit(Normal())
        await settled()
        assert ref.is_alive()
        nested = sup.child("s").ref()
        nested.exit(Killed())
        assert (await nested.monitor()).reason == Killed()
        ref.kill()
        ref.exit(Shutdown())
        sup.name("nobody").kill()
    assert notes == ["+a"]


@pytest.mark.covers("M26")
async def test_a_call_learns_of_the_end_after_its_answer() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, restart="temporary")]) as sup:
        order: list[str] = []
        ref = sup.name("a").ref()

        async def call() -> None:
            try:
                order.append(await ref.call("x"))
            except ActorExited:
                order.append("lost")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            ref.kill()
        assert order == ["x"]
