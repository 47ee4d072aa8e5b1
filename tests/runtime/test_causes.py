from __future__ import annotations

from typing import NoReturn

import pytest
import trio

from proctor.runtime import (
    Actor,
    ChildSpec,
    Continue,
    Crash,
    Exit,
    ExitReason,
    StartError,
    open_supervisor,
)
from proctor.runtime.processes.readiness import Output
from tests.runtime.stage import Boom, settled
from tests.runtime.starting import shell


def fail() -> NoReturn:
    try:
        raise LookupError("while it failed")
    except LookupError:
        raise Boom("what it led to") from KeyError("where it began")


async def fail_later(*_: object) -> None:
    fail()


class Frail(Actor):
    """Fails in the place that it is told."""

    place = ""

    async def init(self, place: str) -> object:
        self.place = place
        if place == "handle_continue":
            return Continue("go")
        return None

    async def handle_continue(self, arg: object) -> None:
        fail()

    async def handle_cast(self, msg: object) -> None:
        match self.place:
            case "nursery":
                self.nursery.start_soon(fail_later)
            case "background":
                self.background.start_soon(fail_later)
            case "terminate":
                raise Exit(Crash(Boom("before")))
            case "handle_cast":
                fail()
            case _:
                raise AssertionError(self.place)

    async def terminate(self, reason: ExitReason) -> None:
        if self.place == "terminate":
            fail()


async def failing_function(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await fail_later()


def told_whole(reason: object) -> None:
    assert isinstance(reason, Crash)
    error = reason.error
    assert isinstance(error, Boom)
    assert repr(error.__cause__) == "KeyError('where it began')"
    assert repr(error.__context__) == "LookupError('while it failed')"


PLACES = ["handle_continue", "handle_cast", "nursery", "background", "terminate"]


@pytest.mark.covers("M10")
@pytest.mark.parametrize("place", PLACES)
async def test_a_crash_keeps_what_it_was_raised_from(place: str) -> None:
    async with open_supervisor([]) as sup:
        ref = await sup.start_child(ChildSpec("a", Frail, (place,), restart="temporary"))
        with ref.monitor() as monitor:
            await ref.cast("go")
            await monitor
        told_whole(ref.exit_reason)


@pytest.mark.covers("T4")
async def test_a_function_that_crashes_keeps_what_it_was_raised_from() -> None:
    async with open_supervisor([]) as sup:
        ref = await sup.start_child(ChildSpec("a", failing_function, restart="temporary"))
        await settled()
        told_whole(ref.exit_reason)


@pytest.mark.covers("M10", "S10")
async def test_a_failed_start_keeps_what_it_was_raised_from() -> None:
    class Frail(Actor):
        async def init(self) -> None:
            fail()

    with pytest.raises(StartError) as caught:
        async with open_supervisor([ChildSpec("a", Frail)]):
            pass
    told_whole(caught.value.reason)


@pytest.mark.covers("X5", "S74")
async def test_a_failed_readiness_keeps_what_it_was_raised_from() -> None:
    def looks(data: bytes) -> bool:
        return fail()

    with pytest.raises(StartError) as caught, trio.fail_after(10):
        async with open_supervisor([shell("echo x; exec sleep 60", Output(looks))]):
            pass
    told_whole(caught.value.reason)
