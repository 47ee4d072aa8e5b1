from __future__ import annotations

import gc
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import Actor, ChildSpec, Down, open_supervisor
from proctor.runtime.messaging.timers import SLACK, Timers
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.dynamic import open_dynamic_supervisor
from tests.runtime.stage import EXITS, Notes, end, forever, picture, player, settled


def incarnations() -> int:
    gc.collect()
    return sum(isinstance(thing, Incarnation) for thing in gc.get_objects())


class Observer(Actor):
    """Monitors another from its start."""

    async def init(self, target: str, downs: list[Down]) -> None:
        self.downs = downs
        self.watch = self.monitor(self.supervisor.child(target))

    async def handle_info(self, msg: Any) -> None:
        self.downs.append(msg)

    async def handle_cast(self, msg: object) -> None:
        self.watch.close()
        self.watch.close()


@pytest.mark.covers("M25")
async def test_an_observer_that_ended_leaves_nothing_at_what_it_watched() -> None:
    downs: list[Down] = []
    children = [ChildSpec("w", forever), ChildSpec("o", Observer, ("w", downs))]
    async with open_supervisor(children, intensity=1000) as sup:
        watched = sup.child("w").ref().endpoint
        for _ in range(50):
            await end(sup.child("o"), EXITS["killed"])
            await settled()
        assert len(watched.watchers) == 1
        observer = sup.child("o").ref().endpoint
        assert len(observer.watchers) == 1
        sup.child("w").kill()
        await settled()
        assert len(downs) == 1
        assert not observer.watchers


@pytest.mark.covers("M25")
async def test_a_closed_watch_leaves_nothing_on_either_side() -> None:
    downs: list[Down] = []
    children = [ChildSpec("w", forever), ChildSpec("o", Observer, ("w", downs))]
    async with open_supervisor(children, intensity=5) as sup:
        await sup.child("o").cast("close")
        await settled()
        assert not sup.child("w").ref().endpoint.watchers
        assert not sup.child("o").ref().endpoint.watchers
        sup.child("w").kill()
        await settled()
        assert downs == []


@attrs.define
class Bell:
    """An alarm that notes when it rings."""

    rung: list[float]
    over: bool = False

    def ring(self) -> None:
        self.rung.append(trio.current_time())


@pytest.mark.covers("X6", "S68")
async def test_alarms_that_are_over_do_not_pile_up_behind_one_that_is_not(
    autojump_clock: MockClock,
) -> None:
    rung: list[float] = []
    timers = Timers()
    async with trio.open_nursery() as timers.nursery:
        timers.at(1, Bell(rung))
        for n in range(10_000):
            timers.at(1000 + n, Bell(rung, over=True))
            assert len(timers) <= SLACK + 3
        for n in range(500):
            timers.at(5 + n, Bell(rung))
        assert len(timers) >= 501
        await trio.sleep(600)
        assert rung == [1, *range(5, 505)]
        timers.nursery.cancel_scope.cancel()


@pytest.mark.covers("X6", "S68")
async def test_watched_children_that_came_and_went_are_forgotten_before_their_watchdog(
    autojump_clock: MockClock,
) -> None:
    async def beats(*, task_status: Any) -> None:
        task_status.started()
        while True:
            task_status.beat()
            await trio.sleep(1)

    async def quick(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep(0.01)

    async with open_dynamic_supervisor() as sup:
        await sup.start_child(ChildSpec("steady", beats, watchdog=2))
        for _ in range(1000):
            await sup.start_child(ChildSpec("quick", quick, restart="temporary", watchdog=3600))
            await trio.sleep(0.02)
        assert (await sup.count_children()).specs == 1
        assert incarnations() < 300


@pytest.mark.covers("S68", "X17")
async def test_many_restarts_leave_as_many_objects_as_a_few() -> None:
    notes: Notes = []
    spec = player("a", notes, keep_mailbox=True, watchdog=3600)
    async with open_supervisor([spec, ChildSpec("o", Observer, ("a", []))], intensity=10**6) as sup:

        async def restart(times: int) -> None:
            for _ in range(times):
                sup.name("a").kill()
                await settled()
            del notes[:]

        await restart(20)
        before = incarnations()
        await restart(200)
        assert incarnations() <= before
        assert (await picture(sup))["a"] == 221
