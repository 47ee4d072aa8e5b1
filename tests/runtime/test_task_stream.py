from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Generator, Iterable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ActorExited,
    ChildSpec,
    Crash,
    InvalidSpec,
    Killed,
    Shutdown,
    open_supervisor,
)
from proctor.runtime.errors import MaxChildren, TaskTimeout
from proctor.runtime.supervision.task_stream import TaskExit, TaskResult, TaskStream
from proctor.runtime.supervision.tasks import TaskSupervisor, open_task_supervisor, task_supervisor_spec
from tests.runtime.stage import Boom, Notes, settled


async def nap(seconds: float) -> float:
    await trio.sleep(seconds)
    return seconds


async def odd(number: int) -> int:
    await trio.sleep(1)
    if number % 2 == 0:
        raise Boom(number)
    return number


async def sleeps(_number: int) -> None:
    await trio.sleep_forever()


class Floor:
    """Counts who is on it at once, and notes who came and went."""

    def __init__(self) -> None:
        self.on = self.most = 0
        self.notes: Notes = []

    async def step(self, number: int) -> int:
        self.on += 1
        self.most = max(self.most, self.on)
        self.notes.append(f"+{number}")
        try:
            await trio.sleep(1)
        finally:
            self.on -= 1
            self.notes.append(f"-{number}")
        return number


async def values(stream: TaskStream[Any, Any]) -> list[object]:
    return [outcome.value if isinstance(outcome, TaskResult) else outcome async for outcome in stream]


@pytest.mark.covers("S71")
async def test_results_come_in_the_order_of_the_items(autojump_clock: MockClock) -> None:
    async with open_task_supervisor() as tasks:
        async with tasks.async_stream([3, 1, 2], nap, max_concurrency=3) as outcomes:
            assert await values(outcomes) == [3, 1, 2]
        assert trio.current_time() == 3


@pytest.mark.covers("S71")
async def test_results_come_as_they_are_done_if_told(autojump_clock: MockClock) -> None:
    async with (
        open_task_supervisor() as tasks,
        tasks.async_stream([3, 1, 2], nap, max_concurrency=3, ordered=False) as outcomes,
    ):
        assert await values(outcomes) == [1, 2, 3]


@pytest.mark.covers("S71")
@pytest.mark.parametrize("ordered", [True, False])
async def test_no_more_than_max_concurrency_run_at_once(autojump_clock: MockClock, ordered: bool) -> None:
    floor = Floor()
    async with open_task_supervisor() as tasks:
        stream = tasks.async_stream(range(10), floor.step, max_concurrency=3, ordered=ordered)
        async with stream as outcomes:
            assert sorted(await values(outcomes)) == list(range(10))  # type: ignore[type-var]
    assert floor.most == 3
    assert trio.current_time() == 4


@pytest.mark.covers("S71")
async def test_without_a_limit_given_there_is_one() -> None:
    floor = Floor()
    async with open_task_supervisor() as tasks, tasks.async_stream(itertools.count(), floor.step):
        await settled()
    assert 1 <= floor.most < 4096


@pytest.mark.covers("S71")
async def test_items_start_in_their_order(autojump_clock: MockClock) -> None:
    floor = Floor()
    async with (
        open_task_supervisor() as tasks,
        tasks.async_stream(range(6), floor.step, max_concurrency=2, ordered=False) as outcomes,
    ):
        await values(outcomes)
    assert [note for note in floor.notes if note[0] == "+"] == [f"+{n}" for n in range(6)]


@pytest.mark.covers("S71")
async def test_no_items_no_outcomes() -> None:
    none: list[float] = []
    async with open_task_supervisor() as tasks, tasks.async_stream(none, nap) as outcomes:
        assert await values(outcomes) == []
        assert await values(outcomes) == []


@pytest.mark.covers("S71")
async def test_items_are_taken_no_faster_than_outcomes_are(autojump_clock: MockClock) -> None:
    taken: list[int] = []

    def endless() -> Generator[int, None, None]:
        for number in itertools.count():
            taken.append(number)
            yield number

    floor = Floor()
    async with (
        open_task_supervisor() as tasks,
        tasks.async_stream(endless(), floor.step, max_concurrency=2) as outcomes,
    ):
        await trio.sleep(100)
        assert taken == [0, 1]
        assert await anext(outcomes) == TaskResult(0)
        await trio.sleep(100)
        assert taken == [0, 1, 2]


@pytest.mark.covers("S71")
async def test_items_that_come_late_are_waited_for_without_holding_up_results(
    autojump_clock: MockClock,
) -> None:
    async def late() -> AsyncGenerator[float, None]:
        yield 1
        await trio.sleep(10)
        yield 2

    times: list[float] = []
    async with open_task_supervisor() as tasks, tasks.async_stream(late(), nap) as outcomes:
        async for _ in outcomes:
            times.append(trio.current_time())
    assert times == [1, 12]


@pytest.mark.covers("S71")
@pytest.mark.parametrize("ordered", [True, False])
async def test_the_crash_of_an_item_ends_the_caller_if_linked(
    autojump_clock: MockClock, ordered: bool
) -> None:
    async with open_task_supervisor() as tasks:
        with pytest.raises(ActorExited) as caught:
            async with tasks.async_stream([1, 2, 3], odd, max_concurrency=3, ordered=ordered):
                await trio.sleep_forever()
        assert isinstance(caught.value.__cause__, Boom)
        assert await tasks.which_children() == ()


@pytest.mark.covers("S71")
async def test_the_crash_of_an_item_is_an_outcome_if_not_linked(autojump_clock: MockClock) -> None:
    async with (
        open_task_supervisor() as tasks,
        tasks.async_stream_nolink([1, 2, 3], odd, max_concurrency=3) as outcomes,
    ):
        first, second, third = [outcome async for outcome in outcomes]
    assert (first, third) == (TaskResult(1), TaskResult(3))
    assert isinstance(second, TaskExit)
    assert second.item == 2
    assert isinstance(second.reason, Crash)
    assert isinstance(second.reason.error, Boom)


@pytest.mark.covers("S71")
async def test_an_item_that_somebody_ends_is_an_outcome_if_not_linked() -> None:
    async with (
        open_task_supervisor() as tasks,
        tasks.async_stream_nolink([0], sleeps) as outcomes,
    ):
        await settled()
        tasks.tree().children[0].ref.kill()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
        assert [outcome async for outcome in outcomes] == [TaskExit(0, Killed())]


@pytest.mark.covers("S71")
@pytest.mark.parametrize("linked", [True, False])
async def test_an_items_time_out_ends_the_caller(autojump_clock: MockClock, linked: bool) -> None:
    async with open_task_supervisor() as tasks:
        stream = tasks.async_stream if linked else tasks.async_stream_nolink
        with pytest.raises(TaskTimeout, match=r"root/nap.* was not done within 2 s"):
            async with stream([1, 9], nap, max_concurrency=2, timeout=2):
                await trio.sleep_forever()
        assert trio.current_time() == 2
        assert await tasks.which_children() == ()


@pytest.mark.covers("S71")
@pytest.mark.parametrize("linked", [True, False])
async def test_an_items_time_out_is_an_outcome_under_kill(autojump_clock: MockClock, linked: bool) -> None:
    async with open_task_supervisor() as tasks:
        stream = tasks.async_stream if linked else tasks.async_stream_nolink
        async with stream([1, 9, 1.5], nap, max_concurrency=3, timeout=2, on_timeout="kill") as outcomes:
            first, second, third = [outcome async for outcome in outcomes]
        assert trio.current_time() == 2
    assert (first, third) == (TaskResult(1), TaskResult(1.5))
    assert isinstance(second, TaskExit)
    assert second.item == 9
    assert isinstance(second.reason, Crash)
    assert isinstance(second.reason.error, TaskTimeout)


@pytest.mark.covers("S71")
async def test_each_items_time_begins_with_its_own_start(autojump_clock: MockClock) -> None:
    async with open_task_supervisor() as tasks:
        async with tasks.async_stream([4, 4, 4], nap, max_concurrency=1) as outcomes:
            assert await values(outcomes) == [4, 4, 4]
        assert trio.current_time() == 12


@pytest.mark.covers("S71")
async def test_without_a_time_out_an_item_may_take_for_ever(autojump_clock: MockClock) -> None:
    async with (
        open_task_supervisor() as tasks,
        tasks.async_stream([10_000], nap, timeout=None) as outcomes,
    ):
        assert await values(outcomes) == [10_000]


@pytest.mark.covers("S71")
async def test_an_item_that_outlives_its_kill_keeps_its_room(autojump_clock: MockClock) -> None:
    floor = Floor()

    async def stubborn(number: int) -> int:
        with trio.CancelScope(shield=True):
            await floor.step(number)
        return number

    async with (
        open_task_supervisor() as tasks,
        tasks.async_stream(range(3), stubborn, max_concurrency=1, timeout=0.5, on_timeout="kill") as outcomes,
    ):
        assert len(await values(outcomes)) == 3
    assert floor.most == 1


@pytest.mark.covers("S71")
async def test_leaving_the_loop_early_ends_the_rest(autojump_clock: MockClock) -> None:
    floor = Floor()
    async with open_task_supervisor() as tasks:
        async with tasks.async_stream(itertools.count(), floor.step, max_concurrency=3) as outcomes:
            async for outcome in outcomes:
                if outcome == TaskResult(3):
                    break
        assert floor.on == 0
        assert await tasks.which_children() == ()
        with pytest.raises(StopAsyncIteration):
            await anext(outcomes)


@pytest.mark.covers("S71")
async def test_an_error_of_the_block_ends_the_rest_and_leaves_bare() -> None:
    floor, error = Floor(), Boom("block")
    error.__cause__ = cause = Boom("cause")
    async with open_task_supervisor() as tasks:
        with pytest.raises(Boom) as caught:  # noqa: PT012
            async with tasks.async_stream(itertools.count(), floor.step, max_concurrency=3):
                await settled()
                raise error
        assert caught.value is error
        assert error.__cause__ is cause
        assert (floor.on, floor.most) == (0, 3)


@pytest.mark.covers("S71", "T3")
async def test_a_cancellation_ends_the_rest_and_goes_on(autojump_clock: MockClock) -> None:
    floor = Floor()
    async with open_task_supervisor() as tasks:
        with trio.move_on_after(0.5) as scope:
            async with tasks.async_stream(itertools.count(), floor.step, max_concurrency=3) as outcomes:
                await values(outcomes)
        assert scope.cancelled_caught
        assert (floor.on, floor.most) == (0, 3)


@pytest.mark.covers("S71", "T18")
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_generator_of_items_is_closed_with_the_stream(asynchronous: bool) -> None:
    notes: Notes = []

    def generated() -> Generator[int, None, None]:
        try:
            yield from itertools.count()
        finally:
            notes.append("closed")

    async def later() -> AsyncGenerator[int, None]:
        try:
            for number in itertools.count():
                yield number
        finally:
            notes.append("closed")

    async with open_task_supervisor() as tasks:
        async with tasks.async_stream(later() if asynchronous else generated(), nap, max_concurrency=1):
            await settled()
        assert notes == ["closed"]


@pytest.mark.covers("S71")
async def test_an_iterator_that_is_no_generator_is_left_where_it_was() -> None:
    numbers = iter(range(10))
    async with open_task_supervisor() as tasks, tasks.async_stream(numbers, nap, max_concurrency=2):
        await settled()
    assert next(numbers) == 2


@pytest.mark.covers("S71")
async def test_an_error_of_the_items_is_raised_from_the_block(autojump_clock: MockClock) -> None:
    def breaks() -> Iterable[float]:
        yield 5
        raise Boom("items")

    async with open_task_supervisor() as tasks:
        with pytest.raises(Boom, match="items"):
            async with tasks.async_stream(breaks(), nap, max_concurrency=2) as outcomes:
                await values(outcomes)
        assert await tasks.which_children() == ()


@pytest.mark.covers("S71", "S64")
async def test_a_start_that_is_refused_is_raised_from_the_block() -> None:
    floor = Floor()
    async with open_task_supervisor(max_children=2) as tasks:
        with pytest.raises(MaxChildren):
            async with tasks.async_stream(range(5), floor.step, max_concurrency=3) as outcomes:
                await values(outcomes)
        assert floor.on == 0


@pytest.mark.covers("S71")
async def test_the_stop_of_the_supervisor_ends_the_caller_if_linked() -> None:
    async with open_supervisor([task_supervisor_spec("t")]) as sup:
        tasks = sup.supervisor("t", TaskSupervisor)
        with pytest.raises(ActorExited) as caught:  # noqa: PT012
            async with tasks.async_stream([1, 2], nap, max_concurrency=2):
                await settled()
                tasks.ref.exit(Shutdown())
                await trio.sleep_forever()
        assert caught.value.reason == Shutdown()


@pytest.mark.covers("S71")
async def test_the_items_of_an_actor_that_crashes_end(autojump_clock: MockClock) -> None:
    floor = Floor()

    class Caller(Actor):
        async def handle_cast(self, msg: TaskSupervisor) -> None:
            async with msg.async_stream(itertools.count(), floor.step, max_concurrency=3) as outcomes:
                async for _ in outcomes:
                    raise Boom

    async with open_task_supervisor() as tasks, open_supervisor([ChildSpec("c", Caller)]) as sup:
        ref = sup.child("c").ref()
        await ref.cast(tasks)
        await trio.sleep(5)
        assert isinstance(ref.exit_reason, Crash)
        assert isinstance(ref.exit_reason.error, Boom)
        assert (floor.on, floor.most) == (0, 3)


@pytest.mark.covers("S71")
@pytest.mark.parametrize(
    ("field", "value"),
    [("max_concurrency", 0), ("ordered", 1), ("timeout", 0), ("timeout", -1), ("on_timeout", "raise")],
)
async def test_wrong_options_are_refused_before_an_item_is_taken(field: str, value: Any) -> None:
    numbers = iter(range(3))
    async with open_task_supervisor() as tasks:
        with pytest.raises(InvalidSpec, match=field):
            tasks.async_stream(numbers, nap, **{field: value})
    assert next(numbers) == 0


@pytest.mark.covers("S68", "S71")
async def test_many_items_leave_nothing_at_their_supervisor() -> None:
    async def double(number: int) -> int:
        return 2 * number

    async with open_task_supervisor() as tasks:
        async with tasks.async_stream(range(500), double, max_concurrency=10) as outcomes:
            assert await values(outcomes) == [2 * number for number in range(500)]
        assert await tasks.which_children() == ()
