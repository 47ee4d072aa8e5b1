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
    ChildOverdue,
    ChildSpec,
    ChildUnresponsive,
    Crash,
    DynamicSupervisor,
    ExitReason,
    Killed,
    Normal,
    Shutdown,
    Stop,
    Supervisor,
    dynamic_supervisor_spec,
    link,
    open_dynamic_supervisor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.messaging.tree_context import TreeContext
from tests.runtime.stage import Boom, end, forever, heard, kinds, picture, player, settled, shielded, stubborn


class Hangs(Actor):
    """Takes `seconds` to terminate; casts of an exception or a `Stop` are its deeds."""

    async def init(self, seconds: float = 1000) -> None:
        self.seconds = seconds

    async def handle_call(self, msg: Any, from_: object) -> Any:
        return msg

    async def handle_cast(self, msg: Any) -> Any:
        if isinstance(msg, Exception):
            raise msg
        return msg

    async def terminate(self, reason: ExitReason) -> None:
        await self.clean_up()

    async def clean_up(self) -> None:
        await trio.sleep(self.seconds)


def hangs(shutdown: Any = 3, seconds: float = 1000, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"name": "a"}
    return ChildSpec("a", Hangs, (seconds,), shutdown=shutdown, **(fields | spec))


Begin = Callable[[Supervisor], Any]


async def by_exit(sup: Supervisor) -> None:
    sup.name("a").exit(Shutdown())


async def by_a_link(sup: Supervisor) -> None:
    ref = await sup.start_child(ChildSpec("b", forever, restart="temporary"))
    link(ref, sup.name("a"))
    ref.kill()


async def by_a_stop_of_its_own(sup: Supervisor) -> None:
    await sup.name("a").cast(Stop(Normal()))


async def by_a_crash(sup: Supervisor) -> None:
    await sup.name("a").cast(Boom("crash"))


BEGINS: list[Begin] = [by_exit, by_a_link, by_a_stop_of_its_own, by_a_crash]
begins = pytest.mark.parametrize("begin", BEGINS)


@pytest.mark.covers("S38")
@begins
async def test_the_shutdown_clock_runs_from_the_beginning_of_an_end_whoever_began_it(
    begin: Begin, autojump_clock: MockClock
) -> None:
    async with open_supervisor([hangs()]) as sup:
        ref = sup.name("a").ref()
        with ref.monitor() as monitor:
            await begin(sup)
            down = await monitor
        assert trio.current_time() == 3
        assert (await sup.name("a").wait_out()) is not ref  # the name was released, S14
        crashed = isinstance(down.reason, Crash) and str(down.reason.error) == "crash"
        assert crashed if begin is by_a_crash else down.reason == Killed()
        await sup.terminate_child("a")


@pytest.mark.covers("S14", "S15", "S16")
@pytest.mark.parametrize(
    ("restart", "after"), [("permanent", {"a": 2}), ("transient", {"a": 2}), ("temporary", {})]
)
async def test_the_supervisor_treats_an_end_after_the_clock_as_any_kill(
    restart: Any, after: dict[str, int], autojump_clock: MockClock
) -> None:
    async with open_supervisor([hangs(restart=restart)]) as sup:
        sup.name("a").exit(Shutdown())
        await trio.sleep(2.9)
        assert await picture(sup) == {"a": "stopping"}
        await trio.sleep(0.2)
        assert await picture(sup) == after


@pytest.mark.covers("S37", "S38")
@begins
@pytest.mark.parametrize("shutdown", [0, "brutal_kill"])
async def test_one_that_its_supervisor_gives_no_time_has_the_default_where_its_end_begins_otherwise(
    shutdown: Any, begin: Begin, autojump_clock: MockClock
) -> None:
    for seconds in (4, 1000):
        async with open_supervisor([hangs(shutdown, seconds, restart="temporary")]) as sup:
            begun = trio.current_time()
            with sup.name("a").monitor() as monitor:
                await begin(sup)
                reason = (await monitor).reason
            assert trio.current_time() - begun == min(seconds, 5)
            if begin is by_a_stop_of_its_own:
                assert reason == (Normal() if seconds == 4 else Killed())


@pytest.mark.covers("S37", "S38")
@begins
@pytest.mark.parametrize("shutdown", [0, "brutal_kill"])
async def test_a_supervisor_that_gives_no_time_kills_one_whose_end_has_begun(
    shutdown: Any, begin: Begin, autojump_clock: MockClock
) -> None:
    async with open_supervisor([hangs(shutdown, 4, restart="temporary")]) as sup:
        await begin(sup)
        await trio.sleep(1)
    assert trio.current_time() == 1


@pytest.mark.covers("S38")
@begins
async def test_an_infinite_grace_has_no_clock(begin: Begin, autojump_clock: MockClock) -> None:
    async with open_supervisor([hangs(math.inf, restart="temporary")]) as sup:
        with sup.name("a").monitor() as monitor:
            await begin(sup)
            await monitor
        assert trio.current_time() == 1000


@pytest.mark.covers("X8", "M8")
async def test_a_drain_is_part_of_the_grace_whoever_began_it(autojump_clock: MockClock) -> None:
    class Drains(Hangs):
        async def handle_cast(self, msg: Any) -> None:
            await trio.sleep(2)

    async with open_supervisor([ChildSpec("a", Drains, name="a", drain=True, shutdown=5)]) as sup:
        await sup.name("a").cast("work")
        await settled()
        with sup.name("a").monitor() as monitor:
            sup.name("a").exit(Shutdown())
            assert (await monitor).reason == Killed()
        assert trio.current_time() == 5


@pytest.mark.covers("S38")
@begins
async def test_a_supervisor_that_stops_one_whose_end_has_begun_grants_no_second_grace(
    begin: Begin, autojump_clock: MockClock
) -> None:
    async with open_supervisor([hangs()]) as sup:
        ref = sup.name("a").ref()
        await begin(sup)
        await trio.sleep(2)
        await sup.terminate_child("a")
        assert trio.current_time() == 3
        assert not ref.is_alive()


@pytest.mark.covers("S38")
async def test_a_stop_of_one_with_no_end_to_its_grace_waits_for_it(autojump_clock: MockClock) -> None:
    async with open_supervisor([hangs(math.inf, 50)]) as sup:
        sup.name("a").exit(Shutdown("first"))
        await trio.sleep(20)
    assert trio.current_time() == 50


@pytest.mark.covers("S73")
async def test_a_changed_shutdown_holds_for_an_end_that_begins_later(autojump_clock: MockClock) -> None:
    async with open_supervisor([hangs(100)]) as sup:
        await sup.change([hangs(7)])
        with sup.name("a").monitor() as monitor:
            sup.name("a").exit(Shutdown())
            await monitor
        assert trio.current_time() == 7


@pytest.mark.covers("D7")
@pytest.mark.parametrize("how", ["exit", "gives up"])
async def test_a_nested_supervisor_that_ends_has_its_grace_for_the_whole_subtree(
    how: str, autojump_clock: MockClock
) -> None:
    children = [hangs(100), player("b", [])]
    inner = supervisor_spec("inner", children, shutdown=4, name="inner", intensity=0)
    async with open_supervisor([inner]) as sup:
        ref, a = sup.name("inner").ref(), sup.name("a").ref()
        with ref.monitor() as monitor:
            if how == "exit":
                ref.exit(Shutdown())
            else:
                await end(sup.name("b"), Killed())
            assert (await monitor).reason == Killed()
        assert trio.current_time() == 4
        assert a.exit_reason == Killed()
        assert await sup.name("inner").wait_out() is not ref
        await sup.name("a").wait_out()
        sup.name("a").kill()


@pytest.mark.covers("S38")
async def test_tasks_of_an_actor_that_hang_before_its_terminate_are_on_the_clock_too(
    autojump_clock: MockClock,
) -> None:
    class Keeps(Actor):
        async def init(self) -> None:
            self.nursery.start_soon(self.linger)

        async def linger(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(60)

        async def handle_cast(self, msg: Any) -> Any:
            return Stop()

    async with open_supervisor([ChildSpec("a", Keeps, name="a", restart="temporary")]) as sup:
        with sup.events() as events, sup.name("a").monitor() as monitor:
            await sup.name("a").cast("stop")
            await monitor
            overdue, unresponsive, *_ = heard(events)
        assert isinstance(overdue, ChildOverdue)
        assert isinstance(unresponsive, ChildUnresponsive)
        assert (overdue.time, unresponsive.time) == (5, 10)
        assert any("linger" in line for line in unresponsive.doing)


@pytest.mark.covers("T10")
async def test_a_kill_by_anybody_that_does_not_take_is_reported_once(autojump_clock: MockClock) -> None:
    async with open_supervisor([ChildSpec("a", shielded, name="a", restart="temporary")]) as sup:
        with sup.events() as events, sup.name("a").monitor() as monitor:
            for _ in range(3):
                sup.name("a").kill()
                await trio.sleep(1)
            await monitor
            await settled()
            assert kinds(events) == [
                "child_unresponsive root/a",
                "child_exited root/a",
                "child_terminated root/a",
            ]


async def test_a_stop_returns_what_did_not_stop_in_time_and_where_it_was_waiting(
    autojump_clock: MockClock,
) -> None:
    inner = supervisor_spec("s", [hangs(), stubborn("quick", 1)])
    async with open_supervisor([player("b", []), inner]) as sup:
        before, late = sup.late, await sup.stop()
    assert before == ()
    assert sup.late == late
    (overdue,) = late
    assert isinstance(overdue, ChildOverdue)
    assert (overdue.path, overdue.grace, overdue.time) == ("root/s/a", 3, 1 + 3)
    (line,) = overdue.doing
    assert line.startswith("root/s/a: terminate (test_grace.py:")
    assert " > clean_up (test_grace.py:" in line


async def test_who_leaves_the_block_can_learn_what_did_not_stop_in_time(autojump_clock: MockClock) -> None:
    async with open_supervisor(
        [hangs(), stubborn("quick", 1), ChildSpec("deaf", shielded, shutdown=2)]
    ) as sup:
        pass
    assert [(event.kind, event.path) for event in sup.late] == [
        ("child_overdue", "root/deaf"),
        ("child_unresponsive", "root/deaf"),
        ("child_overdue", "root/a"),
    ]


async def test_what_hangs_can_be_seen_while_a_stop_waits_for_it(autojump_clock: MockClock) -> None:
    async with (
        open_supervisor([ChildSpec("deaf", shielded, shutdown=2)]) as sup,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(sup.stop)
        await trio.sleep(8)
        assert [event.kind for event in sup.late] == ["child_overdue", "child_unresponsive"]
        assert all("shielded (stage.py:" in event.doing[0] for event in sup.late)


async def test_terminating_a_child_returns_what_of_it_did_not_stop_in_time(autojump_clock: MockClock) -> None:
    inner = supervisor_spec("s", [hangs()])
    async with open_supervisor([inner, stubborn("quick", 1), ChildSpec("s2", Hangs, shutdown=1)]) as sup:
        assert await sup.terminate_child("quick") == ()
        assert [event.path for event in await sup.terminate_child("s")] == ["root/s/a"]
        assert [event.path for event in await sup.terminate_child("s2")] == ["root/s2"]
        assert await sup.terminate_child("s2") == ()
    assert sup.late == ()


async def test_terminating_a_dynamic_child_returns_what_of_it_did_not_stop_in_time(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([dynamic_supervisor_spec("pool")]) as sup:
        pool = sup.supervisor("pool", DynamicSupervisor)
        ref = await pool.start_child(hangs())
        assert [event.path for event in await pool.terminate_child(ref)] == ["root/pool/a"]


async def test_a_stop_that_comes_later_knows_what_was_late_and_still_lives(autojump_clock: MockClock) -> None:
    async with open_supervisor([ChildSpec("deaf", shielded, shutdown=2, name="deaf")]) as sup:
        sup.name("deaf").exit(Shutdown())
        await trio.sleep(20)
        late = await sup.terminate_child("deaf")
    assert [event.kind for event in late] == ["child_overdue", "child_unresponsive"]


async def test_the_events_of_a_report_are_those_that_a_subscriber_sees(autojump_clock: MockClock) -> None:
    async with open_supervisor([hangs()]) as sup:
        with sup.events() as events:
            late = await sup.terminate_child("a")
            assert late[0] in heard(events)


@pytest.mark.covers("S65")
async def test_many_that_hang_are_stopped_together_each_by_its_own_clock(
    autojump_clock: MockClock,
) -> None:
    async with open_dynamic_supervisor() as sup:
        for number in range(50):
            await sup.start_child(ChildSpec("a", Hangs, shutdown=1 + number % 3))
    assert trio.current_time() == 3
    assert len(sup.late) == 50


async def test_the_clock_of_one_that_has_ended_keeps_nothing_of_it(autojump_clock: MockClock) -> None:
    async with open_supervisor(intensity=10**6) as sup:
        system = (await sup.start_child(ChildSpec("first", Hangs, (0,)))).endpoint.system
        for _ in range(500):
            ref = await sup.start_child(ChildSpec("a", Hangs, (0,), restart="temporary"))
            await ref.cast(Stop())
            with ref.monitor() as monitor:
                await monitor
            await settled()
        assert isinstance(system, TreeContext)
        assert len(system.timers) < 200


class Leaves(Actor):
    """Answers and stops; `terminate` takes `seconds`, then raises what it has."""

    async def init(self, seconds: float = 2, error: Exception | None = None) -> None:
        self.seconds, self.error = seconds, error

    async def handle_call(self, msg: Any, from_: object) -> Any:
        return Stop(Shutdown("asked"), reply="bye")

    async def terminate(self, reason: ExitReason) -> None:
        await trio.sleep(self.seconds)
        if self.error is not None:
            raise self.error


def leaves(*args: Any, **spec: Any) -> ChildSpec:
    return ChildSpec("a", Leaves, args, restart="temporary", name="a", **spec)


@pytest.mark.covers("M20")
async def test_the_reply_of_a_stop_comes_when_terminate_is_through(autojump_clock: MockClock) -> None:
    async with open_supervisor([leaves(2)]) as sup:
        ref = sup.name("a").ref()
        assert await ref.call("stop") == "bye"
        assert trio.current_time() == 2
        assert ref.exit_reason == Shutdown("asked")
        assert not sup.name("a").is_alive()  # M30


@pytest.mark.covers("M20")
async def test_the_reply_of_a_stop_comes_though_terminate_crashes(autojump_clock: MockClock) -> None:
    async with open_supervisor([leaves(2, Boom("in terminate"))]) as sup:
        ref = sup.name("a").ref()
        assert await ref.call("stop") == "bye"
        assert isinstance(ref.exit_reason, Crash)


@pytest.mark.covers("M20", "M15")
@pytest.mark.parametrize("how", ["kill", "grace"])
async def test_who_asked_for_a_stop_gets_the_end_of_one_that_is_killed_in_its_terminate(
    how: str, autojump_clock: MockClock
) -> None:
    async with open_supervisor([leaves(1000, shutdown=3)]) as sup, trio.open_nursery() as nursery:
        ref = sup.name("a").ref()

        async def kill() -> None:
            await trio.sleep(1)
            ref.kill()

        if how == "kill":
            nursery.start_soon(kill)
        with pytest.raises(ActorExited) as caught:
            await ref.call("stop", timeout=None)
        assert caught.value.reason == Killed()
        assert trio.current_time() == (1 if how == "kill" else 3)


@pytest.mark.covers("M16", "M17")
async def test_a_call_that_asked_for_a_stop_has_its_time_out_and_the_late_reply_is_dropped(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([leaves(3)]) as sup, trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + 1
        await sup.name("a").call("stop")
    async with open_supervisor([leaves(3)]) as sup:
        with sup.events() as events:
            with trio.move_on_after(1):
                await sup.name("a").call("stop")
            await trio.sleep(5)
            assert "late_reply root/a" in kinds(events)
