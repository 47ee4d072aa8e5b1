from __future__ import annotations

import contextlib
import math
import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ChildSpec,
    ExitReason,
    Killed,
    NoProc,
    Ref,
    Shutdown,
    Sink,
    StartError,
    StartTimeout,
    Subscription,
    open_supervisor,
    supervisor_spec,
)
from tests.runtime.stage import (
    Boom,
    Notes,
    Player,
    Stubborn,
    crash,
    end,
    heard,
    kinds,
    picture,
    player,
    ready_after,
    settled,
    shielded,
)


@pytest.mark.covers("T1")
async def test_one_cleanup_at_a_time_though_the_cancellation_reaches_all_at_once(
    autojump_clock: MockClock,
) -> None:
    busy, most = 0, 0

    class Cleans(Actor):
        async def terminate(self, reason: ExitReason) -> None:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await trio.sleep(1)
            busy -= 1

    inner = supervisor_spec("inner", [ChildSpec(id, Cleans) for id in "cd"])
    begun = trio.current_time()
    with trio.move_on_after(5):
        async with open_supervisor([ChildSpec("a", Cleans), inner, ChildSpec("b", Cleans)]):
            await trio.sleep_forever()
    assert (trio.current_time() - begun, most) == (9, 1)


@pytest.mark.covers("T2")
@pytest.mark.parametrize(("grace", "took"), [(3, 3), (0, 0), ("brutal_kill", 0)])
async def test_the_shield_of_a_stop_lasts_as_long_as_the_graces(
    grace: Any, took: float, autojump_clock: MockClock
) -> None:
    children = [ChildSpec(id, Stubborn, (1000,), shutdown=grace) for id in "ab"]
    begun, refs = trio.current_time(), list[Ref]()
    with trio.CancelScope() as scope:
        async with open_supervisor(children) as sup:
            refs.extend(sup.child(id).ref() for id in "ab")
            scope.cancel()
    assert trio.current_time() - begun == 2 * took
    assert [ref.exit_reason for ref in refs] == [Killed()] * 2
    assert scope.cancelled_caught


@pytest.mark.covers("T2")
async def test_the_children_stop_at_once_though_the_body_is_shielded(autojump_clock: MockClock) -> None:
    begun = trio.current_time()
    with trio.move_on_after(1) as scope:
        async with open_supervisor([ChildSpec("a", Stubborn, (2,))]) as sup:
            with trio.CancelScope(shield=True):
                assert await sup.wait_stopped() == Shutdown()
                assert trio.current_time() - begun == 3
                await trio.sleep(5)
    assert scope.cancelled_caught


@pytest.mark.covers("T2")
async def test_a_cancellation_of_the_body_alone_is_the_bodys_own() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)]) as sup:
        with trio.CancelScope() as scope:
            scope.cancel()
            await trio.sleep_forever()
        assert scope.cancelled_caught
        assert await picture(sup) == {"a": 1}


@pytest.mark.covers("T3")
async def test_no_report_tells_of_a_cancellation(autojump_clock: MockClock) -> None:
    async def tangled(*, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as outer:
            outer.start_soon(trio.sleep_forever)
            async with trio.open_nursery() as inner:
                inner.start_soon(trio.sleep_forever)
                task_status.started()

    seen: list[Subscription] = []
    inner = supervisor_spec(
        "inner", [ChildSpec("b", tangled), ChildSpec("c", tangled, shutdown="brutal_kill")]
    )
    with trio.move_on_after(1):
        async with open_supervisor([ChildSpec("a", tangled), inner]) as sup:
            seen.append(sup.events())
            sup.child("a").kill()
            await trio.sleep_forever()
    reasons = {str(getattr(event, "reason", "")) for event in heard(seen[0])}
    assert reasons <= {"", "killed", "shutdown"}


@pytest.mark.covers("T6")
async def test_nothing_starts_inside_what_is_cancelled_already() -> None:
    for _ in range(20):
        notes: Notes = []
        with trio.CancelScope() as scope:
            scope.cancel()
            async with open_supervisor([player("a", notes), player("b", notes)]):
                raise AssertionError("not reached")
        assert scope.cancelled_caught
        assert notes == []


@pytest.mark.covers("T6")
async def test_a_child_killed_between_its_spawning_and_its_first_step_never_runs() -> None:
    ran: list[str] = []
    early = 0

    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        ran.append("ran")
        task_status.started()
        await trio.sleep_forever()

    for _ in range(40):
        ran.clear()
        async with open_supervisor() as sup, trio.open_nursery() as nursery:
            nursery.start_soon(start, sup.start_child, ChildSpec("a", body, restart="temporary"))
            while not sup.child("a").is_alive():
                await trio.lowlevel.checkpoint()
            before = list(ran)
            sup.child("a").kill()
            await settled()
            assert ran == before
            early += not before
    assert early > 0


async def start(start_child: Any, spec: ChildSpec) -> None:
    with contextlib.suppress(StartError):
        await start_child(spec)


@pytest.mark.covers("T8")
async def test_a_stop_cancels_the_handler_and_spares_terminate(autojump_clock: MockClock) -> None:
    notes: Notes = []

    class Busy(Player):
        async def handle_cast(self, msg: Any) -> None:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                notes.append("handler cancelled")
                raise

        async def terminate(self, reason: ExitReason) -> None:
            await trio.sleep(2)
            notes.append("terminated")

    async with open_supervisor([ChildSpec("a", Busy, (notes,), name="a")]) as sup:
        await sup.name("a").cast("work")
        await settled()
    assert notes == ["+a", "handler cancelled", "terminated"]


@pytest.mark.covers("T9")
@pytest.mark.parametrize("grace", [5, math.inf])
async def test_the_child_itself_is_under_no_deadline_while_it_stops(
    grace: float, autojump_clock: MockClock
) -> None:
    seen: list[float] = []

    class Looks(Actor):
        async def init(self) -> None:
            seen.append(trio.current_effective_deadline())

        async def terminate(self, reason: ExitReason) -> None:
            seen.append(trio.current_effective_deadline())
            await trio.sleep(1)
            seen.append(trio.current_effective_deadline())

    async with open_supervisor([ChildSpec("a", Looks, shutdown=grace, start_timeout=9)]) as sup:
        begun = trio.current_time()
        await sup.stop()
        assert trio.current_time() - begun == 1
    assert seen == [math.inf] * 3


@pytest.mark.covers("T9")
async def test_a_death_in_the_last_moment_of_the_grace_is_no_kill(autojump_clock: MockClock) -> None:
    async with open_supervisor([ChildSpec("a", Stubborn, (4.999,), shutdown=5)]) as sup:
        ref = sup.child("a").ref()
    assert ref.exit_reason == Shutdown()


@pytest.mark.covers("T10")
async def test_a_start_that_cannot_be_killed_is_reported_and_waited_for(
    autojump_clock: MockClock,
) -> None:
    async def shielded(*, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    async with open_supervisor() as sup:
        events, begun = sup.events(), trio.current_time()
        with pytest.raises(StartError) as caught:
            await sup.start_child(ChildSpec("a", shielded, name="a", start_timeout=2))
        assert trio.current_time() - begun == 60
        assert isinstance(caught.value.__cause__, StartTimeout)
        told = [(event.kind, event.time - begun) for event in heard(events)]
        assert told == [("child_unresponsive", 7), ("start_error", 60)]
        assert sup.registry.names() == {}


@pytest.mark.covers("T10")
async def test_a_child_in_a_thread_is_not_reported_dead_while_the_thread_lives() -> None:
    release = threading.Event()

    async def blocked(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.to_thread.run_sync(release.wait)

    notes: Notes = []
    children = [player("b", notes), ChildSpec("a", blocked, shutdown="brutal_kill", name="a")]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        ref = sup.name("a").ref()
        await crash(sup, "b")
        assert (ref.is_alive(), notes) == (True, ["+b", "-b"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.stop)
            await settled()
            assert sup.ref.is_alive()
            release.set()
    assert ref.exit_reason == Killed()
    assert notes == ["+b", "-b"]


@pytest.mark.covers("T10", "S45")
async def test_what_cannot_be_killed_is_reported_though_its_grace_has_no_end(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([ChildSpec("a", shielded, shutdown=math.inf)]) as sup:
        events, begun = sup.events(), trio.current_time()
        sup.ref.exit(Shutdown())
        await trio.sleep(10)
        assert kinds(events) == []
        sup.ref.kill()
        assert await sup.wait_stopped() == Killed()
    told = [(event.kind, event.time - begun) for event in heard(events)]
    assert told == [("child_unresponsive", 15), ("child_exited", 60), ("supervisor_stopped", 60)]


@pytest.mark.covers("T12")
async def test_requests_are_done_in_the_order_in_which_they_came(autojump_clock: MockClock) -> None:
    notes: Notes = []

    async with open_supervisor() as sup, trio.open_nursery() as nursery:
        nursery.start_soon(sup.start_child, ChildSpec("slow", ready_after(5)))
        await settled()
        for id in "cabd":
            nursery.start_soon(sup.start_child, player(id, notes))
            await settled()
        await trio.sleep(6)
        assert notes == ["+c", "+a", "+b", "+d"]


@pytest.mark.covers("T12")
async def test_exits_are_handled_in_the_order_in_which_they_came_and_before_requests(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []

    children = [player(id, notes, restart="temporary") for id in "abc"]
    async with open_supervisor(children) as sup, trio.open_nursery() as nursery:
        nursery.start_soon(sup.start_child, ChildSpec("slow", ready_after(5)))
        await settled()
        nursery.start_soon(sup.start_child, player("late", notes))
        await settled()
        with sup.events() as events:
            for id in "bca":
                await end(sup.name(id), Killed())
            await trio.sleep(6)
            told = [line for line in kinds(events) if "terminated" not in line]
    assert told == [
        "child_started root/slow",
        "child_exited root/b",
        "child_exited root/c",
        "child_exited root/a",
        "child_started root/late",
    ]


@pytest.mark.covers("T13")
async def test_a_death_with_a_full_mailbox_is_told_and_its_senders_released() -> None:
    notes: Notes = []

    class Stuck(Player):
        async def handle_cast(self, msg: Any) -> None:
            await trio.sleep_forever()

    released: list[str] = []
    async with open_supervisor([ChildSpec("a", Stuck, (notes,), name="a", mailbox=1)]) as sup:
        ref = sup.name("a").ref()

        async def send(number: int) -> None:
            await ref.cast(number)
            released.append(f"cast {number}")

        await send(0)
        await settled()
        await send(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, 2)
            await settled()
            assert released == ["cast 0", "cast 1"]
            with ref.monitor() as monitor:
                ref.kill()
                assert (await monitor).reason == Killed()
        assert released == ["cast 0", "cast 1", "cast 2"]
        assert await picture(sup) == {"a": 2}


@pytest.mark.covers("T11")
async def test_the_empty_supervisor_below_another_lives_on_too() -> None:
    async with open_supervisor([supervisor_spec("inner")]) as sup:
        ref = sup.child("inner").ref()
        await settled()
        assert ref.is_alive()


class Counts(Actor):
    async def init(self, notes: Notes) -> None:
        self.notes = notes

    async def handle_stream(self, msg: object, sink: Sink) -> None:
        sink.produce(self.count, sink)

    async def count(self, sink: Sink) -> None:
        try:
            for number in range(3):
                await sink.send(number)
            await trio.sleep_forever()
        finally:
            self.notes.append("production over")


@pytest.mark.covers("T18")
@pytest.mark.parametrize("how", ["break", "error"])
async def test_a_stream_left_early_is_closed_when_its_block_is_left(how: str) -> None:
    notes: Notes = []
    async with open_supervisor([ChildSpec("a", Counts, (notes,), name="a")]) as sup:
        try:
            async with sup.name("a").stream("count", demand=2) as items:
                async for number in items:
                    if number == 2 and how == "error":
                        raise Boom
                    if number == 2:
                        break
        except Boom:
            pass
        await settled()
        assert notes == ["production over"]


@pytest.mark.covers("T18")
async def test_a_stream_that_was_not_entered_has_asked_for_nothing() -> None:
    notes: Notes = []
    async with open_supervisor([ChildSpec("a", Counts, (notes,), name="a")]) as sup:
        stream = sup.name("a").stream("count")
        await settled()
        with pytest.raises(NoProc):
            async with sup.name("nobody").stream("count"):
                raise AssertionError("not reached")
        async with stream as items:
            assert [await anext(items) for _ in range(3)] == [0, 1, 2]
    assert notes == ["production over"]
