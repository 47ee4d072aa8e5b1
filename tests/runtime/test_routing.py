"""Who gets the next message of a pool, and which message it refuses under load."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from proctor.runtime import (
    Actor,
    ActorExited,
    Call,
    ChildSpec,
    DeadLetter,
    InvalidSpec,
    NoPartitions,
    NoProc,
    PartitionSupervisor,
    PoolOverloaded,
    Request,
    Stop,
    open_partition_supervisor,
    open_supervisor,
    partition_supervisor_spec,
)
from tests.runtime.stage import Boom, forever, heard, picture, settled


class Worker(Actor):
    """Answers with its id, and is busy with `busy` until `gate` opens."""

    async def init(self, gate: trio.Event, handled: list[object]) -> None:
        self.gate, self.handled = gate, handled

    async def handle_call(self, msg: Any, from_: Call) -> object:
        if msg == "crash":
            raise Boom
        if msg == "end":
            return Stop(reply=self.id)
        if msg == "busy":
            await self.gate.wait()
        self.handled.append(msg)
        return self.id

    async def handle_cast(self, msg: Any) -> None:
        if msg == "busy":
            await self.gate.wait()
        self.handled.append(msg)


class Stage:
    """A pool, what its workers handled, and the gate that those who are busy wait for."""

    def __init__(self, pool: PartitionSupervisor, gate: trio.Event, handled: list[object]) -> None:
        self.pool, self.gate, self.handled = pool, gate, handled

    async def occupy(self, place: int, queued: int = 0) -> list[Request]:
        """Make a worker busy, with so many messages behind."""
        target = self.pool.child(str(place))
        requests = [target.send_request("busy")]
        await settled()
        requests += [target.send_request(f"{place}.{number}") for number in range(queued)]
        return requests

    async def answers(self, *keys: object) -> list[str]:
        """Who answers a call for each of `keys`."""
        return [await self.pool.route(key).call("ping") for key in keys]


@asynccontextmanager
async def stage(partitions: int = 3, **options: Any) -> AsyncGenerator[Stage]:
    gate = trio.Event()
    handled: list[object] = []
    spec = ChildSpec("w", Worker, (gate, handled), restart="transient", shutdown=0.0)
    async with open_partition_supervisor(spec, partitions, intensity=9, **options) as pool:
        try:
            yield Stage(pool, gate, handled)
        finally:
            gate.set()


async def test_a_pool_routes_by_key_unless_told_otherwise() -> None:
    async with stage() as on:
        assert await on.answers(0, 1, 2, 4, -4) == ["0", "1", "2", "1", "1"]
        assert on.pool.statistics().routing == "key"


async def test_round_robin_goes_on_with_the_next_worker_and_leaves_out_those_that_are_down() -> None:
    async with stage(routing="round_robin") as on:
        assert await on.answers(7, 7, 7, 7) == ["0", "1", "2", "0"]
        await on.pool.child("1").call("end")
        await settled()
        assert await on.answers(7, 7, 7) == ["2", "0", "2"]


async def test_least_loaded_takes_the_worker_with_the_shortest_queue() -> None:
    async with stage(routing="least_loaded") as on:
        await on.occupy(0, queued=1)
        await on.occupy(1, queued=3)
        await on.occupy(2, queued=2)
        for _ in range(4):
            on.pool.route().cast_nowait("ping")
        assert on.pool.statistics().queued == (4, 3, 3)


async def test_least_loaded_counts_a_call_that_is_being_handled_and_takes_idle_workers_in_turn() -> None:
    async with stage(routing="least_loaded") as on:
        await on.occupy(1)
        assert sorted(await on.answers(1, 1)) == ["0", "2"]


async def test_a_sticky_key_stays_with_its_worker_while_that_lives() -> None:
    async with stage(routing="sticky") as on:
        first = await on.answers("a", "b", "c")
        assert sorted(first) == ["0", "1", "2"]
        await on.occupy(int(first[0]), queued=5)
        target = on.pool.route("a")
        assert target.ref().path.rpartition("/")[2] == first[0]
        assert await on.answers("c", "b") == [first[2], first[1]]


async def test_a_sticky_key_is_assigned_anew_when_its_worker_has_ended() -> None:
    async with stage(routing="sticky") as on:
        [first] = await on.answers("a")
        with pytest.raises(ActorExited):
            await on.pool.route("a").call("crash")
        [second] = await on.answers("a")
        assert second != first
        await settled()
        assert await on.answers("a", "a") == [second, second]


async def test_only_so_many_sticky_keys_are_held_those_that_were_used_last() -> None:
    async with stage(routing="sticky", max_keys=2) as on:
        a, b = await on.answers("a", "b")
        assert await on.answers("a") == [a]
        await on.answers("c")
        assert on.pool.statistics().keys == 2
        await on.occupy(int(a), queued=3)
        assert on.pool.route("a").ref().path.endswith(a)
        await on.occupy(int(b), queued=3)
        assert not on.pool.route("b").ref().path.endswith(b)


async def test_a_sticky_key_of_a_partition_that_was_taken_away_is_assigned_anew() -> None:
    async with stage(routing="sticky") as on:
        places = dict(zip("abc", await on.answers("a", "b", "c"), strict=True))
        await on.pool.resize(1)
        assert await on.answers(*places) == ["0", "0", "0"]


@pytest.mark.parametrize("routing", ["key", "round_robin", "least_loaded", "sticky"])
async def test_a_pool_without_workers_says_so(routing: Any) -> None:
    async with stage(1, routing=routing) as on:
        await on.pool.route("a").call("end")
        await settled()
        with pytest.raises(NoProc):
            await on.pool.route("a").call("ping")
        await on.pool.resize(0)
        with pytest.raises(NoPartitions):
            on.pool.route("a")


async def test_above_its_bound_a_pool_refuses_the_newest_and_says_which_load() -> None:
    async with stage(2, max_queued=3) as on:
        await on.occupy(0, queued=2)
        await on.occupy(1, queued=0)
        on.pool.route(1).cast_nowait("last")
        with pytest.raises(PoolOverloaded) as refused:
            on.pool.route(1)
        assert str(refused.value) == (
            "pool 'root' has 3 messages queued, and 3 is its max_queued: repeat later, or give it more partitions"
        )
        assert (refused.value.path, refused.value.queued, refused.value.limit) == ("root", 3, 3)
        figures = on.pool.statistics()
        assert (figures.queued, figures.refused, figures.dropped) == ((2, 1), 1, 0)
        on.gate.set()
        await settled()
        assert await on.answers(1) == ["1"]


async def test_above_its_bound_a_pool_may_drop_the_oldest_of_the_longest_queue() -> None:
    async with stage(2, max_queued=3, shed="oldest") as on:
        with on.pool.events() as events:
            _, oldest, _, _ = await on.occupy(0, queued=3)
            await on.occupy(1)
            on.pool.route(1).cast_nowait("new")
            with pytest.raises(PoolOverloaded, match="'root' has 3 messages queued"):
                oldest.result()
            assert on.pool.statistics().queued == (2, 1)
            on.pool.route(1).cast_nowait("newer")
            on.pool.route(1).cast_nowait("newest")
            assert on.pool.statistics().queued == (1, 2)
            assert on.pool.statistics().dropped == 3
            on.gate.set()
            await settled()
            assert sorted(map(str, on.handled)) == ["0.2", "busy", "busy", "newer", "newest"]
            letters = [event for event in heard(events) if isinstance(event, DeadLetter)]
            assert [(letter.msg, "max_queued" in letter.why) for letter in letters] == [("new", True)]


async def test_a_sender_that_waits_for_room_is_load_and_gets_the_room_of_a_dropped_message() -> None:
    gate = trio.Event()
    handled: list[object] = []
    spec = ChildSpec("w", Worker, (gate, handled), mailbox=1)
    async with open_partition_supervisor(spec, 1, max_queued=2, shed="oldest") as pool:
        pool.route(0).cast_nowait("busy")
        await settled()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool.child("0").cast, "first")
            await settled()
            nursery.start_soon(pool.child("0").cast, "waits")
            await settled()
            assert pool.statistics().queued == (2,)
            pool.route(0)
            assert pool.statistics().queued == (1,)
            gate.set()
        await settled()
        assert handled == ["busy", "waits"]


async def test_functions_have_no_queue_but_can_be_routed_to() -> None:
    async with open_partition_supervisor(ChildSpec("f", forever), 2, routing="least_loaded") as pool:
        assert {pool.route().ref().path for _ in range(4)} == {"root/0", "root/1"}
        assert pool.statistics().queued == (0, 0)


async def test_a_partition_that_is_down_has_no_queue() -> None:
    async with stage(2) as on:
        await on.pool.child("1").call("end")
        await settled()
        assert on.pool.statistics().queued == (0, None)
        await on.pool.resize(1)
        assert on.pool.statistics().queued == (0,)


async def test_a_nested_pool_has_the_same_options() -> None:
    worker = ChildSpec("w", Worker, (trio.Event(), []))
    nested = partition_supervisor_spec("pool", worker, 2, routing="round_robin", max_queued=5)
    async with open_supervisor([nested]) as sup:
        pool = sup.supervisor("pool", PartitionSupervisor)
        assert [await pool.route().call("ping") for _ in range(3)] == ["0", "1", "0"]
        assert await picture(pool) == {"0": 1, "1": 1}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"routing": "random"}, "routing is 'random': expected 'key' or 'round_robin' or"),
        ({"max_queued": 0}, "max_queued is 0: expected an int >= 1 or None"),
        ({"shed": "all"}, "shed is 'all': expected 'newest' or 'oldest'"),
        ({"max_keys": 0}, "max_keys is 0: expected an int >= 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        partition_supervisor_spec("pool", ChildSpec("w", forever), 2, **options)
    assert str(refused.value).startswith(text)
