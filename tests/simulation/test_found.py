from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    ActorExited,
    ChildSpec,
    Crash,
    Exit,
    Shutdown,
    StartError,
    StartFailed,
    Supervisor,
    open_supervisor,
)
from proctor.runtime.errors import StartTimeout
from tests.runtime.stage import heard, kinds


async def slow_behind_a_shield(seconds: float, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)
    task_status.started()
    await trio.sleep_forever()


async def test_a_start_that_was_too_late_has_failed_though_the_child_says_it_is_ready_X4_S47(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor() as sup:
        with sup.events() as events:
            with pytest.raises(StartError) as caught:
                await sup.start_child(ChildSpec("x", slow_behind_a_shield, (3.0,), start_timeout=1.0))
            assert isinstance(caught.value.reason, Crash)
            assert isinstance(caught.value.reason.error, StartTimeout)
            assert sup.tree().children == ()
            await trio.sleep(1)
            assert kinds(events) == ["start_error root/x"]


async def test_a_start_that_its_supervisor_aborted_has_failed_though_the_child_says_it_is_ready_D5_S41(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor() as sup, trio.open_nursery() as nursery:
        with sup.events() as events:
            spec = ChildSpec("x", slow_behind_a_shield, (3.0,))
            nursery.start_soon(_refused, sup, spec)
            await trio.sleep(1)
            await sup.stop()
            assert kinds(events) == ["start_error root/x", "supervisor_stopped root"]


async def test_a_start_that_was_too_late_stays_so_when_its_supervisor_stops_meanwhile_X4(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor() as sup, trio.open_nursery() as nursery:
        with sup.events() as events:
            spec = ChildSpec("x", slow_behind_a_shield, (3.0,), start_timeout=1.0)
            nursery.start_soon(_refused, sup, spec)
            await trio.sleep(2)
            await sup.stop()
            failed = next(iter(heard(events)))
            assert isinstance(failed, StartFailed)
            assert isinstance(failed.reason, Crash)


async def _refused(sup: Supervisor, spec: ChildSpec) -> None:
    with pytest.raises(ActorExited):
        await sup.start_child(spec)


async def test_a_permanent_child_that_left_before_it_could_be_killed_is_reported_S37_S39(
    autojump_clock: MockClock,
) -> None:
    async def leaves(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep(1)
        raise Exit(Shutdown())

    async with open_supervisor([ChildSpec("x", leaves, shutdown="brutal_kill")]) as sup:
        with sup.events() as events:
            async with trio.open_nursery() as nursery:
                spec = ChildSpec("slow", slow_behind_a_shield, (2.0,))
                nursery.start_soon(_refused, sup, spec)
                await trio.sleep(1.5)
                await sup.stop()
            assert "shutdown_error root/x" in kinds(events)
