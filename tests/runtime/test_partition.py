from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ActorExited,
    ChildSpec,
    Crash,
    InvalidSpec,
    Killed,
    NoProc,
    Normal,
    Shutdown,
    StartError,
    current_actor,
    open_supervisor,
)
from proctor.runtime.errors import NoPartitions
from proctor.runtime.spec import Strategy
from proctor.runtime.supervision.partition import (
    PartitionSupervisor,
    open_partition_supervisor,
    partition_supervisor_spec,
)
from tests.runtime.stage import Boom, Notes, Player, Stubborn, end, forever, picture, settled


def share(notes: Notes, start: Any = None, **spec: Any) -> ChildSpec:
    return ChildSpec("share", Player, (notes, start), **spec)


@pytest.mark.covers("S69", "S7")
async def test_partitions_stand_at_their_numbers_and_start_in_order() -> None:
    notes: Notes = []
    async with open_partition_supervisor(share(notes), 3, name="p") as sup:
        assert notes == ["+0", "+1", "+2"]
        assert [node.path for node in sup.tree().children] == ["p/0", "p/1", "p/2"]
        assert sup.partitions == 3
    assert notes[3:] == ["-2", "-1", "-0"]


@pytest.mark.covers("S69")
async def test_a_partition_is_given_the_arguments_of_its_number_at_restarts_too() -> None:
    seen: list[tuple[object, ...]] = []

    class Numbered(Actor):
        async def init(self, *args: object) -> None:
            seen.append((self.id, *args))

    spec = ChildSpec("n", Numbered, ("all",))
    async with open_partition_supervisor(spec, 2, arguments=lambda k: ["part", k]) as sup:
        await end(sup.child("1"), Killed())
        await settled()
    async with open_partition_supervisor(spec, 1):
        pass
    assert seen == [("0", "part", 0), ("1", "part", 1), ("1", "part", 1), ("0", "all")]


@pytest.mark.covers("S69")
@pytest.mark.parametrize(
    ("key", "place"), [(0, 0), (1, 1), (5, 2), (-1, 1), (-4, 1), (-5, 2), (10**30, 10**30 % 3)], ids=repr
)
async def test_an_int_leads_to_its_size_modulo_the_partitions(key: int, place: int) -> None:
    async with open_partition_supervisor(ChildSpec("f", forever), 3) as sup:
        assert sup.route(key).ref() is sup.child(str(place)).ref()


@pytest.mark.covers("S69")
@pytest.mark.parametrize("key", ["a", b"a", ("a", 1), None, 1.5, frozenset("ab"), True], ids=type)
async def test_another_key_leads_to_the_same_place_each_time(key: Hashable) -> None:
    async with open_partition_supervisor(ChildSpec("f", forever), 3) as sup:
        assert len({sup.route(key).ref() for _ in range(5)}) == 1


@pytest.mark.covers("S69")
async def test_keys_are_spread_over_all_partitions() -> None:
    async with open_partition_supervisor(ChildSpec("f", forever), 4) as sup:
        assert len({sup.route(f"key {k}").ref() for k in range(200)}) == 4


@pytest.mark.covers("S69")
async def test_a_key_without_a_hash_is_refused() -> None:
    async with open_partition_supervisor(ChildSpec("f", forever), 2) as sup:
        with pytest.raises(TypeError, match="unhashable"):
            sup.route([])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.covers("S69")
async def test_a_restarted_partition_keeps_its_route() -> None:
    notes: Notes = []
    async with open_partition_supervisor(share(notes), 3) as sup:
        route = sup.route("somebody")
        await end(route, Crash(Boom()))
        await settled()
        assert await route.call("incarnation") == 2
        assert sup.route("somebody").ref() is route.ref()


@pytest.mark.covers("S69")
async def test_fewer_partitions_terminate_those_above_the_last_first() -> None:
    notes: Notes = []
    async with open_partition_supervisor(share(notes), 4) as sup:
        del notes[:]
        assert await sup.resize(2) == 4
        assert notes == ["-3", "-2"]
        assert sup.partitions == 2
        assert await picture(sup) == {"0": 1, "1": 1, "2": "down", "3": "down"}
        assert {sup.route(k).ref().path for k in range(10)} == {"root/0", "root/1"}


@pytest.mark.covers("S69")
async def test_more_partitions_start_those_below_again_in_order() -> None:
    notes: Notes = []
    async with open_partition_supervisor(share(notes), 4) as sup:
        await sup.resize(1)
        del notes[:]
        assert await sup.resize(3) == 1
        assert notes == ["+1", "+2"]
        assert await picture(sup) == {"0": 1, "1": 2, "2": 2, "3": "down"}
        assert sup.route(5).ref().path == "root/2"


@pytest.mark.covers("S69")
async def test_the_same_number_changes_nothing() -> None:
    notes: Notes = []
    async with open_partition_supervisor(share(notes), 2) as sup:
        assert await sup.resize(2) == 2
        assert notes == ["+0", "+1"]


@pytest.mark.covers("S69")
async def test_no_partitions_lead_nowhere_until_there_are_some() -> None:
    async with open_partition_supervisor(ChildSpec("f", forever), 2) as sup:
        await sup.resize(0)
        with pytest.raises(
            NoPartitions, match="partition supervisor 'root' has no partitions: resize it first"
        ):
            sup.route(1)
        await sup.resize(2)
        assert sup.route(1).is_alive()


@pytest.mark.covers("S69")
@pytest.mark.parametrize("number", [-1, 3, True, "2"])
async def test_a_size_out_of_bounds_is_refused_and_changes_nothing(number: Any) -> None:
    async with open_partition_supervisor(ChildSpec("f", forever), 2) as sup:
        with pytest.raises(InvalidSpec, match="expected an int from 0 to 2"):
            await sup.resize(number)
        assert await picture(sup) == {"0": 1, "1": 1}


@pytest.mark.covers("S69")
async def test_a_partition_that_cannot_start_again_leaves_all_as_it_was() -> None:
    notes: Notes = []

    def second_of_2(incarnation: int) -> None:
        if incarnation == 2 and notes[-1] == "+2":
            raise Boom

    async with open_partition_supervisor(share(notes, second_of_2), 4) as sup:
        await sup.resize(1)
        del notes[:]
        with pytest.raises(StartError):
            await sup.resize(4)
        assert notes == ["+1", "+2", "-1"]
        assert sup.partitions == 1
        assert await picture(sup) == {"0": 1, "1": "down", "2": "down", "3": "down"}


@pytest.mark.covers("S69", "S22", "S23")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_group_restart_starts_no_partition_that_was_taken_away(
    strategy: Strategy,
) -> None:
    notes: Notes = []
    async with open_partition_supervisor(share(notes), 3, strategy=strategy) as sup:
        await sup.resize(2)
        await end(sup.child("0"), Killed())
        assert await picture(sup) == {"0": 2, "1": 2, "2": "down"}


@pytest.mark.covers("S69", "S16")
async def test_a_temporary_partition_that_is_gone_comes_back_with_a_resize() -> None:
    notes: Notes = []
    async with open_partition_supervisor(share(notes, restart="temporary"), 2) as sup:
        await end(sup.child("1"), Normal())
        await settled()
        with pytest.raises(NoProc):
            sup.route(1).ref()
        await sup.resize(1)
        await sup.resize(2)
        assert await sup.route(1).call("hello") == "hello"


@pytest.mark.covers("S69")
async def test_routes_lead_away_before_a_partition_stops(autojump_clock: MockClock) -> None:
    async with (
        open_partition_supervisor(ChildSpec("s", Stubborn, (3,)), 2) as sup,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(sup.resize, 1)
        await trio.sleep(1)
        assert sup.child("1").is_alive()
        assert sup.route(1).ref().path == "root/0"


@pytest.mark.covers("S69", "S43", "S54")
async def test_a_stop_during_a_resize_ends_it() -> None:
    caught: list[ActorExited] = []

    async def hangs(*, task_status: trio.TaskStatus[None]) -> None:
        if starts:
            await trio.sleep_forever()
        task_status.started()
        await trio.sleep_forever()

    async def grow(sup: PartitionSupervisor) -> None:
        with pytest.raises(ActorExited) as error:
            await sup.resize(3)
        caught.append(error.value)

    starts: list[int] = []
    async with trio.open_nursery() as nursery, open_partition_supervisor(ChildSpec("h", hangs), 3) as sup:
        await sup.resize(1)
        starts.append(1)
        nursery.start_soon(grow, sup)
        await settled()
    assert [error.reason for error in caught] == [Shutdown()]


@pytest.mark.covers("S69", "S41")
async def test_no_partition_starts_once_the_supervisor_ends() -> None:
    begun: list[str] = []

    async def ends_all(*, task_status: trio.TaskStatus[None]) -> None:
        me = current_actor()
        begun.append(me.id)
        task_status.started()
        if me.incarnation == 2:
            me.supervisor.ref.exit(Shutdown("enough"))
        await trio.sleep_forever()

    async with open_partition_supervisor(ChildSpec("e", ends_all), 3) as sup:
        await sup.resize(1)
        with pytest.raises(ActorExited) as caught:
            await sup.resize(3)
    assert caught.value.reason == Shutdown("enough")
    assert begun == ["0", "1", "2", "1"]


@pytest.mark.covers("S69")
@pytest.mark.parametrize("number", [0, -1, 2.0, True])
def test_a_wrong_number_of_partitions_is_refused(number: Any) -> None:
    with pytest.raises(InvalidSpec, match="partitions"):
        open_partition_supervisor(ChildSpec("f", forever), number)


@pytest.mark.covers("S69", "S5")
def test_a_named_and_a_significant_partition_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="name"):
        open_partition_supervisor(ChildSpec("f", forever, name="one"), 2)
    with pytest.raises(InvalidSpec, match="significant"):
        partition_supervisor_spec("p", ChildSpec("f", forever, restart="transient", significant=True), 2)


@pytest.mark.covers("S69")
async def test_a_nested_one_routes_and_resizes_as_a_root_does() -> None:
    notes: Notes = []
    async with open_supervisor([partition_supervisor_spec("p", share(notes), 2)]) as top:
        sup = top.supervisor("p", PartitionSupervisor)
        assert sup.route(3).ref().path == "root/p/1"
        await sup.resize(1)
        assert sup.route(3).ref().path == "root/p/0"
        await end(top.child("p"), Killed())
        await settled()
        assert top.supervisor("p", PartitionSupervisor).partitions == 2


@pytest.mark.covers("S69")
async def test_there_are_as_many_as_processors_unless_told() -> None:
    async with open_partition_supervisor(ChildSpec("f", forever)) as sup:
        assert sup.partitions >= 1
        assert len(sup.tree().children) == sup.partitions
