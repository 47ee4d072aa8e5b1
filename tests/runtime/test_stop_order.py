from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ChildSpec,
    ExitReason,
    Flags,
    InvalidSpec,
    Killed,
    Shutdown,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.spec import DynamicFlags, Strategy
from tests.runtime.stage import Notes, crash, player, settled, stubborn


def hang(number: int, **fields: Any) -> list[ChildSpec]:
    return [stubborn(str(k), 1000, **{"shutdown": 2, **fields}) for k in range(number)]


@pytest.mark.covers("S65")
async def test_thirty_children_that_do_not_depend_on_each_other_stop_in_one_grace(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor(hang(30), stop_order="parallel"):
        begun = trio.current_time()
    assert trio.current_time() - begun == 2


@pytest.mark.covers("S36")
async def test_one_after_the_other_is_the_default(autojump_clock: MockClock) -> None:
    async with open_supervisor(hang(30)):
        begun = trio.current_time()
    assert trio.current_time() - begun == 60


@pytest.mark.covers("S65", "S38")
async def test_each_has_its_own_grace_when_all_are_asked_together(autojump_clock: MockClock) -> None:
    ended: dict[str, float] = {}

    class Ends(Actor):
        async def init(self, seconds: float) -> None:
            self.seconds = seconds

        async def terminate(self, reason: ExitReason) -> None:
            await trio.sleep(self.seconds)
            ended[self.id] = trio.current_time() - begun

    children = [ChildSpec("a", Ends, (3,), shutdown=4), ChildSpec("b", Ends, (9,), shutdown=1)]
    async with open_supervisor([*children, ChildSpec("c", Ends, (1,))], stop_order="parallel") as sup:
        refs = [sup.child(id).ref() for id in "abc"]
        begun = trio.current_time()
    assert ended == {"a": 3, "c": 1}
    assert [ref.exit_reason for ref in refs] == [Shutdown(), Killed(), Shutdown()]


@pytest.mark.covers("S65", "S72")
async def test_a_nested_supervisor_stops_its_children_together(autojump_clock: MockClock) -> None:
    low = supervisor_spec("low", hang(10), stop_order="parallel")
    async with open_supervisor([low]) as sup:
        begun = trio.current_time()
        await sup.terminate_child("low")
        assert trio.current_time() - begun == 2


@pytest.mark.covers("S22", "S25")
async def test_a_group_restart_stops_the_others_together_before_it_starts_any(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("a", notes), *hang(10), player("b", notes)]
    async with open_supervisor(children, strategy="one_for_all", stop_order="parallel") as sup:
        begun = trio.current_time()
        await crash(sup, "a")
        await sup.count_children()
        assert trio.current_time() - begun == 2
        assert notes == ["+a", "+b", "-a", "-b", "+a", "+b"]


@pytest.mark.covers("S45")
async def test_a_kill_ends_a_stop_of_all_together_at_once(autojump_clock: MockClock) -> None:
    async with open_supervisor(hang(10, shutdown=100), stop_order="parallel") as sup:
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.stop)
            await settled(0.001)
            sup.ref.kill()
        assert trio.current_time() - begun < 1


@pytest.mark.covers("S73")
async def test_the_order_can_be_changed_while_it_runs(autojump_clock: MockClock) -> None:
    async with open_supervisor(hang(5)) as sup:
        await sup.change(stop_order="parallel")
        begun = trio.current_time()
    assert trio.current_time() - begun == 2


@pytest.mark.covers("S73")
async def test_a_change_to_a_strategy_that_has_an_order_is_refused() -> None:
    async with open_supervisor(stop_order="parallel") as sup:
        with pytest.raises(InvalidSpec, match="stop_order"):
            await sup.change(strategy="rest_for_one")
        await sup.change(strategy="rest_for_one", stop_order="reverse")


@pytest.mark.covers("S2")
@pytest.mark.parametrize(
    ("strategy", "order", "error"),
    [
        ("rest_for_one", "parallel", "whose children depend on those before them"),
        ("one_for_one", "forward", "'reverse' or 'parallel'"),
    ],
)
def test_an_order_that_cannot_be_is_refused(strategy: Strategy, order: Any, error: str) -> None:
    with pytest.raises(InvalidSpec, match=error):
        Flags(strategy=strategy, stop_order=order)
    with pytest.raises(InvalidSpec, match=error):
        supervisor_spec("s", strategy=strategy, stop_order=order)


@pytest.mark.covers("S65")
def test_a_dynamic_supervisor_has_no_other_order() -> None:
    with pytest.raises(InvalidSpec, match="stop_order"):
        DynamicFlags(stop_order="reverse")
