from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    NO_REPLY,
    Actor,
    ActorExited,
    Call,
    CallingSelf,
    CallTimeout,
    ChildSpec,
    Killed,
    LateReply,
    NoMailbox,
    NoProc,
    Reply,
    Shutdown,
    Stop,
    open_supervisor,
    reply,
    reply_error,
)
from proctor.runtime.messaging.deadlines import SLACK
from tests.runtime.stage import Boom, Notes, crash, end, forever, heard, player, settled


class Desk(Actor):
    """Answers in all the ways there are."""

    async def init(self, shelf: list[Call] | None = None) -> None:
        self.shelf = [] if shelf is None else shelf

    async def handle_call(self, msg: Any, from_: Call) -> Any:
        match msg:
            case ("sleep", seconds):
                await trio.sleep(seconds)
                return "slept"
            case "later":
                self.shelf.append(from_)
                return NO_REPLY
            case "twice":
                reply(from_, "once")
                return "twice"
            case trio.Event():
                await msg.wait()
                return None
            case "error":
                reply_error(from_, Boom("an answer"))
                return NO_REPLY
            case "stop":
                return Stop(Shutdown("asked"), reply="bye")
            case "stop silently":
                return Stop(Shutdown("asked"))
            case "self":
                return await self.ref.call("x")
            case "self by name":
                return await self.supervisor.name("desk").call("x")
            case "from a task":
                self.nursery.start_soon(self.answer, from_)
                return NO_REPLY
            case _:
                return Reply(msg)

    async def answer(self, from_: Call) -> None:
        reply(from_, await self.ref.call("through myself"))


def desk(*shelf: list[Call], **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"name": "desk"}
    return ChildSpec("desk", Desk, shelf, **(fields | spec))


@pytest.mark.covers("M13", "P05")
async def test_a_call_is_answered_by_value_or_reply() -> None:
    async with open_supervisor([desk()]) as sup:
        assert await sup.name("desk").call(7) == 7
        assert await sup.name("desk").ref().call(None) is None


@pytest.mark.covers("M13", "M16", "P05")
async def test_a_call_waits_five_seconds_or_as_told(autojump_clock: MockClock) -> None:
    async with open_supervisor([desk()]) as sup:
        name = sup.name("desk")
        begun = trio.current_time()
        with pytest.raises(CallTimeout, match=r"no answer from <name 'desk'> within 5 s"):
            await name.call(("sleep", 6))
        assert trio.current_time() - begun == 5
        assert await name.call(("sleep", 100), timeout=None) == "slept"
        with pytest.raises(CallTimeout):
            await name.call(("sleep", 1), timeout=0)


@pytest.mark.covers("M16", "M17")
async def test_the_callee_of_a_call_that_timed_out_goes_on(autojump_clock: MockClock) -> None:
    async with open_supervisor([desk()]) as sup:
        with sup.events() as events:
            with pytest.raises(CallTimeout):
                await sup.name("desk").call(("sleep", 6))
            assert await sup.name("desk").call("next") == "next"
            assert [event.msg for event in heard(events) if isinstance(event, LateReply)] == ["slept"]


@pytest.mark.covers("M14")
async def test_nobody_there_is_told_at_once(autojump_clock: MockClock) -> None:
    async with open_supervisor([desk(restart="temporary")]) as sup:
        ref = sup.name("desk").ref()
        await end(ref, Killed())
        begun = trio.current_time()
        for target in (ref, sup.name("desk"), sup.name("nobody"), sup.child("nobody")):
            with pytest.raises(NoProc):
                await target.call(1)
        assert trio.current_time() == begun


@pytest.mark.covers("M15")
@pytest.mark.parametrize("how", ["killed", "crashed", "stopped"])
async def test_a_target_that_ends_first_is_told_with_its_reason(how: str) -> None:
    async with open_supervisor([desk(restart="temporary")]) as sup, trio.open_nursery() as nursery:
        ref = sup.name("desk").ref()
        reasons: list[object] = []

        async def call(msg: object) -> None:
            with pytest.raises(ActorExited) as caught:
                await ref.call(msg)
            reasons.append(caught.value.reason)

        nursery.start_soon(call, "later" if how != "stopped" else "stop silently")
        await settled()
        if how == "killed":
            ref.kill()
        elif how == "crashed":
            await ref.cast("not understood")
        await settled()
        assert reasons == [ref.exit_reason]


@pytest.mark.covers("M19")
async def test_an_answer_may_come_later_from_any_task() -> None:
    shelf: list[Call] = []
    answers: list[object] = []
    async with open_supervisor([desk(shelf)]) as sup, trio.open_nursery() as nursery:

        async def call() -> None:
            answers.append(await sup.name("desk").call("later"))

        for _ in range(3):
            nursery.start_soon(call)
        await settled()
        assert await sup.name("desk").call("meanwhile") == "meanwhile"
        for n, from_ in enumerate(shelf):
            reply(from_, n)
        await settled()
        assert sorted(map(str, answers)) == ["0", "1", "2"]


@pytest.mark.covers("M17")
async def test_a_second_answer_is_dropped() -> None:
    async with open_supervisor([desk()]) as sup:
        with sup.events() as events:
            assert await sup.name("desk").call("twice") == "once"
            assert await sup.name("desk").call("next") == "next"
            assert [event.msg for event in heard(events) if isinstance(event, LateReply)] == ["twice"]


@pytest.mark.covers("M17")
async def test_an_answer_for_a_caller_that_is_gone_is_dropped() -> None:
    shelf: list[Call] = []
    async with open_supervisor([desk(shelf)]) as sup:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sup.name("desk").call, "later")
                await settled()
                scope.cancel()
        reply(shelf[0], "late")
        reply_error(shelf[0], Boom())
        assert await sup.name("desk").call("next") == "next"


@pytest.mark.covers("M17", "L35")
async def test_an_answer_after_the_actors_end_is_dropped() -> None:
    shelf: list[Call] = []
    async with open_supervisor([desk(shelf, restart="temporary")]) as sup, trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(ActorExited):
                await sup.name("desk").call("later")

        nursery.start_soon(call)
        await settled()
        sup.name("desk").kill()
        await settled()
        reply(shelf[0], "late")


@pytest.mark.covers("M18")
@pytest.mark.parametrize("how", ["self", "self by name"])
async def test_calling_oneself_is_refused_at_once(how: str) -> None:
    async with open_supervisor([desk(restart="temporary")]) as sup:
        ref = sup.name("desk").ref()
        with ref.monitor() as monitor:
            with pytest.raises(ActorExited):
                await ref.call(how)
            reason = (await monitor).reason
    assert isinstance(getattr(reason, "error", None), CallingSelf)


@pytest.mark.covers("M18")
async def test_an_actors_own_task_may_call_it() -> None:
    async with open_supervisor([desk()]) as sup:
        assert await sup.name("desk").call("from a task") == "through myself"


@pytest.mark.covers("M10")
async def test_an_error_can_be_an_answer() -> None:
    async with open_supervisor([desk()]) as sup:
        ref = sup.name("desk").ref()
        with pytest.raises(Boom, match="an answer"):
            await ref.call("error")
        assert ref.is_alive()


@pytest.mark.covers("M20")
async def test_a_handler_may_answer_and_stop() -> None:
    async with open_supervisor([desk(restart="temporary")]) as sup:
        ref = sup.name("desk").ref()
        assert await ref.call("stop") == "bye"
        await settled()
        assert ref.exit_reason == Shutdown("asked")


@pytest.mark.covers("X17")
async def test_a_call_waits_out_a_restart_if_told(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)]) as sup, trio.open_nursery() as nursery:
        await sup.terminate_child("a")
        with pytest.raises(NoProc):
            await sup.name("a").call("incarnation", wait_for=3)

        async def later() -> None:
            await trio.sleep(2)
            await sup.restart_child("a")

        nursery.start_soon(later)
        assert await sup.name("a").call("incarnation", wait_for=3) == 2
        with pytest.raises(NoProc):
            await sup.name("nobody").wait(1)
        assert await sup.name("a").wait(1) is sup.name("a").ref()


@pytest.mark.covers("X17", "M13")
async def test_the_time_of_a_call_counts_from_the_end_of_its_wait(autojump_clock: MockClock) -> None:
    shelf: list[Call] = []
    async with open_supervisor([desk(shelf)]) as sup, trio.open_nursery() as nursery:
        await sup.terminate_child("desk")
        begun = trio.current_time()

        async def later() -> None:
            await trio.sleep(2)
            await sup.restart_child("desk")

        nursery.start_soon(later)
        with pytest.raises(CallTimeout, match="within 3 s"):
            await sup.name("desk").call("later", timeout=3, wait_for=10)
        assert trio.current_time() - begun == 5


@pytest.mark.covers("X17")
async def test_a_wait_goes_on_when_who_came_back_is_gone_before_the_caller_runs(
    autojump_clock: MockClock,
) -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)], intensity=10) as sup, trio.open_nursery() as nursery:
        await sup.terminate_child("a")
        got: list[object] = []

        async def call() -> None:
            got.append(await sup.name("a").call("incarnation", wait_for=10))

        nursery.start_soon(call)
        await settled()
        other = ChildSpec("b", forever, restart="temporary")
        ref = await sup.start_child(other)
        sup.registry.register("a", ref)
        sup.registry.unregister("a", ref)
        await settled()
        assert got == []
        await sup.restart_child("a")
        await settled()
        assert got == [2]


@pytest.mark.covers("X17", "M15")
async def test_a_call_that_waited_learns_of_an_end_after_it_was_sent(
    autojump_clock: MockClock,
) -> None:
    shelf: list[Call] = []
    async with open_supervisor([desk(shelf)]) as sup, trio.open_nursery() as nursery:
        await sup.terminate_child("desk")
        nursery.start_soon(sup.restart_child, "desk")

        async def kill() -> None:
            await settled()
            sup.name("desk").kill()

        nursery.start_soon(kill)
        with pytest.raises(ActorExited):
            await sup.name("desk").call("later", wait_for=10)


@pytest.mark.covers("X17")
async def test_a_ref_never_comes_back_however_long_one_waits() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)]) as sup:
        ref = sup.name("a").ref()
        await crash(sup, "a")
        with pytest.raises(NoProc):
            await ref.call("incarnation", wait_for=100)


@pytest.mark.covers("T15")
async def test_an_answer_that_came_in_the_tick_of_the_deadline_is_not_lost() -> None:
    shelf: list[Call] = []
    async with open_supervisor([desk(shelf)]) as sup, trio.open_nursery() as nursery:
        got: list[object] = []

        async def call() -> None:
            with trio.CancelScope() as scope:
                scopes.append(scope)
                got.append(await sup.name("desk").call("later"))

        scopes: list[trio.CancelScope] = []
        nursery.start_soon(call)
        await settled()
        reply(shelf[0], "just in time")
        scopes[0].cancel()
        shelf[0].expire()
        await settled()
        assert got == ["just in time"]


async def test_a_cancelled_caller_sends_nothing() -> None:
    notes: Notes = []
    async with open_supervisor([player("a", notes)]) as sup:
        with trio.CancelScope() as scope:
            scope.cancel()
            await sup.name("a").call(Boom())
        assert scope.cancelled_caught
        await settled()
        assert sup.name("a").ref().exit_reason is None


@pytest.mark.covers("M4")
async def test_a_cancelled_caller_leaves_the_room_that_it_did_not_need() -> None:
    shelf: list[Call] = []
    async with open_supervisor([desk(shelf, mailbox=1)]) as sup, trio.open_nursery() as nursery:
        ref = sup.name("desk").ref()
        gate = trio.Event()
        nursery.start_soon(ref.call, gate)
        await settled()
        with trio.CancelScope() as scope:
            scope.cancel()
            await ref.call("later")
        assert scope.cancelled_caught
        request = ref.send_request("alive")
        gate.set()
        assert await request.wait() == "alive"
        assert shelf == []


@pytest.mark.covers("M16")
@pytest.mark.parametrize("by", ["another task", "a deadline"])
async def test_a_caller_cancelled_once_it_has_asked_has_asked(by: str, autojump_clock: MockClock) -> None:
    shelf: list[Call] = []
    async with open_supervisor([desk(shelf)]) as sup, trio.open_nursery() as nursery:
        ref = sup.name("desk").ref()
        nursery.start_soon(ref.call, ("sleep", 5), None)
        await settled()

        async def ask(scope: trio.CancelScope) -> None:
            with scope:
                await ref.call("later")

        scope = trio.CancelScope(deadline=trio.current_time() + 1 if by == "a deadline" else math.inf)
        nursery.start_soon(ask, scope)
        await settled()
        if by == "another task":
            scope.cancel()
        await trio.sleep(2)
        assert (scope.cancelled_caught, shelf) == (True, [])
        await ref.call("x")
        assert [call.settled for call in shelf] == [True]


@pytest.mark.covers("M14")
async def test_a_cancelled_caller_of_nobody_is_cancelled() -> None:
    async with open_supervisor([desk([])]) as sup:
        with trio.CancelScope() as scope:
            scope.cancel()
            await sup.name("nobody").call("x")
        assert scope.cancelled_caught


@pytest.mark.covers("T14")
async def test_a_deadline_covers_the_wait_for_room(autojump_clock: MockClock) -> None:
    shelf: list[Call] = []
    async with open_supervisor([desk(shelf, mailbox=1)]) as sup, trio.open_nursery() as nursery:
        ref = sup.name("desk").ref()
        nursery.start_soon(ref.call, ("sleep", 60), None)
        await settled()
        nursery.start_soon(ref.call, ("sleep", 0), None)
        await settled()
        begun = trio.current_time()
        with pytest.raises(CallTimeout):
            await ref.call("x", timeout=3)
        assert trio.current_time() - begun == 3


@pytest.mark.covers("T14")
async def test_the_callee_can_see_the_deadline(autojump_clock: MockClock) -> None:
    shelf: list[Call] = []
    async with open_supervisor([desk(shelf)]) as sup:
        begun = trio.current_time()
        with pytest.raises(CallTimeout):
            await sup.name("desk").call("later", timeout=3)
        assert shelf[0].deadline == begun + 3
        assert shelf[0].settled


@pytest.mark.covers("M4")
async def test_a_caller_cancelled_while_it_waits_for_room_has_sent_nothing() -> None:
    shelf: list[Call] = []
    async with open_supervisor([desk(shelf, mailbox=1)]) as sup, trio.open_nursery() as nursery:
        ref = sup.name("desk").ref()
        gate = trio.Event()
        nursery.start_soon(ref.call, gate)
        await settled()
        nursery.start_soon(ref.call, "x")
        await settled()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(ref.call, "later")
                inner.start_soon(ref.cast, "would be a crash")
                await settled()
                scope.cancel()
        gate.set()
        assert await ref.call("alive") == "alive"
        assert shelf == []


@pytest.mark.covers("T15", "M4")
async def test_an_answer_before_the_sender_that_waited_for_room_runs_is_not_lost() -> None:
    shelf: list[Call] = []
    async with open_supervisor([desk(shelf, mailbox=1)]) as sup, trio.open_nursery() as nursery:
        ref = sup.name("desk").ref()
        gate = trio.Event()
        nursery.start_soon(ref.call, gate)
        await settled()
        answers: list[int] = []

        async def call(n: int) -> None:
            answers.append(await ref.call(n))

        for n in range(5):
            nursery.start_soon(call, n)
            await settled()
        gate.set()
        await settled()
        assert sorted(answers) == [0, 1, 2, 3, 4]


async def test_many_calls_with_many_deadlines_expire_in_time(autojump_clock: MockClock) -> None:
    shelf: list[Call] = []
    late: list[float] = []
    async with open_supervisor([desk(shelf)]) as sup:
        begun = trio.current_time()
        for _ in range(2 * SLACK):
            await sup.name("desk").call("x", timeout=50)
        async with trio.open_nursery() as nursery:

            async def call(seconds: float) -> None:
                with pytest.raises(CallTimeout):
                    await sup.name("desk").call("later", timeout=seconds)
                late.append(trio.current_time() - begun - seconds)

            for n in range(100):
                nursery.start_soon(call, 100.0 - n)
    assert late == [0.0] * 100


async def test_a_function_child_takes_no_messages() -> None:
    async with open_supervisor([ChildSpec("a", forever, name="a")]) as sup:
        with pytest.raises(NoMailbox, match="takes no messages"):
            await sup.name("a").call(1)
        await sup.name("a").cast(1)
        sup.name("a").cast_nowait(1)
