from __future__ import annotations

import math
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
    NoProc,
    Normal,
    Shutdown,
    ShutdownFailed,
    StartError,
    Stop,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.spec import AutoShutdown, Restart, Strategy
from tests.runtime.stage import (
    Boom,
    Notes,
    Player,
    crash,
    end,
    exits_with,
    fails_from,
    forever,
    heard,
    kinds,
    picture,
    player,
    settled,
    shielded,
    stubborn,
)


@pytest.mark.covers("S36", "S72")
async def test_children_stop_in_reverse_order_and_stop_times_add_up(
    autojump_clock: MockClock,
) -> None:
    inner = supervisor_spec("s", [stubborn("b", 1), stubborn("c", 2)])
    async with open_supervisor([stubborn("a", 3), inner, stubborn("d", 4)]) as sup:
        events = sup.events()
        begun = trio.current_time()
    assert trio.current_time() - begun == 10
    exits = [(event.path, event.time - begun) for event in heard(events) if event.kind == "child_exited"]
    assert exits == [("root/d", 4), ("root/s/c", 6), ("root/s/b", 7), ("root/s", 7), ("root/a", 10)]


@pytest.mark.covers("S37", "S38", "S39")
@pytest.mark.parametrize(
    ("grace", "seconds", "took", "reason", "told"),
    [
        ("brutal_kill", 9, 0, Killed(), []),
        (5, 3, 3, Shutdown(), []),
        (5, 9, 5, Killed(), [Killed()]),
        (0, 9, 0, Killed(), [Killed()]),
        (math.inf, 900, 900, Shutdown(), []),
    ],
)
async def test_the_grace_of_a_stop(
    grace: Any,
    seconds: float,
    took: float,
    reason: ExitReason,
    told: list[ExitReason],
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([stubborn("a", seconds, shutdown=grace, name="a")]) as sup:
        events = sup.events()
        ref = sup.name("a").ref()
        begun = trio.current_time()
    assert (trio.current_time() - begun, ref.exit_reason) == (took, reason)
    assert [event.reason for event in heard(events) if isinstance(event, ShutdownFailed)] == told


@pytest.mark.covers("S38")
async def test_each_grace_begins_when_that_child_is_asked(autojump_clock: MockClock) -> None:
    begun = trio.current_time()
    async with open_supervisor([stubborn("a", 4, name="a"), stubborn("b", 4)]) as sup:
        ref = sup.name("a").ref()
    assert trio.current_time() - begun == 8
    assert ref.exit_reason == Shutdown()


@pytest.mark.covers("S39")
async def test_a_crash_in_cleanup_is_reported_and_changes_nothing_else() -> None:
    notes: Notes = []

    class Messy(Player):
        async def terminate(self, reason: ExitReason) -> None:
            raise Boom("in cleanup")

    async with open_supervisor([player("a", notes), ChildSpec("b", Messy, (notes,))]) as sup:
        events = sup.events()
    errors = [event for event in heard(events) if isinstance(event, ShutdownFailed)]
    assert [event.path for event in errors] == ["root/b"]
    assert isinstance(errors[0].reason, Crash)
    assert notes == ["+a", "+b", "-a"]
    assert sup.ref.exit_reason == Shutdown()


@pytest.mark.covers("S39")
@pytest.mark.parametrize(
    ("restart", "reported"), [("permanent", True), ("transient", False), ("temporary", False)]
)
async def test_a_normal_end_on_request_is_an_error_of_a_permanent_child_only(
    restart: Restart, reported: bool
) -> None:
    async def swallows(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        with trio.CancelScope(shield=True) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(leave, scope)
                await trio.sleep_forever()

    async def leave(scope: trio.CancelScope) -> None:
        await asked.wait()
        scope.cancel()

    asked = trio.Event()
    async with open_supervisor([ChildSpec("a", swallows, restart=restart)]) as sup:
        events = sup.events()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.stop)
            await settled()
            asked.set()
    assert ("shutdown_error root/a" in kinds(events)) == reported


@pytest.mark.covers("S40", "S41")
async def test_a_child_that_crashes_while_its_supervisor_stops_is_not_restarted() -> None:
    notes: Notes = []

    class Takes(Player):
        async def terminate(self, reason: ExitReason) -> None:
            victim.kill()
            await settled()
            notes.append("-b")

    async with open_supervisor([player("a", notes), ChildSpec("b", Takes, (notes,))]) as sup:
        victim = sup.name("a").ref()
    assert notes == ["+a", "+b", "-b"]
    assert victim.exit_reason == Killed()


@pytest.mark.covers("S41", "S54")
async def test_requests_during_a_stop_are_not_served(autojump_clock: MockClock) -> None:
    notes: Notes = []
    errors: list[str] = []
    async with open_supervisor([stubborn("a", 3)]) as sup:
        async with trio.open_nursery() as nursery:

            async def late() -> None:
                try:
                    await sup.start_child(player("b", notes))
                except ActorExited as error:
                    errors.append(str(error.reason))

            nursery.start_soon(sup.stop)
            await settled()
            nursery.start_soon(late)
        with pytest.raises(NoProc):
            await sup.which_children()
    assert (notes, errors) == ([], ["shutdown"])


@pytest.mark.covers("S42")
async def test_a_stopped_supervisor_ends_with_the_reason_it_was_asked_with() -> None:
    async with open_supervisor([ChildSpec("a", forever)]) as sup:
        await sup.stop(Shutdown("maintenance"))
        assert await sup.wait_stopped() == Shutdown("maintenance")
    assert sup.ref.exit_reason == Shutdown("maintenance")


@pytest.mark.covers("S43")
async def test_a_stop_ends_a_loop_of_failing_restarts_at_once() -> None:
    notes: Notes = []

    async with open_supervisor([player("a", notes, fails_from(2))], intensity=10**6) as sup:
        await end(sup.name("a"), Killed())
        for _ in range(20):
            await trio.lowlevel.checkpoint()
    assert notes[-1] == "+a"


@pytest.mark.covers("S41", "S43")
async def test_a_stop_in_the_stop_phase_of_a_restart_starts_nobody(autojump_clock: MockClock) -> None:
    notes: Notes = []

    class Slow(Player):
        async def terminate(self, reason: ExitReason) -> None:
            await trio.sleep(3)
            notes.append(f"-{self.id}")

    children = [player("a", notes), ChildSpec("b", Slow, (notes,)), ChildSpec("c", Slow, (notes,))]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        sup.name("a").kill()
        await trio.sleep(1)
    assert notes == ["+a", "+b", "+c", "-c", "-b"]


@pytest.mark.covers("S45", "D7")
async def test_a_killed_supervisor_leaves_no_children(autojump_clock: MockClock) -> None:
    notes: Notes = []
    deep = supervisor_spec("deep", [player("a", notes), stubborn("b", 50)])
    inner = supervisor_spec("inner", [deep, player("c", notes)], name="inner", restart="temporary")
    async with open_supervisor([inner]) as sup:
        refs = [
            sup.child(path).ref()
            for path in ("inner/deep/a", "inner/deep/b", "inner/c", "inner/deep", "inner")
        ]
        begun = trio.current_time()
        with sup.name("inner").monitor() as monitor:
            sup.name("inner").kill()
            assert (await monitor).reason == Killed()
        assert trio.current_time() == begun
        assert [ref.exit_reason for ref in refs] == [Killed()] * 5
    assert notes == ["+a", "+c"]  # S46: no terminate


@pytest.mark.covers("D7")
async def test_a_finite_grace_kills_the_whole_subtree_when_it_expires(autojump_clock: MockClock) -> None:
    inner = supervisor_spec(
        "inner", [stubborn("a", 50, shutdown=100), stubborn("b", 50, shutdown=100)], shutdown=7
    )
    async with open_supervisor([inner]) as sup:
        refs = [sup.child(path).ref() for path in ("inner/a", "inner/b", "inner")]
        begun = trio.current_time()
    assert trio.current_time() - begun == 7
    assert [ref.exit_reason for ref in refs] == [Killed()] * 3


@pytest.mark.covers("S46")
@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (Normal(), ["normal"]),
        (Shutdown("x"), ["shutdown (x)"]),
        (Crash(Boom("crash")), ["crash: Boom('crash')"]),
        (Killed(), []),
    ],
    ids=str,
)
async def test_terminate_runs_on_every_end_but_a_kill(reason: ExitReason, told: list[str]) -> None:
    seen: list[str] = []

    class Tells(Player):
        async def terminate(self, reason: ExitReason) -> None:
            seen.append(str(reason))

    async with open_supervisor() as sup:
        await sup.start_child(ChildSpec("a", Tells, ([],), restart="temporary", name="a"))
        await end(sup.name("a"), reason)
    assert seen == told


async def test_a_crash_in_terminate_is_the_reason_with_the_first_crash_as_its_context() -> None:
    class Worse(Player):
        async def terminate(self, reason: ExitReason) -> None:
            raise Boom("second")

    async with open_supervisor() as sup:
        ref = await sup.start_child(ChildSpec("a", Worse, ([],), restart="temporary"))
        down = await end(ref, Crash(Boom("crash")))
    assert isinstance(down.reason, Crash)
    assert str(down.reason.error) == "second"
    assert str(down.reason.error.__context__) == "crash"


@pytest.mark.covers("T8")
async def test_a_kill_cuts_terminate_short(autojump_clock: MockClock) -> None:
    async with open_supervisor([stubborn("a", 1000, shutdown=math.inf)]) as sup:
        ref, begun = sup.child("a").ref(), trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.stop)
            await trio.sleep(2)
            ref.kill()
        assert trio.current_time() - begun == 2
    assert ref.exit_reason == Killed()


@pytest.mark.covers("T10", "S44")
async def test_a_child_that_cannot_be_killed_is_reported_and_waited_for(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    children = [ChildSpec("a", shielded, shutdown=2), player("b", notes)]
    async with open_supervisor(children, strategy="one_for_all") as sup:
        events = sup.events()
        ref = sup.child("a").ref()
        begun = trio.current_time()
        await crash(sup, "b")
        await trio.sleep(30)
        assert ref.is_alive()
        assert notes == ["+b", "-b"]  # no successor of anybody yet
        await trio.sleep(31)
        assert notes == ["+b", "-b", "+b"]
        assert ref.exit_reason == Killed()
        told = {event.kind: event.time - begun for event in heard(events)}
        assert told["child_unresponsive"] == 7
        await sup.stop()


async def test_a_second_stop_joins_the_first_and_a_kill_hastens_it(autojump_clock: MockClock) -> None:
    async with open_supervisor([stubborn("a", 1000, shutdown=math.inf)]) as sup:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.stop)
            await trio.sleep(1)
            nursery.start_soon(sup.stop)
            await trio.sleep(1)
            sup.ref.kill()
        assert sup.ref.exit_reason == Killed()


@pytest.mark.covers("S47")
async def test_start_child_returns_a_ref_and_keeps_nothing_on_failure() -> None:
    notes: Notes = []

    def fail(_: int) -> None:
        raise Boom

    async with open_supervisor() as sup:
        assert (await sup.start_child(player("a", notes))).is_alive()
        with pytest.raises(StartError):
            await sup.start_child(player("b", notes, fail))
        assert await picture(sup) == {"a": 1}


@pytest.mark.covers("S58", "S59")
async def test_significant_children_end_their_supervisor() -> None:
    notes: Notes = []
    children = [
        player("a", notes),
        player("b", notes, restart="transient", significant=True),
        player("c", notes, restart="transient", significant=True),
    ]
    async with open_supervisor(children, auto_shutdown="any_significant", intensity=2) as sup:
        await crash(sup, "b")  # is followed by a restart
        assert sup.ref.is_alive()
        await end(sup.name("b"), Normal())
        assert await sup.wait_stopped() == Shutdown("auto_shutdown")
    assert notes[-3:] == ["-b", "-c", "-a"]


@pytest.mark.covers("S58")
@pytest.mark.parametrize("reason", [Normal(), Crash(Boom("crash"))], ids=str)
async def test_any_exit_of_a_temporary_child_is_significant(reason: ExitReason) -> None:
    notes: Notes = []
    children = [player("a", notes, restart="temporary", significant=True)]
    async with open_supervisor(children, auto_shutdown="any_significant") as sup:
        await end(sup.name("a"), reason)
        assert await sup.wait_stopped() == Shutdown("auto_shutdown")


@pytest.mark.covers("S60")
async def test_all_significant_waits_for_the_last() -> None:
    notes: Notes = []
    children = [player(id, notes, restart="transient", significant=id != "a") for id in "abc"]
    async with open_supervisor(children, auto_shutdown="all_significant") as sup:
        await end(sup.name("a"), Normal())
        await end(sup.name("b"), Normal())
        await settled()
        assert sup.ref.is_alive()
        await end(sup.name("c"), Normal())
        assert await sup.wait_stopped() == Shutdown("auto_shutdown")


@pytest.mark.covers("S61")
@pytest.mark.parametrize("auto", ["any_significant", "all_significant"])
async def test_stops_by_request_or_by_a_sibling_are_no_significant_ends(auto: AutoShutdown) -> None:
    notes: Notes = []
    children = [
        player("a", notes),
        player("b", notes, restart="transient", significant=True),
        player("c", notes, restart="temporary", significant=True),
    ]
    async with open_supervisor(children, strategy="one_for_all", auto_shutdown=auto) as sup:
        await crash(sup, "a")
        assert await picture(sup) == {"a": 2, "b": 2}
        await sup.terminate_child("b")
        await settled()
        assert sup.ref.is_alive()


@pytest.mark.covers("S62")
@pytest.mark.parametrize("significant", [True, False])
async def test_automatic_shutdown_nests_through_significant_supervisors(significant: bool) -> None:
    notes: Notes = []
    worker = player("a", notes, restart="transient", significant=True)
    inner = supervisor_spec(
        "inner", [worker], auto_shutdown="any_significant", restart="transient", significant=significant
    )
    async with open_supervisor([inner], auto_shutdown="any_significant") as sup:
        await end(sup.name("a"), Normal())
        await settled()
        assert sup.ref.is_alive() != significant


STRATEGIES: tuple[Strategy, ...] = ("one_for_one", "one_for_all", "rest_for_one")


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_nothing_of_ours_lives_after_the_block(strategy: Strategy) -> None:
    def tasks() -> set[str]:
        found, todo = set[str](), [trio.lowlevel.current_root_task()]
        while todo:
            task = todo.pop()
            assert task is not None
            found.add(task.name)
            todo += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        return found

    before = tasks()
    notes: Notes = []
    children = [player(id, notes) for id in "abc"]
    async with open_supervisor(
        [*children, supervisor_spec("s", [player("d", notes)])], strategy=strategy
    ) as sup:
        assert tasks() > before
        await crash(sup, "a")
        registry = sup.registry
    assert tasks() == before
    assert registry.names() == {}


@pytest.mark.covers("M28")
async def test_a_stop_by_ref_is_an_exit_like_any_other() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes), player("b", notes, restart="transient")]) as sup:
        for id in "ab":
            sup.name(id).exit(Normal())
        assert await picture(sup) == {"a": 1, "b": 1}
        for id in "ab":
            sup.name(id).exit(Shutdown("enough"))
        assert await picture(sup) == {"a": 2, "b": "down"}
        assert notes == ["+a", "+b", "-a", "-b", "+a"] or notes == ["+a", "+b", "-b", "-a", "+a"]


async def test_the_exit_of_a_temporary_function_child() -> None:
    async with open_supervisor() as sup:
        await sup.start_child(exits_with(Shutdown()))
        assert await picture(sup) == {}


async def test_a_failed_call_does_not_matter_to_a_stop() -> None:
    async with open_supervisor([ChildSpec("a", Player, ([],), name="a")]) as sup:
        with pytest.raises(ActorExited):
            await sup.name("a").call(Stop(Shutdown()))


async def test_a_second_actor_of_the_class_shares_nothing() -> None:
    class Counts(Actor):
        async def handle_call(self, msg: Any, from_: object) -> int:
            self.kept["n"] = self.kept.get("n", 0) + 1
            n: int = self.kept["n"]
            return n

    async with open_supervisor([ChildSpec(id, Counts, name=id) for id in "ab"]) as sup:
        assert [await sup.name(id).call(0) for id in "aab"] == [1, 2, 1]


@pytest.mark.covers("S42")
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("reason", [Normal(), Killed(), Shutdown("x"), Crash(Boom("on purpose"))], ids=str)
async def test_a_stop_of_a_supervisor_by_its_owner_stops_it_whatever_the_reason(
    reason: ExitReason, nested: bool
) -> None:
    notes: Notes = []
    children = [player("a", notes)]
    inner = supervisor_spec("inner", children, restart="temporary")
    async with open_supervisor([inner] if nested else children) as sup:
        handle = sup.supervisor("inner") if nested else sup
        await handle.stop(reason)
        assert handle.ref.exit_reason == reason
        assert notes == (["+a"] if reason == Killed() else ["+a", "-a"])


@pytest.mark.covers("M28")
async def test_an_exit_asked_for_with_normal_still_does_nothing_to_a_supervisor() -> None:
    async with open_supervisor([player("a", [])]) as sup:
        sup.ref.exit(Normal())
        await settled()
        assert await picture(sup) == {"a": 1}
