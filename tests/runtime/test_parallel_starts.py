"""Children with `start_order="parallel"`: they start and restart beside each other, and their supervisor serves meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    ActorExited,
    AlreadyStarted,
    AnySupervisor,
    Backoff,
    ChildSpec,
    Crash,
    DynamicSupervisor,
    Exit,
    ExitReason,
    FinalShutdown,
    MaxRestartsExceeded,
    NotFound,
    Ref,
    Running,
    Shutdown,
    StartError,
    Supervisor,
    TerminateTree,
    TreeShutdown,
    WouldDeadlock,
    current_actor,
    dynamic_supervisor_spec,
    open_dynamic_supervisor,
    open_partition_supervisor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.errors import StartTimeout
from proctor.runtime.spec import Strategy
from tests.runtime.stage import Boom, forever, heard, kinds, picture, settled

TREE_STATES = Mapping[str, str]


def beside(id: str, start: Callable[..., Awaitable[object]] = forever, **spec: Any) -> ChildSpec:
    """A child that starts beside others; its name is its id."""
    return ChildSpec(id, start, name=id, start_order="parallel", **spec)


def ready_in(*seconds: float | Exception) -> Callable[..., Awaitable[None]]:
    """A child whose incarnations take so long to start, later ones as long as the last; an exception fails at once."""

    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        step = seconds[min(current_actor().incarnation, len(seconds)) - 1]
        if isinstance(step, Exception):
            raise step
        await trio.sleep(step)
        await forever(task_status=task_status)

    return body


def fails_in(seconds: float, reason: ExitReason | None = None) -> Callable[..., Awaitable[None]]:
    """A child whose every start fails after so long, with `reason` if given."""

    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(seconds)
        raise Boom("start") if reason is None else Exit(reason)

    return body


def slow_restart(seconds: float, then: ExitReason | None = None) -> Callable[..., Awaitable[None]]:
    """A child that is ready at once, and whose restarts take so long, or fail with `then` after that."""

    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        if current_actor().incarnation > 1:
            await trio.sleep(seconds)
            if then is not None:
                raise Exit(then)
        await forever(task_status=task_status)

    return body


def now() -> float:
    """Virtual seconds since the beginning of the test."""
    return trio.current_time()


def states(sup: AnySupervisor) -> TREE_STATES:
    """The state of each child now."""
    return {node.id: node.state for node in sup.tree().children}


async def raises(error: type[BaseException], ask: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(error):
        await ask()


# -- the first start


@pytest.mark.covers("S7")
async def test_fifty_children_that_take_a_second_to_start_are_ready_after_a_second(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([beside(f"a{n}", ready_in(1.0)) for n in range(50)]) as sup:
        assert now() == 1.0
        assert [child.id for child in await sup.which_children()] == [f"a{n}" for n in range(50)]


@pytest.mark.covers("S7")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_children_that_depend_on_each_other_start_one_after_another_whatever_they_say(
    strategy: Strategy, autojump_clock: MockClock
) -> None:
    async with open_supervisor([beside(id, ready_in(1.0)) for id in "abc"], strategy=strategy) as sup:
        assert now() == 3.0
        sup.name("a").kill()
        await trio.sleep(0.5)
        assert states(sup)["b"] != "starting"
        await trio.sleep(2.6 if strategy == "one_for_all" else 3.6)
        assert set(states(sup).values()) == {"running"}


@pytest.mark.covers("S7")
async def test_a_sequential_child_starts_after_those_before_it_and_before_those_after_it(
    autojump_clock: MockClock,
) -> None:
    times: dict[str, float] = {}

    async def noted(*, task_status: trio.TaskStatus[None]) -> None:
        times[current_actor().id] = now()
        await trio.sleep(1)
        await forever(task_status=task_status)

    children = [
        beside("a", noted),
        beside("b", noted),
        ChildSpec("s", noted),
        beside("c", noted),
        beside("d", noted),
    ]
    async with open_supervisor(children):
        assert times == {"a": 0.0, "b": 0.0, "s": 1.0, "c": 2.0, "d": 2.0}
        assert now() == 3.0


async def test_a_tree_can_be_looked_at_while_its_children_start(autojump_clock: MockClock) -> None:
    seen: dict[float, TREE_STATES] = {}

    async def look(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        for _ in range(3):
            handle = current_actor().supervisor
            assert isinstance(handle, AnySupervisor)
            seen[now()] = {id: state for id, state in states(handle).items() if id != "look"}
            await trio.sleep(1)
        await trio.sleep_forever()

    async with open_supervisor(
        [beside("a", ready_in(0.5)), beside("b", ready_in(1.5)), ChildSpec("x", forever)]
    ):
        pass
    children = [ChildSpec("look", look), beside("a", ready_in(0.5)), beside("b", ready_in(1.5))]
    start = now()
    async with open_supervisor(children):
        assert {time - start: states for time, states in seen.items()} == {
            0.0: {},
            1.0: {"a": "running", "b": "starting"},
        }


@pytest.mark.covers("S10")
async def test_the_first_failure_aborts_the_other_starts_and_is_raised(autojump_clock: MockClock) -> None:
    notes: list[str] = []

    async def noted(*, task_status: trio.TaskStatus[None]) -> None:
        id = current_actor().id
        try:
            await trio.sleep({"a": 0.0, "b": 0.0, "d": 60.0}[id])
            await forever(task_status=task_status)
        finally:
            notes.append(id)

    children = [
        beside("a", noted),
        beside("b", noted),
        beside("c", fails_in(2)),
        beside("d", noted),
        ChildSpec("e", forever),
    ]
    with pytest.raises(StartError, match=r"child 'c' did not start: crash: Boom\('start'\)") as caught:
        async with open_supervisor(children):
            raise AssertionError("the body ran")
    assert now() == 2.0
    assert notes == ["d", "b", "a"]  # what never was ready first, then in reverse order (S36)
    assert not getattr(caught.value, "__notes__", ())


@pytest.mark.covers("S10")
@pytest.mark.parametrize("seed", range(5))
async def test_of_failures_at_one_moment_the_first_in_the_list_is_raised_with_the_others_as_notes(
    seed: int, autojump_clock: MockClock
) -> None:
    children = [
        beside("a", ready_in(5)),
        *(beside(id, fails_in(1)) for id in "bcd"),
        beside("e", fails_in(2)),
    ]
    with pytest.raises(StartError) as caught:
        async with open_supervisor(children, seed=seed):
            raise AssertionError("the body ran")
    assert caught.value.id == "b"
    assert caught.value.__notes__ == [
        f"besides, child {id!r} did not start: crash: Boom('start')" for id in "cd"
    ]


@pytest.mark.covers("S12")
async def test_a_name_taken_twice_among_children_that_start_together_fails_the_second() -> None:
    ran: list[str] = []

    async def noted(*, task_status: trio.TaskStatus[None]) -> None:
        ran.append(current_actor().id)
        await forever(task_status=task_status)

    children = [
        *(beside(id, noted) for id in "abc"),
        ChildSpec("taken", noted, name="a", start_order="parallel"),
        beside("d", noted),
    ]
    with pytest.raises(AlreadyStarted) as caught:
        async with open_supervisor(children):
            raise AssertionError("the body ran")
    assert caught.value.id == "taken"
    assert ran == []  # a child that is aborted before its first step never runs


@pytest.mark.covers("X4")
async def test_a_start_that_takes_too_long_counts_from_its_own_beginning(autojump_clock: MockClock) -> None:
    children = [beside("a", ready_in(3)), beside("b", ready_in(60), start_timeout=1)]
    with pytest.raises(StartError) as caught:
        async with open_supervisor(children):
            raise AssertionError("the body ran")
    assert now() == 1.0
    assert isinstance(caught.value.reason, Crash)
    assert isinstance(caught.value.reason.error, StartTimeout)


@pytest.mark.covers("D5")
async def test_a_cancelled_first_start_ends_all_starts_at_once(autojump_clock: MockClock) -> None:
    with trio.move_on_after(2) as scope:
        async with open_supervisor([beside(id, ready_in(60)) for id in "abc"]):
            raise AssertionError("the body ran")
    assert scope.cancelled_caught
    assert now() == 2.0


@pytest.mark.covers("S72")
async def test_an_aborted_start_of_a_supervisor_stops_what_is_ready_below_it_by_its_shutdown(
    autojump_clock: MockClock,
) -> None:
    ended: list[float] = []

    async def cleans_up(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            ended.append(now())

    inner = supervisor_spec(
        "inner", [ChildSpec("ready", cleans_up), ChildSpec("slow", ready_in(60))], start_order="parallel"
    )
    with pytest.raises(StartError, match="'bad'"):
        async with open_supervisor([inner, beside("bad", fails_in(2))]):
            raise AssertionError("the body ran")
    assert ended == [3.0]


# -- restarts


@pytest.mark.covers("S21", "S55")
async def test_a_crash_beside_a_restart_that_waits_is_restarted_at_once(autojump_clock: MockClock) -> None:
    async with open_supervisor([beside("a"), beside("b", slow_restart(60))], intensity=5) as sup:
        sup.name("b").kill()
        await settled()
        assert states(sup) == {"a": "running", "b": "starting"}
        sup.name("a").kill()
        await settled()
        assert (now(), await picture(sup)) == (0.0, {"a": 2, "b": "starting"})
        assert (await sup.count_children()).active == 2  # requests are answered meanwhile
        await trio.sleep(60.5)
        assert await picture(sup) == {"a": 2, "b": 2}


@pytest.mark.covers("S55")
async def test_a_sequential_child_still_holds_up_its_siblings(autojump_clock: MockClock) -> None:
    async with open_supervisor([beside("a"), ChildSpec("b", slow_restart(2), name="b")], intensity=5) as sup:
        sup.name("b").kill()
        await settled()
        sup.name("a").kill()
        await trio.sleep(1)
        assert await picture(sup) == {"a": "stopping", "b": "starting"}
        await trio.sleep(1.5)
        assert await picture(sup) == {"a": 2, "b": 2}


async def test_all_killed_at_once_come_back_together(autojump_clock: MockClock) -> None:
    async with open_supervisor([beside(f"a{n}", ready_in(0, 1)) for n in range(50)], intensity=50) as sup:
        for n in range(50):
            sup.name(f"a{n}").kill()
        await trio.sleep(1.5)
        assert set((await picture(sup)).values()) == {2}


@pytest.mark.covers("S30")
async def test_restarts_are_counted_in_the_order_of_the_exits(autojump_clock: MockClock) -> None:
    children = [beside(id, slow_restart(60)) for id in "abc"]
    with pytest.raises(MaxRestartsExceeded) as caught:  # noqa: PT012
        async with open_supervisor(children, intensity=2) as sup:
            for id in "cab":
                sup.name(id).exit(Shutdown(id))
                await settled()
            await trio.sleep_forever()
    assert [str(error)[-12:] for error in caught.value.exceptions] == [f"shutdown ({id})" for id in "cab"]


@pytest.mark.covers("S33", "S36")
async def test_a_supervisor_that_gives_up_aborts_its_starts_before_it_stops_the_others(
    autojump_clock: MockClock,
) -> None:
    inner = supervisor_spec(
        "inner", [beside("a"), beside("b", slow_restart(60)), beside("c")], restart="temporary"
    )
    async with open_supervisor([inner]) as sup:
        with sup.events() as events:
            sup.child("inner/b").kill()
            await settled()
            sup.child("inner/a").kill()
            await settled()
            after = kinds(events)
    assert now() == 0.0
    assert after[after.index("max_restarts root/inner") :] == [
        "max_restarts root/inner",
        "start_error root/inner/b",
        "child_exited root/inner/c",
        "supervisor_stopped root/inner",
        "child_exited root/inner",
    ]


@pytest.mark.covers("S28", "S31")
async def test_a_restart_that_fails_beside_others_is_tried_again_and_counted(
    autojump_clock: MockClock,
) -> None:
    start = ready_in(0, Boom("again"), Boom("again"), 0)
    async with open_supervisor([beside("a", start), beside("b")], intensity=3) as sup:
        sup.name("a").kill()
        await settled()
        assert await picture(sup) == {"a": 4, "b": 1}
        assert sup.tree().children[0].restarts == 3


@pytest.mark.covers("X1")
async def test_a_restart_beside_others_waits_out_its_back_off(autojump_clock: MockClock) -> None:
    backoff = Backoff(min_delay=1.0, max_delay=8.0, jitter=0.0)
    start = ready_in(0, Boom("again"), 0)
    async with open_supervisor([beside("a", start, backoff=backoff)], intensity=3) as sup:
        sup.name("a").kill()
        await trio.sleep(3.5)
        assert await picture(sup) == {"a": 3}


async def test_a_child_that_is_ready_and_ends_in_one_moment_is_restarted(autojump_clock: MockClock) -> None:
    async def brief(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        if current_actor().incarnation in (2, 3):
            raise Boom("soon")
        await trio.sleep_forever()

    async with open_supervisor([beside("a", brief)], intensity=5) as sup:
        with sup.events() as events:
            sup.name("a").kill()
            assert await picture(sup) == {"a": 4}
            told = [kind for kind in kinds(events) if kind.startswith(("child_started", "child_restarting"))]
            assert told == ["child_restarting root/a", "child_started root/a"] * 3


@pytest.mark.parametrize(
    ("reason", "left"),
    [(FinalShutdown("no"), {"a": "down", "b": 1}), (Crash(Boom("x")), {"a": "starting", "b": 1})],
)
async def test_a_restart_that_refuses_beside_others_stays_down(
    reason: ExitReason, left: Mapping[str, object], autojump_clock: MockClock
) -> None:
    async with open_supervisor([beside("a", slow_restart(1, reason)), beside("b")], intensity=9) as sup:
        sup.name("a").kill()
        await trio.sleep(1.5)
        assert await picture(sup) == left


async def test_a_restart_that_ends_the_tree_ends_it_while_others_start(autojump_clock: MockClock) -> None:
    with pytest.raises(TerminateTree, match="disk full"):  # noqa: PT012
        async with open_supervisor(
            [
                beside("a", slow_restart(1, TreeShutdown("disk full"))),
                beside("b", slow_restart(60)),
                ChildSpec("c", slow_restart(60), name="c"),
            ],
            intensity=9,
        ) as sup:
            for id in "abc":
                sup.name(id).kill()
                await settled()
            await trio.sleep_forever()
    assert now() == 1.0


# -- each state of a child, and what can be asked meanwhile


async def start_beside(sup: Supervisor, nursery: trio.Nursery, answers: list[object]) -> None:
    """`x`, whose first start takes 5 s, asked for by a task of its own."""

    async def ask() -> None:
        try:
            answers.append(await sup.start_child(beside("x", ready_in(5))))
        except (StartError, ActorExited) as error:
            answers.append(type(error))

    nursery.start_soon(ask)
    await settled()


async def terminate(sup: Supervisor) -> object:
    return await sup.terminate_child("x")


async def restart(sup: Supervisor) -> object:
    return await sup.restart_child("x")


async def delete(sup: Supervisor) -> None:
    await sup.delete_child("x")


async def start_again(sup: Supervisor) -> object:
    return await sup.start_child(beside("x"))


async def become_temporary(sup: Supervisor) -> None:
    await sup.change([beside("x", restart="temporary")])


async def stop(sup: Supervisor) -> object:
    return await sup.stop()


async def kill(sup: Supervisor) -> object:
    sup.ref.kill()
    return await sup.wait_stopped()


async def wait(sup: Supervisor) -> None:
    await trio.sleep(5.5)


Ask = Callable[[Supervisor], Awaitable[object]]

# asked while it starts: what is answered, the state of `x` after that, and the answer of the one who asked for its start
FIRST_STARTS: Mapping[Ask, tuple[type[Exception] | None, str | None, object]] = {
    wait: (None, "running", Ref),
    terminate: (None, None, StartError),
    restart: (Running, "starting", Ref),
    delete: (Running, "starting", Ref),
    start_again: (AlreadyStarted, "starting", Ref),
    become_temporary: (None, "starting", Ref),
    stop: (None, None, ActorExited),
    kill: (None, None, ActorExited),
}
RESTARTING: Mapping[Ask, tuple[type[Exception] | None, str | None]] = {
    wait: (None, "running"),
    terminate: (None, "down"),
    restart: (Running, "starting"),
    delete: (Running, "starting"),
    start_again: (AlreadyStarted, "starting"),
    become_temporary: (None, "starting"),
    stop: (None, None),
    kill: (None, None),
}


@pytest.mark.covers("S47", "S48", "S49", "S50", "S51", "D5")
@pytest.mark.parametrize("ask", FIRST_STARTS, ids=lambda ask: ask.__name__)
async def test_what_is_asked_during_a_first_start(ask: Ask, autojump_clock: MockClock) -> None:
    error, state, answer = FIRST_STARTS[ask]
    answers: list[object] = []
    async with open_supervisor([beside("a")]) as sup, trio.open_nursery() as nursery:
        await start_beside(sup, nursery, answers)
        if error is None:
            await ask(sup)
        else:
            await raises(error, lambda: ask(sup))
        await settled()
        assert states(sup).get("x") == state
        assert now() == (5.5 if ask is wait else 0.0)
        await trio.sleep(6)
        [result] = answers
        assert result is answer or isinstance(result, Ref if answer is Ref else type(None))


@pytest.mark.covers("S49", "S50", "S51", "D5")
@pytest.mark.parametrize("ask", RESTARTING, ids=lambda ask: ask.__name__)
async def test_what_is_asked_during_a_restart(ask: Ask, autojump_clock: MockClock) -> None:
    error, state = RESTARTING[ask]
    async with open_supervisor([beside("a"), beside("x", slow_restart(5))]) as sup:
        sup.name("x").kill()
        await settled()
        if error is None:
            await ask(sup)
        else:
            await raises(error, lambda: ask(sup))
        await settled()
        assert states(sup).get("x") == state
        assert now() == (5.5 if ask is wait else 0.0)
        if state == "starting":
            await trio.sleep(6)
            assert states(sup)["x"] == "running"


@pytest.mark.covers("S50")
async def test_an_aborted_restart_is_not_tried_again_but_can_be_asked_for(autojump_clock: MockClock) -> None:
    async with open_supervisor([beside("x", slow_restart(5))], intensity=1) as sup:
        sup.name("x").kill()
        await settled()
        with sup.events() as events:
            await sup.terminate_child("x")
            assert kinds(events) == ["start_error root/x"]
            await trio.sleep(10)
            assert heard(events) == []
        await sup.restart_child("x")
        assert now() == 15.0


@pytest.mark.covers("S16", "S73")
async def test_a_child_that_became_temporary_while_its_restart_failed_is_dropped(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([beside("x", slow_restart(5, Crash(Boom("x"))))], intensity=9) as sup:
        sup.name("x").kill()
        await settled()
        await become_temporary(sup)
        await trio.sleep(6)
        assert states(sup) == {}


@pytest.mark.covers("S22", "S73")
async def test_a_restart_of_all_aborts_the_starts_that_another_strategy_had_begun(
    autojump_clock: MockClock,
) -> None:
    answers: list[object] = []
    children = [beside("a"), beside("b", slow_restart(5))]
    async with open_supervisor(children, intensity=9) as sup, trio.open_nursery() as nursery:
        await start_beside(sup, nursery, answers)
        sup.name("b").kill()
        await settled()
        await sup.change(strategy="one_for_all")
        sup.name("a").kill()
        await trio.sleep(5.5)
        assert await picture(sup) == {"a": 2, "b": 3}
    assert answers == [StartError]


@pytest.mark.covers("S56")
async def test_a_child_that_asks_its_supervisor_while_it_starts_is_refused(autojump_clock: MockClock) -> None:
    async def asks(*, task_status: trio.TaskStatus[None]) -> None:
        handle = current_actor().supervisor
        assert isinstance(handle, AnySupervisor)
        with pytest.raises(WouldDeadlock):
            await handle.which_children()
        await forever(task_status=task_status)

    async with open_supervisor([beside("a", asks), beside("b", asks)]) as sup:
        sup.name("a").kill()
        assert await picture(sup) == {"a": 2, "b": 1}


# -- dynamic supervisors, partitions, nested ones


@pytest.mark.covers("S63")
async def test_children_of_a_dynamic_supervisor_start_beside_each_other(autojump_clock: MockClock) -> None:
    async with open_dynamic_supervisor(max_children=3) as pool:
        refs: list[Ref] = []

        async def ask(seconds: float) -> None:
            refs.append(await pool.start_child(ChildSpec("w", ready_in(seconds), start_order="parallel")))

        async with trio.open_nursery() as nursery:
            for seconds in (3, 2, 1):
                nursery.start_soon(ask, seconds)
                await settled()
        assert now() == 3.0
        assert [ref.path for ref in refs] == ["root/w-3", "root/w-2", "root/w"]


@pytest.mark.covers("S66")
async def test_a_restart_in_a_dynamic_supervisor_can_be_terminated_by_the_ref_of_the_last_that_was_ready(
    autojump_clock: MockClock,
) -> None:
    async with open_dynamic_supervisor() as pool:
        ref = await pool.start_child(beside("w", slow_restart(60)))
        ref.kill()
        await settled()
        await pool.terminate_child(ref)
        assert (now(), states(pool)) == (0.0, {})
        with pytest.raises(NotFound):
            await pool.terminate_child(ref)


@pytest.mark.parametrize("lasts", [0.0, None])
async def test_a_child_whose_starter_was_cancelled_is_withdrawn_when_it_is_ready(
    lasts: float | None, autojump_clock: MockClock
) -> None:
    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(2)
        task_status.started()
        if lasts is not None and current_actor().incarnation == 1:
            raise Boom("at once")
        await trio.sleep_forever()

    async with open_dynamic_supervisor(intensity=9) as pool:
        with trio.move_on_after(1):
            await pool.start_child(beside("w", body))
        assert states(pool) == {"w": "starting"}
        await trio.sleep(1.5)
        await settled()
        assert states(pool) == {}


async def test_partitions_start_beside_each_other(autojump_clock: MockClock) -> None:
    spec = ChildSpec("w", ready_in(1, 2), start_order="parallel")
    async with open_partition_supervisor(spec, 4) as sup:
        assert now() == 1.0
        assert await sup.resize(2) == 4
        assert set(states(sup).values()) == {"running", "down"}
        assert await sup.resize(4) == 2


@pytest.mark.covers("S62", "S34")
async def test_a_nested_supervisor_that_gives_up_during_starts_is_restarted_by_its_parent(
    autojump_clock: MockClock,
) -> None:
    inner = supervisor_spec(
        "inner", [beside("a"), beside("b", slow_restart(60))], start_order="parallel", intensity=1
    )
    async with open_supervisor([inner, beside("c")], intensity=3) as sup:
        sup.child("inner/b").kill()
        await settled()
        sup.child("inner/a").kill()
        await settled()
        assert await picture(sup) == {"inner": 2, "c": 1}
        assert states(sup.supervisor("inner")) == {"a": "running", "b": "running"}


async def test_children_that_outlive_their_supervisor_are_not_among_those_that_start(
    autojump_clock: MockClock,
) -> None:
    inner = supervisor_spec(
        "inner", [beside("a"), beside("b", slow_restart(60))], orphans="keep", intensity=1
    )
    async with open_supervisor([inner], intensity=3) as sup:
        kept = sup.child("inner/a").ref()
        sup.child("inner/b").kill()
        await settled()
        sup.supervisor("inner").ref.kill()
        await settled()
        assert sup.child("inner/a").ref() is kept
        assert states(sup.supervisor("inner")) == {"a": "running", "b": "running"}
        assert now() == 0.0


async def test_a_nested_dynamic_supervisor_stops_while_its_children_start(autojump_clock: MockClock) -> None:
    async with open_supervisor([dynamic_supervisor_spec("pool")]) as sup:
        pool = sup.supervisor("pool", DynamicSupervisor)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(raises, ActorExited, lambda: pool.start_child(beside_unnamed()))
            await settled()
            await pool.stop()
        assert now() == 0.0


def beside_unnamed() -> ChildSpec:
    return ChildSpec("w", ready_in(60), start_order="parallel")


@pytest.mark.covers("S7")
def test_a_start_order_that_does_not_exist_is_refused() -> None:
    wrong: Sequence[Any] = ["ordered", True, None]
    for value in wrong:
        with pytest.raises(Exception, match=r"start_order of 'a' is .*: expected 'sequential' or 'parallel'"):
            ChildSpec("a", forever, start_order=value)
