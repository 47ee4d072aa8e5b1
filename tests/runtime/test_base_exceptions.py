"""What leaves a child's code and is no `Exception`: asyncio's `CancelledError`, pytest's `Failed`, `GeneratorExit`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ActorExited,
    ChildSpec,
    Continue,
    Crash,
    DynamicSupervisor,
    ExitReason,
    MaxRestartsExceeded,
    Name,
    Probe,
    ProbeFailed,
    RuntimeFault,
    Shutdown,
    Sink,
    StartError,
    Subscription,
    TaskSupervisor,
    dynamic_supervisor_spec,
    open_supervisor,
    open_task_supervisor,
    supervisor_spec,
)
from proctor.runtime.events import ChildExited, KeptFailed
from proctor.runtime.supervision.child import Incarnation
from tests.runtime.stage import Boom, Notes, forever, heard, player, settled


class Alien(BaseException):
    """Neither an `Exception` nor an interrupt."""


def failed() -> BaseException:
    """What `pytest.fail` raises."""
    try:
        pytest.fail("in a child")
    except BaseException as error:  # noqa: BLE001
        return error


def group(*errors: BaseException) -> BaseException:
    return BaseExceptionGroup("several", errors)


ALIENS: dict[str, Callable[[], BaseException]] = {
    "asyncio's CancelledError": asyncio.CancelledError,
    "pytest's Failed": failed,
    "GeneratorExit": GeneratorExit,
    "a class of its own": Alien,
    "a group": lambda: group(Boom("beside"), Alien(), group(GeneratorExit())),
}
aliens = pytest.mark.parametrize("make", ALIENS.values(), ids=ALIENS.keys())


class Fragile(Actor):
    """Raises `error` at `place`, in its first incarnation only."""

    async def init(self, place: str, error: BaseException) -> Any:
        self.place, self.error = place, error
        if self.incarnation > 1:
            self.place = "nowhere"
        self.fail_at("init")
        if self.place == "handle_continue":
            return Continue()
        if self.place in ("nursery", "background"):
            nursery = self.nursery if self.place == "nursery" else self.background
            nursery.start_soon(self.fail)
        return None

    def fail_at(self, place: str) -> None:
        if place == self.place:
            raise self.error

    async def fail(self) -> NoReturn:
        raise self.error

    async def handle_continue(self, arg: Any) -> None:
        self.fail_at("handle_continue")

    async def handle_call(self, msg: Any, from_: object) -> Any:
        self.fail_at("handle_call")
        return msg

    async def handle_cast(self, msg: Any) -> None:
        self.fail_at("handle_cast")

    async def handle_info(self, msg: Any) -> None:
        self.fail_at("handle_info")

    async def handle_stream(self, msg: Any, sink: Sink) -> None:
        self.fail_at("handle_stream")
        if self.place == "produce":
            sink.produce(self.fail)

    async def terminate(self, reason: ExitReason) -> None:
        self.fail_at("terminate")


async def provoke(place: str, target: Name) -> None:
    """Have a `Fragile` reach that place."""
    if place == "handle_call":
        with pytest.raises(ActorExited):
            await target.call("now")
    elif place == "handle_cast":
        await target.cast("now")
    elif place == "handle_info":
        control = target.ref().endpoint.control
        assert isinstance(control, Incarnation)
        assert control.actor is not None
        control.actor.send_info("now")
    elif place in ("handle_stream", "produce"):
        async with target.stream("now") as items:
            with pytest.raises(ActorExited):
                await items.receive_batch()
    elif place == "terminate":
        target.exit(Shutdown())


HOOKS = (
    *("handle_continue", "handle_call", "handle_cast", "handle_info", "handle_stream", "produce"),
    *("nursery", "background", "terminate"),
)


@pytest.mark.covers("T4")
@aliens
@pytest.mark.parametrize("place", HOOKS)
async def test_any_exception_of_an_actor_is_its_crash_and_touches_nobody_else(
    place: str, make: Callable[[], BaseException]
) -> None:
    notes, error = Notes(), make()
    async with open_supervisor([player("a", notes), player("z", notes)]) as sup:
        events = sup.events()
        await sup.start_child(ChildSpec("f", Fragile, (place, error), name="f"))
        await provoke(place, sup.name("f"))
        await settled()
        assert are_crashes_by(error, ends(events))
        assert await sup.name("f").call("hello") == "hello"
        assert notes == ["+a", "+z"]
    assert notes == ["+a", "+z", "-z", "-a"]


def ends(events: Subscription) -> list[ExitReason]:
    return [event.reason for event in heard(events) if isinstance(event, ChildExited)]


def leaves(error: BaseException) -> list[BaseException]:
    whole: object = error
    if not isinstance(whole, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", whole)
    return [leaf for part in group.exceptions for leaf in leaves(part)]


def are_crashes_by(error: BaseException, reasons: Sequence[ExitReason], number: int = 1) -> bool:
    """A group that passes a scope of Trio is another group of the same exceptions."""
    found = [leaves(reason.error) for reason in reasons if isinstance(reason, Crash)]
    return len(reasons) == number and found == number * [leaves(error)]


@pytest.mark.covers("T4", "S10")
@aliens
async def test_any_exception_in_init_is_a_start_that_failed(make: Callable[[], BaseException]) -> None:
    notes, error = Notes(), make()
    with pytest.raises(StartError) as caught:
        async with open_supervisor([player("a", notes), ChildSpec("f", Fragile, ("init", error))]):
            raise AssertionError("started")
    assert are_crashes_by(error, [caught.value.reason])
    assert caught.value.__cause__ is caught.value.reason.error  # type: ignore[union-attr]
    assert notes == ["+a", "-a"]


@pytest.mark.covers("T4")
@aliens
async def test_any_exception_of_a_function_is_its_crash(make: Callable[[], BaseException]) -> None:
    notes, error = Notes(), make()

    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise error

    async with open_supervisor([player("a", notes)]) as sup:
        events = sup.events()
        await sup.start_child(ChildSpec("f", body, restart="temporary"))
        await settled()
        assert ends(events) == [Crash(error)]
        assert notes == ["+a"]


@pytest.mark.covers("T4", "S13")
@aliens
async def test_any_exception_of_a_set_up_is_a_start_that_failed(
    make: Callable[[], BaseException],
) -> None:
    error = make()

    async def set_up() -> NoReturn:
        raise error

    async with open_supervisor() as sup:
        with pytest.raises(StartError) as caught:
            await sup.start_child(supervisor_spec("s", set_up))
        assert caught.value.reason == Crash(error)


@pytest.mark.covers("T4", "X7")
@aliens
async def test_any_exception_of_a_probe_is_a_failed_probe(
    make: Callable[[], BaseException], autojump_clock: MockClock
) -> None:
    error = make()

    async def check() -> NoReturn:
        raise error

    probe = Probe(check=check, period=1, timeout=1, failures=2)
    async with open_supervisor() as sup:
        ref = await sup.start_child(ChildSpec("f", forever, restart="temporary", probe=probe))
        with ref.monitor() as monitor:
            reason = (await monitor).reason
    assert isinstance(reason, Crash)
    assert isinstance(reason.error, ProbeFailed)
    assert reason.error.error is error


class Leaving(Actor):
    """Leaves functions to be called that raise."""

    async def init(self, error: BaseException, once: bool = False) -> None:
        self.error = error
        self.kept.at_rest(self.fail)
        if not once:
            self.kept.when_dropped(self.fail)

    def fail(self) -> NoReturn:
        raise self.error


@pytest.mark.covers("T4")
@aliens
async def test_any_exception_of_what_a_child_left_to_be_called_is_an_event(
    make: Callable[[], BaseException],
) -> None:
    notes, error = Notes(), make()
    async with open_supervisor([player("a", notes)]) as sup:
        events = sup.events()
        await sup.start_child(ChildSpec("f", Leaving, (error,), restart="temporary"))
        await sup.terminate_child("f")
        raised = [event.error for event in heard(events) if isinstance(event, KeptFailed)]
        assert raised == [error, error]
        assert notes == ["+a"]


@pytest.mark.covers("T5")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_an_interrupt_in_what_a_child_left_to_be_called_stops_the_tree(
    kind: type[BaseException],
) -> None:
    notes, error = Notes(), group(Boom("beside"), kind(7))
    with pytest.raises(kind) as caught:  # noqa: PT012  # the body is what is interrupted
        async with open_supervisor([player("a", notes)]) as sup:
            await sup.start_child(ChildSpec("f", Leaving, (error, True), restart="temporary"))
            await sup.terminate_child("f")
            await trio.sleep_forever()
    assert caught.value.args == (7,)
    assert notes == ["+a", "-a"]


@pytest.mark.covers("T4")
@aliens
async def test_any_exception_of_a_dynamic_child_or_task_is_its_crash(
    make: Callable[[], BaseException],
) -> None:
    error = make()

    async def fail(*_: object, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> NoReturn:
        task_status.started()
        raise error

    async with open_supervisor([dynamic_supervisor_spec("pool")]) as sup:
        pool = sup.supervisor("pool", DynamicSupervisor)
        ref = await pool.start_child(ChildSpec("f", fail, restart="temporary"))
        other = await pool.start_child(ChildSpec("g", forever, restart="temporary"))
        await settled()
        assert ref.exit_reason == Crash(error)
        assert other.is_alive()
    async with open_task_supervisor() as tasks:
        await task_crashes(tasks, fail, error)


async def task_crashes(tasks: TaskSupervisor, fail: Callable[[], Any], error: BaseException) -> None:
    task = await tasks.async_nolink(fail)
    with pytest.raises(ActorExited) as caught:
        await task
    assert caught.value.__cause__ is error
    with pytest.raises(ActorExited) as caught:
        async with tasks.async_(fail):
            await trio.sleep_forever()
    assert caught.value.__cause__ is error


@pytest.mark.covers("T4", "S35")
@aliens
async def test_a_root_that_gives_up_names_any_exception_as_a_cause(
    make: Callable[[], BaseException],
) -> None:
    notes, error = Notes(), make()
    with pytest.raises(MaxRestartsExceeded) as caught:
        async with open_supervisor(
            [player("a", notes), ChildSpec("f", Fragile, ("nursery", error))], intensity=0
        ):
            await trio.sleep_forever()
    (cause,) = caught.value.exceptions
    assert isinstance(cause, ActorExited)
    assert are_crashes_by(error, [cause.reason])
    assert cause.__cause__ is cause.reason.error  # type: ignore[union-attr]
    assert notes == ["+a", "-a"]


async def stray() -> trio.Cancelled:
    """The cancellation of a scope that was left."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as error:
            return error
    raise AssertionError


@pytest.mark.covers("T3", "T4")
async def test_a_cancellation_of_another_scope_that_a_function_raises_is_its_crash() -> None:
    notes, error = Notes(), await stray()

    async def body(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise error

    async with open_supervisor([player("a", notes)]) as sup:
        events = sup.events()
        await sup.start_child(ChildSpec("f", body, restart="temporary"))
        await settled()
        (reason,) = ends(events)
        assert isinstance(reason, Crash)
        assert isinstance(reason.error, RuntimeFault)
        assert reason.error.__cause__ is error
        assert notes == ["+a"]
    assert notes == ["+a", "-a"]


@pytest.mark.covers("T3", "T4")
@pytest.mark.parametrize("place", ["handle_cast", "nursery", "background", "terminate"])
async def test_a_cancellation_of_another_scope_that_an_actor_raises_ends_it_alone(place: str) -> None:
    notes, error = Notes(), await stray()
    async with open_supervisor([player("a", notes)]) as sup:
        events = sup.events()
        await sup.start_child(ChildSpec("f", Fragile, (place, error), name="f"))
        await provoke(place, sup.name("f"))
        await settled()
        assert len(ends(events)) == 1
        assert await sup.name("f").call("hello") == "hello"
        assert notes == ["+a"]
    assert notes == ["+a", "-a"]


BROKEN = """
import trio
from proctor.runtime import ChildSpec, open_supervisor

class Breaking(trio.abc.Clock):
    broken = False
    def start_clock(self):
        pass
    def current_time(self):
        return 0.0
    def deadline_to_sleep_time(self, deadline):
        if self.broken:
            raise ValueError("the clock")
        return 0.0

async def forever(*, task_status):
    task_status.started()
    await trio.sleep_forever()

async def main():
    global ref
    async with open_supervisor([ChildSpec("a", forever, name="a")]) as sup:
        ref = sup.name("a").ref()
        clock.broken = True
        # as the interpreter does it with what is left of a run that broke down, be it while another one runs
        ref.endpoint.task.coro.close()
        await trio.sleep_forever()

clock = Breaking()
try:
    trio.run(main, clock=clock)
except trio.TrioInternalError:
    print(ref.exit_reason)
"""


@pytest.mark.covers("T4")
def test_a_child_that_is_collected_without_its_event_loop_does_not_go_on() -> None:
    env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", BROKEN], check=False, env=env, capture_output=True, timeout=60
    )
    assert done.stdout == b"None\n", done.stderr
    assert b"coroutine object Incarnation.run" not in done.stderr
