from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    ActorExited,
    AlreadyPresent,
    ChildSpec,
    InvalidSpec,
    Killed,
    MaxRestartsExceeded,
    NoProc,
    Normal,
    Shutdown,
    Supervisor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.spec import Backoff
from tests.runtime.stage import (
    Notes,
    Player,
    Stubborn,
    crash,
    end,
    fails_at,
    forever,
    picture,
    player,
    ready_after,
    settled,
)

LONG = Backoff(min_delay=100, max_delay=100, jitter=0)


@pytest.mark.covers("S73")
async def test_a_new_strategy_applies_from_the_next_exit_on() -> None:
    notes: Notes = []
    async with open_supervisor([player(id, notes) for id in "abc"], intensity=10) as sup:
        await crash(sup, "b")
        assert await picture(sup) == {"a": 1, "b": 2, "c": 1}
        await sup.change(strategy="rest_for_one")
        await crash(sup, "b")
        assert await picture(sup) == {"a": 1, "b": 3, "c": 2}
        await sup.change(strategy="one_for_all")
        await crash(sup, "c")
        assert await picture(sup) == {"a": 2, "b": 4, "c": 3}


@pytest.mark.covers("S73", "S30")
async def test_the_window_keeps_its_entries_under_a_higher_intensity() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)], intensity=2) as sup:
        await crash(sup, "a", "a")
        await sup.change(intensity=3)
        await crash(sup, "a")
        assert await picture(sup) == {"a": 4}


@pytest.mark.covers("S73", "S30")
@pytest.mark.parametrize("intensity", [0, 1, 2])
async def test_the_window_keeps_its_entries_under_a_lower_intensity(intensity: int) -> None:
    notes: Notes = []
    text = f"more than {intensity} restarts in 5 s"
    with pytest.raises(MaxRestartsExceeded, match=text) as caught:  # noqa: PT012
        async with open_supervisor([player("a", notes)], intensity=5) as sup:
            await crash(sup, "a", "a")
            await sup.change(intensity=intensity)
            assert await picture(sup) == {"a": 3}  # looked at with the next restart only
            await crash(sup, "a")
            await trio.sleep_forever()
    assert len(caught.value.exceptions) == 3


@pytest.mark.covers("S73", "S30")
async def test_a_new_period_looks_at_the_old_entries(autojump_clock: MockClock) -> None:
    notes: Notes = []
    with pytest.raises(MaxRestartsExceeded, match="more than 1 restarts in 100 s"):  # noqa: PT012
        async with open_supervisor([player("a", notes)], intensity=1, period=100) as sup:
            await crash(sup, "a")
            await trio.sleep(50)
            await sup.change(period=10)
            await crash(sup, "a")
            assert await picture(sup) == {"a": 3}
            await trio.sleep(50)
            await sup.change(period=100)
            await crash(sup, "a")
            await trio.sleep_forever()


@pytest.mark.covers("S73", "S59")
async def test_automatic_shutdown_can_be_switched_on() -> None:
    notes: Notes = []
    plain = player("a", notes, restart="transient")
    async with open_supervisor([plain]) as sup:
        await sup.change(
            [player("a", notes, restart="transient", significant=True)], auto_shutdown="any_significant"
        )
        assert await picture(sup) == {"a": 1}
        await end(sup.name("a"), Normal())
        assert await sup.wait_stopped() == Shutdown("auto_shutdown")


@pytest.mark.covers("S73", "S58")
async def test_automatic_shutdown_can_be_switched_off() -> None:
    notes: Notes = []
    significant = player("a", notes, restart="transient", significant=True)
    async with open_supervisor([significant], auto_shutdown="any_significant") as sup:
        await sup.change([player("a", notes, restart="transient")], auto_shutdown="never")
        await end(sup.name("a"), Normal())
        assert await picture(sup) == {"a": "down"}


@pytest.mark.covers("S73")
async def test_a_changed_spec_applies_to_the_next_start() -> None:
    notes: Notes = []
    other: Notes = []
    async with open_supervisor([player("a", notes)], intensity=5) as sup:
        ref = sup.name("a").ref()
        await sup.change([player("a", other, name="b")])
        assert sup.name("a").ref() is ref
        assert (await sup.get_childspec("a")).name == "b"
        assert (notes, other) == (["+a"], [])
        await end(ref, Killed())
        await settled()
        assert (notes, other) == (["+a"], ["+a"])
        assert not sup.name("a").is_due()
        assert sup.name("b").is_alive()
        assert sup.name("b").is_due()


@pytest.mark.covers("S73", "S14", "S16")
async def test_what_the_supervisor_does_about_a_child_changes_at_once() -> None:
    notes: Notes = []
    async with open_supervisor([player(id, notes) for id in "ab"]) as sup:
        await sup.change([player("a", notes, restart="temporary"), player("b", notes, restart="transient")])
        assert (await sup.get_childspec("a")).args == ()
        await crash(sup, "a")
        await end(sup.name("b"), Normal())
        assert await picture(sup) == {"b": "down"}


@pytest.mark.covers("S73", "S38")
async def test_a_new_grace_is_given_to_a_running_child(autojump_clock: MockClock) -> None:
    async with open_supervisor([ChildSpec("a", Stubborn, (50,))]) as sup:
        await sup.change([ChildSpec("a", Stubborn, (50,), shutdown=7)])
        begun = trio.current_time()
    assert trio.current_time() - begun == 7


@pytest.mark.covers("S73", "S26")
async def test_missing_children_are_kept_and_new_ones_added_down_in_the_order_of_the_new_list() -> None:
    notes: Notes = []
    async with open_supervisor([player(id, notes) for id in "abc"], strategy="one_for_all") as sup:
        await sup.change([player(id, notes) for id in "xcay"])
        assert await picture(sup) == {"x": "down", "c": 1, "a": 1, "y": "down", "b": 1}
        assert list(await picture(sup)) == ["x", "c", "a", "y", "b"]
        with pytest.raises(AlreadyPresent):
            await sup.start_child(player("x", notes))
        await sup.restart_child("y")
        del notes[:]
        await crash(sup, "c")
        assert notes == ["-c", "-b", "-y", "-a", "+x", "+c", "+a", "+y", "+b"]


@pytest.mark.covers("S73", "S5")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"strategy": "all"}, "strategy"),
        ({"intensity": -1}, "intensity"),
        ({"period": 0, "intensity": 9}, "period"),
        ({"auto_shutdown": "never"}, "significant"),  # S5: of a child that is kept
        ({"children": [ChildSpec("x", forever), ChildSpec("x", forever)], "strategy": "one_for_all"}, "id"),
        ({"children": [ChildSpec("x", forever), "no spec"]}, "spec"),
        (
            {
                "children": [ChildSpec("a", forever, restart="transient", significant=True)],
                "auto_shutdown": "never",
            },
            "significant",
        ),
    ],
)
async def test_an_invalid_change_changes_nothing(change: dict[str, Any], field: str) -> None:
    notes: Notes = []
    children = [player("a", notes), player("s", notes, restart="transient", significant=True)]
    async with open_supervisor(children, auto_shutdown="any_significant", intensity=1) as sup:
        with pytest.raises(InvalidSpec) as caught:
            await sup.change(**change)
        assert caught.value.field == field
        assert await picture(sup) == {"a": 1, "s": 1}
        assert (await sup.get_childspec("a")).start is Player
        await crash(sup, "a")
        assert await picture(sup) == {"a": 2, "s": 1}
        await end(sup.name("s"), Normal())
        assert await sup.wait_stopped() == Shutdown("auto_shutdown")


@pytest.mark.covers("S73")
async def test_a_change_of_nothing_changes_nothing() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)], strategy="one_for_all") as sup:
        await sup.change()
        assert await picture(sup) == {"a": 1}


@pytest.mark.covers("S73", "X1")
async def test_a_restart_put_off_comes_from_the_new_spec(autojump_clock: MockClock) -> None:
    notes: Notes = []
    other: Notes = []
    async with open_supervisor([player("a", notes, backoff=LONG)]) as sup:
        await end(sup.name("a"), Killed())
        await settled()
        await sup.change([player("a", other)])
        assert await picture(sup) == {"a": "restarting"}
        await trio.sleep(100)
        assert await picture(sup) == {"a": 2}
        assert other == ["+a"]


@pytest.mark.covers("S73", "S16", "X1")
async def test_a_restart_is_not_owed_to_a_child_that_has_become_temporary(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, backoff=LONG), player("b", notes)]) as sup:
        await end(sup.name("a"), Killed())
        await settled()
        await sup.change([player("a", notes, restart="temporary")])
        assert not sup.name("a").is_due()
        await trio.sleep(200)
        assert await picture(sup) == {"b": 1}


@pytest.mark.covers("S73", "S28")
async def test_a_change_goes_between_two_attempts_and_mends_a_child_that_cannot_start(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    broken = player("a", notes, lambda n: fails_at(n)(n) if n > 1 else None, backoff=LONG)
    async with open_supervisor([broken], intensity=5) as sup:
        await end(sup.name("a"), Killed())
        await trio.sleep(150)
        await sup.change([player("a", notes)])
        await trio.sleep(100)
        assert await picture(sup) == {"a": 3}


@pytest.mark.covers("S73", "S55")
async def test_a_change_waits_its_turn(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes), player("b", notes)]) as sup:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.start_child, ChildSpec("c", ready_after(10)))
            await settled()
            sup.name("a").kill()
            await settled()
            await sup.change(strategy="one_for_all")
            assert trio.current_time() == 10
        assert await picture(sup) == {"a": 2, "b": 1, "c": 1}  # the exit came first, M6


@pytest.mark.covers("S73", "S27")
async def test_a_nested_supervisor_is_changed_by_its_own_handle_until_it_is_restarted() -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes), player("b", notes)], intensity=5)
    async with open_supervisor([inner]) as sup:
        await sup.supervisor("s").change([player("c", notes)], strategy="one_for_all")
        await crash(sup, "a")
        nested = sup.tree().children[0].children
        assert [(node.id, node.incarnation) for node in nested] == [("c", 1), ("a", 2), ("b", 2)]
        await end(sup.child("s"), Killed())
        await settled()
        assert [node.id for node in sup.tree().children[0].children] == ["a", "b"]


@pytest.mark.covers("S73")
async def test_a_changed_nested_spec_applies_at_its_next_start() -> None:
    notes: Notes = []
    async with open_supervisor([supervisor_spec("s", [player("a", notes)])]) as sup:
        await sup.change([supervisor_spec("s", [player("b", notes)])])
        assert [node.id for node in sup.tree().children[0].children] == ["a"]
        await end(sup.child("s"), Killed())
        await settled()
        assert [node.id for node in sup.tree().children[0].children] == ["b"]
        assert not sup.name("a").is_due()


@pytest.mark.covers("S73", "S54")
async def test_a_supervisor_that_is_gone_or_stopping_cannot_be_changed(
    autojump_clock: MockClock,
) -> None:
    async def late(sup: Supervisor) -> None:
        with pytest.raises(ActorExited):
            await sup.change(strategy="one_for_all")

    async with open_supervisor([ChildSpec("a", Stubborn, (3,))]) as sup:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.stop)
            await settled()
            nursery.start_soon(late, sup)
        with pytest.raises(NoProc):
            await sup.change()


@pytest.mark.covers("S73", "S22")
async def test_a_new_child_that_is_down_starts_with_the_group() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)], strategy="one_for_all") as sup:
        await sup.change([player("a", notes), player("b", notes)])
        await crash(sup, "a")
        assert await picture(sup) == {"a": 2, "b": 1}
