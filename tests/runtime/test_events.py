from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import ChildSpec, ChildStarted, Killed, SupervisorEvent, open_supervisor, supervisor_spec
from tests.runtime.stage import Notes, crash, end, forever, heard, kinds, player, settled


@pytest.mark.covers("X11")
async def test_events_are_numbered_stamped_and_placed(autojump_clock: MockClock) -> None:
    notes: Notes = []
    inner = supervisor_spec("fixers", [player("fixer", notes)])
    async with open_supervisor([inner], name="fleet") as sup:
        with sup.events() as events:
            await trio.sleep(7)
            now = trio.current_time()
            await crash(sup, "fixer")
            told = heard(events)
    assert [event.path for event in told] == ["fleet/fixers/fixer"] * 4
    assert [event.seq - told[0].seq for event in told] == [0, 1, 2, 3]
    assert {event.time for event in told} == {now}


@pytest.mark.covers("X11")
async def test_an_event_follows_the_state_it_describes() -> None:
    notes: Notes = []
    states: list[tuple[str, str]] = []
    async with (
        open_supervisor([player("a", notes, restart="transient")]) as sup,
        trio.open_nursery() as nursery,
    ):

        async def look() -> None:
            with sup.events() as events:
                async for event in events:
                    states.append((event.kind, sup.tree().children[0].state))

        nursery.start_soon(look)
        await settled()
        await sup.terminate_child("a")
        await settled()
        await sup.restart_child("a")
        await settled()
        nursery.cancel_scope.cancel()
    assert states == [("child_exited", "down"), ("child_started", "running")]


@pytest.mark.covers("T20")
async def test_a_slow_subscriber_loses_the_oldest_and_slows_nobody() -> None:
    async with open_supervisor() as sup:
        slow, quick = sup.events(buffer=3), sup.events()
        for n in range(5):
            await sup.start_child(ChildSpec(f"c{n}", forever))
        assert kinds(slow) == [f"child_started root/c{n}" for n in (2, 3, 4)]
        assert (slow.dropped, quick.dropped, len(heard(quick))) == (2, 0, 5)


@pytest.mark.covers("T20")
async def test_a_subscription_ends_with_the_tree_after_what_it_holds() -> None:
    seen: list[SupervisorEvent] = []
    async with trio.open_nursery() as nursery, open_supervisor([ChildSpec("a", forever)]) as sup:
        events = sup.events()

        async def read() -> None:
            async for event in events:
                seen.append(event)

        nursery.start_soon(read)
    assert [event.kind for event in seen] == ["child_exited", "supervisor_stopped"]
    with pytest.raises(StopAsyncIteration):
        await anext(sup.events())


async def test_a_closed_subscription_is_forgotten() -> None:
    async with open_supervisor() as sup:
        with sup.events() as events:
            await sup.start_child(ChildSpec("a", forever))
        assert heard(events) == list[SupervisorEvent]()
        await sup.start_child(ChildSpec("b", forever))
        with pytest.raises(StopAsyncIteration):
            await anext(events)


@pytest.mark.covers("S19")
async def test_a_clean_exit_of_another_kind_is_told_once() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, restart="temporary"), player("b", notes)]) as sup:
        with sup.events() as events:
            await end(sup.name("a"), Killed())
            await settled()
            assert kinds(events) == ["child_exited root/a", "child_terminated root/a"]
            assert all(not isinstance(event, ChildStarted) for event in heard(events))
