from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    ChildSpec,
    Killed,
    Name,
    NoProc,
    Shutdown,
    Supervisor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.spec import Backoff
from tests.runtime.stage import Boom, Notes, Stubborn, end, fails_at, player, settled

LONG = Backoff(min_delay=100, max_delay=100, jitter=0)


async def waits_out(name: Name, results: list[object]) -> None:
    try:
        results.append(await name.wait_out())
    except NoProc:
        results.append("nobody")


@pytest.mark.covers("X17", "X1")
async def test_names_below_a_supervisor_are_due_during_its_back_off(autojump_clock: MockClock) -> None:
    notes: Notes = []
    deep = supervisor_spec("t", [player("a", notes)])
    inner = supervisor_spec("s", [deep, player("b", notes)], name="s", backoff=LONG)
    results: list[object] = []
    async with open_supervisor([inner]) as sup, trio.open_nursery() as nursery:
        await end(sup.name("s"), Killed())
        for name in "sab":
            assert sup.name(name).is_due()
            nursery.start_soon(waits_out, sup.name(name), results)
        await trio.sleep(99)
        assert results == []
        await trio.sleep(2)
        assert set(results) == {sup.name(name).ref() for name in "sab"}


@pytest.mark.covers("X17")
async def test_a_call_can_wait_out_the_restart_of_the_supervisor_above(autojump_clock: MockClock) -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes)], intensity=0, backoff=LONG)
    async with open_supervisor([inner]) as sup:
        await end(sup.name("a"), Killed())
        assert await sup.name("a").call("incarnation", wait_for=200) == 1


@pytest.mark.covers("X17")
async def test_names_below_a_supervisor_settle_when_it_comes_to_rest(autojump_clock: MockClock) -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [supervisor_spec("t", [player("a", notes)])], backoff=LONG)
    results: list[object] = []
    async with open_supervisor([inner]) as sup, trio.open_nursery() as nursery:
        await end(sup.child("s"), Killed())
        nursery.start_soon(waits_out, sup.name("a"), results)
        await trio.sleep(50)
        assert results == []
        await sup.terminate_child("s")
        await settled()
        assert results == ["nobody"]
        assert not sup.name("a").is_due()


@pytest.mark.covers("X17")
@pytest.mark.parametrize("restart", ["temporary", "transient"])
async def test_names_below_a_supervisor_settle_with_its_end_when_no_restart_is_owed(restart: str) -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes)], restart=restart)
    async with open_supervisor([inner]) as sup:
        await sup.supervisor("s").stop()
        await settled()
        assert not sup.name("a").is_due()
        with pytest.raises(NoProc):
            await sup.name("a").wait_out()


@pytest.mark.covers("X17", "S28")
async def test_names_stay_due_while_a_supervisor_fails_to_restart(autojump_clock: MockClock) -> None:
    notes: Notes = []
    failures = [Boom(), Boom()]

    def start(_: int) -> None:
        if "again" in notes and failures:
            raise failures.pop()

    inner = supervisor_spec("s", [player("a", notes), player("b", notes, start)], backoff=LONG)
    async with open_supervisor([inner], intensity=5) as sup:
        notes.append("again")
        await end(sup.child("s"), Killed())
        for _ in range(2):
            await trio.sleep(100.5)
            assert sup.name("a").is_due()
            assert not sup.name("a").is_alive()
        await trio.sleep(100)
        assert sup.name("a").is_alive()


@pytest.mark.covers("X17", "S27")
async def test_a_name_that_does_not_come_back_with_its_supervisor_settles(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes)], backoff=LONG)
    results: list[object] = []
    async with open_supervisor([inner]) as sup, trio.open_nursery() as nursery:
        await sup.supervisor("s").start_child(player("later", notes))
        await end(sup.child("s"), Killed())
        nursery.start_soon(waits_out, sup.name("later"), results)
        await trio.sleep(99)
        assert results == []
        await trio.sleep(2)
        assert results == ["nobody"]
        assert not sup.name("later").is_due()


@pytest.mark.covers("X17")
async def test_a_child_that_was_down_below_a_supervisor_is_not_due(autojump_clock: MockClock) -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes)], backoff=LONG)
    async with open_supervisor([inner]) as sup:
        await sup.supervisor("s").terminate_child("a")
        assert not sup.name("a").is_due()


@pytest.mark.covers("X17")
async def test_a_name_taken_by_another_child_meanwhile_is_that_ones(autojump_clock: MockClock) -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes)], backoff=LONG)
    async with open_supervisor([inner]) as sup:
        await end(sup.child("s"), Killed())
        await settled()
        await sup.start_child(player("other", notes, name="a"))
        await sup.terminate_child("s")
        assert sup.name("a").is_due()
        assert (await sup.name("a").wait_out()).path == "root/other"
        await sup.terminate_child("other")
        assert not sup.name("a").is_due()


@pytest.mark.covers("X17", "S25")
async def test_names_are_due_in_the_stop_phase_of_a_group_restart(autojump_clock: MockClock) -> None:
    notes: Notes = []
    children = [
        ChildSpec("slow", Stubborn, (4,)),
        supervisor_spec("s", [player("a", notes)]),
        player("b", notes),
    ]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        await end(sup.name("b"), Killed())
        await trio.sleep(1)
        assert not sup.name("a").is_alive()
        assert sup.name("a").is_due()
        await sup.name("a").wait_out()
        assert trio.current_time() == 4


@pytest.mark.covers("X17")
@pytest.mark.parametrize("deep", [False, True])
async def test_who_waits_is_told_of_the_end_of_the_tree(deep: bool, autojump_clock: MockClock) -> None:
    notes: Notes = []
    child = player("a", notes, backoff=LONG)
    results: list[object] = []

    async def wait(sup: Supervisor) -> None:
        await waits_out(sup.name("a"), results)

    async with trio.open_nursery() as nursery:
        async with open_supervisor([supervisor_spec("s", [child]) if deep else child]) as sup:
            await end(sup.name("a"), Killed())
            nursery.start_soon(wait, sup)
            await settled()
            await sup.stop(Shutdown())
        await settled()
        assert results == ["nobody"]


@pytest.mark.covers("X17", "S12")
async def test_a_child_whose_name_was_taken_owes_nothing() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)]) as sup:
        with pytest.raises(Exception, match="already started"):
            await sup.start_child(player("b", notes, name="a"))
        assert sup.name("a").is_due()
        with pytest.raises(Exception, match="start 1"):
            await sup.start_child(player("c", notes, fails_at(1)))
        assert not sup.name("c").is_due()


@pytest.mark.covers("X17", "S73")
@pytest.mark.parametrize(
    "change",
    [
        {"restart": "temporary"},
        {"strategy": "one_for_one"},
    ],
    ids=str,
)
async def test_a_change_that_leaves_no_restart_due_ends_the_wait_for_the_rest_of_the_group(
    change: dict[str, Any], autojump_clock: MockClock
) -> None:
    notes: Notes = []
    children = [player("a", notes, fails_at(2), backoff=LONG), player("b", notes), player("c", notes)]
    results: list[object] = []
    async with open_supervisor(children, strategy="rest_for_one", intensity=5) as sup:
        async with trio.open_nursery() as nursery:
            await end(sup.name("a"), Killed())
            await trio.sleep(150)  # the restart of the group has failed at its first
            for name in "bc":
                nursery.start_soon(waits_out, sup.name(name), results)
            await settled()
            assert results == []
            if "strategy" in change:
                await sup.change(strategy=change["strategy"])
            else:
                await sup.change([player("a", notes, **change)])
        assert results == ["nobody", "nobody"]
        assert not sup.name("b").is_due()
        await sup.restart_child("b")


@pytest.mark.covers("X17", "S73")
async def test_a_change_leaves_due_what_will_still_be_started(autojump_clock: MockClock) -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes, fails_at(2), backoff=LONG), player("c", notes)]
    results: list[object] = []
    async with open_supervisor(children, strategy="one_for_all", intensity=5) as sup:
        async with trio.open_nursery() as nursery:
            await end(sup.name("b"), Killed())
            await trio.sleep(150)
            nursery.start_soon(waits_out, sup.name("c"), results)
            await settled()
            await sup.change(strategy="rest_for_one")
            await settled()
            assert results == []
        assert results == [sup.name("c").ref()]


@pytest.mark.covers("X17")
@pytest.mark.parametrize("verb", ["wait_out", "wait"])
async def test_a_wait_after_the_end_of_the_tree_raises_at_once(verb: str) -> None:
    async with open_supervisor([player("a", [])]) as sup:
        await sup.stop()
        with pytest.raises(NoProc, match="no such actor: a"):
            await getattr(sup.name("a"), verb)()
        with pytest.raises(NoProc):
            await sup.name("a").call("incarnation", wait_for=1e9)
        assert not sup.name("a").is_due()
