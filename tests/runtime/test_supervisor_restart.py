from __future__ import annotations

import contextvars
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ActorExited,
    ChildSpec,
    Crash,
    Exit,
    ExitStatus,
    Killed,
    MaxRestartsExceeded,
    Normal,
    Ref,
    Shutdown,
    Stop,
    Subscription,
    Supervisor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.spec import Strategy
from tests.runtime.stage import (
    Boom,
    Notes,
    Player,
    Stubborn,
    crash,
    end,
    errors_in,
    exits_with,
    fails_at,
    forever,
    heard,
    kinds,
    picture,
    player,
    settled,
)


@pytest.mark.covers("S16")
async def test_a_temporary_childs_id_is_free_again_and_its_arguments_forgotten() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, restart="temporary")]) as sup:
        assert (await sup.get_childspec("a")).args == ()
        await end(sup.name("a"), Normal())
        await sup.start_child(player("a", notes, restart="temporary"))
        assert notes == ["+a", "-a", "+a"]


@pytest.mark.covers("S17")
async def test_a_restart_is_a_new_incarnation_with_a_new_ref_and_mailbox() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)]) as sup:
        first = sup.name("a").ref()
        await crash(sup, "a")
        second = sup.name("a").ref()
        assert first is not second
        assert isinstance(first.exit_reason, Crash)
        assert not first.is_alive()
        assert await second.call("incarnation") == 2


@pytest.mark.covers("S17", "L35")
async def test_a_late_report_of_an_earlier_incarnation_changes_nothing() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)], strategy="one_for_all") as sup:
        sup.name("a").kill()
        await sup.terminate_child("a")
        await sup.restart_child("a")
        await settled()
        assert sup.tree().children[0].state == "running"


@pytest.mark.covers("S21", "S22", "S23")
@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("one_for_one", ["-b", "+b"]),
        ("one_for_all", ["-b", "-d", "-c", "-a", "+a", "+b", "+c", "+d"]),
        ("rest_for_one", ["-b", "-d", "-c", "+b", "+c", "+d"]),
    ],
)
async def test_who_is_stopped_and_started_in_which_order(strategy: Strategy, expected: Notes) -> None:
    notes: Notes = []
    async with open_supervisor([player(id, notes) for id in "abcd"], strategy=strategy) as sup:
        del notes[:]
        await crash(sup, "b")
        assert notes == expected


@pytest.mark.covers("S24")
async def test_a_temporary_bystander_is_stopped_and_dropped() -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes, restart="temporary")]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        await crash(sup, "a")
        assert await picture(sup) == {"a": 2}
        assert notes == ["+a", "+b", "-a", "-b", "+a"]


@pytest.mark.covers("S25")
async def test_everyone_is_dead_before_anyone_starts_again(autojump_clock: MockClock) -> None:
    notes: Notes = []

    class Slow(Player):
        async def terminate(self, reason: object) -> None:
            await trio.sleep(2)
            notes.append(f"-{self.id}")

    children = [player("a", notes), ChildSpec("b", Slow, (notes,)), ChildSpec("c", Slow, (notes,))]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        del notes[:]
        await end(sup.name("a"), Killed())
        await trio.sleep(10)
        assert notes == ["-c", "-b", "+a", "+b", "+c"]


@pytest.mark.covers("S26")
async def test_children_added_later_come_last() -> None:
    notes: Notes = []
    async with open_supervisor([player("z", notes)], strategy="one_for_all") as sup:
        await sup.start_child(player("a", notes))
        del notes[:]
        await crash(sup, "a")
        assert notes == ["-a", "-z", "+z", "+a"]


@pytest.mark.covers("S26", "S27")
async def test_a_restarted_child_keeps_its_place() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes), player("b", notes)]) as sup:
        await crash(sup, "a")
        del notes[:]
    assert notes == ["-b", "-a"]


@pytest.mark.covers("S28")
async def test_a_start_that_fails_at_a_restart_is_tried_again() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, fails_at(2, 3))], intensity=3) as sup:
        with sup.events() as events:
            await crash(sup, "a")
            assert await picture(sup) == {"a": 4}
            assert kinds(events) == [
                "child_exited root/a",
                "child_terminated root/a",
                "child_restarting root/a",
                "start_error root/a",
                "child_restarting root/a",
                "start_error root/a",
                "child_restarting root/a",
                "child_started root/a",
            ]


@pytest.mark.covers("S28", "S31")
async def test_every_attempt_to_start_is_counted() -> None:
    notes: Notes = []
    with pytest.raises(MaxRestartsExceeded) as caught:  # noqa: PT012
        async with open_supervisor([player("a", notes, fails_at(2, 3, 4, 5))], intensity=3) as sup:
            await crash(sup, "a")
            await trio.sleep_forever()
    assert len(caught.value.exceptions) == 4
    assert notes.count("+a") == 4


@pytest.mark.covers("S28")
async def test_the_strategy_is_applied_anew_when_another_child_fails_to_restart() -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes, fails_at(2)), player("c", notes)]
    async with open_supervisor(children, strategy="one_for_all", intensity=2) as sup:
        del notes[:]
        await crash(sup, "c")
        assert notes == ["-c", "-b", "-a", "+a", "+b", "-a", "+a", "+b", "+c"]
        assert sup.tree().children[2].incarnation == 2


@pytest.mark.covers("S28", "S49", "S53", "S55")
async def test_requests_are_served_between_two_attempts() -> None:
    notes: Notes = []
    async with open_supervisor(
        [player("a", notes, lambda n: fails_at(n)(n) if n > 1 else None)], intensity=500
    ) as sup:
        await end(sup.name("a"), Killed())
        while (await sup.which_children())[0].ref != "restarting":
            pass
        assert (await sup.count_children()).active == 0
        await sup.terminate_child("a")
        assert await picture(sup) == {"a": "down"}
        assert len(notes) < 500


@pytest.mark.covers("S29", "S31")
async def test_two_deaths_in_one_tick_are_one_group_restart() -> None:
    notes: Notes = []
    async with open_supervisor(
        [player(id, notes) for id in "abc"], strategy="one_for_all", intensity=1
    ) as sup:
        for id in "abc":
            sup.name(id).kill()
        assert await picture(sup) == {"a": 2, "b": 2, "c": 2}


@pytest.mark.covers("S29")
async def test_a_death_outside_the_group_is_handled_after_it() -> None:
    notes: Notes = []
    async with open_supervisor(
        [player(id, notes) for id in "abc"], strategy="rest_for_one", intensity=2
    ) as sup:
        sup.name("c").kill()
        await settled()
        assert await picture(sup) == {"a": 1, "b": 1, "c": 2}
        sup.name("a").kill()
        assert await picture(sup) == {"a": 2, "b": 2, "c": 3}


@pytest.mark.covers("S32", "S33", "P03")
async def test_the_count_belongs_to_the_supervisor() -> None:
    notes: Notes = []
    seen: list[tuple[Supervisor, Subscription]] = []
    text = "supervisor 'root' gave up: more than 1 restarts in 5 s"
    with pytest.raises(MaxRestartsExceeded, match=text) as caught:  # noqa: PT012
        async with open_supervisor([player(id, notes) for id in "abc"]) as sup:
            seen.append((sup, sup.events()))
            await crash(sup, "a", "b")
            await trio.sleep_forever()
    assert [type(error) for error in caught.value.exceptions] == [Boom, Boom]
    assert notes == ["+a", "+b", "+c", "-a", "+a", "-b", "-c", "-a"]  # the offender stays down
    ((supervisor, events),) = seen
    assert kinds(events)[-5:] == [
        "child_terminated root/b",
        "max_restarts root",
        "child_exited root/c",
        "child_exited root/a",
        "supervisor_stopped root",
    ]
    assert supervisor.ref.exit_reason == Shutdown("max_restarts")


@pytest.mark.covers("S30", "D1")
@pytest.mark.parametrize(("gap", "survives"), [(4.9, False), (5.0, False), (5.1, True)])
async def test_the_window_slides_in_continuous_time(
    gap: float, survives: bool, autojump_clock: MockClock
) -> None:
    notes: Notes = []
    sup = None
    try:
        async with open_supervisor([player("a", notes)]) as sup:
            begun = trio.current_time()
            await end(sup.name("a"), Killed())
            await trio.sleep(begun + gap - trio.current_time())
            await end(sup.name("a"), Killed())
            await trio.sleep(1)
            assert survives
    except MaxRestartsExceeded:
        assert not survives


@pytest.mark.covers("S30")
async def test_intensity_0_gives_up_without_restarting() -> None:
    notes: Notes = []
    with pytest.raises(MaxRestartsExceeded):  # noqa: PT012
        async with open_supervisor([player("a", notes), player("b", notes)], intensity=0) as sup:
            await crash(sup, "a")
            await trio.sleep_forever()
    assert notes == ["+a", "+b", "-a", "-b"]


@pytest.mark.covers("S31")
async def test_a_group_restart_counts_once() -> None:
    notes: Notes = []
    children = [player(id, notes) for id in "abcd"]
    with pytest.raises(MaxRestartsExceeded):  # noqa: PT012
        async with open_supervisor(children, strategy="one_for_all", intensity=1) as sup:
            await crash(sup, "a")
            assert await picture(sup) == {"a": 2, "b": 2, "c": 2, "d": 2}
            await crash(sup, "a")
            await trio.sleep_forever()


@pytest.mark.covers("S31")
async def test_restarts_on_request_are_not_counted() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)], intensity=0) as sup:
        for _ in range(5):
            await sup.terminate_child("a")
            await sup.restart_child("a")
        assert await picture(sup) == {"a": 6}


@pytest.mark.covers("S34")
async def test_a_nested_supervisor_that_gives_up_is_restarted_like_any_child() -> None:
    notes: Notes = []
    inner = supervisor_spec("inner", [player("a", notes)], intensity=0)
    async with open_supervisor([inner]) as sup:
        with sup.events() as events:
            await crash(sup, "a")
            assert await picture(sup) == {"inner": 2}
            assert kinds(events) == [
                "child_exited root/inner/a",
                "child_terminated root/inner/a",
                "max_restarts root/inner",
                "supervisor_stopped root/inner",
                "child_exited root/inner",
                "child_terminated root/inner",
                "child_restarting root/inner",
                "child_started root/inner/a",
                "supervisor_started root/inner",
                "child_started root/inner",
            ]


@pytest.mark.covers("S33", "S34")
async def test_a_transient_nested_supervisor_that_gives_up_stays_down() -> None:
    notes: Notes = []
    inner = supervisor_spec("inner", [player("a", notes)], intensity=0, restart="transient")
    async with open_supervisor([inner]) as sup:
        await crash(sup, "a")
        node = sup.tree().children[0]
        assert (node.state, node.exit) == ("down", Shutdown("max_restarts"))


@pytest.mark.covers("S35")
async def test_what_is_not_an_exception_is_told_as_an_exit() -> None:
    notes: Notes = []
    with pytest.raises(MaxRestartsExceeded) as caught:  # noqa: PT012
        async with open_supervisor([player("a", notes)], intensity=0) as sup:
            await end(sup.name("a"), ExitStatus(3))
            await trio.sleep_forever()
    (only,) = caught.value.exceptions
    assert isinstance(only, ActorExited)
    assert only.reason == ExitStatus(3)


@pytest.mark.covers("S35")
async def test_giving_up_cancels_the_body_and_an_error_of_the_body_is_not_lost() -> None:
    notes: Notes = []
    with pytest.raises(MaxRestartsExceeded) as caught:  # noqa: PT012
        async with open_supervisor([player("a", notes)], intensity=0) as sup:
            try:
                await crash(sup, "a")
                await trio.sleep_forever()
            finally:
                raise Boom("in the body")
    assert [type(error) for error in caught.value.exceptions] == [Boom]
    assert isinstance(caught.value.__cause__, Boom)
    assert str(caught.value.__cause__) == "in the body"


def test_the_failure_splits_like_any_group() -> None:
    failure = MaxRestartsExceeded.of("root", [Crash(Boom()), Killed()], "more than 1 restarts in 5 s")
    booms, rest = failure.split(Boom)
    assert isinstance(booms, MaxRestartsExceeded)
    assert isinstance(rest, MaxRestartsExceeded)
    assert (booms.path, len(booms.exceptions), len(rest.exceptions)) == ("root", 1, 1)


async def test_what_is_kept_survives_restarts_and_goes_with_the_spec() -> None:
    told: list[str] = []

    class Keeps(Actor):
        async def init(self) -> None:
            self.kept["count"] = self.kept.get("count", 0) + 1
            if self.incarnation == 1:
                self.kept.at_rest(lambda: told.append("at rest"))
                self.kept.when_dropped(lambda: told.append("dropped"))

        async def handle_call(self, msg: Any, from_: object) -> int:
            count: int = self.kept["count"]
            return count

    async with open_supervisor([ChildSpec("a", Keeps, name="a")]) as sup:
        await end(sup.name("a"), Killed())
        await settled()
        assert await sup.name("a").call("count") == 2
        assert told == []
        await sup.terminate_child("a")
        assert told == ["at rest"]
        await sup.restart_child("a")
        assert await sup.name("a").call("count") == 3
        await sup.terminate_child("a")
        await sup.delete_child("a")
        assert told == ["at rest", "at rest", "at rest", "dropped"]
        await sup.start_child(ChildSpec("a", Keeps, name="a"))
        assert await sup.name("a").call("count") == 1
    assert told[4:] == ["at rest", "dropped"]


async def test_an_error_in_a_function_left_with_kept_harms_nobody() -> None:
    class Keeps(Actor):
        async def init(self) -> None:
            def fail() -> None:
                raise Boom

            self.kept.at_rest(fail)

    async with open_supervisor([ChildSpec("a", Keeps)]) as sup:
        with sup.events() as events:
            await sup.terminate_child("a")
            assert "kept_error root/a" in kinds(events)


@pytest.mark.covers("T17")
async def test_a_child_gets_the_context_of_its_supervisors_creation() -> None:
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")

    class Where(Actor):
        async def handle_call(self, msg: Any, from_: object) -> str:
            return place.get()

    place.set("at the creation")
    async with open_supervisor([ChildSpec("a", Where, name="a")]) as sup:
        place.set("elsewhere")
        await sup.start_child(ChildSpec("b", Where, name="b"))
        await sup.terminate_child("a")
        await sup.restart_child("a")
        await end(sup.name("b"), Killed())
        await settled()
        assert [await sup.name(id).call(0) for id in "ab"] == ["at the creation"] * 2


@pytest.mark.covers("T4")
async def test_a_childs_failure_does_not_reach_its_siblings() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes), player("b", notes)]) as sup:
        sibling = sup.name("b").ref()
        await crash(sup, "a")
        assert sibling.is_alive()


@pytest.mark.covers("T4")
async def test_a_group_of_errors_is_one_crash_kept_whole() -> None:
    async def two(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise ExceptionGroup("two", [Boom("1"), Boom("2")])

    async with open_supervisor() as sup:
        ref = await sup.start_child(ChildSpec("a", two, restart="temporary"))
        await settled()
        reason = ref.exit_reason
    assert list(map(str, errors_in(reason))) == ["1", "2"]


async def test_a_task_of_the_actors_nursery_that_raises_is_a_crash() -> None:
    class Nursery(Actor):
        async def init(self) -> None:
            self.nursery.start_soon(self.fail)

        async def fail(self) -> None:
            raise Boom("in a task")

    async with open_supervisor() as sup:
        ref = await sup.start_child(ChildSpec("a", Nursery, restart="temporary"))
        await settled()
        assert isinstance(ref.exit_reason, Crash)
        assert isinstance(ref.exit_reason.error, Boom)


async def test_a_background_task_that_raises_is_a_crash_and_terminate_still_runs() -> None:
    notes: Notes = []

    class Background(Player):
        async def init(self, notes: Notes, start: object = None) -> None:
            await super().init(notes)
            self.background.start_soon(self.fail)

        async def fail(self) -> None:
            raise Boom("in the background")

    async with open_supervisor() as sup:
        ref = await sup.start_child(ChildSpec("a", Background, (notes,), restart="temporary"))
        await settled()
        assert isinstance(ref.exit_reason, Crash)
        assert isinstance(ref.exit_reason.error, Boom)
    assert notes == ["+a", "-a"]


async def test_background_tasks_live_through_terminate_and_nursery_tasks_do_not() -> None:
    order: list[str] = []

    class Both(Actor):
        async def init(self) -> None:
            self.nursery.start_soon(self.hold, "nursery")
            self.background.start_soon(self.hold, "background")
            await settled()

        async def hold(self, which: str) -> None:
            try:
                await trio.sleep_forever()
            finally:
                order.append(which)

        async def terminate(self, reason: object) -> None:
            await settled()
            order.append("terminate")

    async with open_supervisor([ChildSpec("a", Both)]):
        pass
    assert order == ["nursery", "terminate", "background"]


@pytest.mark.parametrize("reason", [Shutdown("done"), ExitStatus(3), Killed(), Normal()], ids=str)
async def test_a_body_can_end_itself_with_a_reason(reason: Any) -> None:
    async def in_a_nursery(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        async with trio.open_nursery():
            raise Exit(reason)

    async with open_supervisor() as sup:
        first = await sup.start_child(exits_with(reason))
        second = await sup.start_child(ChildSpec("g", in_a_nursery, restart="temporary"))
        await settled()
        assert (first.exit_reason, second.exit_reason) == (reason, reason)


@pytest.mark.covers("T19")
async def test_a_body_that_ends_with_exit_status_0_is_normal() -> None:
    async with open_supervisor() as sup:
        ref = await sup.start_child(exits_with(ExitStatus(0)))
        await settled()
        assert ref.exit_reason == Normal()


async def test_the_tree_shows_counts_and_the_last_exit(autojump_clock: MockClock) -> None:
    notes: Notes = []
    children = [
        player("a", notes),
        supervisor_spec("s", [ChildSpec("b", forever)]),
        ChildSpec("c", Stubborn, (0,)),
    ]
    async with open_supervisor(children, name="fleet") as sup:
        await trio.sleep(3)
        begun = trio.current_time()
        await end(sup.name("a"), Killed())
        await settled()
        await sup.terminate_child("c")
        top = sup.tree()
        a, s, c = top.children
        assert (top.path, top.state, a.path, s.children[0].path) == (
            "fleet",
            "running",
            "fleet/a",
            "fleet/s/b",
        )
        assert (a.incarnation, a.restarts, a.exit, a.exited_at, a.state) == (2, 1, Killed(), begun, "running")
        assert (c.state, c.ref, c.exit, c.restarts) == ("down", None, Shutdown(), 0)
        assert isinstance(s.children[0].ref, Ref)
    assert sup.tree().state == "down"


async def test_a_stop_from_a_handler_ends_with_its_reason() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, restart="transient")]) as sup:
        ref = sup.name("a").ref()
        assert await ref.call(Stop(Shutdown("done"), reply="bye")) == "bye"  # M20
        await settled()
        assert ref.exit_reason == Shutdown("done")
        assert notes == ["+a", "-a"]


async def test_events_of_restarts_say_which_attempt() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, fails_at(2))], intensity=5) as sup:
        with sup.events() as events:
            await crash(sup, "a")
            await crash(sup, "a")
            attempts = [
                getattr(event, "attempt", None) for event in heard(events) if event.kind == "child_restarting"
            ]
        assert attempts == [1, 2, 1]
