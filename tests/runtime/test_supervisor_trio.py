from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ChildSpec,
    ExitReason,
    Ref,
    Shutdown,
    StartError,
    Subscription,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.spec import Restart
from tests.runtime.stage import (
    Boom,
    Notes,
    Player,
    Stubborn,
    errors_in,
    forever,
    kinds,
    never_ready,
    picture,
    player,
    ready_after,
    settled,
)


@pytest.mark.covers("T1", "T2")
async def test_a_cancellation_from_outside_becomes_an_ordered_stop(autojump_clock: MockClock) -> None:
    notes: Notes = []

    class Polite(Player):
        async def terminate(self, reason: ExitReason) -> None:
            await trio.sleep(1)
            notes.append(f"-{self.id} {reason}")

    begun = trio.current_time()
    with trio.move_on_after(2) as scope:
        async with open_supervisor([ChildSpec(id, Polite, (notes,)) for id in "ab"]):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() - begun == 4
    assert notes == ["+a", "+b", "-b shutdown", "-a shutdown"]


@pytest.mark.covers("T2")
async def test_a_cancellation_that_the_body_does_not_notice_is_delivered_afterwards() -> None:
    with trio.CancelScope() as scope:
        async with open_supervisor([ChildSpec("a", forever)]):
            scope.cancel()
    assert scope.cancelled_caught


@pytest.mark.covers("T2")
async def test_a_cancellation_while_stopping_does_not_hurry_the_stop(autojump_clock: MockClock) -> None:
    begun = trio.current_time()
    ref: list[Ref] = []
    with trio.move_on_after(1) as scope:
        async with open_supervisor([ChildSpec("a", Stubborn, (4,))]) as sup:
            ref.append(sup.child("a").ref())
    assert trio.current_time() - begun == 4
    assert scope.cancelled_caught
    assert ref[0].exit_reason == Shutdown()


async def test_an_error_of_the_body_comes_out_as_it_is_after_the_children() -> None:
    notes: Notes = []
    error = Boom("body")
    with pytest.raises(Boom) as caught:
        async with open_supervisor([player("a", notes)]):
            raise error
    assert caught.value is error
    assert notes == ["+a", "-a"]


async def test_an_error_of_the_body_wins_over_a_cancellation() -> None:
    with trio.CancelScope() as scope, pytest.raises(Boom):  # noqa: PT012
        async with open_supervisor([ChildSpec("a", forever)]):
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                raise Boom
    assert not scope.cancelled_caught


async def test_leaving_the_block_leaves_by_return_and_break() -> None:
    notes: Notes = []

    async def leaves() -> str:
        async with open_supervisor([player("a", notes)]):
            return "left"

    assert await leaves() == "left"
    for _ in range(2):
        async with open_supervisor([player("b", notes)]):
            break
    assert notes == ["+a", "-a", "+b", "-b"]


@pytest.mark.covers("T3")
async def test_cancelled_is_never_a_crash() -> None:
    async def swarm(*, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(trio.sleep_forever)
            task_status.started()

    async with open_supervisor([ChildSpec("a", swarm)]) as sup:
        ref = sup.child("a").ref()
        events = sup.events()
    assert ref.exit_reason == Shutdown()
    assert kinds(events) == ["child_exited root/a", "supervisor_stopped root"]


async def one_fails(*, task_status: trio.TaskStatus[None]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            raise Boom


@pytest.mark.covers("T3")
async def test_an_error_beside_a_cancellation_is_a_crash_without_the_cancelled() -> None:
    async with open_supervisor([ChildSpec("a", one_fails)]) as sup:
        ref = sup.child("a").ref()
    assert [type(error) for error in errors_in(ref.exit_reason)] == [Boom]


@pytest.mark.covers("T3")
async def test_an_error_beside_a_kill_is_a_kill() -> None:
    async with open_supervisor(
        [ChildSpec("a", one_fails, restart="temporary", shutdown="brutal_kill")]
    ) as sup:
        ref = sup.child("a").ref()
    assert str(ref.exit_reason) == "killed"


@pytest.mark.covers("T5")
@pytest.mark.parametrize("error", [KeyboardInterrupt("^C"), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("restart", ["permanent", "temporary"])
async def test_an_interrupt_in_a_child_stops_the_tree_and_comes_out_bare(
    error: BaseException, grouped: bool, restart: Restart
) -> None:
    notes: Notes = []

    async def interrupted(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await go.wait()
        if not grouped:
            raise error
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise error

    events: list[Subscription] = []
    go = trio.Event()
    inner = supervisor_spec("inner", [player("b", notes), ChildSpec("x", interrupted, restart=restart)])
    with pytest.raises(type(error)) as caught:  # noqa: PT012
        async with open_supervisor([player("a", notes), inner]) as sup:
            events.append(sup.events())
            go.set()
            await trio.sleep_forever()
    assert caught.value is error
    assert notes == ["+a", "+b", "-b", "-a"]
    assert not any("restarting" in kind for kind in kinds(events[0]))


@pytest.mark.covers("T5")
async def test_an_interrupt_in_the_body_or_in_a_group_comes_out_bare() -> None:
    notes: Notes = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        async with open_supervisor([player("a", notes)]), trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise KeyboardInterrupt
    assert notes == ["+a", "-a"]


@pytest.mark.covers("T5")
async def test_an_interrupt_while_a_child_starts() -> None:
    async def interrupted(*, task_status: trio.TaskStatus[None]) -> None:
        raise KeyboardInterrupt

    notes: Notes = []
    with pytest.raises(KeyboardInterrupt):
        async with open_supervisor([player("a", notes), ChildSpec("b", interrupted), player("c", notes)]):
            raise AssertionError("not reached")
    assert notes == ["+a", "-a"]


@pytest.mark.covers("T5")
async def test_a_second_interrupt_kills(autojump_clock: MockClock) -> None:
    class Twice(Actor):
        async def terminate(self, reason: ExitReason) -> None:
            await trio.sleep(1)
            raise KeyboardInterrupt("second")

    begun = trio.current_time()
    with pytest.raises(KeyboardInterrupt, match="first"):
        async with open_supervisor([ChildSpec("a", Stubborn, (500,), shutdown=1000), ChildSpec("b", Twice)]):
            raise KeyboardInterrupt("first")
    assert trio.current_time() - begun == 1


@pytest.mark.covers("T13")
async def test_exits_are_told_while_the_supervisor_is_busy(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes, mailbox=1), player("b", notes)], intensity=2) as sup:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.start_child, ChildSpec("c", ready_after(5)))
            await settled()
            for name in "ab":
                sup.name(name).kill()
            await settled()
            assert not sup.name("a").is_alive()
        assert await picture(sup) == {"a": 2, "b": 2, "c": 1}


async def test_stopping_while_another_task_waits_for_the_start_of_a_root() -> None:
    async def root() -> None:
        async with open_supervisor([ChildSpec("a", never_ready)]):
            raise AssertionError("not reached")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(root)
        await settled()
        nursery.cancel_scope.cancel()


async def test_a_root_inside_a_child_of_another_root() -> None:
    notes: Notes = []

    async def holds(*, task_status: trio.TaskStatus[None]) -> None:
        async with open_supervisor([player("b", notes), player("c", notes)]):
            task_status.started()
            await trio.sleep_forever()

    async with open_supervisor([player("a", notes), ChildSpec("holds", holds)]):
        pass
    assert notes == ["+a", "+b", "+c", "-c", "-b", "-a"]


async def test_a_root_that_cannot_start_raises_bare() -> None:
    async def fails(*, task_status: trio.TaskStatus[None]) -> None:
        raise Boom

    with pytest.raises(StartError):
        async with open_supervisor([ChildSpec("a", fails)]):
            raise AssertionError("not reached")


async def test_a_root_that_is_stopped_while_it_starts_has_not_started() -> None:
    class Ends(Actor):
        async def init(self) -> None:
            self.supervisor.ref.exit(Shutdown("early"))
            await trio.sleep_forever()

    with pytest.raises(StartError, match=r"child 'root' did not start: shutdown \(early\)"):
        async with open_supervisor([ChildSpec("a", Ends)]):
            raise AssertionError("not reached")


@pytest.mark.covers("T5")
async def test_an_interrupt_beside_a_kill_is_not_lost() -> None:
    async def both(*, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        async with open_supervisor([ChildSpec("a", both)]) as sup:
            sup.child("a").kill()
            await trio.sleep_forever()


async def test_the_context_of_a_bodys_error_is_kept() -> None:
    with pytest.raises(Boom) as caught:  # noqa: PT012
        async with open_supervisor([ChildSpec("a", forever)]):
            try:
                raise KeyError("first")
            except KeyError:
                raise Boom  # noqa: B904
    assert isinstance(caught.value.__context__, KeyError)
    assert not caught.value.__suppress_context__
