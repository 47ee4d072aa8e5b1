from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import ChildSpec, ExitReason, Killed, NoProc, Shutdown, open_supervisor
from tests.runtime.stage import Notes, Player, settled


class Works(Player):
    """Takes a second for each message."""

    async def handle_cast(self, msg: Any) -> None:
        await trio.sleep(1)
        self.notes.append(f"{self.id}:{msg}")

    async def terminate(self, reason: ExitReason) -> None:
        self.notes.append(f"-{self.id} {reason}")


def works(id: str, notes: Notes, shutdown: float) -> ChildSpec:
    return ChildSpec(id, Works, (notes,), name=id, drain=True, shutdown=shutdown)


@pytest.mark.covers("X8", "M8")
async def test_a_drain_refuses_then_finishes_then_stops(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([works("a", notes, 10)]) as sup, trio.open_nursery() as nursery:
        a, begun = sup.name("a").ref(), trio.current_time()
        for number in range(3):
            await a.cast(number)
        nursery.start_soon(sup.stop)
        await settled()
        assert sup.tree().children[0].state == "stopping"
        with pytest.raises(NoProc):
            await a.call("too late")
        await a.cast("too late")
        assert await sup.wait_stopped() == Shutdown()
        assert trio.current_time() - begun == 3
    assert notes == ["+a", "a:0", "a:1", "a:2", "-a shutdown"]
    assert a.exit_reason == Shutdown()


@pytest.mark.covers("X8", "S38")
async def test_a_drain_lasts_no_longer_than_the_grace(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([works("a", notes, 2.5)]) as sup:
        a, begun = sup.name("a").ref(), trio.current_time()
        for number in range(9):
            await a.cast(number)
        await sup.terminate_child("a")
        assert trio.current_time() - begun == 2.5
    assert notes == ["+a", "a:0", "a:1"]
    assert a.exit_reason == Killed()


@pytest.mark.covers("X8", "S36")
async def test_a_child_that_was_not_asked_yet_takes_more_while_another_drains(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([works(id, notes, 10) for id in "ab"]) as sup, trio.open_nursery() as nursery:
        a, begun = sup.name("a").ref(), trio.current_time()
        for number in range(3):
            await sup.name("b").cast(number)
        nursery.start_soon(sup.stop)
        await trio.sleep(2.5)
        await a.cast("more")
        await sup.wait_stopped()
        assert trio.current_time() - begun == 3.5
    assert notes == ["+a", "+b", "b:0", "b:1", "b:2", "-b shutdown", "a:more", "-a shutdown"]
