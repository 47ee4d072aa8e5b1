"""What is kept of a child that crashed, or that runs: no more than is needed."""

from __future__ import annotations

import gc
import traceback
import weakref
from typing import Any

import pytest
import trio

from proctor.runtime import (
    NO_REPLY,
    Actor,
    ActorExited,
    Call,
    ChildSpec,
    Crash,
    Shutdown,
    open_supervisor,
    reply_error,
)
from proctor.runtime.supervision.tasks import open_task_supervisor
from proctor.runtime.tracebacks import drop_locals
from tests.runtime.stage import Boom, settled


class Large:
    """Something that one would notice."""


class Crashes(Actor):
    """Holds something large in itself and in the hook that fails."""

    async def init(self, held: weakref.WeakSet[Large]) -> None:
        self.held = held
        self.large = Large()
        held.add(self.large)

    async def handle_cast(self, msg: Any) -> None:
        local = Large()
        self.held.add(local)
        try:
            raise KeyError("first")
        except KeyError:
            if msg == "group":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.fail, local)
                    nursery.start_soon(self.fail, local)
            await self.fail(local)

    async def fail(self, large: Large) -> None:
        raise Boom("on purpose")


@pytest.mark.covers("T4")
@pytest.mark.parametrize("msg", ["alone", "group"])
async def test_a_crash_that_is_remembered_keeps_no_local_of_the_dead_child(msg: str) -> None:
    held: weakref.WeakSet[Large] = weakref.WeakSet()
    spec = ChildSpec("c", Crashes, (held,), name="c", restart="transient")
    async with open_supervisor([spec], intensity=5) as sup:
        events = sup.events()
        dead = sup.name("c").ref()
        await dead.cast(msg)
        await settled()
        reason = sup.tree().children[0].exit
        assert isinstance(reason, Crash)
        gc.collect()
        assert len(held) == 1  # that of the next incarnation
        assert dead.exit_reason is reason
        assert events.receive_nowait().kind == "child_exited"
    text = "".join(traceback.format_exception(reason.error))
    for words in (
        'raise Boom("on purpose")',
        "in handle_cast",
        "await self.fail(local)" if msg == "alone" else "+---------------- 2 ----------------",
        "KeyError: 'first'" if msg == "alone" else "ExceptionGroup",
        "Boom: on purpose",
    ):
        assert words in text


def test_a_traceback_without_locals_has_the_lines_that_it_had() -> None:
    def raises(value: int) -> None:
        raise Boom(value)

    with pytest.raises(Boom) as raised:
        raises(1)
    error = raised.value
    before = lines(error)
    drop_locals(error)
    assert lines(error) == before
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_next is not None
    assert error.__traceback__.tb_next.tb_frame.f_locals == {}
    assert error.__traceback__.tb_frame.f_back is None


def lines(error: Exception) -> list[tuple[str, int | None, str]]:
    return [(entry.filename, entry.lineno, entry.name) for entry in traceback.extract_tb(error.__traceback__)]


@pytest.mark.covers("M10")
async def test_an_error_that_was_an_answer_ends_nothing_in_the_frames_it_came_from() -> None:
    answered = trio.Event()

    class Answers(Actor):
        async def handle_call(self, msg: Any, from_: Call) -> Any:
            try:
                raise Boom("kept")
            except Boom as error:
                reply_error(from_, error)
                await trio.lowlevel.checkpoint()
                await settled()
            answered.set()
            return NO_REPLY

    class Asks(Actor):
        async def handle_cast(self, msg: Any) -> None:
            await msg.call("x")

    specs = [ChildSpec("a", Answers, name="a"), ChildSpec("b", Asks, name="b", restart="temporary")]
    async with open_supervisor(specs) as sup:
        ref = sup.name("b").ref()
        await ref.cast(sup.name("a"))
        await answered.wait()
        assert isinstance(ref.exit_reason, Crash)


class Parks(Actor):
    """Lets go of its argument and stays."""

    async def init(self, large: Large) -> None:
        del large


async def parks(large: Large, *, task_status: trio.TaskStatus[None]) -> None:
    del large
    task_status.started()
    await trio.sleep_forever()


@pytest.mark.covers("S16")
@pytest.mark.parametrize("start", [Parks, parks])
async def test_a_temporary_childs_arguments_are_not_kept_while_it_runs(start: Any) -> None:
    held: weakref.WeakSet[Large] = weakref.WeakSet()
    async with open_supervisor() as sup:
        held.add(large := Large())
        ref = await sup.start_child(ChildSpec("c", start, (large,), restart="temporary"))
        del large
        await settled()
        gc.collect()
        assert len(held) == 0
        assert ref.exit_reason is None


@pytest.mark.covers("S16", "S70")
async def test_a_tasks_arguments_are_not_kept_while_it_runs() -> None:
    held: weakref.WeakSet[Large] = weakref.WeakSet()

    async def stays(large: Large) -> None:
        del large
        await trio.sleep_forever()

    async with open_task_supervisor() as tasks:
        held.add(large := Large())
        task = await tasks.async_nolink(stays, large)
        await tasks.start_child(stays, large)
        del large
        await settled()
        gc.collect()
        assert len(held) == 0
        assert await task.shutdown() == Shutdown()
        with pytest.raises(ActorExited):
            await task
