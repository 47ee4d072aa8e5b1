from __future__ import annotations

import contextlib
import contextvars
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ActorExited,
    CallTimeout,
    ChildSpec,
    Crash,
    Exit,
    InvalidSpec,
    Killed,
    NoProc,
    Normal,
    NotFound,
    Ref,
    Shutdown,
    Supervisor,
    current_actor,
    open_supervisor,
)
from proctor.runtime.errors import MaxChildren, ResultTaken
from proctor.runtime.supervision.task import Task
from proctor.runtime.supervision.tasks import TaskSupervisor, open_task_supervisor, task_supervisor_spec
from tests.runtime.stage import Boom, Notes, end, heard, picture, settled


async def add(a: int, b: int, seconds: float = 0) -> int:
    await trio.sleep(seconds)
    return a + b


async def fail(seconds: float = 0) -> None:
    await trio.sleep(seconds)
    raise Boom("task")


async def stays(notes: Notes) -> None:
    notes.append("begun")
    try:
        await trio.sleep_forever()
    finally:
        notes.append("ended")


@pytest.mark.covers("S70")
async def test_a_task_gives_its_result() -> None:
    async with open_task_supervisor() as tasks:
        assert await (await tasks.async_nolink(add, 1, 2)) == 3
        async with tasks.async_(add, 3, 4) as task:
            assert await task == 7


@pytest.mark.covers("S70")
async def test_a_task_is_temporary_and_stands_in_the_tree_by_the_name_of_its_function(
    autojump_clock: MockClock,
) -> None:
    async with open_task_supervisor(name="jobs") as tasks:
        first, second = [await tasks.async_nolink(add, 1, 2, 5) for _ in range(2)]
        assert [first.ref.path, second.ref.path] == ["jobs/add", "jobs/add-2"]
        await end(first.ref, Killed())
        await second
        assert await picture(tasks) == {}


@pytest.mark.covers("S70")
async def test_the_result_is_delivered_once() -> None:
    async with open_task_supervisor() as tasks:
        task = await tasks.async_nolink(add, 1, 2)
        assert await task == 3
        with pytest.raises(ResultTaken, match="was delivered already"):
            await task
        failing = await tasks.async_nolink(fail)
        with pytest.raises(ActorExited):
            await failing
        with pytest.raises(ResultTaken):
            await failing.wait()


@pytest.mark.covers("S70")
async def test_a_result_that_another_waits_for_is_not_to_be_had(autojump_clock: MockClock) -> None:
    async with open_task_supervisor() as tasks, trio.open_nursery() as nursery:
        task = await tasks.async_nolink(add, 1, 2, 5)
        nursery.start_soon(task.wait)
        await settled()
        with pytest.raises(ResultTaken):
            await task


@pytest.mark.covers("S70")
async def test_a_wait_that_was_cancelled_or_ran_out_leaves_task_and_result(
    autojump_clock: MockClock,
) -> None:
    async with open_task_supervisor() as tasks:
        task = await tasks.async_nolink(add, 1, 2, 5)
        with pytest.raises(CallTimeout):
            await task.wait(1)
        with trio.move_on_after(1):
            await task
        assert trio.current_time() == 2
        assert await task.wait(10) == 3


@pytest.mark.covers("S70", "T15")
async def test_a_result_that_is_there_is_given_even_without_time_to_wait() -> None:
    async with open_task_supervisor() as tasks:
        task = await tasks.async_nolink(add, 1, 2)
        await settled()
        assert await task.wait(0) == 3


@pytest.mark.covers("S70")
async def test_an_untied_tasks_crash_is_seen_by_who_awaits_it() -> None:
    async with open_task_supervisor() as tasks:
        task = await tasks.async_nolink(fail)
        with pytest.raises(ActorExited) as caught:
            await task
        assert isinstance(caught.value.reason, Crash)
        assert caught.value.__cause__ is caught.value.reason.error
        assert caught.value.target is task.ref


@pytest.mark.covers("S70")
async def test_an_untied_task_nobody_awaits_hurts_nobody() -> None:
    async with open_task_supervisor() as tasks:
        with tasks.events() as events:
            await tasks.async_nolink(fail)
            await settled()
            assert [e.kind for e in heard(events)] == ["child_started", "child_exited", "child_terminated"]
        assert await tasks.which_children() == ()


@pytest.mark.covers("S70")
async def test_an_untied_task_outlives_its_caller(autojump_clock: MockClock) -> None:
    started: list[Task[int]] = []

    class Caller(Actor):
        async def handle_cast(self, msg: TaskSupervisor) -> None:
            started.append(await msg.async_nolink(add, 1, 2, 5))
            raise Boom

    async with open_task_supervisor() as tasks, open_supervisor([ChildSpec("c", Caller)]) as sup:
        await sup.child("c").cast(tasks)
        await trio.sleep(1)
        assert sup.tree().children[0].restarts == 1
        assert await started[0] == 3


@pytest.mark.covers("S70")
async def test_a_tied_tasks_crash_cancels_the_block_and_is_raised_from_it(
    autojump_clock: MockClock,
) -> None:
    async with open_task_supervisor() as tasks:
        with pytest.raises(ActorExited) as caught:
            async with tasks.async_(fail, 3):
                await trio.sleep_forever()
        assert trio.current_time() == 3
        assert isinstance(caught.value.reason, Crash)
        assert isinstance(caught.value.__cause__, Boom)


@pytest.mark.covers("S70", "M27")
@pytest.mark.parametrize("reason", [Shutdown("elsewhere"), Killed()], ids=str)
async def test_a_tied_task_that_somebody_else_ends_ends_the_block(reason: Any) -> None:
    async with open_task_supervisor() as tasks:
        with pytest.raises(ActorExited) as caught:  # noqa: PT012
            async with tasks.async_(trio.sleep_forever) as task:
                task.ref.exit(reason)
                await trio.sleep_forever()
        assert caught.value.reason == reason


@pytest.mark.covers("S70")
async def test_a_tied_task_that_ends_itself_with_a_reason_ends_the_block() -> None:
    async def leaves() -> None:
        raise Exit(Shutdown("enough"))

    async with open_task_supervisor() as tasks:
        with pytest.raises(ActorExited) as caught:
            async with tasks.async_(leaves):
                await trio.sleep_forever()
        assert caught.value.reason == Shutdown("enough")


@pytest.mark.covers("S70")
async def test_a_crash_that_the_block_has_seen_and_caught_is_raised_all_the_same() -> None:
    async with open_task_supervisor() as tasks:
        with pytest.raises(ActorExited):  # noqa: PT012
            async with tasks.async_(fail) as task:
                with contextlib.suppress(ActorExited):
                    await task


@pytest.mark.covers("S70")
async def test_an_error_of_the_block_ends_the_task_and_is_raised() -> None:
    notes: Notes = []
    async with open_task_supervisor() as tasks:
        refs: list[Ref] = []
        error = Boom("block")
        with pytest.raises(Boom) as caught:  # noqa: PT012
            async with tasks.async_(stays, notes) as task:
                refs.append(task.ref)
                await settled()
                raise error
        assert caught.value is error
        assert notes == ["begun", "ended"]
        assert refs[0].exit_reason == Shutdown()


@pytest.mark.covers("S70", "T3")
async def test_a_cancellation_of_the_block_ends_the_task_and_goes_on(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_task_supervisor() as tasks:
        with trio.move_on_after(2) as scope:
            async with tasks.async_(stays, notes):
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert notes == ["begun", "ended"]


@pytest.mark.covers("S70")
async def test_the_block_is_not_left_before_its_task_has_cleaned_up(autojump_clock: MockClock) -> None:
    notes: Notes = []

    async def slow() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
            notes.append("cleaned up")

    async with open_task_supervisor() as tasks:
        with trio.move_on_after(1):
            async with tasks.async_(slow):
                await trio.sleep_forever()
        assert notes == ["cleaned up"]
        assert trio.current_time() == 4


@pytest.mark.covers("S70")
async def test_a_block_left_well_waits_for_its_task(autojump_clock: MockClock) -> None:
    async with open_task_supervisor() as tasks:
        async with tasks.async_(add, 1, 2, 5) as task:
            pass
        assert trio.current_time() == 5
        assert await task == 3


@pytest.mark.covers("S70")
async def test_a_crash_while_the_block_waits_at_its_end_is_raised(autojump_clock: MockClock) -> None:
    async with open_task_supervisor() as tasks:
        with pytest.raises(ActorExited):
            async with tasks.async_(fail, 5):
                pass
        assert trio.current_time() == 5


@pytest.mark.covers("S70")
async def test_the_task_of_an_actor_that_crashes_ends(autojump_clock: MockClock) -> None:
    notes: Notes = []

    class Caller(Actor):
        async def handle_cast(self, msg: TaskSupervisor) -> None:
            async with msg.async_(stays, notes):
                await trio.sleep(2)
                raise Boom

    async with open_task_supervisor() as tasks, open_supervisor([ChildSpec("c", Caller)]) as sup:
        ref = sup.child("c").ref()
        await ref.cast(tasks)
        await trio.sleep(3)
        assert isinstance(ref.exit_reason, Crash)
        assert notes == ["begun", "ended"]


@pytest.mark.covers("S70")
@pytest.mark.parametrize("how", [Shutdown(), Killed()], ids=str)
async def test_the_task_of_an_actor_that_is_ended_ends(how: Any) -> None:
    notes: Notes = []

    class Caller(Actor):
        async def handle_cast(self, msg: TaskSupervisor) -> None:
            async with msg.async_(stays, notes):
                await trio.sleep_forever()

    async with open_task_supervisor() as tasks, open_supervisor([ChildSpec("c", Caller)]) as sup:
        ref = sup.child("c").ref()
        await ref.cast(tasks)
        await settled()
        ref.exit(how)
        await settled()
        assert ref.exit_reason == how
        assert notes == ["begun", "ended"]


@pytest.mark.covers("S70")
async def test_the_crash_of_a_tied_task_is_the_crash_of_the_actor_that_holds_it() -> None:
    class Caller(Actor):
        async def handle_cast(self, msg: TaskSupervisor) -> None:
            async with msg.async_(fail):
                await trio.sleep_forever()

    async with open_task_supervisor() as tasks, open_supervisor([ChildSpec("c", Caller)]) as sup:
        ref = sup.child("c").ref()
        await ref.cast(tasks)
        await settled()
        assert isinstance(ref.exit_reason, Crash)
        assert isinstance(ref.exit_reason.error, ActorExited)


@pytest.mark.covers("S70", "T7")
async def test_a_start_whose_caller_is_cancelled_leaves_no_task(autojump_clock: MockClock) -> None:
    notes: Notes = []

    async def blocks_the_supervisor() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)

    async with open_task_supervisor() as tasks, trio.open_nursery() as nursery:
        busy = await tasks.start_child(blocks_the_supervisor)
        await settled()
        nursery.start_soon(tasks.terminate_child, busy)
        await settled()
        with trio.move_on_after(1) as scope:
            await tasks.async_nolink(stays, notes)
        assert scope.cancelled_caught
        await trio.sleep(10)
        assert notes == []
        assert await tasks.which_children() == ()


@pytest.mark.covers("S70", "T7")
async def test_a_cancellation_at_any_step_of_a_start_leaves_no_tied_task() -> None:
    notes: Notes = []
    async with open_task_supervisor() as tasks:
        for steps in range(12):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cancel_after, scope, steps)
                    async with tasks.async_(stays, notes):
                        await trio.sleep_forever()
            await settled()
            assert await tasks.which_children() == ()
    assert notes == ["begun", "ended"] * (len(notes) // 2)
    assert notes


async def cancel_after(scope: trio.CancelScope, steps: int) -> None:
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    scope.cancel()


@pytest.mark.covers("S70")
async def test_its_owner_ends_a_tied_task_and_the_block_goes_on() -> None:
    async with open_task_supervisor() as tasks, tasks.async_(trio.sleep_forever) as task:
        assert await task.shutdown() == Shutdown()
        await settled()
        with pytest.raises(ActorExited):
            await task


@pytest.mark.covers("S70")
async def test_a_task_that_does_not_heed_its_owner_in_time_is_killed(autojump_clock: MockClock) -> None:
    async def slow() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)

    async with open_task_supervisor() as tasks:
        first, second = await tasks.async_nolink(slow), await tasks.async_nolink(slow)
        await settled()
        assert await first.shutdown(1) == Killed()
        assert trio.current_time() == 3
        assert await second.shutdown("brutal_kill") == Killed()


@pytest.mark.covers("S70")
async def test_a_task_that_ended_by_itself_before_its_shutdown_still_has_its_result() -> None:
    async with open_task_supervisor() as tasks:
        task = await tasks.async_nolink(add, 1, 2)
        await settled()
        assert await task.shutdown() == Normal()
        assert await task == 3


@pytest.mark.covers("S70")
async def test_a_child_runs_without_anybody_waiting_and_comes_back_only_if_told() -> None:
    notes: Notes = []

    async def note(word: str) -> None:
        notes.append(f"{word} {current_actor().incarnation}")
        if current_actor().incarnation == 1:
            raise Boom

    async with open_task_supervisor() as tasks:
        await tasks.start_child(note, "once")
        await tasks.start_child(note, "again", restart="transient")
        await settled()
        assert sorted(notes) == ["again 1", "again 2", "once 1"]
        assert await tasks.which_children() == ()


@pytest.mark.covers("S66", "S70")
async def test_a_task_is_terminated_by_its_ref() -> None:
    async with open_task_supervisor() as tasks:
        ref = await tasks.start_child(trio.sleep_forever)
        await tasks.terminate_child(ref)
        assert ref.exit_reason == Shutdown()
        with pytest.raises(NotFound):
            await tasks.terminate_child(ref)


@pytest.mark.covers("S64", "S70")
async def test_no_more_tasks_than_max_children() -> None:
    async with open_task_supervisor(max_children=1) as tasks:
        async with tasks.async_(trio.sleep_forever) as task:
            with pytest.raises(MaxChildren):
                async with tasks.async_(add, 1, 2):
                    pass
            await task.shutdown()
        assert await (await tasks.async_nolink(add, 1, 2)) == 3


@pytest.mark.covers("T17", "S70")
async def test_a_task_runs_in_the_context_of_its_supervisor() -> None:
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")

    async def look() -> str:
        return where.get()

    where.set("supervisor")
    async with open_task_supervisor() as tasks:
        where.set("caller")
        assert await (await tasks.async_nolink(look)) == "supervisor"


@pytest.mark.covers("S70", "S65")
async def test_the_stop_of_the_supervisor_ends_the_tasks_and_the_blocks_tied_to_them(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([task_supervisor_spec("t")]) as sup:
        tasks = sup.supervisor("t", TaskSupervisor)
        untied = await tasks.async_nolink(trio.sleep_forever)
        with pytest.raises(ActorExited) as caught:  # noqa: PT012
            async with tasks.async_(trio.sleep_forever):
                tasks.ref.exit(Shutdown())
                await trio.sleep_forever()
        await tasks.wait_stopped()
        assert caught.value.reason == untied.ref.exit_reason == Shutdown()
        with pytest.raises(NoProc):
            await tasks.async_nolink(add, 1, 2)


@pytest.mark.covers("S70", "S65")
async def test_a_task_may_hold_tasks_of_the_same_supervisor_through_its_stop() -> None:
    notes: Notes = []

    async def parent(tasks: TaskSupervisor, depth: int) -> None:
        if depth == 0:
            await stays(notes)
        async with tasks.async_(parent, tasks, depth - 1):
            await trio.sleep_forever()

    async with open_task_supervisor() as tasks:
        await tasks.start_child(parent, tasks, 3)
        await settled()
        assert len(await tasks.which_children()) == 4
    assert notes == ["begun", "ended"]


@pytest.mark.covers("S4", "S70")
def test_wrong_flags_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="max_children"):
        open_task_supervisor(max_children=-1)
    with pytest.raises(InvalidSpec, match="intensity"):
        task_supervisor_spec("t", intensity=-1)


async def test_the_handle_of_a_task_supervisor_below_is_asked_for_by_its_kind() -> None:
    async with open_supervisor([task_supervisor_spec("t")]) as sup:
        assert not isinstance(sup.supervisor("t", TaskSupervisor), Supervisor)
