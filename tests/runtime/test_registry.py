from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from proctor.runtime import (
    Actor,
    AlreadyRegistered,
    ChildSpec,
    Killed,
    NoProc,
    Normal,
    open_supervisor,
    supervisor_spec,
)
from tests.runtime.stage import Notes, end, player, settled


@pytest.mark.covers("M29")
async def test_a_name_has_one_live_holder_and_a_holder_many_names() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes), player("b", notes, restart="temporary")]) as sup:
        a, b = sup.name("a").ref(), sup.name("b").ref()
        sup.registry.register("boss", a)
        sup.registry.register("boss", a)
        with pytest.raises(AlreadyRegistered, match="the name 'boss' is held by <root/a at") as caught:
            sup.registry.register("boss", b)
        assert caught.value.ref is a
        assert sup.registry.names() == {"a": a, "boss": a, "b": b}
        sup.registry.unregister("boss", b)
        assert sup.registry.whereis("boss") is a
        sup.registry.unregister("boss", a)
        sup.registry.register("boss", b)
        await end(b, Killed())
        assert sup.registry.names() == {"a": a}
        with pytest.raises(NoProc):
            sup.registry.register("boss", b)


@pytest.mark.covers("M30")
async def test_a_name_is_free_before_anybody_learns_of_its_holders_exit() -> None:
    notes: Notes = []
    seen: list[object] = []
    async with open_supervisor([player("a", notes)], intensity=1000) as sup:
        for _ in range(200):
            ref = sup.name("a").ref()
            with ref.monitor() as monitor:
                ref.kill()
                await monitor
                holder = sup.registry.whereis("a")
                seen.append(holder is ref)
            await sup.name("a").wait(1)
    assert not any(seen)


@pytest.mark.covers("M30")
async def test_a_restart_never_trips_over_its_former_self() -> None:
    notes: Notes = []
    children = [player(id, notes) for id in "abc"]
    async with open_supervisor(children, strategy="one_for_all", intensity=1000) as sup:
        with sup.events() as events:
            for _ in range(100):
                sup.name("b").kill()
                await settled()
            assert sup.tree().children[1].incarnation == 101
            assert events.dropped == 0


@pytest.mark.covers("M31")
async def test_a_stale_entry_never_blocks_a_registration() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, restart="temporary"), player("b", notes)]) as sup:
        await end(sup.name("a"), Killed())
        assert sup.registry.whereis("a") is None
        sup.registry.register("a", sup.name("b").ref())
        assert sup.name("a").ref() is sup.name("b").ref()


@pytest.mark.covers("M32")
async def test_a_name_resolves_at_each_use_and_is_unknown_while_a_restart_is_pending() -> None:
    class Waits(Actor):
        async def terminate(self, reason: object) -> None:
            await gate.wait()

    notes: Notes = []
    gate = trio.Event()
    async with open_supervisor([player("a", notes), ChildSpec("b", Waits)], strategy="one_for_all") as sup:
        name = sup.name("a")
        assert await name.call("incarnation") == 1
        name.kill()
        await settled()
        with pytest.raises(NoProc, match="no such actor: <name 'a'>"):
            name.ref()
        with pytest.raises(NoProc):
            await name.call("incarnation")
        gate.set()
        assert await name.call("incarnation", wait_for=1) == 2


async def test_names_of_nested_children_live_in_the_roots_registry() -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [supervisor_spec("t", [player("a", notes)])], name="inner")
    async with open_supervisor([inner]) as sup:
        assert await sup.name("a").call("incarnation") == 1
        assert set(sup.registry.names()) == {"a", "inner"}
        assert sup.name("inner").ref() is sup.child("s").ref()


async def test_a_wait_for_a_name_that_is_given_up_leaves_nothing() -> None:
    notes: Notes = []
    async with open_supervisor() as sup:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sup.name("a").wait)
                nursery.start_soon(sup.name("a").wait)
                await settled()
                scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.name("a").wait)
            await settled()
            await sup.start_child(player("a", notes))


@pytest.mark.covers("X17")
async def test_a_restart_can_be_waited_out_and_an_end_is_told() -> None:
    class Waits(Actor):
        async def terminate(self, reason: object) -> None:
            await gate.wait()

    notes: Notes = []
    gate = trio.Event()
    children = [player("a", notes, restart="transient"), ChildSpec("b", Waits)]
    async with open_supervisor(children, strategy="one_for_all") as sup, trio.open_nursery() as nursery:
        name = sup.name("a")
        name.kill()
        await settled()
        nursery.start_soon(settled_then, gate.set)
        assert await name.wait_out() is name.ref()
        await end(name, Normal())
        await settled()
        with pytest.raises(NoProc):
            await name.wait_out()
        with pytest.raises(NoProc):
            await sup.name("nobody").wait_out()


async def settled_then(fn: Callable[[], None]) -> None:
    await settled()
    fn()
