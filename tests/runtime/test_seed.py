from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import ChildRestarting, ChildSpec, open_supervisor
from proctor.runtime.spec import Backoff
from proctor.runtime.supervision.dynamic import DynamicSupervisor, open_dynamic_supervisor
from proctor.runtime.supervision.handles import AnySupervisor
from proctor.runtime.supervision.partition import open_partition_supervisor
from proctor.runtime.supervision.tasks import TaskSupervisor, open_task_supervisor
from tests.runtime.stage import Boom, heard

SHAKY = Backoff(min_delay=1, max_delay=1, jitter=1)
Open = Callable[..., AbstractAsyncContextManager[Any]]


async def frail(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    raise Boom


FRAIL = ChildSpec("frail", frail, backoff=SHAKY)


def open_static(**given: Any) -> AbstractAsyncContextManager[AnySupervisor]:
    return open_supervisor([FRAIL], **given)


def open_partitions(**given: Any) -> AbstractAsyncContextManager[AnySupervisor]:
    return open_partition_supervisor(FRAIL, 1, **given)


async def delays(opening: Open, seed: int) -> list[float]:
    async with opening(intensity=50, seed=seed) as sup:
        events = sup.events()
        if isinstance(sup, DynamicSupervisor):
            await sup.start_child(FRAIL)
        if isinstance(sup, TaskSupervisor):
            await sup._dynamic.start(FRAIL)  # pyright: ignore[reportPrivateUsage]  # no task of its own has a back-off
        await trio.sleep(10)
        return [event.delay for event in heard(events) if isinstance(event, ChildRestarting)]


@pytest.mark.covers("X16", "X1")
@pytest.mark.parametrize(
    "opening", [open_static, open_partitions, open_dynamic_supervisor, open_task_supervisor]
)
async def test_the_same_seed_gives_the_same_delays_in_a_root_of_each_kind(
    opening: Open, autojump_clock: MockClock
) -> None:
    once, again, other = [await delays(opening, seed) for seed in (1, 1, 2)]
    assert once == again
    assert once[:3] != other[:3]
