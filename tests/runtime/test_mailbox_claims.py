from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    NO_REPLY,
    Actor,
    ActorExited,
    AlreadyRegistered,
    Call,
    CallTimeout,
    ChildSpec,
    Continue,
    ExitReason,
    Killed,
    LateReply,
    NoProc,
    Normal,
    Ref,
    Shutdown,
    Sink,
    Stop,
    open_supervisor,
    reply,
)
from tests.runtime.stage import Notes, forever, heard, picture, player, settled


@pytest.mark.covers("M5", "M2")
async def test_a_call_and_a_stream_that_come_while_an_actor_starts_are_handled_after_its_continue() -> None:
    order: list[str] = []
    gate = trio.Event()

    class Slow(Actor):
        async def init(self) -> Continue:
            await gate.wait()
            return Continue("go on")

        async def handle_continue(self, arg: object) -> None:
            await settled()
            order.append("continue")

        async def handle_call(self, msg: Any, from_: Call) -> Any:
            order.append("call")
            return msg

        async def handle_stream(self, msg: Any, sink: Sink) -> None:
            order.append("stream")
            await sink.send(msg)

    async def call() -> None:
        assert await sup.name("a").call("hello") == "hello"

    async def stream() -> None:
        async with sup.name("a").stream("item") as items:
            assert [item async for item in items] == ["item"]

    async with open_supervisor() as sup, trio.open_nursery() as nursery:
        nursery.start_soon(sup.start_child, ChildSpec("a", Slow, name="a"))
        await settled()
        for ask in (call, stream):
            nursery.start_soon(ask)
            await settled()
        assert order == []
        gate.set()
    assert order == ["continue", "call", "stream"]


class Busy(Actor):
    """Notes each cast, and waits at the first."""

    async def init(self, notes: Notes, gate: trio.Event) -> None:
        self.notes, self.gate = notes, gate

    async def handle_cast(self, msg: object) -> None:
        self.notes.append(str(msg))
        await self.gate.wait()

    async def terminate(self, reason: ExitReason) -> None:
        self.notes.append(f"terminate {reason}")
        await trio.sleep_forever()


@pytest.mark.covers("M6", "D4")
async def test_a_stop_overtakes_a_full_mailbox_and_a_kill_the_stop() -> None:
    notes: Notes = []
    spec = ChildSpec("a", Busy, (notes, trio.Event()), mailbox=1, overflow="raise", restart="temporary")
    async with open_supervisor([spec]) as sup:
        ref = sup.child("a").ref()
        await ref.cast("first")
        await settled()
        await ref.cast("second")
        ref.exit(Shutdown("enough"))
        await settled()
        assert notes == ["first", "terminate shutdown (enough)"]
        assert ref.is_alive()
        ref.kill()
        await settled()
        assert ref.exit_reason == Killed()
    assert len(notes) == 2


class Desk(Actor):
    """Hands its callers to who wants to answer them."""

    async def init(self, shelf: list[Call]) -> None:
        self.shelf = shelf

    async def handle_call(self, msg: Any, from_: Call) -> Any:
        if isinstance(msg, Stop):
            return msg
        self.shelf.append(from_)
        return NO_REPLY


class Clerk(Actor):
    """Answers what lies on the shelf, in a task of its own."""

    async def init(self, shelf: list[Call]) -> None:
        self.shelf = shelf

    async def handle_cast(self, msg: object) -> None:
        self.nursery.start_soon(self.answer, msg)

    async def answer(self, msg: object) -> None:
        reply(self.shelf.pop(0), msg)


@pytest.mark.covers("M13")
async def test_without_a_time_out_a_call_waits_for_longer_than_the_default(
    autojump_clock: MockClock,
) -> None:
    shelf: list[Call] = []

    async def answer_late() -> None:
        await trio.sleep(3600)
        reply(shelf[0], "late")

    async with open_supervisor([ChildSpec("desk", Desk, (shelf,))]) as sup, trio.open_nursery() as nursery:
        nursery.start_soon(answer_late)
        assert await sup.child("desk").call("x", timeout=None) == "late"
    assert trio.current_time() == 3600


@pytest.mark.covers("M17")
async def test_a_late_answer_reaches_no_other_call_of_its_caller(autojump_clock: MockClock) -> None:
    shelf: list[Call] = []

    async def answer() -> None:
        await trio.sleep(2)
        reply(shelf[0], "to the first")
        await trio.sleep(1)
        reply(shelf[1], "to the second")

    async with open_supervisor([ChildSpec("desk", Desk, (shelf,))]) as sup, trio.open_nursery() as nursery:
        desk = sup.child("desk")
        with sup.events() as events:
            nursery.start_soon(answer)
            with pytest.raises(CallTimeout):
                await desk.call("first", timeout=1)
            assert await desk.call("second") == "to the second"
            assert [event.msg for event in heard(events) if isinstance(event, LateReply)] == ["to the first"]


@pytest.mark.covers("M19")
async def test_an_answer_may_come_from_a_task_of_another_actor() -> None:
    shelf: list[Call] = []
    children = [ChildSpec("desk", Desk, (shelf,)), ChildSpec("clerk", Clerk, (shelf,))]
    async with open_supervisor(children) as sup, trio.open_nursery() as nursery:
        answers: list[object] = []

        async def ask() -> None:
            answers.append(await sup.child("desk").call("question"))

        nursery.start_soon(ask)
        await settled()
        await sup.child("clerk").cast("answer")
        await settled()
        assert answers == ["answer"]


@pytest.mark.covers("M19", "M15")
async def test_a_deferred_answer_dies_with_its_actor_and_not_with_another() -> None:
    shelf: list[Call] = []
    told: list[ExitReason] = []
    children = [ChildSpec(id, Desk, (shelf,), restart="temporary") for id in ("desk", "other")]
    async with open_supervisor(children) as sup, trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(ActorExited) as caught:
                await sup.child("desk").call("question")
            told.append(caught.value.reason)

        nursery.start_soon(ask)
        await settled()
        sup.child("other").kill()
        await settled()
        assert told == []
        sup.child("desk").kill()
    assert told == [Killed()]


@pytest.mark.covers("M20", "S14")
async def test_one_that_answers_and_stops_is_restarted_by_its_kind() -> None:
    async with open_supervisor([ChildSpec("desk", Desk, ([],), name="desk")]) as sup:
        first = sup.name("desk").ref()
        assert await first.call(Stop(Normal(), reply="bye")) == "bye"
        assert await picture(sup) == {"desk": 2}
        assert first.exit_reason == Normal()


@pytest.mark.covers("M25")
async def test_closing_one_monitor_leaves_the_others_of_its_target() -> None:
    async with open_supervisor([player("a", [], restart="temporary")]) as sup:
        ref = sup.name("a").ref()
        first, second, third = ref.monitor(), ref.monitor(), ref.monitor()
        second.close()
        second.close()
        ref.kill()
        assert (await first).reason == (await third).reason == Killed()
        assert second.down is None


@pytest.mark.covers("M28")
@pytest.mark.parametrize("spec", [player("a", []), ChildSpec("a", forever)], ids=["actor", "function"])
async def test_an_exit_from_outside_does_nothing_asks_or_kills(spec: ChildSpec) -> None:
    async with open_supervisor([spec], intensity=5) as sup:
        first = sup.child("a").ref()
        first.exit(Normal())
        await settled()
        assert first.is_alive()
        first.exit(Shutdown("please"))
        first.exit(Shutdown("again"))
        assert await picture(sup) == {"a": 2}
        second = sup.child("a").ref()
        second.kill()
        second.kill()
        assert await picture(sup) == {"a": 3}
        assert [first.exit_reason, second.exit_reason] == [Shutdown("please"), Killed()]
        first.kill()  # the dead stay dead, and their successors alive
        first.exit(Shutdown())
        assert await picture(sup) == {"a": 3}


@pytest.mark.covers("M29", "M30")
async def test_a_name_is_refused_while_its_holder_ends_and_is_free_when_it_has() -> None:
    gate = trio.Event()

    class Lingers(Actor):
        async def terminate(self, reason: ExitReason) -> None:
            await gate.wait()

    spec = ChildSpec("a", Lingers, name="a", restart="temporary")
    async with open_supervisor([spec, player("b", [])]) as sup:
        a, b = sup.name("a").ref(), sup.name("b").ref()
        a.exit(Shutdown())
        await settled()
        with pytest.raises(AlreadyRegistered):
            sup.registry.register("a", b)
        assert sup.registry.whereis("a") is a
        gate.set()
        with a.monitor() as monitor:
            await monitor
        assert sup.registry.whereis("a") is None
        sup.registry.register("a", b)


@pytest.mark.covers("M31", "M32")
async def test_the_dead_are_not_found_between_their_end_and_the_restart() -> None:
    found: list[Ref | None] = []

    class Looks:
        def deliver(self, down: object) -> None:
            found.append(sup.registry.whereis("a"))
            found.append(sup.registry.whereis(f"/{first.path}"))

    async with open_supervisor([player("a", [])]) as sup:
        first = sup.name("a").ref()
        first.endpoint.watchers[Looks()] = None
        first.kill()
        assert await picture(sup) == {"a": 2}
        assert found == [None, None]
        with pytest.raises(NoProc):
            await first.call("incarnation")
        assert await sup.name("a").call("incarnation") == 2


@pytest.mark.covers("M22")
async def test_credit_is_refilled_when_half_of_it_is_consumed() -> None:
    sent: list[int] = []

    class Counts(Actor):
        async def handle_stream(self, msg: Any, sink: Sink) -> None:
            for n in range(100):
                await sink.send(n)
                sent.append(n)

    async with open_supervisor([ChildSpec("a", Counts)]) as sup:
        async with sup.child("a").stream("go", demand=10) as items:
            seen: list[int] = []
            for taken in range(1, 31):
                seen.append(await anext(items))
                await settled()
                assert len(sent) - taken <= 10
                assert len(sent) == 10 + taken // 5 * 5
        await settled()
        assert len(sent) == 40


@pytest.mark.covers("M22", "M24")
async def test_an_actor_serves_others_while_a_consumer_is_slow_and_after_one_has_closed() -> None:
    class Serves(Actor):
        async def handle_stream(self, msg: Any, sink: Sink) -> None:
            sink.produce(self.count, sink)

        async def count(self, sink: Sink) -> None:
            for n in range(10**6):
                await sink.send(n)

    async with open_supervisor([ChildSpec("a", Serves)]) as sup:
        before = trio.lowlevel.current_statistics().tasks_living
        async with sup.child("a").stream("slow") as slow:
            assert await anext(slow) == 0
            async with sup.child("a").stream("quick") as quick:
                assert [await anext(quick) for _ in range(100)] == list(range(100))
            await settled()
            assert trio.lowlevel.current_statistics().tasks_living == before + 1
            assert [await anext(slow) for _ in range(3)] == [1, 2, 3]
        await settled()
        assert trio.lowlevel.current_statistics().tasks_living == before
