"""A start of supervisors that is given up halfway, and one that nobody is to begin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    ChildSpec,
    Crash,
    ExitReason,
    Killed,
    MaxRestartsExceeded,
    Shutdown,
    StartError,
    StartTimeout,
    Supervisor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.spec import Grace
from tests.runtime.stage import Boom, Notes, Player, forever, never_ready, player, settled


class Tidy(Player):
    """Takes a second to terminate, and notes it when that is over."""

    async def terminate(self, reason: ExitReason) -> None:
        await trio.sleep(1)
        await super().terminate(reason)


def tidy(id: str, notes: Notes, **spec: Any) -> ChildSpec:
    return ChildSpec(id, Tidy, (notes,), name=id, **spec)


def halfway(notes: Notes, depth: int = 1, **spec: Any) -> ChildSpec:
    """A nested supervisor with two children that are ready and one whose start does not end."""
    hanging = ChildSpec("h", never_ready, name="h") if depth == 1 else halfway(notes, depth - 1)
    first, second = (f"a{depth}", f"b{depth}")
    return supervisor_spec(f"s{depth}", [tidy(first, notes), tidy(second, notes), hanging], **spec)


async def interrupts(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await trio.sleep(3)
    raise KeyboardInterrupt


ORDERLY = ["+a2", "+b2", "+a1", "+b1", "-b1", "-a1", "-b2", "-a2"]


@pytest.mark.covers("S10", "S72")
async def test_cancelling_the_start_of_nested_supervisors_stops_their_ready_children_in_order(
    autojump_clock: MockClock,
) -> None:
    notes = Notes()
    with trio.move_on_after(3) as scope:
        async with open_supervisor([halfway(notes, 2)]):
            raise AssertionError("not reached")
    assert scope.cancelled_caught
    assert notes == ORDERLY
    assert trio.current_time() == 3 + 4


@pytest.mark.covers("T5", "S72")
async def test_an_interrupt_during_the_start_of_nested_supervisors_stops_their_ready_children_in_order(
    autojump_clock: MockClock,
) -> None:
    notes = Notes()
    with pytest.raises(KeyboardInterrupt):
        async with open_supervisor([ChildSpec("i", interrupts), halfway(notes, 2)]):
            raise AssertionError("not reached")
    assert notes == ORDERLY


@pytest.mark.covers("S10", "D5")
async def test_a_stop_during_the_start_of_a_nested_supervisor_kills_the_starting_child_alone(
    autojump_clock: MockClock,
) -> None:
    notes = Notes()
    async with open_supervisor() as sup, trio.open_nursery() as nursery:

        async def start() -> None:
            with pytest.raises(Exception, match="ended: shutdown"):
                await sup.start_child(halfway(notes))

        nursery.start_soon(start)
        await settled()
        ends = {name: sup.name(name).monitor() for name in ("a1", "b1", "h")}
        nested = sup.child("s1").monitor()
        await sup.stop()
        assert {name: (await monitor).reason for name, monitor in ends.items()} == {
            "a1": Shutdown(),
            "b1": Shutdown(),
            "h": Killed(),
        }
        assert (await nested).reason == Shutdown()
    assert notes == ["+a1", "+b1", "-b1", "-a1"]


@pytest.mark.covers("X4", "S10")
async def test_a_start_timeout_of_a_nested_supervisor_stops_its_ready_children_in_order(
    autojump_clock: MockClock,
) -> None:
    notes = Notes()
    with pytest.raises(StartError) as caught:
        async with open_supervisor([halfway(notes, start_timeout=3)]):
            raise AssertionError("not reached")
    assert isinstance(caught.value.__cause__, StartTimeout)
    assert notes == ["+a1", "+b1", "-b1", "-a1"]
    assert trio.current_time() == 3 + 2


@pytest.mark.covers("S43", "S72")
async def test_a_stop_during_the_restart_of_a_nested_supervisor_stops_its_ready_children_in_order(
    autojump_clock: MockClock,
) -> None:
    notes = Notes()

    class HangsAgain(Player):
        async def init(self, notes: Notes, start: object = None) -> None:
            if self.kept.setdefault("starts", len(rounds)) or rounds:
                await trio.sleep_forever()
            rounds.append(1)

    rounds = list[int]()
    nested = supervisor_spec("s", [tidy("a", notes), tidy("b", notes), ChildSpec("h", HangsAgain, (notes,))])
    async with open_supervisor([nested]) as sup:
        sup.child("s").kill()
        await trio.sleep(2)
        assert notes == ["+a", "+b"] * 2
    assert notes == [*["+a", "+b"] * 2, "-b", "-a"]


@pytest.mark.covers("S38", "D7")
@pytest.mark.parametrize(("grace", "after"), [(2.5, 2.5), ("brutal_kill", 0), (0, 0)])
async def test_the_grace_of_a_nested_supervisor_bounds_the_end_of_its_start(
    grace: Grace, after: float, autojump_clock: MockClock
) -> None:
    class Hangs(Player):
        async def terminate(self, reason: ExitReason) -> None:
            notes.append(f"?{self.id}")
            await trio.sleep_forever()

    notes = Notes()
    children = [
        ChildSpec("a", Hangs, (notes,), shutdown=math.inf),
        tidy("b", notes),
        ChildSpec("h", never_ready),
    ]
    with trio.move_on_after(3):
        async with open_supervisor([supervisor_spec("s", children, shutdown=grace)]):
            raise AssertionError("not reached")
    assert trio.current_time() == 3 + after
    assert notes == ["+a", "+b"] + (["-b", "?a"] if after else [])


@pytest.mark.covers("S45")
async def test_a_kill_ends_the_orderly_end_of_a_start_at_once(autojump_clock: MockClock) -> None:
    notes, roots = Notes(), list[Supervisor]()

    def handle(core: Any) -> Supervisor:
        roots.append(Supervisor(core))
        return roots[0]

    async def kill() -> None:
        await trio.sleep(3.5)
        roots[0].ref.kill()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        with trio.move_on_after(3):
            async with open_supervisor([halfway(notes, 2)], handle=handle):
                raise AssertionError("not reached")
    assert trio.current_time() == 3.5
    assert notes == ["+a2", "+b2", "+a1", "+b1"]


# a set-up that returns when its supervisor is to end


ENDS: dict[str, Callable[[Supervisor], object]] = {
    "stop": lambda sup: sup.ref.exit(Shutdown()),
    "kill": lambda sup: sup.ref.kill(),
    "stop of the nested one": lambda sup: sup.child("s").exit(Shutdown()),
    "kill of the nested one": lambda sup: sup.child("s").kill(),
}


@pytest.mark.covers("T6", "S13")
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("is_shielded", [True, False])
async def test_a_set_up_that_returns_in_the_tick_of_a_stop_starts_nothing(
    end: Callable[[Supervisor], object], is_shielded: bool
) -> None:
    notes, gate = Notes(), trio.Event()

    async def set_up() -> list[ChildSpec]:
        with trio.CancelScope(shield=is_shielded):
            await gate.wait()
        return [player("a", notes), ChildSpec("f", forever, name="f")]

    async def start() -> None:
        with pytest.raises(Exception):  # noqa: B017, PT011  # by which end is not the question
            await sup.start_child(supervisor_spec("s", set_up))

    async with open_supervisor() as sup, trio.open_nursery() as nursery:
        nursery.start_soon(start)
        await settled()
        monitor = sup.child("s").monitor()
        gate.set()
        end(sup)
        with trio.fail_after(30):
            assert not isinstance((await monitor).reason, Crash)
        await settled()
        # a root's loop may be told after the set-up went on: then what was started is stopped
        assert notes in ([], ["+a", "-a"] if end is ENDS["stop"] else [])
        assert sup.registry.names() == {}
        assert not sup.child("s/a").is_alive()


# a root that is stopped before it is ready


def ends_root(reason: ExitReason, roots: list[Supervisor]) -> ChildSpec:
    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        roots[0].ref.exit(reason)
        task_status.started()
        await trio.sleep_forever()

    return ChildSpec("e", body)


REASONS: dict[str, ExitReason] = {
    "shutdown": Shutdown("enough"),
    "crash": Crash(Boom("enough")),
    "killed": Killed(),
}


@pytest.mark.covers("S10")
@pytest.mark.parametrize("reason", REASONS.values(), ids=REASONS.keys())
@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("is_nested", [True, False])
async def test_a_root_that_its_own_child_stops_during_the_start_has_not_started(
    reason: ExitReason, is_last: bool, is_nested: bool
) -> None:
    notes, roots = Notes(), list[Supervisor]()

    def handle(core: Any) -> Supervisor:
        roots.append(Supervisor(core))
        return roots[0]

    ends = ends_root(reason, roots)
    children = [player("a", notes), supervisor_spec("s", [ends]) if is_nested else ends]
    children += [] if is_last else [player("z", notes)]
    with pytest.raises(StartError) as caught:
        async with open_supervisor(children, handle=handle):
            notes.append("body")
    assert caught.value.id == "root"
    assert caught.value.reason == reason
    assert caught.value.__cause__ is (reason.error if isinstance(reason, Crash) else None)
    assert notes == ["+a"] + ([] if reason == Killed() else ["-a"])
    assert roots[0].ref.exit_reason == reason


@pytest.mark.covers("T2")
async def test_a_cancellation_of_a_start_that_was_stopped_comes_out_as_one() -> None:
    roots = list[Supervisor]()

    def handle(core: Any) -> Supervisor:
        roots.append(Supervisor(core))
        return roots[0]

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                scope.cancel()

            nursery.start_soon(cancel)
            async with open_supervisor([ends_root(Shutdown(), roots)], handle=handle):
                raise AssertionError("not reached")
    assert scope.cancelled_caught


async def done(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()


@pytest.mark.covers("S7", "S59")
async def test_a_root_whose_work_was_done_during_the_start_was_ready_all_the_same(
    autojump_clock: MockClock,
) -> None:
    notes = Notes()

    async def slow(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(1)
        await forever(task_status=task_status)

    children = [
        player("a", notes),
        ChildSpec("w", done, restart="temporary", significant=True),
        ChildSpec("slow", slow),
    ]
    async with open_supervisor(children, auto_shutdown="any_significant") as sup:
        notes.append("body")
        assert await sup.wait_stopped() == Shutdown("auto_shutdown")
    assert sorted(notes) == ["+a", "-a", "body"]


@pytest.mark.covers("S35")
async def test_a_root_that_gives_up_over_an_end_during_the_start_never_runs_its_body(
    autojump_clock: MockClock,
) -> None:
    notes = Notes()

    async def slow(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(1)
        await forever(task_status=task_status)

    children = [player("a", notes), ChildSpec("w", done), ChildSpec("slow", slow)]
    with pytest.raises(MaxRestartsExceeded):
        async with open_supervisor(children, intensity=0):
            notes.append("body")
    assert notes == ["+a", "-a"]
