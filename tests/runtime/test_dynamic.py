from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any, Self

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    IGNORE,
    Actor,
    ActorExited,
    AlreadyStarted,
    ChildCounts,
    ChildSpec,
    Crash,
    InvalidSpec,
    Killed,
    MaxRestartsExceeded,
    Normal,
    NotFound,
    Ref,
    Shutdown,
    StartError,
    WouldDeadlock,
    current_actor,
    open_supervisor,
)
from proctor.runtime.errors import MaxChildren
from proctor.runtime.spec import DynamicFlags, Restart
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.child_table import Slot
from proctor.runtime.supervision.dynamic import (
    DynamicSupervisor,
    dynamic_supervisor_spec,
    open_dynamic_supervisor,
)
from tests.runtime.stage import (
    EXITS,
    Boom,
    Notes,
    Player,
    Stubborn,
    end,
    fails_at,
    fails_from,
    forever,
    heard,
    never_ready,
    picture,
    player,
    settled,
)


def nameless(id: str, notes: Notes, start: Any = None, **spec: Any) -> ChildSpec:
    return player(id, notes, start, name=None, **spec)


def ignores_at(ignoring: int) -> Callable[[int], object]:
    def start(incarnation: int) -> object:
        return IGNORE if incarnation == ignoring else None

    return start


@pytest.mark.covers("S63")
async def test_the_handle_is_what_the_caller_asks_for() -> None:
    class Fleet(DynamicSupervisor):
        async def enlist(self) -> Ref:
            return await self.start_child(ChildSpec("w", forever))

    async with open_dynamic_supervisor(handle=Fleet) as fleet:
        await fleet.terminate_child(await fleet.enlist())
        assert await fleet.count_children() == ChildCounts(0, 0, 0, 0)


@pytest.mark.covers("S63")
async def test_ids_need_not_be_unique_but_places_are() -> None:
    async with open_dynamic_supervisor(name="pool") as sup:
        refs = [await sup.start_child(ChildSpec("w", forever)) for _ in range(3)]
        assert [ref.path for ref in refs] == ["pool/w", "pool/w-2", "pool/w-3"]
        assert [sup.child(place).ref() for place in ("w", "w-2", "w-3")] == refs
        assert [info.ref for info in await sup.which_children()] == refs
        assert [node.path for node in sup.tree().children] == [ref.path for ref in refs]


@pytest.mark.covers("S63")
async def test_a_place_that_somebody_asked_for_by_its_number_is_passed_over() -> None:
    async with open_dynamic_supervisor() as sup:
        for id in ("w-2", "w", "w"):
            await sup.start_child(ChildSpec(id, forever))
        assert [child.id for child in sup.tree().children] == ["w-2", "w", "w-3"]


@pytest.mark.covers("S63")
async def test_a_restarted_child_keeps_its_place_and_gets_a_new_ref() -> None:
    notes: Notes = []
    async with open_dynamic_supervisor() as sup:
        await sup.start_child(nameless("w", notes))
        second = await sup.start_child(nameless("w", notes))
        await end(second, Killed())
        await settled()
        assert second is not (again := sup.child("w-2").ref())
        assert await again.call("incarnation") == 2
        assert await picture(sup) == {"w": 1, "w-2": 2}


@pytest.mark.covers("S63")
async def test_only_the_child_that_exited_is_restarted() -> None:
    notes: Notes = []
    async with open_dynamic_supervisor() as sup:
        first, *_ = [await sup.start_child(nameless(id, notes)) for id in "abc"]
        del notes[:]
        await end(first, Crash(Boom()))
        await settled()
        assert notes == ["-a", "+a"]


@pytest.mark.covers("S63")
async def test_extra_arguments_come_first_at_the_start_and_at_a_restart() -> None:
    seen: list[tuple[object, ...]] = []

    class Keen(Actor):
        async def init(self, *args: object) -> None:
            seen.append(args)

    async with open_dynamic_supervisor(extra_arguments=["x", 1]) as sup:
        await end(await sup.start_child(ChildSpec("k", Keen, ("own",))), Killed())
        await settled()
        await sup.start_child(ChildSpec("t", Keen, ("own",), restart="temporary"))
    assert seen == [("x", 1, "own")] * 3


@pytest.mark.covers("S12", "S63")
async def test_a_name_that_is_taken_refuses_the_start_and_nothing_stays() -> None:
    notes: Notes = []
    async with open_dynamic_supervisor(max_children=2) as sup:
        holder = await sup.start_child(player("w", notes, name="n"))
        with pytest.raises(AlreadyStarted) as caught:
            await sup.start_child(player("w", notes, name="n"))
        assert caught.value.ref is holder
        assert (await sup.count_children()).specs == 1
        await sup.start_child(player("w", notes, name="m"))


@pytest.mark.covers("S55")
async def test_a_start_begins_when_the_one_before_is_ready(autojump_clock: MockClock) -> None:
    times: list[float] = []

    async def slow(*, task_status: trio.TaskStatus[None]) -> None:
        times.append(trio.current_time())
        await trio.sleep(2)
        task_status.started()

    async with open_dynamic_supervisor() as sup, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(sup.start_child, ChildSpec("s", slow, restart="temporary"))
    assert times == [0, 2, 4]


@pytest.mark.covers("S47", "S63")
async def test_a_start_that_fails_is_raised_and_nothing_stays() -> None:
    notes: Notes = []
    async with open_dynamic_supervisor() as sup:
        with pytest.raises(StartError):
            await sup.start_child(nameless("w", notes, fails_at(1)))
        assert await sup.which_children() == ()
        assert not sup.child("w").is_alive()


@pytest.mark.covers("S64")
async def test_one_more_than_max_children_is_refused_before_it_starts() -> None:
    notes: Notes = []
    async with open_dynamic_supervisor(max_children=2) as sup:
        first = await sup.start_child(nameless("w", notes))
        await sup.start_child(nameless("w", notes))
        with pytest.raises(MaxChildren, match="supervisor 'root' has 2 children, which is its max_children"):
            await sup.start_child(nameless("w", notes))
        assert notes == ["+w", "+w-2"]
        await sup.terminate_child(first)
        await sup.start_child(nameless("w", notes))


@pytest.mark.covers("S64", "S53")
async def test_a_restarting_child_counts() -> None:
    notes: Notes = []
    async with open_dynamic_supervisor(max_children=1, intensity=100) as sup:
        ref = await sup.start_child(nameless("w", notes, fails_from(2)))
        await end(ref, Killed())
        while (await sup.which_children())[0].ref != "restarting":
            pass
        with pytest.raises(MaxChildren):
            await sup.start_child(nameless("x", notes))
        assert await sup.count_children() == ChildCounts(specs=1, active=0, supervisors=0, workers=1)
        await sup.terminate_child(ref)
        await sup.start_child(nameless("x", notes))


@pytest.mark.covers("S73", "S64")
async def test_a_lower_limit_stops_nobody_and_a_higher_one_makes_room() -> None:
    async with open_dynamic_supervisor(max_children=2) as sup:
        first, second = [await sup.start_child(ChildSpec("w", forever)) for _ in range(2)]
        await sup.change(max_children=1)
        assert first.is_alive()
        assert second.is_alive()
        await sup.terminate_child(second)
        with pytest.raises(MaxChildren, match="has 1 children"):
            await sup.start_child(ChildSpec("w", forever))
        await sup.change(intensity=5)
        with pytest.raises(MaxChildren):
            await sup.start_child(ChildSpec("w", forever))
        await sup.change(max_children=None)
        assert (await sup.start_child(ChildSpec("w", forever))).is_alive()


@pytest.mark.covers("S73", "S30")
async def test_a_new_intensity_counts_from_the_next_exit_on() -> None:
    async def kill_thrice() -> None:
        async with open_dynamic_supervisor(intensity=0) as sup:
            await sup.change(intensity=2, period=60)
            await sup.start_child(player("w", []))
            for _ in range(3):
                assert sup.name("w").find() is not None
                sup.name("w").kill()
                await settled()

    with pytest.raises(MaxRestartsExceeded, match="more than 2 restarts in 60 s"):
        await kill_thrice()


@pytest.mark.covers("S73", "S4")
@pytest.mark.parametrize("given", [{"max_children": -1}, {"intensity": -1}, {"period": 0}])
async def test_an_invalid_change_changes_nothing(given: dict[str, Any]) -> None:
    async with open_dynamic_supervisor(max_children=1) as sup:
        ref = await sup.start_child(ChildSpec("w", forever))
        with pytest.raises(InvalidSpec, match=next(iter(given))):
            await sup.change(**({"max_children": 5} | given))
        with pytest.raises(MaxChildren):
            await sup.start_child(ChildSpec("w", forever))
        assert ref.is_alive()


@pytest.mark.covers("S64", "S66")
@pytest.mark.parametrize("reason", EXITS.values(), ids=EXITS)
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
async def test_who_is_not_restarted_leaves_room_for_another(restart: Restart, reason: Any) -> None:
    notes: Notes = []
    comes_back = restart == "permanent" or (restart == "transient" and str(reason) in ABNORMAL)
    async with open_dynamic_supervisor(max_children=1) as sup:
        await end(await sup.start_child(nameless("w", notes, restart=restart)), reason)
        assert await picture(sup) == ({"w": 2} if comes_back else {})
        if not comes_back:
            await sup.start_child(nameless("w", notes))


ABNORMAL = {"crash: Boom('crash')", "killed", "exit status 1"}


@pytest.mark.covers("S65")
async def test_children_are_stopped_all_together_each_by_its_own_time(autojump_clock: MockClock) -> None:
    refs: list[Ref] = []
    async with open_dynamic_supervisor() as sup:
        for seconds in (0.1, 0.2, 0.3):
            refs.append(await sup.start_child(ChildSpec("s", Stubborn, (seconds,))))
        refs.append(await sup.start_child(ChildSpec("s", Stubborn, (9,), shutdown=0.25)))
        refs.append(await sup.start_child(ChildSpec("s", Stubborn, (9,), shutdown="brutal_kill")))
        events, begun = sup.events(), trio.current_time()
    assert trio.current_time() - begun == pytest.approx(0.3)
    assert [str(ref.exit_reason) for ref in refs] == ["shutdown"] * 3 + ["killed"] * 2
    ends = [(round(e.time - begun, 2), e.path) for e in heard(events) if e.kind == "child_exited"]
    assert ends == [
        (0, "root/s-5"),
        (0.1, "root/s"),
        (0.2, "root/s-2"),
        (0.25, "root/s-4"),
        (0.3, "root/s-3"),
    ]


@pytest.mark.covers("S65", "S45")
async def test_a_kill_cuts_a_common_stop_short(autojump_clock: MockClock) -> None:
    async with open_supervisor([dynamic_supervisor_spec("d")]) as top:
        sup = top.supervisor("d", DynamicSupervisor)
        refs = [await sup.start_child(ChildSpec("s", Stubborn, (9,), shutdown=60)) for _ in range(3)]
        sup.ref.exit(Shutdown())
        await trio.sleep(1)
        begun = trio.current_time()
        sup.ref.kill()
        assert await sup.wait_stopped() == Killed()
        assert trio.current_time() == begun
        assert [ref.exit_reason for ref in refs] == [Killed()] * 3


@pytest.mark.covers("S56", "S65")
async def test_a_child_that_asks_its_stopping_supervisor_is_refused_at_once(
    autojump_clock: MockClock,
) -> None:
    errors: list[type[Exception]] = []

    class Curious(Actor):
        async def terminate(self, reason: object) -> None:
            try:
                await self.supervisor.which_children()
            except WouldDeadlock as error:
                errors.append(type(error))

    begun = trio.current_time()
    async with open_dynamic_supervisor() as sup:
        for _ in range(3):
            await sup.start_child(ChildSpec("c", Curious))
    assert errors == [WouldDeadlock] * 3
    assert trio.current_time() == begun


@pytest.mark.covers("S66")
async def test_a_terminated_child_is_stopped_by_its_time_and_forgotten(autojump_clock: MockClock) -> None:
    async with open_dynamic_supervisor() as sup:
        ref = await sup.start_child(ChildSpec("s", Stubborn, (9,), shutdown=2))
        begun = trio.current_time()
        await sup.terminate_child(ref)
        assert trio.current_time() - begun == 2
        assert ref.exit_reason == Killed()
        assert await sup.which_children() == ()


@pytest.mark.covers("S66")
async def test_a_child_that_is_gone_or_another_supervisors_is_not_found() -> None:
    notes: Notes = []
    async with open_supervisor([ChildSpec("w", forever), dynamic_supervisor_spec("d")]) as top:
        sup = top.supervisor("d", DynamicSupervisor)
        ref = await sup.start_child(nameless("w", notes, restart="transient"))
        with pytest.raises(NotFound):
            await sup.terminate_child(top.child("w").ref())
        await end(ref, Normal())
        with pytest.raises(NotFound, match="no child 'root/d/w'"):
            await sup.terminate_child(ref)


@pytest.mark.covers("S66")
async def test_what_is_no_ref_is_refused_in_its_caller_and_the_tree_lives_on() -> None:
    async with open_dynamic_supervisor() as sup:
        ref = await sup.start_child(ChildSpec("w", forever))
        wrong: Any = "w"
        with pytest.raises(TypeError, match="a child of 'root' is known by the Ref of its start, got 'w'"):
            await sup.terminate_child(wrong)
        assert [child.ref for child in await sup.which_children()] == [ref]


@pytest.mark.covers("S66", "S17", "L35")
async def test_the_ref_of_an_earlier_incarnation_is_not_found() -> None:
    notes: Notes = []
    async with open_dynamic_supervisor() as sup:
        ref = await sup.start_child(nameless("w", notes))
        await end(ref, Killed())
        await settled()
        with pytest.raises(NotFound):
            await sup.terminate_child(ref)
        await sup.terminate_child(sup.child("w").ref())
        assert await sup.which_children() == ()


@pytest.mark.covers("S66", "S43")
async def test_a_restarting_child_is_terminated_by_its_last_ref() -> None:
    notes: Notes = []
    async with open_dynamic_supervisor(intensity=100) as sup:
        ref = await sup.start_child(nameless("w", notes, fails_from(2)))
        await end(ref, Killed())
        while (await sup.which_children())[0].ref != "restarting":
            pass
        await sup.terminate_child(ref)
        attempts = len(notes)
        await settled()
        assert (len(notes), await sup.which_children()) == (attempts, ())


@pytest.mark.covers("S66")
def test_there_is_no_restart_child_and_no_delete_child() -> None:
    assert not {"restart_child", "delete_child", "get_childspec"} & set(dir(DynamicSupervisor))


@pytest.mark.covers("S67")
async def test_a_child_that_ignores_at_first_is_dropped() -> None:
    notes: Notes = []
    async with open_dynamic_supervisor(max_children=1) as sup:
        ref = await sup.start_child(nameless("w", notes, ignores_at(1)))
        assert not ref.is_alive()
        assert await sup.which_children() == ()


@pytest.mark.covers("S67")
async def test_a_child_that_ignores_at_a_restart_is_dropped() -> None:
    notes: Notes = []
    async with open_dynamic_supervisor(max_children=1) as sup:
        await end(await sup.start_child(nameless("w", notes, ignores_at(2))), Killed())
        assert await picture(sup) == {}
        assert notes == ["+w", "-w", "+w"] or notes == ["+w", "+w"]
        await sup.start_child(nameless("w", notes))


@pytest.mark.covers("S5")
@pytest.mark.parametrize("word", ["any_significant", "all_significant", "sometimes"])
def test_a_dynamic_supervisor_never_ends_by_itself(word: Any) -> None:
    with pytest.raises(InvalidSpec, match="auto_shutdown"):
        open_dynamic_supervisor(auto_shutdown=word)
    with pytest.raises(InvalidSpec, match="auto_shutdown"):
        dynamic_supervisor_spec("d", auto_shutdown=word)


@pytest.mark.covers("S4", "S64")
@pytest.mark.parametrize(
    ("field", "value"), [("max_children", -1), ("max_children", 1.5), ("intensity", -1), ("period", 0)]
)
def test_wrong_flags_are_refused_before_anything_starts(field: str, value: Any) -> None:
    with pytest.raises(InvalidSpec, match=field):
        open_dynamic_supervisor(**{field: value})


@pytest.mark.covers("S63")
def test_another_strategy_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="strategy is 'one_for_all': expected 'one_for_one'"):
        DynamicFlags(strategy="one_for_all")


@pytest.mark.covers("S5")
async def test_a_significant_child_is_refused() -> None:
    async with open_dynamic_supervisor() as sup:
        with pytest.raises(InvalidSpec, match="significant"):
            await sup.start_child(ChildSpec("w", forever, restart="temporary", significant=True))


@pytest.mark.covers("S64")
async def test_no_room_is_no_room_at_all() -> None:
    async with open_dynamic_supervisor(max_children=0) as sup:
        with pytest.raises(MaxChildren):
            await sup.start_child(ChildSpec("w", forever))


@pytest.mark.covers("S33", "S35")
async def test_giving_up_ends_the_other_children_and_raises() -> None:
    notes: Notes = []
    others: list[Ref] = []
    with pytest.raises(MaxRestartsExceeded) as caught:  # noqa: PT012
        async with open_dynamic_supervisor(intensity=1) as sup:
            others.append(await sup.start_child(ChildSpec("o", forever)))
            for id in "ab":
                await end(await sup.start_child(nameless(id, notes)), Crash(Boom(id)))
            await trio.sleep_forever()
    assert len(caught.value.exceptions) == 2
    assert others[0].exit_reason == Shutdown()


@pytest.mark.covers("S34")
async def test_giving_up_is_an_exit_like_any_other_for_the_supervisor_above() -> None:
    notes: Notes = []
    async with open_supervisor([dynamic_supervisor_spec("d", intensity=0)]) as top:
        sup = top.supervisor("d", DynamicSupervisor)
        await end(await sup.start_child(nameless("w", notes)), Crash(Boom()))
        assert await sup.wait_stopped() == Shutdown("max_restarts")
        await settled()
        assert await picture(top) == {"d": 2}
        assert await sup.which_children() == ()


@pytest.mark.covers("S54", "D5")
async def test_a_start_child_that_is_pending_when_the_supervisor_ends_is_told() -> None:
    caught: list[ActorExited] = []

    async def ask(spec: ChildSpec) -> None:
        try:
            await sup.start_child(spec)
        except ActorExited as error:
            caught.append(error)

    async with trio.open_nursery() as nursery, open_dynamic_supervisor() as sup:
        nursery.start_soon(ask, ChildSpec("n", never_ready))
        await settled()
        nursery.start_soon(ask, ChildSpec("f", forever))
        await settled()
    assert [error.reason for error in caught] == [Shutdown()] * 2


async def test_the_handle_on_a_nested_one_is_asked_for_by_its_kind() -> None:
    async with open_supervisor([dynamic_supervisor_spec("d")]) as top:
        assert isinstance(top.supervisor("d", DynamicSupervisor), DynamicSupervisor)
        with pytest.raises(TypeError, match="supervisor 'root/d' is a DynamicSupervisor"):
            top.supervisor("d")


@pytest.mark.covers("S56")
async def test_a_child_starts_another_beside_itself_but_not_while_it_starts_itself() -> None:
    class Parent(Player):
        async def init(self, *args: Any, **kwargs: Any) -> None:
            assert isinstance(self.supervisor, DynamicSupervisor)
            with pytest.raises(WouldDeadlock):
                await self.supervisor.start_child(ChildSpec("x", forever))

        async def handle_call(self, msg: Any, from_: object) -> Any:
            assert isinstance(self.supervisor, DynamicSupervisor)
            return (await self.supervisor.start_child(ChildSpec("x", forever))).path

    async with open_dynamic_supervisor() as sup:
        ref = await sup.start_child(ChildSpec("p", Parent))
        assert await ref.call("go") == "root/x"


@pytest.mark.covers("S56")
async def test_a_child_may_ask_its_supervisor_as_soon_as_it_is_ready() -> None:
    counted: list[int] = []

    async def asks(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        counted.append((await current_actor().supervisor.count_children()).active)

    async with open_dynamic_supervisor() as sup:
        await sup.start_child(ChildSpec("a", asks, restart="temporary"))
        await settled()
    assert counted == [1]


def of_children() -> list[Incarnation | Slot | Ref]:
    return [thing for thing in gc.get_objects() if isinstance(thing, Incarnation | Slot | Ref)]


@pytest.mark.covers("S68")
async def test_ten_thousand_finished_temporary_children_leave_nothing() -> None:
    others = {id(thing): thing for thing in of_children()}  # held, so that no id is given twice
    async with open_dynamic_supervisor() as sup:
        await finish(sup, 200)
        before = alive()
        await finish(sup, 10_000)
        assert alive() - before < 50
        assert [thing for thing in of_children() if id(thing) not in others] == [sup.ref]
        assert sup.tree().children == ()


@pytest.mark.covers("S68")
async def test_a_later_child_costs_the_work_of_the_first() -> None:
    async with open_dynamic_supervisor() as sup:
        keep = [await sup.start_child(ChildSpec("w", forever)) for _ in range(3)]
        await finish(sup, 50)
        early = await work(sup)
        await finish(sup, 2000)
        assert await work(sup) == pytest.approx(early, rel=0.02)
        assert all(ref.is_alive() for ref in keep)


@pytest.mark.covers("S68")
async def test_children_that_live_cost_those_that_come_and_go_nothing() -> None:
    async with open_dynamic_supervisor(intensity=1000) as sup:
        notes: Notes = []
        await finish(sup, 50)
        early, one = await work(sup), await restart_work(sup, await sup.start_child(nameless("r", notes)))
        for _ in range(500):
            await sup.start_child(ChildSpec("w", forever))
        assert await work(sup) == pytest.approx(early, rel=0.02)
        assert await restart_work(sup, sup.child("r").ref()) == pytest.approx(one, rel=0.1)


async def finish(sup: DynamicSupervisor, number: int) -> None:
    for _ in range(number):
        await sup.start_child(ChildSpec("t", returns, restart="temporary"))
    await settled()


async def returns(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()


def alive() -> int:
    gc.collect()
    return len(gc.get_objects())


async def work(sup: DynamicSupervisor) -> int:
    """The functions called while a hundred children start and finish."""
    with Counter() as counter:
        await finish(sup, 100)
    return counter.calls


async def restart_work(sup: DynamicSupervisor, ref: Ref) -> int:
    with Counter() as counter:
        await end(ref, Killed())
        await settled()
    return counter.calls


class Counter:
    """Counts calls of functions."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Self:
        sys.setprofile(self.count)
        return self

    def count(self, _frame: object, event: str, _arg: object) -> None:
        self.calls += event == "call"

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
