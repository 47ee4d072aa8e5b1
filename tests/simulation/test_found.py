from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    ActorExited,
    Backoff,
    ChildRestarting,
    ChildSpec,
    Crash,
    Exit,
    Shutdown,
    StartError,
    StartFailed,
    Subscription,
    Supervisor,
    current_actor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.errors import StartTimeout
from tests.runtime.stage import Stubborn, forever, heard, kinds


async def slow_behind_a_shield(seconds: float, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)
    task_status.started()
    await trio.sleep_forever()


@pytest.mark.covers("X4", "S47")
async def test_a_start_that_was_too_late_has_failed_though_the_child_says_it_is_ready(
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


@pytest.mark.covers("X4", "S28")
async def test_a_restart_that_was_ready_too_late_goes_on_with_the_row_it_stands_in(
    autojump_clock: MockClock,
) -> None:
    async def soon_too_slow(*, task_status: trio.TaskStatus[None]) -> None:
        if current_actor().incarnation > 1:
            await slow_behind_a_shield(3.0, task_status=task_status)
        task_status.started()
        await trio.sleep(0.5)
        raise ValueError

    async with open_supervisor([ChildSpec("x", soon_too_slow, start_timeout=1.0)], intensity=3) as sup:
        with sup.events() as events:
            await trio.sleep(9)
            restarts = [event for event in heard(events) if isinstance(event, ChildRestarting)]
            assert [event.attempt for event in restarts] == [1, 2, 3]


@pytest.mark.covers("X2", "X4")
async def test_a_restart_that_was_ready_too_late_does_not_begin_the_back_off_anew(
    autojump_clock: MockClock,
) -> None:
    async def soon_too_slow(*, task_status: trio.TaskStatus[None]) -> None:
        if current_actor().incarnation == 1:
            task_status.started()
            await trio.sleep(0.5)
            raise ValueError
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
            task_status.started()
            await trio.sleep(2)

    backoff = Backoff(min_delay=1.0, max_delay=8.0, jitter=0.0, reset_after=1.5)
    spec = ChildSpec("x", soon_too_slow, start_timeout=1.0, backoff=backoff)
    async with open_supervisor([spec], intensity=3) as sup:
        with sup.events() as events:
            await trio.sleep(15)
            restarts = [event for event in heard(events) if isinstance(event, ChildRestarting)]
            assert [event.delay for event in restarts] == [1.0, 2.0, 4.0]


@pytest.mark.covers("D5", "S41")
async def test_a_start_that_its_supervisor_aborted_has_failed_though_the_child_says_it_is_ready(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor() as sup, trio.open_nursery() as nursery:
        with sup.events() as events:
            spec = ChildSpec("x", slow_behind_a_shield, (3.0,))
            nursery.start_soon(_refused, sup, spec)
            await trio.sleep(1)
            await sup.stop()
            assert kinds(events) == ["start_error root/x", "supervisor_stopped root"]


@pytest.mark.covers("X4")
async def test_a_start_that_was_too_late_stays_so_when_its_supervisor_stops_meanwhile(
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


@pytest.mark.covers("S37", "S39")
async def test_a_permanent_child_that_left_before_it_could_be_killed_is_reported(
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


async def interrupts(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    try:
        await trio.sleep(1)
    finally:
        raise KeyboardInterrupt


def slow_to_stop(id: str) -> ChildSpec:
    return ChildSpec(id, Stubborn, (3.0,), shutdown=10.0)


async def told_by_an_interrupted_program(ask: Callable[[Supervisor], Awaitable[None]]) -> list[str]:
    """What it tells when `ask` asks one that stands far back in the row of those that are stopped."""
    slow_to_stop = ChildSpec("last", Stubborn, (3.0,), shutdown=10.0)
    tree = [supervisor_spec("under", []), slow_to_stop, ChildSpec("interrupts", interrupts)]
    heard_by: list[Subscription] = []
    try:
        async with open_supervisor(tree) as sup, trio.open_nursery() as nursery:
            heard_by.append(sup.events())
            nursery.start_soon(_shielded, ask, sup.supervisor("under"))
            await trio.sleep_forever()
    except KeyboardInterrupt:
        return kinds(heard_by[0])


@pytest.mark.covers("T5", "S7")
async def test_a_supervisor_whose_start_an_interrupt_cut_short_never_says_that_it_is_ready(
    autojump_clock: MockClock,
) -> None:
    halves = [ChildSpec("first", slow_behind_a_shield, (2.0,)), ChildSpec("second", forever)]

    async def ask(sup: Supervisor) -> None:
        await _refused(sup, supervisor_spec("halved", halves))

    told = await told_by_an_interrupted_program(ask)
    assert "child_started root/under/halved/first" in told
    assert "supervisor_started root/under/halved" not in told


@pytest.mark.covers("T5")
async def test_an_interrupted_program_starts_nothing_on_request(autojump_clock: MockClock) -> None:
    async def ask(sup: Supervisor) -> None:
        await trio.sleep(2)
        await _refused(sup, ChildSpec("x", forever))

    assert "child_started root/under/x" not in await told_by_an_interrupted_program(ask)


async def _shielded(ask: Callable[[Supervisor], Awaitable[None]], sup: Supervisor) -> None:
    with trio.CancelScope(shield=True):
        await ask(sup)
