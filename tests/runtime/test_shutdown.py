from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ActorExited,
    ChildSpec,
    Crash,
    ExitReason,
    Killed,
    Ref,
    Shutdown,
    ShutdownFailed,
    Supervisor,
    open_supervisor,
    supervisor_spec,
)
from tests.runtime.stage import (
    Boom,
    Notes,
    Player,
    crash,
    end,
    heard,
    kinds,
    never_ready,
    picture,
    player,
    settled,
    stubborn,
)


def hangs_from(incarnation: int, notes: Notes) -> ChildSpec:
    """A child, `a`, whose start hangs from that incarnation on."""

    class Hangs(Player):
        async def init(self, notes: Notes, start: object = None) -> None:
            await super().init(notes)
            if self.incarnation >= incarnation:
                await trio.sleep_forever()

    return ChildSpec("a", Hangs, (notes,), name="a")


@pytest.mark.covers("S36", "S44")
async def test_the_next_child_is_asked_when_the_last_task_of_the_one_before_has_ended(
    autojump_clock: MockClock,
) -> None:
    notes: list[tuple[str, float]] = []

    class Lingers(Actor):
        async def init(self) -> None:
            self.background.start_soon(self.linger)

        async def linger(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(3)
                notes.append((f"gone {self.id}", trio.current_time() - begun))

        async def terminate(self, reason: ExitReason) -> None:
            notes.append((f"asked {self.id}", trio.current_time() - begun))

    async with open_supervisor([ChildSpec(id, Lingers) for id in "ab"]):
        begun = trio.current_time()
    assert notes == [("asked b", 0), ("gone b", 3), ("asked a", 3), ("gone a", 6)]


@pytest.mark.covers("S36", "S26")
async def test_children_added_by_request_and_restarted_ones_stop_in_their_place() -> None:
    notes: Notes = []
    async with open_supervisor([player("b", notes), player("a", notes)], intensity=5) as sup:
        await sup.start_child(player("c", notes))
        await crash(sup, "b")
        await sup.terminate_child("a")
        await sup.restart_child("a")
        del notes[:]
    assert notes == ["-c", "-a", "-b"]


@pytest.mark.covers("S37")
@pytest.mark.parametrize("how", ["terminate_child", "group restart", "stop"])
async def test_a_brutal_kill_is_quick_and_no_error_wherever_it_happens(
    how: str, autojump_clock: MockClock
) -> None:
    notes: Notes = []
    children = [player("a", notes), stubborn("b", 50, shutdown="brutal_kill", name="b")]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        events, ref, begun = sup.events(), sup.name("b").ref(), trio.current_time()
        if how == "terminate_child":
            await sup.terminate_child("b")
        elif how == "group restart":
            await crash(sup, "a")
        else:
            await sup.stop()
        assert trio.current_time() == begun
        assert ref.exit_reason == Killed()
        assert "shutdown_error root/b" not in kinds(events)


@pytest.mark.covers("S38", "S39")
@pytest.mark.parametrize("how", ["terminate_child", "group restart"])
async def test_a_grace_that_is_over_is_an_error_and_the_supervisor_goes_on(
    how: str, autojump_clock: MockClock
) -> None:
    notes: Notes = []
    children = [player("a", notes), stubborn("b", 50, shutdown=2, name="b"), player("c", notes)]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        events, ref, begun = sup.events(), sup.name("b").ref(), trio.current_time()
        if how == "terminate_child":
            await sup.terminate_child("b")
        else:
            await end(sup.name("a"), Killed())
            await trio.sleep(3)
        errors = [event for event in heard(events) if isinstance(event, ShutdownFailed)]
        assert [(event.path, event.time - begun, event.reason) for event in errors] == [
            ("root/b", 2, Killed())
        ]
        assert ref.exit_reason == Killed()
        expected: dict[str, int | str] = {"a": 1, "b": "down", "c": 1}
        assert await picture(sup) == (expected if how == "terminate_child" else {"a": 2, "b": 2, "c": 2})


@pytest.mark.covers("S39", "S40")
async def test_a_child_that_crashes_during_the_stop_of_another_is_reported_not_restarted() -> None:
    notes: Notes = []

    class Pulls(Player):
        async def terminate(self, reason: ExitReason) -> None:
            await end(a, Crash(Boom("crash")))
            notes.append("-b")

    async with open_supervisor([player("a", notes), ChildSpec("b", Pulls, (notes,))]) as sup:
        a, events = sup.name("a").ref(), sup.events()
    assert notes == ["+a", "+b", "-a", "-b"]
    assert kinds(events) == [
        "child_exited root/b",
        "child_exited root/a",
        "shutdown_error root/a",
        "supervisor_stopped root",
    ]
    assert sup.ref.exit_reason == Shutdown()


@pytest.mark.covers("S41")
@pytest.mark.parametrize("again", [False, True], ids=["start_child", "restart_child"])
async def test_neither_request_starts_anybody_once_a_stop_has_begun(
    again: bool, autojump_clock: MockClock
) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes), stubborn("b", 3)]) as sup:
        await sup.terminate_child("a")
        del notes[:]

        async def ask() -> None:
            with pytest.raises(ActorExited):
                await (sup.restart_child("a") if again else sup.start_child(player("c", notes)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.stop)
            await settled()
            nursery.start_soon(ask)
    assert notes == []


@pytest.mark.covers("S41", "S43")
async def test_a_stop_in_the_start_phase_of_a_group_restart_starts_no_more(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("z", notes), hangs_from(2, notes), player("b", notes)]
    begun = trio.current_time()
    async with open_supervisor(children, strategy="one_for_all") as sup:
        await crash(sup, "b")
        del notes[:]
    assert notes == ["-z"]
    assert trio.current_time() == begun


@pytest.mark.covers("S42")
async def test_a_nested_supervisor_ends_with_what_it_was_asked_with() -> None:
    notes: Notes = []
    inner = supervisor_spec("inner", [player("a", notes)], restart="transient", name="inner")
    async with open_supervisor([inner]) as sup:
        first = sup.name("inner").ref()
        await sup.supervisor("inner").stop(Shutdown("maintenance"))
        assert await picture(sup) == {"inner": "down"}
        second = await sup.restart_child("inner")
        await sup.terminate_child("inner")
        third = await sup.restart_child("inner")
    assert [ref.exit_reason for ref in (first, second, third)] == [
        Shutdown("maintenance"),
        Shutdown(),
        Shutdown(),
    ]


@pytest.mark.covers("S42")
async def test_the_first_of_two_stops_gives_the_reason(autojump_clock: MockClock) -> None:
    async with open_supervisor([stubborn("a", 3)]) as sup:
        sup.ref.exit(Shutdown("first"))
        await trio.sleep(1)
        await sup.stop(Shutdown("second"))
    assert sup.ref.exit_reason == Shutdown("first")


@pytest.mark.covers("S43")
@pytest.mark.parametrize("nested", [False, True])
async def test_a_stop_ends_a_restart_that_hangs(nested: bool, autojump_clock: MockClock) -> None:
    notes: Notes = []
    spec = hangs_from(2, notes)
    children = [supervisor_spec("inner", [spec])] if nested else [spec]
    begun = trio.current_time()
    async with open_supervisor(children) as sup:
        await end(sup.name("a"), Killed())
        await trio.sleep(100)
        assert notes == ["+a", "+a"]
    assert trio.current_time() - begun == 100


@pytest.mark.covers("S43")
async def test_a_stop_between_two_attempts_of_a_restart_comes_before_the_next() -> None:
    notes: Notes = []

    class Fails(Player):
        async def init(self, notes: Notes, start: object = None) -> None:
            await super().init(notes)
            if self.incarnation == 5:
                self.supervisor.ref.exit(Shutdown())
            if self.incarnation > 1:
                raise Boom

    async with open_supervisor([ChildSpec("a", Fails, (notes,), name="a")], intensity=10**6) as sup:
        await end(sup.name("a"), Killed())
        await sup.wait_stopped()
    assert notes == ["+a"] * 5


@pytest.mark.covers("S44")
async def test_the_death_is_waited_for_and_not_a_word_of_the_child(autojump_clock: MockClock) -> None:
    async def deaf(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        with trio.CancelScope(shield=True):
            await trio.sleep(3)

    begun = trio.current_time()
    async with open_supervisor([ChildSpec("a", deaf)]) as sup:
        ref = sup.child("a").ref()
    assert trio.current_time() - begun == 3
    assert not ref.is_alive()


async def killed_while(children: list[ChildSpec], then: Callable[[Supervisor], Any]) -> tuple[Ref, float]:
    """Kill a nested supervisor of `children` a second after `then` was begun; how long its end took."""
    inner = supervisor_spec("inner", children, strategy="one_for_all", restart="temporary", name="inner")
    async with open_supervisor([inner]) as sup, trio.open_nursery() as nursery:
        ref, nested = sup.name("inner").ref(), sup.supervisor("inner")
        nursery.start_soon(then, nested)
        await trio.sleep(1)
        begun = trio.current_time()
        with ref.monitor() as monitor:
            ref.kill()
            await monitor
        took = trio.current_time() - begun
        assert sup.registry.names() == {}
        return ref, took


async def starts_one_that_hangs(sup: Supervisor) -> None:
    with pytest.raises(ActorExited):
        await sup.start_child(ChildSpec("b", never_ready))


async def stops_one_that_lingers(sup: Supervisor) -> None:
    await sup.terminate_child("a")  # answered: by the kill it is down


async def restarts_the_group(sup: Supervisor) -> None:
    sup.child("z").kill()


async def stops(sup: Supervisor) -> None:
    await sup.stop()


@pytest.mark.covers("S45")
@pytest.mark.parametrize("then", [starts_one_that_hangs, stops_one_that_lingers, restarts_the_group, stops])
async def test_a_kill_leaves_nobody_whatever_the_supervisor_was_doing(
    then: Callable[[Supervisor], Any], autojump_clock: MockClock
) -> None:
    notes: Notes = []
    lingering = [stubborn("a", 500, shutdown=math.inf), player("y", notes), player("z", notes)]
    ref, took = await killed_while(lingering, then)
    assert (ref.exit_reason, took) == (Killed(), 0)
    assert ("-y" in notes) == (then in (restarts_the_group, stops))  # before the kill, then


@pytest.mark.covers("S45")
async def test_a_killed_root_leaves_nobody(autojump_clock: MockClock) -> None:
    notes: Notes = []
    inner = supervisor_spec("inner", [player("a", notes), stubborn("b", 500)])
    begun = trio.current_time()
    async with open_supervisor([inner, stubborn("c", 500)]) as sup:
        refs = [sup.child(path).ref() for path in ("inner/a", "inner/b", "inner", "c")]
        sup.ref.kill()
        assert await sup.wait_stopped() == Killed()
    assert trio.current_time() == begun
    assert [ref.exit_reason for ref in refs] == [Killed()] * 4
    assert notes == ["+a"]


@pytest.mark.covers("S46")
@pytest.mark.parametrize(
    ("grace", "killed"),
    [("brutal_kill", False), (0, False), (5, True), (math.inf, True)],
    ids=["brutal", "no grace", "kill by ref", "kill by ref, endless grace"],
)
async def test_terminate_does_not_run_on_a_kill_of_either_kind(grace: Any, killed: bool) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, shutdown=grace, restart="temporary")]) as sup:
        if killed:
            await end(sup.name("a"), Killed())
    assert notes == ["+a"]


@pytest.mark.covers("S46")
async def test_terminate_runs_once_and_is_told_the_reason_of_the_stop() -> None:
    told: list[str] = []

    class Tells(Player):
        async def terminate(self, reason: ExitReason) -> None:
            told.append(str(reason))

    async with open_supervisor([ChildSpec(id, Tells, ([],), name=id) for id in "ab"]) as sup:
        await sup.terminate_child("a")
        sup.name("b").exit(Shutdown("by ref"))
        await settled()
        told.append("restarted")
    assert told == ["shutdown", "shutdown (by ref)", "restarted", "shutdown"]
