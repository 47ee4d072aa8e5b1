"""What a child raises to decide about its own restart, or about its whole tree."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from proctor.runtime import (
    Actor,
    ActorExited,
    ChildExited,
    ChildSpec,
    ChildTerminated,
    DoNotRestart,
    DynamicSupervisor,
    Exit,
    FinalShutdown,
    Normal,
    ShutdownFailed,
    StartError,
    Stop,
    Subscription,
    SupervisorStopped,
    TerminateTree,
    TreeShutdown,
    dynamic_supervisor_spec,
    is_clean,
    link,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.spec import AutoShutdown, Restart
from tests.runtime.stage import Boom, Notes, crash, end, forever, heard, picture, player, settled


class Raiser(Actor):
    """Raises what it is called with, from an error if there are two; `told` has each reason it terminated with."""

    async def init(self, told: list[object], start: dict[int, Exception] | None = None) -> None:
        self.told = told
        if start and self.incarnation in start:
            raise start[self.incarnation]

    async def handle_call(self, msg: Any, from_: object) -> Any:
        if isinstance(msg, Stop):
            return msg
        if isinstance(msg, tuple):
            raise msg[0] from msg[1]
        raise msg

    async def terminate(self, reason: object) -> None:
        self.told.append(reason)


def raiser(id: str = "x", told: list[object] | None = None, start: Any = None, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"name": id}
    return ChildSpec(id, Raiser, ([] if told is None else told, start), **(fields | spec))


async def test_a_permanent_child_that_raises_do_not_restart_stays_down() -> None:
    told: list[object] = []
    async with open_supervisor([raiser(told=told)]) as sup:
        with sup.events() as events:
            with pytest.raises(ActorExited) as ended:
                await sup.name("x").call(DoNotRestart("bad key"))
            assert await picture(sup) == {"x": "down"}
            reason = FinalShutdown("bad key")
            assert ended.value.reason == reason
            assert told == [reason]
            assert [event.reason for event in heard(events) if isinstance(event, ChildExited)] == [reason]
        assert is_clean(reason)
        assert str(reason) == "shutdown, not to be restarted (bad key)"
        await sup.restart_child("x")
        assert await picture(sup) == {"x": 2}


@pytest.mark.parametrize(
    ("restart", "left", "reported"),
    [("permanent", {"x": "down"}, 1), ("transient", {"x": "down"}, 0), ("temporary", {}, 0)],
)
async def test_do_not_restart_keeps_or_drops_the_spec_by_the_restart_kind(
    restart: Restart, left: dict[str, str], reported: int
) -> None:
    async with open_supervisor([raiser(restart=restart)], intensity=0) as sup:
        with sup.events() as events:
            await end(sup.name("x"), FinalShutdown())
            assert await picture(sup) == left
            assert sum(isinstance(event, ChildTerminated) for event in heard(events)) == reported


async def test_a_function_that_raises_do_not_restart_from_an_error_says_why() -> None:
    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise DoNotRestart("no such model") from ValueError("model 'x'")

    async with open_supervisor([ChildSpec("f", body, name="f")]) as sup:
        await settled()
        [node] = sup.tree().children
        assert node.state == "down"
        assert str(node.exit) == "shutdown, not to be restarted (no such model: ValueError(\"model 'x'\"))"


async def test_a_nursery_of_a_child_passes_do_not_restart_on() -> None:
    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            task_status.started()
            raise DoNotRestart

    async with open_supervisor([ChildSpec("f", body)]) as sup:
        assert await picture(sup) == {"f": "down"}


async def test_a_child_that_is_not_to_be_restarted_is_not_started_with_its_group_either() -> None:
    notes: Notes = []
    children = [player("a", notes), player("b", notes), player("rested", notes, restart="transient")]
    async with open_supervisor(children, strategy="one_for_all", intensity=9) as sup:
        await end(sup.name("a"), FinalShutdown())
        await end(sup.name("rested"), Normal())
        assert await picture(sup) == {"a": "down", "b": 1, "rested": "down"}
        await crash(sup, "b")
        assert await picture(sup) == {"a": "down", "b": 2, "rested": 2}
        await sup.restart_child("a")
        await crash(sup, "a")
        assert await picture(sup) == {"a": 3, "b": 3, "rested": 3}


async def test_do_not_restart_leaves_siblings_alone_and_costs_no_intensity() -> None:
    notes: Notes = []
    async with open_supervisor([raiser(), player("b", notes)], strategy="one_for_all", intensity=0) as sup:
        await end(sup.name("x"), FinalShutdown())
        assert await picture(sup) == {"x": "down", "b": 1}


@pytest.mark.covers("S58")
@pytest.mark.parametrize(("rule", "ends"), [("any_significant", True), ("all_significant", False)])
async def test_do_not_restart_is_a_significant_end(rule: AutoShutdown, ends: bool) -> None:
    children = [
        raiser("x", restart="transient", significant=True),
        raiser("y", restart="transient", significant=True),
    ]
    async with open_supervisor(children, auto_shutdown=rule) as sup:
        await end(sup.name("x"), FinalShutdown())
        await settled()
        assert (sup.ref.exit_reason is not None) == ends


async def test_a_restart_whose_start_raises_do_not_restart_is_not_tried_again() -> None:
    notes: Notes = []
    children = [raiser("x", start={2: DoNotRestart("gone")}), player("y", notes)]
    async with open_supervisor(children, strategy="one_for_all", intensity=1) as sup:
        with pytest.raises(ActorExited):
            await sup.name("x").call(Boom())
        assert await picture(sup) == {"x": "down", "y": 2}
        await sup.restart_child("x")
        assert await picture(sup) == {"x": 3, "y": 2}


@pytest.mark.covers("S58")
async def test_a_restart_that_will_not_be_tried_again_is_a_significant_end() -> None:
    start = {2: DoNotRestart("gone")}
    child = raiser("x", start=start, restart="transient", significant=True)
    async with open_supervisor([child], auto_shutdown="any_significant") as sup:
        with pytest.raises(ActorExited):
            await sup.name("x").call(Boom())
        assert str(await sup.wait_stopped()) == "shutdown (auto_shutdown)"


async def test_a_first_start_that_raises_do_not_restart_has_failed() -> None:
    with pytest.raises(StartError, match=r"'x' did not start: shutdown, not to be restarted \(no key\)"):
        async with open_supervisor([raiser(start={1: DoNotRestart("no key")})]):
            pytest.fail("the body ran")


async def test_a_dynamic_supervisor_forgets_a_child_that_is_not_to_be_restarted() -> None:
    async with open_supervisor([dynamic_supervisor_spec("pool")]) as sup:
        pool = sup.supervisor("pool", DynamicSupervisor)
        await end(await pool.start_child(raiser()), FinalShutdown())
        assert await picture(pool) == {}


async def test_a_supervisor_that_is_asked_to_end_for_good_is_not_restarted() -> None:
    async with open_supervisor([supervisor_spec("mid", [raiser()])]) as sup:
        await sup.supervisor("mid").stop(FinalShutdown("done"))
        assert await picture(sup) == {"mid": "down"}


@pytest.mark.covers("S39")
async def test_a_child_that_is_stopped_and_raises_do_not_restart_is_no_error() -> None:
    class Last(Actor):
        async def terminate(self, reason: object) -> None:
            raise DoNotRestart

    async with open_supervisor([ChildSpec("x", Last)]) as sup:
        with sup.events() as events:
            await sup.terminate_child("x")
            assert not [event for event in heard(events) if isinstance(event, ShutdownFailed)]


@pytest.mark.covers("M27")
async def test_a_link_passes_the_end_on_but_not_the_wish_to_stay_down() -> None:
    async with open_supervisor([raiser("x"), raiser("y")]) as sup:
        link(sup.name("x"), sup.name("y"))
        await end(sup.name("x"), FinalShutdown("done"))
        assert await picture(sup) == {"x": "down", "y": 2}


async def test_a_child_that_raises_terminate_tree_ends_the_tree_from_its_supervisor_upward() -> None:
    notes: Notes = []
    cause = OSError("no space left")
    listening: list[Subscription] = []
    inner = supervisor_spec("inner", [player("a", notes), raiser(restart="temporary")], restart="temporary")
    tree = [
        player("before", notes),
        supervisor_spec("outer", [inner, player("b", notes)]),
        player("c", notes),
    ]
    with pytest.raises(TerminateTree) as ended:  # noqa: PT012
        async with open_supervisor(tree, intensity=9) as sup:
            listening.append(sup.events())
            with pytest.raises(ActorExited):
                await sup.name("x").call((TerminateTree("disk full"), cause))
            await trio.sleep_forever()
    reason = TreeShutdown("disk full", repr(cause), "root/outer/inner/x")
    assert notes[4:] == ["-a", "-b", "-c", "-before"]
    stopped = [(e.path, e.reason) for e in heard(listening[0]) if isinstance(e, SupervisorStopped)]
    assert stopped == [("root/outer/inner", reason), ("root/outer", reason), ("root", reason)]
    assert ended.value.reason == reason
    assert str(ended.value) == (
        "the tree was ended by 'root/outer/inner/x': disk full: OSError('no space left')"
    )


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
async def test_terminate_tree_ends_the_tree_whatever_the_restart_kind(restart: Restart) -> None:
    with pytest.raises(TerminateTree):  # noqa: PT012
        async with open_supervisor([raiser(restart=restart)]) as sup:
            await end(sup.name("x"), TreeShutdown())
            await trio.sleep_forever()


async def test_a_restart_whose_start_raises_terminate_tree_ends_the_tree() -> None:
    mid = supervisor_spec("mid", [raiser("x", start={2: TerminateTree("gone")}), ChildSpec("y", forever)])
    with pytest.raises(TerminateTree, match="'root/mid/x': gone"):  # noqa: PT012
        async with open_supervisor([mid]) as sup:
            with pytest.raises(ActorExited):
                await sup.name("x").call(Boom())
            await trio.sleep_forever()


async def test_a_supervisor_whose_child_raises_terminate_tree_while_it_starts_again_ends_the_tree() -> None:
    starts: list[str] = []

    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        starts.append("start")
        if len(starts) == 2:
            raise TerminateTree("twice")
        await forever(task_status=task_status)

    with pytest.raises(TerminateTree, match="twice"):  # noqa: PT012
        async with open_supervisor([supervisor_spec("mid", [ChildSpec("f", body)])]) as sup:
            sup.supervisor("mid").ref.kill()
            await trio.sleep_forever()
    assert len(starts) == 2


async def test_a_body_that_fails_because_its_tree_was_ended_is_the_cause() -> None:
    with pytest.raises(TerminateTree) as ended:  # noqa: PT012
        async with open_supervisor([raiser()]) as sup:
            await end(sup.name("x"), TreeShutdown("disk full"))
            await sup.wait_stopped()
            raise Boom
    assert isinstance(ended.value.__cause__, Boom)


async def test_a_handler_may_stop_for_good_and_answer() -> None:
    async with open_supervisor([player("x", [])]) as sup:
        assert await sup.name("x").call(Stop(FinalShutdown("done"), reply="bye")) == "bye"
        assert await picture(sup) == {"x": "down"}


def test_both_are_exits_and_say_so() -> None:
    assert isinstance(DoNotRestart(), Exit)
    assert isinstance(TerminateTree(), Exit)
    assert str(DoNotRestart()) == "shutdown, not to be restarted"
    assert str(TreeShutdown()) == "shutdown of the tree"
    assert str(TreeShutdown("full", None, "root/a")) == "shutdown of the tree by 'root/a' (full)"
