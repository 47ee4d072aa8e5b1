from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    IGNORE,
    Actor,
    ActorExited,
    ChildSpec,
    Crash,
    ExitReason,
    InvalidSpec,
    Killed,
    MaxRestartsExceeded,
    Normal,
    NotFound,
    Shutdown,
    StartError,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.messaging.actor import Ignore
from proctor.runtime.spec import AutoShutdown
from proctor.runtime.task_status import ChildStatus
from tests.runtime.stage import (
    Boom,
    Notes,
    Player,
    Stubborn,
    crash,
    end,
    fails_at,
    forever,
    heard,
    kinds,
    picture,
    player,
    ready_after,
    settled,
)


class Slow(Player):
    """Takes its time at the start from its second incarnation on, and two seconds to stop."""

    async def init(self, notes: Notes, seconds: float = 10) -> None:  # type: ignore[override]  # pyright: ignore
        if self.incarnation > 1:
            notes.append(f"?{self.id}")
            await trio.sleep(seconds)
        await super().init(notes)

    async def terminate(self, reason: ExitReason) -> None:
        await trio.sleep(2)
        await super().terminate(reason)


def slow(id: str, notes: Notes, seconds: float = 10) -> ChildSpec:
    return ChildSpec(id, Slow, (notes, seconds), name=id)


# set-up of a supervisor


@pytest.mark.covers("S13")
async def test_a_supervisors_set_up_may_ignore() -> None:
    async def set_up() -> Ignore:
        return IGNORE

    notes: Notes = []
    async with open_supervisor([supervisor_spec("s", set_up), player("a", notes)]) as sup:
        assert await picture(sup) == {"s": "down", "a": 1}


@pytest.mark.covers("S13")
async def test_a_supervisors_set_up_may_fail_and_nothing_of_it_has_started() -> None:
    async def set_up() -> Sequence[ChildSpec]:
        raise Boom("set-up")

    notes: Notes = []
    with pytest.raises(StartError) as caught:
        async with open_supervisor([player("a", notes), supervisor_spec("s", set_up)]):
            raise AssertionError("not reached")
    assert (caught.value.id, str(caught.value.__cause__)) == ("s", "set-up")
    assert notes == ["+a", "-a"]


@pytest.mark.covers("S13", "S2", "S3")
async def test_a_set_up_that_names_wrong_children_fails_before_any_starts() -> None:
    async def set_up() -> Sequence[ChildSpec]:
        return [player("b", notes), player("b", notes)]

    notes: Notes = []
    async with open_supervisor() as sup:
        with pytest.raises(StartError) as caught:
            await sup.start_child(supervisor_spec("s", set_up))
        assert isinstance(caught.value.__cause__, InvalidSpec)
    assert notes == []


@pytest.mark.covers("S13", "S27")
async def test_a_set_up_is_asked_again_at_each_restart() -> None:
    async def set_up() -> Sequence[ChildSpec]:
        return [player(id, notes) for id in ids]

    notes: Notes = []
    ids = "a"
    async with open_supervisor([supervisor_spec("s", set_up)]) as sup:
        ids = "bc"
        await end(sup.child("s"), Killed())
        assert await picture(sup) == {"s": 2}
        assert [node.id for node in sup.tree().children[0].children] == ["b", "c"]


@pytest.mark.covers("S13", "S43")
async def test_a_stop_ends_a_set_up_at_once(autojump_clock: MockClock) -> None:
    async def set_up() -> Sequence[ChildSpec]:
        await trio.sleep(1000)
        return []

    with trio.move_on_after(3):
        async with open_supervisor([supervisor_spec("s", set_up)]):
            raise AssertionError("not reached")
    assert trio.current_time() == 3


@pytest.mark.covers("S3")
def test_one_id_twice_is_invalid_in_a_nested_supervisor_too() -> None:
    with pytest.raises(InvalidSpec, match="id is 'a'"):
        supervisor_spec("s", [ChildSpec("a", forever), ChildSpec("a", forever)])


# deaths in one tick


@pytest.mark.covers("S21", "S31", "T12")
async def test_two_deaths_in_one_tick_are_two_restarts_where_children_are_apart() -> None:
    notes: Notes = []
    async with open_supervisor([player(id, notes) for id in "ab"], intensity=2) as sup:
        for id in "ab":
            sup.name(id).kill()
        assert await picture(sup) == {"a": 2, "b": 2}
    with pytest.raises(MaxRestartsExceeded) as caught:  # noqa: PT012
        async with open_supervisor([player(id, notes) for id in "ab"], intensity=1) as sup:
            for id in "ab":
                sup.name(id).kill()
            await trio.sleep_forever()
    assert len(caught.value.exceptions) == 2


@pytest.mark.covers("S23", "S29", "T12")
async def test_an_offender_and_a_later_sibling_in_one_tick_under_rest_for_one() -> None:
    notes: Notes = []
    for _ in range(30):
        children = [player(id, notes) for id in "abc"]
        async with open_supervisor(children, strategy="rest_for_one", intensity=2) as sup:
            sup.name("a").kill()
            sup.name("b").kill()
            now = await picture(sup)
            restarts = sum(node.restarts for node in sup.tree().children)
            # a first: b's death is consumed; b first: it is restarted with c, and then all are
            assert (now, restarts) in [({"a": 2, "b": 2, "c": 2}, 1), ({"a": 2, "b": 3, "c": 3}, 2)]


@pytest.mark.covers("S29", "S31")
async def test_a_death_in_the_stop_phase_is_consumed_and_not_counted(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes), slow("c", notes, 0)]
    async with open_supervisor(children, strategy="one_for_all", intensity=1) as sup:
        with sup.events() as events:
            sup.name("b").kill()
            await trio.sleep(1)  # c is being stopped
            sup.name("a").kill()
            await trio.sleep(5)
            assert await picture(sup) == {"a": 2, "b": 2, "c": 2}
            assert kinds(events).count("child_exited root/a") == 1


@pytest.mark.covers("S24", "S29")
async def test_a_temporary_bystander_that_dies_in_the_stop_phase_is_gone(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("t", notes, restart="temporary"), player("b", notes), slow("c", notes, 0)]
    async with open_supervisor(children, strategy="one_for_all", intensity=1) as sup:
        sup.name("b").kill()
        await trio.sleep(1)
        sup.name("t").kill()
        await trio.sleep(5)
        assert await picture(sup) == {"b": 2, "c": 2}


@pytest.mark.covers("S29", "S55")
async def test_a_death_before_the_group_is_handled_after_its_restart(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes), slow("c", notes, 0)]
    async with open_supervisor(children, strategy="rest_for_one", intensity=2) as sup:
        sup.name("b").kill()
        await trio.sleep(1)
        sup.name("a").kill()
        await trio.sleep(10)
        assert await picture(sup) == {"a": 2, "b": 3, "c": 3}
        assert notes == ["+a", "+b", "+c", "-c", "+b", "?c", "+c", "-c", "-b", "+a", "+b", "?c", "+c"]


@pytest.mark.covers("S25", "S55")
async def test_a_member_that_dies_right_after_its_start_in_a_group_is_the_next_exit(
    autojump_clock: MockClock,
) -> None:
    class Brief(Player):
        async def init(self, notes: Notes, start: object = None) -> None:
            await super().init(notes)
            if self.incarnation == 2:
                self.ref.kill()

    notes: Notes = []
    children = [ChildSpec("a", Brief, (notes,), name="a"), slow("b", notes, 3)]
    async with open_supervisor(children, strategy="one_for_all", intensity=2) as sup:
        sup.name("b").kill()
        await trio.sleep(30)
        assert await picture(sup) == {"a": 3, "b": 3}


@pytest.mark.covers("S29", "S61")
@pytest.mark.parametrize("auto", ["any_significant", "all_significant"])
async def test_a_significant_death_in_the_stop_phase_of_a_restart_ends_nothing(
    auto: AutoShutdown, autojump_clock: MockClock
) -> None:
    notes: Notes = []
    children = [
        player("s", notes, restart="transient", significant=True),
        player("b", notes),
        slow("c", notes, 0),
    ]
    async with open_supervisor(children, strategy="one_for_all", auto_shutdown=auto) as sup:
        sup.name("b").kill()
        await trio.sleep(1)
        sup.name("s").exit(Shutdown())
        await trio.sleep(5)
        assert await picture(sup) == {"s": 2, "b": 2, "c": 2}


# starts within a group restart


@pytest.mark.covers("D5", "S41", "S43")
@pytest.mark.parametrize("how", ["stop", "kill", "cancel"])
async def test_a_start_that_hangs_in_a_group_restart_is_aborted_by_a_stop(
    how: str, autojump_clock: MockClock
) -> None:
    notes: Notes = []
    children = [player("a", notes), slow("b", notes, math.inf), player("c", notes)]
    with trio.CancelScope() as scope:
        async with open_supervisor(children, strategy="one_for_all") as sup:
            sup.name("a").kill()
            await trio.sleep(9)
            if how == "stop":
                await sup.stop()
            elif how == "kill":
                sup.ref.kill()
            else:
                scope.cancel()
    assert trio.current_time() == 9
    assert notes == ["+a", "+b", "+c", "-c", "-b", "+a", "?b"] + (["-a"] if how != "kill" else [])


@pytest.mark.covers("D5", "S43", "S72")
async def test_a_parents_stop_aborts_a_start_in_a_nested_group_restart(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes), slow("b", notes, math.inf)], strategy="one_for_all")
    async with open_supervisor([inner]) as sup:
        sup.name("a").kill()
        await trio.sleep(9)
        begun = trio.current_time()
    assert trio.current_time() == begun


@pytest.mark.covers("X4", "S28", "S31")
async def test_a_start_that_takes_too_long_in_a_group_restart_is_tried_again(
    autojump_clock: MockClock,
) -> None:
    class Once(Player):
        async def init(self, notes: Notes, start: object = None) -> None:
            await super().init(notes)
            if self.incarnation == 2:
                await trio.sleep_forever()

    notes: Notes = []
    children = [player("a", notes), ChildSpec("b", Once, (notes,), start_timeout=3), player("c", notes)]
    async with open_supervisor(children, strategy="rest_for_one", intensity=2) as sup:
        with sup.events() as events:
            sup.name("a").kill()
            await trio.sleep(5)
            assert await picture(sup) == {"a": 2, "b": 3, "c": 2}
            failed = [event for event in heard(events) if event.kind == "start_error"]
            assert [(event.path, event.time) for event in failed] == [("root/b", 3)]


@pytest.mark.covers("S49", "S55")
async def test_a_terminate_that_waits_behind_a_group_restart_is_done_after_it(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("a", notes), slow("b", notes), player("c", notes)]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        sup.name("a").kill()
        await trio.sleep(5)  # b is starting, c is not up yet
        await sup.terminate_child("c")
        assert trio.current_time() == 2 + 10
        assert await picture(sup) == {"a": 2, "b": 2, "c": "down"}
        assert notes[-2:] == ["+c", "-c"]


@pytest.mark.covers("S55", "M2")
async def test_requests_that_wait_behind_a_restart_are_done_in_their_order(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    done: list[str] = []

    async def ask(what: str) -> None:
        if what == "start":
            await sup.start_child(player("d", notes))
        elif what == "terminate":
            await sup.terminate_child("d")
        else:
            await sup.delete_child("d")
        done.append(what)

    async with open_supervisor([slow("a", notes)]) as sup, trio.open_nursery() as nursery:
        sup.name("a").kill()
        await settled()
        for what in ("start", "terminate", "delete"):
            nursery.start_soon(ask, what)
            await settled()
        await trio.sleep(20)
        assert set(done) == {"start", "terminate", "delete"}  # in another order they would have been refused
        assert await picture(sup) == {"a": 2}


@pytest.mark.covers("S9", "S22")
async def test_an_ignored_start_in_a_group_restart_is_no_failure() -> None:
    notes: Notes = []
    children = [
        player("a", notes),
        player("b", notes, lambda n: IGNORE if n > 1 else None),
        player("c", notes),
    ]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        await crash(sup, "a")
        assert await picture(sup) == {"a": 2, "b": "down", "c": 2}
        assert not sup.name("b").is_due()


# intensity


@pytest.mark.covers("S28", "S31", "S32")
async def test_retries_of_one_child_and_exits_of_another_fill_one_window() -> None:
    notes: Notes = []
    children = [player("a", notes, fails_at(2, 3)), player("b", notes)]
    with pytest.raises(MaxRestartsExceeded) as caught:  # noqa: PT012
        async with open_supervisor(children, intensity=3) as sup:
            await crash(sup, "a")  # one restart and two retries
            assert await picture(sup) == {"a": 4, "b": 1}
            await crash(sup, "b")
            await trio.sleep_forever()
    assert list(map(str, caught.value.exceptions)) == ["crash", "start 2", "start 3", "crash"]


@pytest.mark.covers("S28", "S33")
async def test_giving_up_between_two_attempts_leaves_the_child_down() -> None:
    notes: Notes = []
    inner = supervisor_spec(
        "s",
        [player("a", notes), player("b", notes, lambda n: fails_at(n)(n) if n > 1 else None)],
        intensity=2,
    )
    async with open_supervisor([inner]) as sup:
        with sup.events() as events:
            await crash(sup, "b")
            assert await picture(sup) == {"s": 2}
            told = kinds(events)
            assert told.count("start_error root/s/b") == 2
            assert told.count("max_restarts root/s") == 1
    assert notes == ["+a", "+b", "-b", "+b", "+b", "-a", "+a", "+b", "-b", "-a"]


@pytest.mark.covers("S32", "S34")
async def test_each_supervisor_has_a_window_of_its_own() -> None:
    notes: Notes = []
    inner = supervisor_spec("s", [player("a", notes)], intensity=1)
    async with open_supervisor([inner, player("b", notes)], intensity=3) as sup:
        await crash(sup, "a", "b", "a", "a", "b")  # the second of a's gives s up
        assert await picture(sup) == {"s": 2, "b": 3}


@pytest.mark.covers("S33", "S54")
async def test_a_request_that_waits_while_the_supervisor_gives_up_learns_of_it(
    autojump_clock: MockClock,
) -> None:
    async def ask() -> None:
        with pytest.raises(ActorExited) as caught:
            await nested.start_child(player("b", notes))
        reasons.append(caught.value.reason)

    reasons: list[ExitReason] = []
    notes: Notes = []
    async with open_supervisor() as sup, trio.open_nursery() as nursery:
        await sup.start_child(
            supervisor_spec("s", [player("a", notes)], intensity=0, restart="temporary", name="s")
        )
        nested = sup.supervisor("s")
        nursery.start_soon(nested.start_child, ChildSpec("late", ready_after(5)))
        await settled()
        nursery.start_soon(ask)
        await settled()
        sup.name("a").kill()
        assert await nested.wait_stopped() == Shutdown("max_restarts")
    assert reasons == [Shutdown("max_restarts")]
    assert notes == ["+a"]


@pytest.mark.covers("S33", "S38")
async def test_an_offenders_siblings_are_stopped_with_their_own_grace_when_it_gives_up(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [player("a", notes), ChildSpec("b", Stubborn, (9,), shutdown=4)]
    with pytest.raises(MaxRestartsExceeded):  # noqa: PT012
        async with open_supervisor(children, intensity=0) as sup:
            sup.name("a").kill()
            await trio.sleep_forever()
    assert trio.current_time() == 4


# automatic shutdown


@pytest.mark.covers("S28", "S60")
async def test_a_significant_child_that_is_tried_again_is_active(autojump_clock: MockClock) -> None:
    notes: Notes = []

    def later(incarnation: int) -> None:
        if incarnation > 1 and trio.current_time() < 1:
            raise Boom

    children = [
        player("a", notes, later, restart="transient", significant=True),
        player("b", notes, restart="transient", significant=True),
    ]
    async with open_supervisor(children, auto_shutdown="all_significant", intensity=10**6) as sup:
        sup.name("a").kill()
        sup.name("b").exit(Shutdown())
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        assert sup.ref.is_alive()
        await sup.terminate_child("a")
        assert sup.ref.is_alive()  # S61


@pytest.mark.covers("S62")
async def test_automatic_shutdown_climbs_through_significant_supervisors(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    kind: dict[str, Any] = {"restart": "transient", "significant": True}
    worker = player("a", notes, **kind)
    low = supervisor_spec("low", [worker, player("x", notes)], auto_shutdown="all_significant", **kind)
    mid = supervisor_spec("mid", [low, player("y", notes)], auto_shutdown="any_significant", **kind)
    async with open_supervisor([player("z", notes), mid], auto_shutdown="any_significant") as sup:
        await end(sup.name("a"), Normal())
        assert await sup.wait_stopped() == Shutdown("auto_shutdown")
    assert notes == ["+z", "+a", "+x", "+y", "-a", "-x", "-y", "-z"]


@pytest.mark.covers("S33", "S58", "S62")
async def test_a_significant_supervisor_that_gives_up_is_a_significant_end() -> None:
    notes: Notes = []
    inner = supervisor_spec(
        "s", [player("a", notes)], intensity=0, restart="transient", significant=True
    )  # its reason is a clean one
    async with open_supervisor([inner], auto_shutdown="any_significant") as sup:
        await crash(sup, "a")
        assert await sup.wait_stopped() == Shutdown("auto_shutdown")


@pytest.mark.covers("S59", "D6")
async def test_a_root_that_shuts_itself_down_leaves_its_body_and_raises_nothing() -> None:
    notes: Notes = []
    async with open_supervisor(
        [player("a", notes, restart="temporary", significant=True)], auto_shutdown="any_significant"
    ) as sup:
        await end(sup.name("a"), Crash(Boom("crash")))
        await sup.wait_stopped()
        notes.append("body goes on")
    assert notes[-1] == "body goes on"


# requests, stops


@pytest.mark.covers("D4", "S41")
async def test_a_stop_overtakes_requests_and_retries_that_wait(autojump_clock: MockClock) -> None:
    notes: Notes = []
    errors: list[ExitReason] = []

    async def ask(n: int) -> None:
        with pytest.raises(ActorExited) as caught:
            await sup.start_child(player(f"late{n}", notes))
        errors.append(caught.value.reason)

    async with open_supervisor([slow("a", notes), player("b", notes)]) as sup, trio.open_nursery() as nursery:
        sup.name("a").kill()
        await settled()
        for n in range(3):
            nursery.start_soon(ask, n)
        await settled()
        sup.name("b").kill()
        sup.ref.exit(Shutdown("now"))
    assert errors == [Shutdown("now")] * 3
    assert notes == ["+a", "+b", "?a"]
    assert trio.current_time() == 0


@pytest.mark.covers("S36", "S42")
async def test_a_nested_supervisors_children_are_asked_plainly_whatever_its_own_reason() -> None:
    reasons: list[ExitReason] = []

    class Tells(Actor):
        async def terminate(self, reason: ExitReason) -> None:
            reasons.append(reason)

    async with open_supervisor([supervisor_spec("s", [ChildSpec("a", Tells)], restart="temporary")]) as sup:
        nested = sup.supervisor("s")
        await nested.stop(Shutdown("maintenance"))
        assert await nested.wait_stopped() == Shutdown("maintenance")
        await settled()
        assert await sup.which_children() == ()
    assert reasons == [Shutdown()]


@pytest.mark.covers("T9")
async def test_no_deadline_of_a_stop_is_ever_laid_around_a_child(autojump_clock: MockClock) -> None:
    deadlines: list[float] = []

    class Looks(Actor):
        async def terminate(self, reason: ExitReason) -> None:
            deadlines.append(trio.current_effective_deadline())

    inner = supervisor_spec("s", [ChildSpec("a", Looks)], shutdown=3)
    async with open_supervisor([ChildSpec("b", Looks, shutdown=2), inner]):
        pass
    assert deadlines == [math.inf] * 2


@pytest.mark.covers("S53")
async def test_counts_are_by_spec_dead_or_alive() -> None:
    notes: Notes = []
    children = [supervisor_spec("s"), supervisor_spec("t"), player("a", notes), player("b", notes)]
    async with open_supervisor(children) as sup:
        for id in "sa":
            await sup.terminate_child(id)
        counts = await sup.count_children()
        assert (counts.specs, counts.active, counts.supervisors, counts.workers) == (4, 2, 2, 2)


@pytest.mark.covers("S11", "S47")
async def test_a_start_child_that_fails_leaves_place_and_name_free() -> None:
    notes: Notes = []
    async with open_supervisor() as sup:
        for _ in range(2):
            with pytest.raises(StartError):
                await sup.start_child(player("a", notes, fails_at(1), name="n"))
        with pytest.raises(NotFound):
            await sup.restart_child("a")
        assert not sup.child("a").is_alive()
        await sup.start_child(player("a", notes, name="n"))
        assert await picture(sup) == {"a": 1}


@pytest.mark.covers("S57")
async def test_messages_do_not_disturb_a_supervisor_that_is_busy_or_stopping(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([slow("a", notes)]) as sup:
        sup.name("a").kill()
        await trio.sleep(1)
        await sup.ref.cast("hello")
        sup.ref.cast_nowait("hello")
        await trio.sleep(20)
        assert await picture(sup) == {"a": 2}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.stop)
            await settled()
            await sup.ref.cast("hello")
    assert sup.ref.exit_reason == Shutdown()


@pytest.mark.covers("S39", "S40")
async def test_a_childs_crash_while_the_supervisor_stops_is_a_report_and_no_restart(
    autojump_clock: MockClock,
) -> None:
    async def falls(*, task_status: ChildStatus) -> None:
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            raise Boom("late")

    notes: Notes = []
    async with open_supervisor([player("a", notes), ChildSpec("f", falls), slow("c", notes)]) as sup:
        events = sup.events()
    assert kinds(events) == [
        "child_exited root/c",
        "child_exited root/f",
        "shutdown_error root/f",
        "child_exited root/a",
        "supervisor_stopped root",
    ]
