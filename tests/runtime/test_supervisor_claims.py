from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    IGNORE,
    Actor,
    ActorExited,
    AlreadyStarted,
    ChildSpec,
    Down,
    ExitReason,
    InvalidSpec,
    Killed,
    MaxRestartsExceeded,
    NotFound,
    Ref,
    Shutdown,
    StartError,
    Supervisor,
    WouldDeadlock,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.messaging.monitors import watch
from tests.runtime.stage import (
    Boom,
    Notes,
    Stubborn,
    crash,
    end,
    fails_at,
    kinds,
    picture,
    player,
    settled,
)


def ignores_from(first: int) -> Callable[[int], object]:
    def start(incarnation: int) -> object:
        return IGNORE if incarnation >= first else None

    return start


async def hanging(gate: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
    await gate.wait()
    task_status.started()
    await trio.sleep_forever()


# requests that are given up


@pytest.mark.covers("S54")
async def test_a_request_given_up_in_the_queue_is_never_served() -> None:
    notes: Notes = []
    gate = trio.Event()
    async with open_supervisor() as sup, trio.open_nursery() as nursery:
        nursery.start_soon(sup.start_child, ChildSpec("slow", hanging, (gate,)))
        await settled()
        with trio.CancelScope() as given_up:
            async with trio.open_nursery() as inner:
                inner.start_soon(sup.start_child, player("a", notes))
                await settled()
                given_up.cancel()
        gate.set()
        assert await picture(sup) == {"slow": 1}
    assert notes == []


@pytest.mark.covers("S54")
async def test_a_request_of_a_caller_that_is_cancelled_already_is_not_made() -> None:
    notes: Notes = []
    async with open_supervisor() as sup:
        with trio.CancelScope() as scope:
            scope.cancel()
            await sup.start_child(player("a", notes))
        assert scope.cancelled_caught
        assert await picture(sup) == {}
        await sup.stop()
        with trio.CancelScope() as scope:
            scope.cancel()
            await sup.start_child(player("a", notes))
        assert scope.cancelled_caught
    assert notes == []


@pytest.mark.covers("S54", "D5")
@pytest.mark.parametrize("request_of", ["start_child", "restart_child"])
async def test_a_start_that_its_supervisors_stop_aborts_is_told_as_that_end(request_of: str) -> None:
    gate = trio.Event()
    told: list[ExitReason] = []

    async def ask(sup: Supervisor) -> None:
        new = ChildSpec("new", hanging, (trio.Event(),))
        request = sup.start_child(new) if request_of == "start_child" else sup.restart_child("w")
        with pytest.raises(ActorExited) as caught:
            await request
        told.append(caught.value.reason)

    gate.set()
    async with open_supervisor([ChildSpec("w", hanging, (gate,))]) as sup, trio.open_nursery() as nursery:
        await sup.terminate_child("w")
        await sup.change([ChildSpec("w", hanging, (trio.Event(),))])
        nursery.start_soon(ask, sup)
        await settled()
        await sup.stop(Shutdown("enough"))
    assert told == [Shutdown("enough")]


# starts


@pytest.mark.covers("S8")
async def test_every_start_tells_its_own_information() -> None:
    class Tells(Actor):
        async def init(self) -> None:
            pass

    async def tells(seen: list[int], *, task_status: trio.TaskStatus[int]) -> None:
        seen.append(len(seen))
        task_status.started(len(seen))
        await trio.sleep_forever()

    async with open_supervisor([ChildSpec("f", tells, ([],)), ChildSpec("a", Tells)]) as sup:
        first = sup.child("f").ref()
        await sup.terminate_child("f")
        again = await sup.restart_child("f")
        assert (first.info, again.info) == (1, 2)
        assert sup.child("a").ref().info is None


@pytest.mark.covers("S9", "S50")
@pytest.mark.parametrize(("restart", "left"), [("permanent", {"a": "down"}), ("transient", {"a": "down"})])
async def test_a_restart_by_request_may_be_ignored_too(restart: Any, left: dict[str, str]) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, ignores_from(2), restart=restart)]) as sup:
        await sup.terminate_child("a")
        assert not (await sup.restart_child("a")).is_alive()
        assert await picture(sup) == left


@pytest.mark.covers("S10", "S37", "S38")
async def test_the_children_before_a_failed_one_are_stopped_by_their_own_grace(
    autojump_clock: MockClock,
) -> None:
    children = [
        ChildSpec("late", Stubborn, (9,), shutdown=2),
        ChildSpec("brutal", Stubborn, (9,), shutdown="brutal_kill"),
        ChildSpec("slow", Stubborn, (1,), shutdown=5),
        player("bad", [], fails_at(1)),
    ]
    with pytest.raises(StartError, match="child 'bad' did not start"):
        async with open_supervisor(children):
            pass
    assert trio.current_time() == 3


@pytest.mark.covers("S10")
async def test_a_first_start_that_fails_is_neither_retried_nor_counted() -> None:
    notes: Notes = []
    with pytest.raises(StartError) as caught:
        async with open_supervisor([player("only", notes, fails_at(1))], intensity=100):
            pass
    assert isinstance(caught.value.__cause__, Boom)
    assert notes == ["+only"]


@pytest.mark.covers("S11", "X4")
async def test_an_ignored_start_and_one_too_slow_leave_neither_task_nor_name(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor() as sup:
        await sup.start_child(player("first", []))
        await sup.terminate_child("first")  # the clocks of all ends share a task, which begins with the first
        before = trio.lowlevel.current_statistics().tasks_living
        await sup.start_child(player("a", [], ignores_from(1), name="a"))
        with pytest.raises(StartError, match="not ready within 1 s"):
            await sup.start_child(ChildSpec("b", hanging, (trio.Event(),), name="b", start_timeout=1))
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert sup.registry.names() == {}


class TakesTheName:
    """Registers another for the name as soon as it is free."""

    def __init__(self, other: Ref, sup: Supervisor) -> None:
        self._other, self._registry = other, sup.registry

    def deliver(self, down: Down) -> None:
        self._registry.register("a", self._other)


@pytest.mark.covers("S12", "S28")
async def test_a_name_taken_meanwhile_is_waited_for_by_retries_and_its_holder_left_alone(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("b", notes), player("a", notes, restart="permanent")]

    async def take_the_name() -> None:
        async with open_supervisor(children, intensity=5) as sup:
            a, b = sup.name("a").ref(), sup.name("b").ref()
            watch(TakesTheName(b, sup), a, a.endpoint)
            a.kill()
            await trio.sleep_forever()

    with pytest.raises(MaxRestartsExceeded) as caught:
        await take_the_name()
    assert [type(error) for error in caught.value.exceptions] == [ActorExited, *[AlreadyStarted] * 5]
    assert notes == ["+b", "+a", "-b"]


@pytest.mark.covers("S16", "S24")
async def test_the_id_of_a_temporary_child_that_failed_or_was_dropped_is_free_at_once() -> None:
    notes: Notes = []
    children = [player("a", notes), player("t", notes, restart="temporary")]
    async with open_supervisor(children, strategy="one_for_all", intensity=5) as sup:
        await crash(sup, "a")
        with pytest.raises(StartError):
            await sup.start_child(player("t", notes, fails_at(1), restart="temporary"))
        assert (await sup.start_child(player("t", notes, restart="temporary"))).is_alive()


# group restarts


@pytest.mark.covers("S22", "S23")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_child_terminated_by_request_comes_back_with_its_group(strategy: Any) -> None:
    notes: Notes = []
    async with open_supervisor([player(id, notes) for id in "abc"], strategy=strategy, intensity=5) as sup:
        await sup.terminate_child("b")
        await sup.terminate_child("c")
        assert await picture(sup) == {"a": 1, "b": "down", "c": "down"}
        await crash(sup, "a")
        assert await picture(sup) == {"a": 2, "b": 2, "c": 2}


@pytest.mark.covers("S23", "S49")
async def test_only_held_children_of_the_rest_come_back() -> None:
    notes: Notes = []
    async with open_supervisor(
        [player(id, notes) for id in "abc"], strategy="rest_for_one", intensity=5
    ) as sup:
        await sup.terminate_child("a")
        await sup.terminate_child("c")
        await sup.delete_child("c")
        await crash(sup, "b")
        assert await picture(sup) == {"a": "down", "b": 2}


@pytest.mark.covers("S7", "S22")
async def test_the_members_of_a_group_start_again_one_after_another(autojump_clock: MockClock) -> None:
    begun: list[tuple[str, float]] = []

    class Slow(Actor):
        async def init(self) -> None:
            begun.append((self.id, trio.current_time()))
            await trio.sleep(1)

        async def handle_cast(self, msg: object) -> None:
            raise Boom

    children = [ChildSpec(id, Slow, name=id) for id in "abc"]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        await sup.name("b").cast("crash")
        await trio.sleep(10)
    assert begun == [("a", 0), ("b", 1), ("c", 2), ("a", 3), ("b", 4), ("c", 5)]


@pytest.mark.covers("S23", "S28")
async def test_a_later_member_that_cannot_start_restarts_only_what_comes_after_it() -> None:
    notes: Notes = []
    children = [player(id, notes, fails_at(2) if id == "b" else None) for id in "abc"]
    async with open_supervisor(children, strategy="rest_for_one", intensity=2) as sup:
        del notes[:]
        await crash(sup, "a")
        assert notes == ["-a", "-c", "-b", "+a", "+b", "+b", "+c"]


@pytest.mark.covers("S27")
async def test_a_restart_starts_from_the_arguments_of_the_spec() -> None:
    class Counts(Actor):
        async def init(self, first: int) -> None:
            self.count = first

        async def handle_call(self, msg: Any, from_: object) -> int:
            self.count += 1
            return self.count

    async with open_supervisor([ChildSpec("a", Counts, (10,), name="a")]) as sup:
        assert [await sup.name("a").call("more") for _ in range(3)] == [11, 12, 13]
        await end(sup.name("a"), Killed())
        assert await sup.name("a").call("more", wait_for=1) == 11


@pytest.mark.covers("S31", "S9")
async def test_an_ignored_restart_is_counted_and_a_start_by_request_is_not() -> None:
    notes: Notes = []
    children = [player("a", notes, ignores_from(2)), player("b", notes)]

    async def ignore_then_restart() -> None:
        async with open_supervisor(children, intensity=1) as sup:
            await crash(sup, "a")
            for id in "xyz":
                await sup.start_child(player(id, notes))
            assert (await sup.count_children()).active == 4
            sup.name("b").kill()
            await trio.sleep_forever()

    with pytest.raises(MaxRestartsExceeded):
        await ignore_then_restart()


@pytest.mark.covers("S33")
async def test_giving_up_ends_a_sibling_that_is_restarting() -> None:
    notes: Notes = []

    def gone(incarnation: int) -> None:
        if incarnation > 1:
            raise Boom(f"start {incarnation}")

    inner = supervisor_spec(
        "s", [player("a", notes, gone), player("b", notes)], intensity=20, restart="temporary"
    )
    async with open_supervisor([inner]) as sup:
        with sup.child("s").ref().monitor() as monitor, sup.events() as events:
            sup.name("a").kill()
            sup.name("b").kill()
            assert (await monitor).reason == Shutdown("max_restarts")
            assert [text for text in kinds(events) if text.startswith("max_restarts")] == [
                "max_restarts root/s"
            ]
        await settled()
        assert await sup.which_children() == ()  # S34: it was temporary


@pytest.mark.covers("S33", "S35")
async def test_giving_up_in_the_start_phase_of_a_group_stops_those_that_had_started() -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes, lambda n: fails_at(n)(n) if n > 1 else None)]

    async def fail_in_the_group() -> None:
        async with open_supervisor(children, strategy="one_for_all", intensity=1) as sup:
            sup.name("a").kill()
            await trio.sleep_forever()

    with pytest.raises(MaxRestartsExceeded) as caught:
        await fail_in_the_group()
    assert notes == ["+a", "+b", "-b", "+a", "+b", "-a"]
    assert [type(error) for error in caught.value.exceptions] == [ActorExited, Boom]


# requests


@pytest.mark.covers("S47", "S5")
async def test_an_invalid_spec_is_refused_by_start_child_before_anything() -> None:
    notes: Notes = []
    async with open_supervisor() as sup:
        with pytest.raises(InvalidSpec, match="significant of 'a' is True"):
            await sup.start_child(player("a", notes, restart="transient", significant=True))
        with pytest.raises(InvalidSpec, match="expected a ChildSpec"):
            await sup.start_child("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert await sup.which_children() == ()
    assert notes == []


@pytest.mark.covers("S47", "S9")
async def test_a_child_that_ignores_the_start_it_was_asked_for_is_held_down() -> None:
    async with open_supervisor() as sup:
        ref = await sup.start_child(player("a", [], ignores_from(1)))
        await sup.start_child(player("t", [], ignores_from(1), restart="temporary"))
        assert not ref.is_alive()
        assert await picture(sup) == {"a": "down"}


@pytest.mark.covers("S52", "S53")
async def test_what_is_restarting_is_listed_as_such_and_not_active() -> None:
    notes: Notes = []
    async with open_supervisor(
        [player("a", notes, lambda n: fails_at(n)(n) if n > 1 else None)], intensity=10**6
    ) as sup:
        sup.name("a").kill()
        await trio.lowlevel.checkpoint()
        while (await sup.which_children())[0].ref is None or sup.registry.whereis("a") is not None:
            pass
        listed, counted = (await sup.which_children())[0], await sup.count_children()
        assert (listed.id, listed.ref, listed.type) == ("a", "restarting", "worker")
        assert (counted.specs, counted.active) == (1, 0)
        await sup.terminate_child("a")
        with pytest.raises(NotFound):
            await sup.terminate_child("b")


@pytest.mark.covers("S56")
async def test_a_grandchild_that_asks_the_root_in_its_terminate_is_refused() -> None:
    answers: list[str] = []

    class Asks(Actor):
        async def init(self, top: list[Supervisor]) -> None:
            self.top = top

        async def terminate(self, reason: ExitReason) -> None:
            try:
                await self.top[0].which_children()
            except WouldDeadlock as error:
                answers.append(str(error))

    top: list[Supervisor] = []
    inner = supervisor_spec("s", [ChildSpec("a", Asks, (top,))])
    async with open_supervisor([inner], name="top") as sup:
        top.append(sup)
        await sup.terminate_child("s")
    assert answers == ["deadlock: supervisor 'top' waits for the calling actor; call it from another task"]


# automatic shutdown


@pytest.mark.covers("S58")
@pytest.mark.parametrize("how", ["ignored at a restart", "start failed by request"])
async def test_what_is_no_end_by_itself_is_no_significant_end(how: str) -> None:
    ignores = ignores_from(2) if how == "ignored at a restart" else fails_at(2)
    significant = player("a", [], ignores, restart="transient", significant=True)
    async with open_supervisor([significant], auto_shutdown="any_significant", intensity=5) as sup:
        if how == "ignored at a restart":
            await crash(sup, "a")
        else:
            await sup.terminate_child("a")
            with pytest.raises(StartError):
                await sup.restart_child("a")
        assert await picture(sup) == {"a": "down"}
        assert sup.ref.is_alive()


@pytest.mark.covers("S61")
async def test_a_significant_child_stopped_by_rest_for_one_ends_nothing() -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes, restart="temporary", significant=True)]
    async with open_supervisor(
        children, strategy="rest_for_one", auto_shutdown="any_significant", intensity=5
    ) as sup:
        await crash(sup, "a")
        assert await picture(sup) == {"a": 2}


@pytest.mark.covers("S59", "S61")
async def test_a_stop_by_a_significant_end_is_one_stop_whoever_it_reaches() -> None:
    notes: Notes = []
    inner = supervisor_spec(
        "s",
        [player(id, notes, restart="temporary", significant=True) for id in "abc"],
        auto_shutdown="any_significant",
        restart="temporary",
    )
    async with open_supervisor([inner]) as sup:
        with sup.events() as events:
            sup.name("b").exit(Shutdown())
            await settled()
            assert [text for text in kinds(events) if text.endswith("root/s")] == [
                "supervisor_stopped root/s",
                "child_exited root/s",
            ]
    assert notes == ["+a", "+b", "+c", "-b", "-c", "-a"]


@pytest.mark.covers("S60", "S62")
async def test_the_last_significant_of_all_climbs_through_one_that_needs_any() -> None:
    notes: Notes = []
    leaf = [player(id, notes, restart="temporary", significant=True) for id in "ab"]
    inner = [
        supervisor_spec("s", leaf, auto_shutdown="all_significant", restart="temporary", significant=True),
        player("w", notes),
    ]
    async with open_supervisor(inner, auto_shutdown="any_significant") as sup:
        sup.name("a").exit(Shutdown())
        await settled()
        assert sup.ref.is_alive()
        sup.name("b").exit(Shutdown())
        assert await sup.wait_stopped() == Shutdown("auto_shutdown")
    assert notes[-1] == "-w"
