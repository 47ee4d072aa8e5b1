"""Handles on nested supervisors follow their restarts, as names do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Backoff,
    ChildSpec,
    DynamicSupervisor,
    NoProc,
    Normal,
    PartitionSupervisor,
    Shutdown,
    Supervisor,
    TaskSupervisor,
    dynamic_supervisor_spec,
    open_supervisor,
    partition_supervisor_spec,
    supervisor_spec,
    task_supervisor_spec,
)
from proctor.runtime.supervision.handles import AnySupervisor
from tests.runtime.stage import forever, settled


async def held(handle: Supervisor) -> object:
    return [child.id for child in await handle.which_children()]


async def one_started(handle: DynamicSupervisor) -> object:
    await handle.start_child(ChildSpec("x", forever))
    return (await handle.count_children()).active


async def one_done(handle: TaskSupervisor) -> object:
    async with handle.async_(partial(trio.sleep, 0)) as task:
        await task
    return "done"


async def routed(handle: PartitionSupervisor) -> object:
    return handle.partitions, handle.route(3).is_alive()


KINDS: Sequence[
    tuple[Callable[..., ChildSpec], type[AnySupervisor], Callable[[Any], Awaitable[object]], object]
] = [
    (partial(supervisor_spec, children=[ChildSpec("a", forever)]), Supervisor, held, ["a"]),
    (dynamic_supervisor_spec, DynamicSupervisor, one_started, 1),
    (task_supervisor_spec, TaskSupervisor, one_done, "done"),
    (
        partial(partition_supervisor_spec, spec=ChildSpec("p", forever), partitions=2),
        PartitionSupervisor,
        routed,
        (2, True),
    ),
]


@pytest.mark.parametrize(
    ("spec", "kind", "use", "result"), KINDS, ids=["supervisor", "dynamic", "tasks", "partition"]
)
async def test_a_handle_goes_on_after_a_restart_of_its_supervisor(
    spec: Callable[..., ChildSpec],
    kind: type[AnySupervisor],
    use: Callable[[Any], Awaitable[object]],
    result: object,
    autojump_clock: MockClock,
) -> None:
    backoff = Backoff(min_delay=5, jitter=0)
    async with open_supervisor([spec("s", backoff=backoff)], intensity=5) as sup:
        handle = sup.supervisor("s", kind)
        for _ in range(2):
            assert await use(handle) == result
            before = handle.ref
            before.kill()
            await settled()
            with pytest.raises(NoProc):
                await handle.which_children()
            with trio.fail_after(20):
                await handle.wait_ready()
            assert handle.ref is not before
            assert sup.supervisor("s", kind) is handle
        assert await use(handle) == result


async def test_a_handle_goes_on_after_a_restart_of_a_supervisor_above() -> None:
    inner = supervisor_spec("inner", [ChildSpec("a", forever)])
    async with open_supervisor([supervisor_spec("outer", [inner])], intensity=5) as sup:
        handle = sup.supervisor("outer/inner")
        sup.supervisor("outer").ref.kill()
        with trio.fail_after(30):
            await handle.wait_ready()
        assert await held(handle) == ["a"]
        assert sup.supervisor("outer/inner") is handle


@pytest.mark.parametrize("reason", [None, Normal()], ids=["shutdown", "normal"])
async def test_a_stop_tells_of_the_incarnation_that_it_stopped_although_it_is_restarted(reason: Any) -> None:
    async with open_supervisor([supervisor_spec("s", [ChildSpec("a", forever)])], intensity=5) as sup:
        handle = sup.supervisor("s")
        before = handle.ref
        with trio.fail_after(30):
            assert await handle.stop(reason) == ()
            assert before.exit_reason == reason or Shutdown()
            await handle.wait_ready()
        assert (handle.ref is before, handle.ref.exit_reason) == (False, None)


async def test_a_wait_for_a_supervisor_that_starts_slowly_ends_when_it_serves(
    autojump_clock: MockClock,
) -> None:
    async def slow() -> list[ChildSpec]:
        await trio.sleep(3)
        return [ChildSpec("a", forever)]

    async with open_supervisor([supervisor_spec("s", slow)], intensity=5) as sup:
        handle = sup.supervisor("s")
        handle.ref.kill()
        began = trio.current_time()
        await handle.wait_ready()
        assert trio.current_time() - began == 3
        assert await held(handle) == ["a"]


async def test_a_wait_for_a_supervisor_ends_with_its_tree_and_not_before(autojump_clock: MockClock) -> None:
    async with open_supervisor([supervisor_spec("s", restart="temporary")]) as sup:
        handle = sup.supervisor("s")
        await handle.stop()
        with trio.move_on_after(60) as waited:
            await handle.wait_ready()
        assert waited.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_refused, handle)
            await settled()
            await sup.stop()
    with trio.fail_after(30), pytest.raises(NoProc):
        await sup.wait_ready()


async def _refused(handle: AnySupervisor) -> None:
    with pytest.raises(NoProc):
        await handle.wait_ready()


async def test_a_root_that_serves_is_ready_at_once() -> None:
    async with open_supervisor() as sup:
        await sup.wait_ready()
