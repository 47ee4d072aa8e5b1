from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ActorExited,
    AlreadyPresent,
    AlreadyStarted,
    ChildCounts,
    ChildSpec,
    DeadLetter,
    Killed,
    NoMailbox,
    NoProc,
    NotFound,
    Restarting,
    Running,
    Shutdown,
    StartError,
    Stop,
    Supervisor,
    SupervisorEvent,
    WouldDeadlock,
    open_supervisor,
    supervisor_spec,
)
from tests.runtime.stage import (
    Notes,
    Player,
    crash,
    end,
    fails_at,
    fails_from,
    forever,
    heard,
    picture,
    player,
    ready_after,
    settled,
)


@pytest.mark.covers("S48")
async def test_a_held_id_is_refused_and_the_new_spec_discarded() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)]) as sup:
        with pytest.raises(AlreadyStarted) as caught:
            await sup.start_child(player("a", notes, shutdown=77))
        assert caught.value.ref is sup.name("a").ref()
        await sup.terminate_child("a")
        with pytest.raises(
            AlreadyPresent, match="child 'a' is already present, though not running: restart or"
        ):
            await sup.start_child(player("a", notes, shutdown=77))
        assert (await sup.get_childspec("a")).shutdown == 5.0


@pytest.mark.covers("S49", "S18")
async def test_terminate_keeps_the_spec_and_touches_no_sibling() -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes), player("t", notes, restart="temporary")]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        await sup.terminate_child("a")
        await sup.terminate_child("a")
        await sup.terminate_child("t")
        assert await picture(sup) == {"a": "down", "b": 1}
        with pytest.raises(NotFound, match="no child 't'"):
            await sup.terminate_child("t")


@pytest.mark.covers("S49")
async def test_what_is_no_id_is_refused_in_its_caller_and_the_tree_lives_on() -> None:
    async with open_supervisor([ChildSpec("w", forever)]) as sup:
        for request in (sup.terminate_child, sup.restart_child, sup.delete_child, sup.get_childspec):
            for wrong in (["w"], sup.child("w").ref()):
                with pytest.raises(TypeError, match="a child of 'root' is known by its id, a text, got"):
                    await request(cast("Any", wrong))
        assert await picture(sup) == {"w": 1}


@pytest.mark.covers("S50", "S51")
async def test_restart_and_delete_are_for_children_that_are_down() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, fails_at(2))]) as sup:
        for request in (sup.restart_child, sup.delete_child):
            with pytest.raises(Running, match="child 'a' is running: terminate it first"):
                await request("a")
            with pytest.raises(NotFound):
                await request("z")
        await sup.terminate_child("a")
        with pytest.raises(StartError):
            await sup.restart_child("a")
        assert await picture(sup) == {"a": "down"}
        assert await (await sup.restart_child("a")).call("incarnation") == 3
        await sup.terminate_child("a")
        await sup.delete_child("a")
        assert await picture(sup) == {}


@pytest.mark.covers("S50", "S51")
async def test_restart_and_delete_are_refused_while_a_restart_is_owed() -> None:
    notes: Notes = []

    async with open_supervisor([player("a", notes, fails_from(2))], intensity=10**6) as sup:
        await end(sup.name("a"), Killed())
        while (await sup.which_children())[0].ref != "restarting":
            pass
        with pytest.raises(Restarting, match="child 'a' is restarting: terminate it first"):
            await sup.restart_child("a")
        with pytest.raises(Restarting):
            await sup.delete_child("a")
        with pytest.raises(AlreadyPresent):
            await sup.start_child(player("a", notes))
        await sup.terminate_child("a")
        await sup.delete_child("a")


@pytest.mark.covers("S52", "S53", "D3")
async def test_which_and_count_children() -> None:
    notes: Notes = []
    children = [player("b", notes), supervisor_spec("s"), player("a", notes), ChildSpec("f", forever)]
    async with open_supervisor(children) as sup:
        await sup.terminate_child("a")
        which = await sup.which_children()
        assert [(child.id, child.type) for child in which] == [
            ("b", "worker"),
            ("s", "supervisor"),
            ("a", "worker"),
            ("f", "worker"),
        ]
        assert which[0].ref is sup.name("b").ref()
        assert which[2].ref is None
        assert await sup.count_children() == ChildCounts(specs=4, active=3, supervisors=1, workers=3)


@pytest.mark.covers("S54")
async def test_a_supervisor_that_is_gone_answers_nothing() -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes)], restart="temporary")
    async with open_supervisor([inner]) as sup:
        nested = sup.supervisor("s")
        assert [child.id for child in await nested.which_children()] == ["a"]
        await nested.stop()
        with pytest.raises(NoProc):
            await nested.which_children()
        with pytest.raises(NoProc, match="no such actor: root/s"):
            sup.supervisor("s")
    with pytest.raises(NoProc):
        await sup.count_children()


@pytest.mark.covers("S54")
async def test_a_pending_request_learns_of_the_supervisors_exit(autojump_clock: MockClock) -> None:
    async def slow(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(100)

    async with open_supervisor() as sup, trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(ActorExited) as caught:
                await sup.start_child(ChildSpec("a", slow))
            assert caught.value.reason == Shutdown("now")

        nursery.start_soon(ask)
        await settled()
        await sup.stop(Shutdown("now"))


@pytest.mark.covers("S55")
async def test_one_thing_at_a_time_a_slow_start_included(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)]) as sup, trio.open_nursery() as nursery:
        begun = trio.current_time()
        nursery.start_soon(sup.start_child, ChildSpec("b", ready_after(10)))
        await settled()
        sup.name("a").kill()
        await settled()
        assert notes == ["+a"]
        await sup.which_children()
        assert trio.current_time() - begun == 10
        assert notes == ["+a", "+a"]  # exits before requests, M6


@pytest.mark.covers("S56")
async def test_a_child_that_asks_its_supervisor_while_being_stopped_by_it_is_refused() -> None:
    seen: list[type[Exception]] = []

    class Asks(Actor):
        async def terminate(self, reason: object) -> None:
            try:
                await self.supervisor.which_children()
            except WouldDeadlock as error:
                seen.append(type(error))

    async with open_supervisor([ChildSpec("a", Asks)]) as sup:
        await sup.terminate_child("a")
    assert seen == [WouldDeadlock]


async def test_a_child_may_ask_its_supervisor_from_a_handler() -> None:
    class Asks(Actor):
        async def handle_call(self, msg: object, from_: object) -> int:
            return (await self.supervisor.count_children()).active

    async with open_supervisor([ChildSpec("a", Asks, name="a")]) as sup:
        assert await sup.name("a").call(0) == 1


@pytest.mark.covers("S57")
async def test_a_message_to_a_supervisor_is_reported_and_dropped() -> None:
    async with open_supervisor([supervisor_spec("s", name="s")]) as sup:
        with sup.events() as events:
            for target in (sup.ref, sup.name("s")):
                await target.cast("hello")
                with pytest.raises(NoMailbox, match="takes no messages"):
                    await target.call("hello")
                with pytest.raises(NoMailbox):
                    async with target.stream("hello"):
                        pass
            letters = [event for event in heard(events) if isinstance(event, DeadLetter)]
            assert [letter.path for letter in letters] == ["root", "root", "root/s", "root/s"]
        assert await picture(sup) == {"s": 1}


async def test_the_handle_is_what_the_caller_asks_for() -> None:
    class Fleet(Supervisor):
        def shout(self, name: str) -> str:
            return self.name(name).name.upper()

    async with open_supervisor(handle=Fleet) as sup:
        assert sup.shout("a") == "A"


async def test_a_place_in_the_tree_is_an_address_that_follows_restarts() -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes, name=None)])
    async with open_supervisor([inner], intensity=5) as sup:
        place = sup.child("s/a")
        assert await place.call("incarnation") == 1
        await end(place, Killed())
        await settled()
        assert await place.call("incarnation") == 2
        await end(sup.child("s"), Killed())
        assert await place.call("incarnation", wait_for=1) == 1
        assert (await sup.supervisor("s").get_childspec("a")).id == "a"


@pytest.mark.covers("T11")
async def test_an_empty_supervisor_lives_on() -> None:
    async with open_supervisor() as sup:
        await settled()
        assert sup.ref.is_alive()
        await sup.start_child(ChildSpec("a", Player, ([],), name="a", restart="temporary"))
        with pytest.raises(ActorExited):
            await sup.name("a").call(Stop())
        await settled()
        assert await sup.which_children() == ()
        assert sup.ref.is_alive()


async def test_a_given_up_request_is_not_served() -> None:
    notes: Notes = []
    async with open_supervisor() as sup:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sup.start_child, player("a", notes))
                scope.cancel()
        await settled()
        assert notes in ([], ["+a"])
        assert list(await picture(sup)) == ["a"] * len(notes)


@pytest.mark.covers("R006")
async def test_two_trees_side_by_side_know_nothing_of_each_other() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)]) as one, open_supervisor([player("a", notes)]) as two:
        await crash(one, "a")
        assert (await picture(one), await picture(two)) == ({"a": 2}, {"a": 1})
        with one.events() as events:
            await crash(two, "a")
            assert heard(events) == list[SupervisorEvent]()
