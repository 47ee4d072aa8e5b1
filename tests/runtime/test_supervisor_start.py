from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    IGNORE,
    Actor,
    AlreadyStarted,
    ChildSpec,
    Crash,
    Exit,
    Killed,
    NoProc,
    Normal,
    Shutdown,
    StartError,
    StartTimeout,
    Stop,
    WouldDeadlock,
    current_actor,
    open_supervisor,
    supervisor_spec,
)
from tests.runtime.stage import (
    Boom,
    Notes,
    Player,
    crash,
    fails_at,
    forever,
    kinds,
    never_ready,
    picture,
    player,
    settled,
)


@pytest.mark.covers("S7")
async def test_children_start_in_order_one_after_another(autojump_clock: MockClock) -> None:
    times: list[tuple[str, float]] = []

    class Slow(Actor):
        async def init(self) -> None:
            times.append((f"+{self.id}", trio.current_time()))
            await trio.sleep(2)
            times.append((f"ready {self.id}", trio.current_time()))

    begun = trio.current_time()
    async with open_supervisor([ChildSpec("a", Slow), ChildSpec("b", Slow)]):
        times.append(("up", trio.current_time()))
    assert [(what, t - begun) for what, t in times] == [
        ("+a", 0.0),
        ("ready a", 2.0),
        ("+b", 2.0),
        ("ready b", 4.0),
        ("up", 4.0),
    ]


@pytest.mark.covers("S7")
async def test_a_nested_supervisor_is_ready_when_its_last_child_is() -> None:
    notes: Notes = []
    inner = supervisor_spec("inner", [player("b", notes), player("c", notes)])
    async with open_supervisor([player("a", notes), inner, player("d", notes)]):
        assert notes == ["+a", "+b", "+c", "+d"]
    assert notes[4:] == ["-d", "-c", "-b", "-a"]  # S72


@pytest.mark.covers("S8")
async def test_a_start_can_carry_information() -> None:
    async def body(port: int, *, task_status: trio.TaskStatus[object]) -> None:
        task_status.started({"port": port})
        await trio.sleep_forever()

    async with open_supervisor() as sup:
        ref = await sup.start_child(ChildSpec("a", body, (80,)))
        assert ref.info == {"port": 80}


@pytest.mark.covers("S9")
@pytest.mark.parametrize(("restart", "held"), [("permanent", {"a": "down"}), ("temporary", {})])
async def test_an_ignored_start_is_no_error(restart: str, held: dict[str, str]) -> None:
    notes: Notes = []
    spec = player("a", notes, lambda _: IGNORE, restart=restart)
    async with open_supervisor([spec]) as sup:
        assert await picture(sup) == held
        assert sup.registry.names() == {}  # S11
        other = await sup.start_child(player("b", notes, lambda _: IGNORE, restart=restart))
        assert not other.is_alive()
    assert notes == ["+a", "+b"]


@pytest.mark.covers("S9")
async def test_a_function_can_ignore_its_start_too() -> None:
    async def body(*, task_status: trio.TaskStatus[None]) -> object:
        return IGNORE

    async with open_supervisor([ChildSpec("a", body)]) as sup:
        assert await picture(sup) == {"a": "down"}


@pytest.mark.covers("S9")
async def test_a_restart_that_ignores_leaves_the_child_down() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, lambda n: IGNORE if n > 1 else None)]) as sup:
        await crash(sup, "a")
        assert await picture(sup) == {"a": "down"}


@pytest.mark.covers("S10")
async def test_a_failed_first_start_undoes_the_others_in_reverse() -> None:
    notes: Notes = []
    children = [player(id, notes, fails_at(1) if id == "c" else None) for id in "abcd"]
    with pytest.raises(StartError, match=r"child 'c' did not start: crash: Boom\('start 1'\)") as caught:
        async with open_supervisor(children, intensity=10):
            raise AssertionError("not reached")
    assert notes == ["+a", "+b", "+c", "-b", "-a"]
    assert caught.value.id == "c"
    assert isinstance(caught.value.__cause__, Boom)


@pytest.mark.covers("S10")
async def test_a_nested_supervisor_that_cannot_start_is_a_failed_child() -> None:
    notes: Notes = []
    inner = supervisor_spec("inner", [player("b", notes), player("c", notes, fails_at(1))])
    with pytest.raises(StartError) as caught:
        async with open_supervisor([player("a", notes), inner]):
            raise AssertionError("not reached")
    assert caught.value.id == "inner"
    assert isinstance(caught.value.reason, Crash)
    assert isinstance(caught.value.reason.error, StartError)
    assert notes == ["+a", "+b", "+c", "-b", "-a"]


async def stops_in_init(*, task_status: trio.TaskStatus[None]) -> None:
    raise Exit(Shutdown("not today"))


async def returns_early(*, task_status: trio.TaskStatus[None]) -> None:
    return


async def cancels_itself(*, task_status: trio.TaskStatus[None]) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await trio.sleep_forever()


class StopsInInit(Actor):
    async def init(self) -> Stop:
        return Stop(Normal())


@pytest.mark.covers("T7")
@pytest.mark.parametrize("start", [stops_in_init, returns_early, cancels_itself, StopsInInit])
async def test_ending_before_ready_is_a_start_failure_in_whatever_way(
    start: Callable[..., object],
) -> None:
    async with open_supervisor() as sup:
        with pytest.raises(StartError):
            await sup.start_child(ChildSpec("a", start, restart="transient"))
        assert await sup.which_children() == ()


@pytest.mark.covers("S11")
async def test_a_failed_start_leaves_nothing_behind_when_the_starter_sees_it() -> None:
    left: list[str] = []

    class Half(Actor):
        async def init(self) -> None:
            self.nursery.start_soon(self.hold)
            await settled()
            raise Boom

        async def hold(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.lowlevel.checkpoint()
                left.append("released")

    async with open_supervisor() as sup:
        with pytest.raises(StartError):
            await sup.start_child(ChildSpec("a", Half, name="a"))
        assert left == ["released"]
        assert sup.registry.names() == {}
        with pytest.raises(NoProc):
            await sup.name("a").call("x")


@pytest.mark.covers("S46")
async def test_terminate_is_not_called_after_a_failed_start() -> None:
    notes: Notes = []
    async with open_supervisor() as sup:
        with pytest.raises(StartError):
            await sup.start_child(player("a", notes, fails_at(1)))
    assert notes == ["+a"]


@pytest.mark.covers("S12")
async def test_a_taken_name_fails_the_start_and_leaves_its_holder_alone() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, name="x")]) as sup:
        holder = sup.name("x").ref()
        with pytest.raises(AlreadyStarted, match="child 'b' is already started: <root/a at") as caught:
            await sup.start_child(player("b", notes, name="x"))
        assert caught.value.ref is holder
        assert sup.name("x").ref() is holder
        assert await sup.name("x").call("incarnation") == 1
        assert await picture(sup) == {"a": 1}
    assert notes == ["+a", "-a"]


@pytest.mark.covers("D5", "X4")
async def test_a_start_can_be_timed_out(autojump_clock: MockClock) -> None:
    begun = trio.current_time()
    with pytest.raises(StartError, match=r"not ready within 3 s") as caught:
        async with open_supervisor([ChildSpec("a", never_ready, start_timeout=3)]):
            raise AssertionError("not reached")
    assert trio.current_time() - begun == 3
    assert isinstance(caught.value.__cause__, StartTimeout)


@pytest.mark.covers("D5", "S43")
async def test_a_stop_aborts_a_start(autojump_clock: MockClock) -> None:
    async def slow(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(300)

    notes: Notes = []
    begun = trio.current_time()
    with trio.move_on_after(1) as scope:
        async with open_supervisor([player("a", notes), ChildSpec("b", slow), player("c", notes)]):
            raise AssertionError("not reached")
    assert scope.cancelled_caught
    assert trio.current_time() - begun == 1
    assert notes == ["+a", "-a"]


@pytest.mark.covers("T7")
async def test_a_child_stopped_just_after_it_was_started_is_accounted_for() -> None:
    notes: Notes = []

    class Quick(Player):
        async def handle_continue(self, arg: object) -> None: ...

    for _ in range(50):
        notes.clear()
        async with open_supervisor() as sup, trio.open_nursery() as nursery:

            async def start() -> None:
                with trio.CancelScope():
                    await sup.start_child(ChildSpec("a", Quick, (notes,)))

            nursery.start_soon(start)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            sup.ref.exit(Shutdown())
            nursery.cancel_scope.cancel()
        assert notes in ([], ["+a"], ["+a", "-a"])


@pytest.mark.covers("T7")
async def test_a_caller_that_gives_up_leaves_its_child_under_supervision(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []

    class Slow(Player):
        async def init(self, notes: Notes, start: object = None) -> None:
            await trio.sleep(2)
            await super().init(notes)

    async with open_supervisor() as sup:
        with trio.move_on_after(1):
            await sup.start_child(ChildSpec("a", Slow, (notes,)))
        await trio.sleep(5)
        assert await picture(sup) == {"a": 1}
    assert notes == ["+a", "-a"]


@pytest.mark.covers("S56")
async def test_a_child_that_asks_its_own_supervisor_while_starting_is_refused() -> None:
    class Asks(Actor):
        async def init(self) -> None:
            await self.supervisor.which_children()

    async with open_supervisor() as sup:
        with pytest.raises(StartError) as caught:
            await sup.start_child(ChildSpec("a", Asks))
        assert isinstance(caught.value.__cause__, WouldDeadlock)


@pytest.mark.covers("S56")
async def test_a_grandchild_that_asks_the_root_while_starting_is_refused_too() -> None:
    async def asks(*, task_status: trio.TaskStatus[None]) -> None:
        with pytest.raises(WouldDeadlock, match="supervisor 'root' waits for"):
            await root[0].which_children()
        async with trio.open_nursery() as nursery:

            async def below() -> None:
                with pytest.raises(WouldDeadlock):
                    await root[0].count_children()

            nursery.start_soon(below)
        task_status.started()
        await trio.sleep_forever()

    async with open_supervisor() as sup:
        root = [sup]
        await sup.start_child(supervisor_spec("inner", [ChildSpec("a", asks)]))


@pytest.mark.covers("S56")
async def test_a_task_of_the_starting_actors_nursery_may_ask() -> None:
    answers: list[int] = []

    class Asks(Actor):
        async def init(self) -> None:
            self.nursery.start_soon(self.ask)

        async def ask(self) -> None:
            answers.append((await self.supervisor.count_children()).active)

    async with open_supervisor([ChildSpec("a", Asks)]):
        await settled()
    assert answers == [1]


async def test_a_child_knows_its_context() -> None:
    async def body(*, task_status: trio.TaskStatus[object]) -> None:
        me = current_actor()
        task_status.started((me.id, me.path, me.incarnation, me.supervisor.path))
        await trio.sleep_forever()

    async with open_supervisor([supervisor_spec("s", [ChildSpec("a", body)])], name="fleet") as sup:
        assert sup.child("s/a").ref().info == ("a", "fleet/s/a", 1, "fleet/s")
    with pytest.raises(RuntimeError, match="not inside a supervised child"):
        current_actor()


@pytest.mark.covers("X11")
async def test_the_events_of_a_start_follow_the_state() -> None:
    notes: Notes = []
    async with open_supervisor() as sup:
        with sup.events() as events:
            await sup.start_child(supervisor_spec("s", [player("a", notes)]))
            with pytest.raises(StartError):
                await sup.start_child(player("b", notes, fails_at(1)))
            assert kinds(events) == [
                "child_started root/s/a",
                "supervisor_started root/s",
                "child_started root/s",
                "start_error root/b",
            ]


@pytest.mark.covers("T6")
async def test_a_start_that_was_asked_to_stop_before_its_first_step_never_runs() -> None:
    ran: list[str] = []

    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        ran.append("ran")
        task_status.started()

    async with open_supervisor() as sup, trio.open_nursery() as nursery:
        sup.ref.kill()
        with pytest.raises(Exception, match="ended: killed"):
            await sup.start_child(ChildSpec("a", body))
        nursery.cancel_scope.cancel()
    assert ran == []
    assert sup.ref.exit_reason == Killed()


async def test_a_function_can_be_ready_only_once() -> None:
    async def twice(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        with pytest.raises(RuntimeError, match="root/a was started already"):
            task_status.started()
        await trio.sleep_forever()

    async with open_supervisor([ChildSpec("a", twice)]):
        pass


@pytest.mark.covers("S1")
async def test_get_childspec_returns_what_is_held() -> None:
    async with open_supervisor([ChildSpec("a", forever, shutdown=math.inf)]) as sup:
        spec = await sup.get_childspec("a")
        assert (spec.id, spec.shutdown, spec.restart) == ("a", math.inf, "permanent")
