"""What a caller that has gone leaves behind: nothing that it alone knew of."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ChildSpec,
    Sink,
    Stop,
    open_dynamic_supervisor,
    open_supervisor,
)
from proctor.runtime.supervision.tasks import open_task_supervisor
from tests.runtime.stage import Notes, forever, ready_after, settled


class Serves(Actor):
    """Serves streams in the handler itself."""

    async def init(self, notes: Notes) -> None:
        self.notes = notes

    async def handle_call(self, msg: Any, from_: object) -> Any:
        return msg

    async def handle_stream(self, msg: Any, sink: Sink) -> Any:
        await sink.send(1)
        try:
            await trio.sleep_forever()
        finally:
            self.notes.append("production over")
        return Stop()


@pytest.mark.covers("M24")
async def test_closing_a_stream_cancels_the_handler_that_serves_it() -> None:
    notes: Notes = []
    async with open_supervisor([ChildSpec("s", Serves, (notes,), name="s")]) as sup:
        ref = sup.name("s").ref()
        for times in (1, 2):
            async with ref.stream("x") as items:
                assert await anext(items) == 1
            assert await ref.call("still here") == "still here"
            assert notes == ["production over"] * times


@pytest.mark.covers("M24")
async def test_a_handler_that_is_not_begun_serves_no_stream_that_was_closed() -> None:
    notes: Notes = []
    async with open_supervisor([ChildSpec("s", Serves, (notes,), name="s")]) as sup:
        async with sup.name("s").stream("x"):
            pass
        assert await sup.name("s").call("still here") == "still here"
    assert notes == []


@pytest.mark.covers("S63", "T7")
async def test_a_child_whose_starter_was_cancelled_is_stopped(autojump_clock: MockClock) -> None:
    async with open_dynamic_supervisor(max_children=1) as pool:
        with trio.move_on_after(1) as scope:
            await pool.start_child(ChildSpec("c", ready_after(2)))
        assert scope.cancelled_caught
        await trio.sleep(5)
        assert pool.tree().children == ()
        await pool.start_child(ChildSpec("c", forever))  # its place is free again


@pytest.mark.covers("S63", "T7")
async def test_a_start_that_is_cancelled_at_any_step_gives_its_ref_or_leaves_no_child() -> None:
    given = 0
    async with open_dynamic_supervisor() as pool:
        for steps in range(12):
            ref = None
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cancel_after, scope, steps)
                    ref = await pool.start_child(ChildSpec("c", forever))
            await settled()
            assert [node.ref for node in pool.tree().children] == ([] if ref is None else [ref])
            if ref is not None:
                given += 1
                await pool.terminate_child(ref)
    assert given > 0


async def cancel_after(scope: trio.CancelScope, steps: int) -> None:
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    scope.cancel()


@pytest.mark.covers("S47")
async def test_a_static_child_whose_starter_was_cancelled_is_held_by_its_id(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor() as sup:
        with trio.move_on_after(1) as scope:
            await sup.start_child(ChildSpec("c", ready_after(2)))
        assert scope.cancelled_caught
        await trio.sleep(5)
        assert [node.state for node in sup.tree().children] == ["running"]


@pytest.mark.covers("S71")
async def test_a_task_stream_that_is_left_while_an_item_starts_leaves_no_task(
    autojump_clock: MockClock,
) -> None:
    on = 0
    begun = 0

    async def item(_: int) -> None:
        nonlocal on, begun
        on, begun = on + 1, begun + 1
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            on -= 1

    async with open_task_supervisor() as tasks:
        for steps in range(20):
            async with tasks.async_stream_nolink([1], item):
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
            assert on == 0
    assert begun > 0
