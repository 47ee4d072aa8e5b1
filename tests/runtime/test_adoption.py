"""Children that outlive a failure of their supervisor."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    Backoff,
    ChildAdopted,
    ChildExited,
    ChildOrphaned,
    ChildSpec,
    ChildStarted,
    Crash,
    InvalidSpec,
    Killed,
    Normal,
    Ref,
    Shutdown,
    Supervisor,
    WouldDeadlock,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.supervision.handles import AnySupervisor
from tests.runtime.stage import Boom, Notes, crash, end, heard, picture, player, settled, stubborn

SLOW = Backoff(min_delay=10, max_delay=10, jitter=0)


def family(*children: ChildSpec, **fields: Any) -> ChildSpec:
    flags: dict[str, Any] = {"orphans": "keep", "intensity": 0}
    return supervisor_spec("mid", children, **(flags | fields))


def refs(sup: Supervisor, *names: str) -> list[Ref]:
    return [sup.name(name).ref() for name in names]


async def fail(sup: Supervisor) -> None:
    sup.supervisor("mid").ref.kill()
    await settled()


async def test_children_of_a_killed_supervisor_are_adopted_with_ref_name_and_monitor() -> None:
    notes: Notes = []
    async with open_supervisor([family(player("a", notes), player("b", notes))], intensity=9) as sup:
        before = refs(sup, "a", "b")
        with sup.events() as events, sup.name("a").monitor() as monitor:
            await fail(sup)
            assert refs(sup, "a", "b") == before
            assert await picture(sup) == {"mid": 2}
            assert await picture(sup.supervisor("mid")) == {"a": 1, "b": 1}
            with trio.move_on_after(0):
                await monitor
                pytest.fail("the monitor fired")
            told = heard(events)
        assert [e.path for e in told if isinstance(e, ChildOrphaned)] == ["root/mid/a", "root/mid/b"]
        assert [e.path for e in told if isinstance(e, ChildAdopted)] == ["root/mid/a", "root/mid/b"]
        assert [e.path for e in told if isinstance(e, ChildStarted | ChildExited)] == ["root/mid", "root/mid"]
        assert notes == ["+a", "+b"]
        assert await sup.child("mid/a").call("incarnation") == 1
    assert notes[2:] == ["-b", "-a"]


async def test_a_supervisor_that_gives_up_leaves_the_others_and_starts_the_one_that_failed() -> None:
    notes: Notes = []
    children = [player("a", notes), player("x", notes), player("b", notes)]
    async with open_supervisor([family(*children)]) as sup:
        before = refs(sup, "a", "b")
        await crash(sup, "x")
        assert refs(sup, "a", "b") == before
        assert await picture(sup.supervisor("mid")) == {"a": 1, "x": 1, "b": 1}
        assert notes == ["+a", "+x", "+b", "-x", "+x"]
    assert notes[5:] == ["-b", "-x", "-a"]


@pytest.mark.covers("S45")
async def test_without_the_policy_children_end_with_their_supervisor() -> None:
    notes: Notes = []
    async with open_supervisor([family(player("a", notes), orphans="stop")]) as sup:
        [before] = refs(sup, "a")
        await fail(sup)
        assert before.exit_reason == Killed()
        assert refs(sup, "a") != [before]


async def test_an_adopted_child_is_supervised_as_before() -> None:
    notes: Notes = []
    async with open_supervisor([family(player("a", notes), intensity=1)], intensity=9) as sup:
        await fail(sup)
        await crash(sup, "a")
        assert await picture(sup.supervisor("mid")) == {"a": 2}
        await fail(sup)
        assert await picture(sup.supervisor("mid")) == {"a": 2}
        await sup.supervisor("mid").terminate_child("a")
        assert await picture(sup.supervisor("mid")) == {"a": "down"}


async def test_orphans_whose_supervisor_does_not_come_in_time_are_stopped_in_reverse_order(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    mid = family(player("a", notes), player("b", notes), orphan_timeout=4.0, backoff=SLOW)
    async with open_supervisor([mid]) as sup:
        [a, b] = refs(sup, "a", "b")
        await fail(sup)
        await trio.sleep(3.9)
        assert {a.exit_reason, b.exit_reason} == {None}
        assert await a.call("x") == "x"
        await trio.sleep(0.2)
        assert {a.exit_reason, b.exit_reason} == {Shutdown()}
        assert notes == ["+a", "+b", "-b", "-a"]
        await trio.sleep(7)
        assert await picture(sup.supervisor("mid")) == {"a": 1, "b": 1}
        assert refs(sup, "a", "b") != [a, b]


async def test_a_supervisor_that_comes_back_while_its_orphans_are_being_stopped_waits_for_that(
    autojump_clock: MockClock,
) -> None:
    mid = family(stubborn("s", 4, name="s"), orphan_timeout=8.0, backoff=SLOW)
    async with open_supervisor([mid]) as sup:
        [before] = refs(sup, "s")
        await fail(sup)
        await trio.sleep(11)
        assert before.exit_reason is None
        await trio.sleep(2)
        assert before.exit_reason == Shutdown()
        assert await picture(sup.supervisor("mid")) == {"s": 1}


async def test_a_stop_of_the_parent_stops_orphans_at_their_place_in_the_order(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    tree = [
        player("before", notes),
        family(player("a", notes), player("b", notes), backoff=SLOW),
        player("after", notes),
    ]
    async with open_supervisor(tree) as sup:
        await fail(sup)
        notes.clear()
    assert notes == ["-after", "-b", "-a", "-before"]


async def test_a_finite_shutdown_of_the_supervisor_holds_for_its_orphans(autojump_clock: MockClock) -> None:
    mid = family(stubborn("s", 100, shutdown=50.0, name="s"), backoff=SLOW, shutdown=2.0)
    async with open_supervisor([mid]) as sup:
        [stuck] = refs(sup, "s")
        await fail(sup)
        begun = trio.current_time()
    assert trio.current_time() - begun == 2
    assert stuck.exit_reason == Killed()


async def test_a_killed_parent_kills_orphans(autojump_clock: MockClock) -> None:
    outer = supervisor_spec("outer", [family(stubborn("s", 100, shutdown=50.0, name="s"), backoff=SLOW)])
    async with open_supervisor([outer]) as sup:
        [stuck] = refs(sup, "s")
        sup.supervisor("outer/mid").ref.kill()
        await settled()
        begun = trio.current_time()
        sup.supervisor("outer").ref.kill()
        await settled()
        assert (stuck.exit_reason, trio.current_time()) == (Killed(), begun)


async def test_terminate_child_ends_a_supervisor_that_waits_for_its_restart_and_its_orphans(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([family(player("a", notes), backoff=SLOW)]) as sup:
        await fail(sup)
        assert notes == ["+a"]
        await sup.terminate_child("mid")
        assert notes == ["+a", "-a"]
        assert await picture(sup) == {"mid": "down"}


async def test_orphans_of_a_supervisor_that_will_not_come_back_are_stopped_at_once() -> None:
    notes: Notes = []
    mid = family(player("a", notes), player("x", notes), restart="transient", orphan_timeout=1000.0)
    async with open_supervisor([mid]) as sup:
        await crash(sup, "x")
        assert await picture(sup) == {"mid": "down"}
        assert notes == ["+a", "+x", "-x", "-a"]
        await sup.restart_child("mid")
        assert notes[4:] == ["+a", "+x"]


async def test_a_request_to_stop_the_supervisor_stops_its_children() -> None:
    notes: Notes = []
    async with open_supervisor([family(player("a", notes))]) as sup:
        await sup.supervisor("mid").stop()
        await settled()
        assert notes == ["+a", "-a", "+a"]


async def test_a_changed_spec_is_stopped_and_started_an_equal_one_adopted_and_one_that_is_gone_stopped() -> (
    None
):
    notes: Notes = []
    sets = [
        [player("same", notes), player("changed", notes), player("gone", notes)],
        [player("new", notes), player("changed", notes, drain=True), player("same", notes)],
    ]

    async def set_up() -> list[ChildSpec]:
        return sets.pop(0)

    mid = supervisor_spec("mid", set_up, orphans="keep")
    async with open_supervisor([mid]) as sup:
        [same] = refs(sup, "same")
        await fail(sup)
        assert refs(sup, "same") == [same]
        assert notes[3:] == ["-gone", "-changed", "+new", "+changed"]
        assert list(await picture(sup.supervisor("mid"))) == ["new", "changed", "same"]
        notes.clear()
    assert notes == ["-same", "-changed", "-new"]


@pytest.mark.parametrize("reason", [Killed(), Normal(), Crash(Boom())], ids=str)
async def test_an_orphan_that_ends_meanwhile_is_started_afresh(
    reason: Any, autojump_clock: MockClock
) -> None:
    notes: Notes = []
    mid = family(player("a", notes), player("b", notes), backoff=SLOW)
    async with open_supervisor([mid]) as sup:
        [a, b] = refs(sup, "a", "b")
        await fail(sup)
        with sup.events() as events:
            await end(a, reason)
            await settled()
            assert [e.path for e in heard(events) if isinstance(e, ChildExited)] == ["root/mid/a"]
        await trio.sleep(11)
        assert refs(sup, "b") == [b]
        assert refs(sup, "a") != [a]
        assert await picture(sup.supervisor("mid")) == {"a": 1, "b": 1}


async def test_an_orphan_that_fails_its_watchdog_ends_and_is_started_afresh(
    autojump_clock: MockClock,
) -> None:
    mid = family(player("a", [], watchdog=2.0), player("b", []), backoff=SLOW)
    async with open_supervisor([mid]) as sup:
        [a, b] = refs(sup, "a", "b")
        await fail(sup)
        with sup.events() as events:
            await trio.sleep(3)
            ended = [e for e in heard(events) if isinstance(e, ChildExited)]
        assert [(e.ref, e.reason) for e in ended] == [(a, a.exit_reason)]
        await trio.sleep(8)
        assert refs(sup, "b") == [b]
        assert refs(sup, "a") != [a]


async def test_an_adopted_child_knows_the_supervisor_of_now() -> None:
    class Asker(Actor):
        async def handle_call(self, msg: Any, from_: object) -> Any:
            return self.supervisor, len(await self.supervisor.which_children())

    async with open_supervisor([family(ChildSpec("a", Asker, name="a"))]) as sup:
        await fail(sup)
        above, count = await sup.name("a").call("who")
        assert isinstance(above, AnySupervisor)
        assert (above.ref, count) == (sup.supervisor("mid").ref, 1)


@pytest.mark.covers("S56")
@pytest.mark.parametrize("failures", [0, 1])
@pytest.mark.parametrize("path", ["", "mid"])
async def test_a_child_that_waits_for_a_supervisor_above_to_stop_would_deadlock(
    failures: int, path: str
) -> None:
    class Stopper(Actor):
        async def handle_call(self, msg: AnySupervisor, from_: object) -> str:
            try:
                await msg.stop()
            except WouldDeadlock:
                return "would deadlock"
            return "stopped"

    async with open_supervisor([family(ChildSpec("a", Stopper, name="a"))]) as sup:
        for _ in range(failures):
            await fail(sup)
        target = sup.supervisor(path) if path else sup
        assert await sup.name("a").call(target) == "would deadlock"


async def test_orphans_of_orphans_are_adopted_too() -> None:
    notes: Notes = []
    outer = supervisor_spec("outer", [family(player("a", notes))], orphans="keep", intensity=9)
    async with open_supervisor([outer], intensity=9) as sup:
        [a] = refs(sup, "a")
        for path in ("outer", "outer/mid", "outer"):
            sup.supervisor(path).ref.kill()
            await settled()
            assert refs(sup, "a") == [a]
        assert await picture(sup.supervisor("outer/mid")) == {"a": 1}
    assert notes == ["+a", "-a"]


async def test_a_cancelled_block_stops_orphans_and_leaves_nothing(autojump_clock: MockClock) -> None:
    notes: Notes = []
    with trio.CancelScope() as scope:
        async with open_supervisor([family(player("a", notes), backoff=SLOW)]) as sup:
            await fail(sup)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert notes == ["+a", "-a"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"orphans": "adopt"}, "orphans is 'adopt': expected 'stop' or 'keep'"),
        ({"orphan_timeout": 0}, "orphan_timeout is 0: expected seconds > 0"),
        ({"restart": "temporary"}, "orphans of 'mid' is 'keep': expected 'stop' for a temporary supervisor"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        family(**fields)
    assert str(refused.value).startswith(text)
