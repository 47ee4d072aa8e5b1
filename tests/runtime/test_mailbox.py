from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ActorExited,
    ChildSpec,
    Continue,
    Crash,
    DeadLetter,
    Down,
    MailboxFull,
    NoProc,
    Shutdown,
    Stop,
    UnknownMessage,
    open_supervisor,
)
from proctor.runtime.messaging.mailbox import BURST
from proctor.runtime.spec import Overflow
from tests.runtime.stage import Boom, Notes, heard, settled


class Gate(Actor):
    """Notes each message, and stands still at "wait" until its gate opens."""

    async def init(self, notes: Notes, gate: trio.Event) -> None:
        self.notes, self.gate = notes, gate

    async def handle_cast(self, msg: Any) -> None:
        self.notes.append(f"begin {msg}")
        if msg == "wait":
            await self.gate.wait()
        await trio.lowlevel.checkpoint()
        self.notes.append(f"end {msg}")

    async def handle_call(self, msg: Any, from_: object) -> Any:
        self.notes.append(f"call {msg}")
        return msg

    async def handle_info(self, msg: Any) -> None:
        self.notes.append(f"info {msg}")


def gated(notes: Notes, gate: trio.Event, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"name": "a", "restart": "temporary"}
    return ChildSpec("a", Gate, (notes, gate), **(fields | spec))


@pytest.mark.covers("M1")
async def test_one_handler_at_a_time_first_in_first_out() -> None:
    notes: Notes = []
    async with open_supervisor([gated(notes, trio.Event())]) as sup:
        for n in range(3):
            await sup.name("a").cast(n)
        await settled()
    assert notes == ["begin 0", "end 0", "begin 1", "end 1", "begin 2", "end 2"]


@pytest.mark.covers("M2")
async def test_a_call_sees_the_effects_of_the_casts_before_it() -> None:
    class Adds(Actor):
        total = 0

        async def handle_cast(self, msg: int) -> None:
            await trio.lowlevel.checkpoint()
            self.total += msg

        async def handle_call(self, msg: Any, from_: object) -> int:
            return self.total

        async def handle_stream(self, msg: Any, sink: Any) -> None:
            await sink.send(self.total)

    async with open_supervisor([ChildSpec("a", Adds, name="a")]) as sup:
        for n in range(10):
            await sup.name("a").cast(n)
        assert await sup.name("a").call("total") == 45
        await sup.name("a").cast(5)
        async with sup.name("a").stream("total") as items:
            assert [item async for item in items] == [50]


@pytest.mark.covers("M3", "P05")
async def test_a_cast_does_not_wait_for_its_handler_and_succeeds_to_nobody() -> None:
    notes: Notes = []
    gate = trio.Event()
    async with open_supervisor([gated(notes, gate)]) as sup:
        ref = sup.name("a").ref()
        await ref.cast("wait")
        await settled()
        await ref.cast("next")
        await sup.terminate_child("a")
        with sup.events() as events:
            await ref.cast("late")
            await sup.name("nobody").cast("hello")
            ref.cast_nowait("later")
            letters = [(e.path, e.msg, e.why) for e in heard(events) if isinstance(e, DeadLetter)]
    assert letters == [
        ("root/a", "late", "no such actor"),
        ("nobody", "hello", "no such actor"),
        ("root/a", "later", "no such actor"),
    ]


@pytest.mark.covers("M4", "X12", "D8", "P04")
async def test_a_full_mailbox_blocks_its_senders() -> None:
    notes: Notes = []
    gate = trio.Event()
    async with open_supervisor([gated(notes, gate, mailbox=2)]) as sup:
        ref = sup.name("a").ref()
        await ref.cast("wait")
        await settled()
        await ref.cast(1)
        await ref.cast(2)
        with pytest.raises(MailboxFull):
            ref.cast_nowait(3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.cast, 3)
            await settled()
            gate.set()
        await settled()
    assert [note for note in notes if note.startswith("end")] == ["end wait", "end 1", "end 2", "end 3"]


@pytest.mark.covers("M4")
async def test_a_blocked_sender_is_released_when_its_target_dies() -> None:
    notes: Notes = []
    outcomes: list[str] = []
    async with open_supervisor([gated(notes, trio.Event(), mailbox=1)]) as sup:
        ref = sup.name("a").ref()
        await ref.cast("wait")
        await settled()
        await ref.cast(1)

        async def call() -> None:
            with pytest.raises(ActorExited):
                await ref.call("x", timeout=None)
            outcomes.append("call")

        async def cast() -> None:
            await ref.cast("x")
            outcomes.append("cast")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            nursery.start_soon(cast)
            await settled()
            ref.kill()
    assert sorted(outcomes) == ["call", "cast"]


@pytest.mark.covers("M4", "X12", "D8")
@pytest.mark.parametrize(
    ("overflow", "handled", "dropped"),
    [("drop_newest", [1, 2], [3]), ("drop_oldest", [2, 3], [1])],
)
async def test_a_full_mailbox_may_drop_and_tells(
    overflow: Overflow, handled: list[int], dropped: list[int]
) -> None:
    notes: Notes = []
    gate = trio.Event()
    async with open_supervisor([gated(notes, gate, mailbox=2, overflow=overflow)]) as sup:
        ref = sup.name("a").ref()
        await ref.cast("wait")
        await settled()
        with sup.events() as events:
            for n in (1, 2, 3):
                await ref.cast(n)
            assert [event.msg for event in heard(events) if isinstance(event, DeadLetter)] == dropped
        gate.set()
        await settled()
    assert [note for note in notes if note.startswith("end")][1:] == [f"end {n}" for n in handled]


@pytest.mark.covers("M4", "X12", "D8", "P04")
async def test_a_full_mailbox_may_raise_and_a_dropped_call_fails() -> None:
    notes: Notes = []
    gate = trio.Event()
    specs = [
        ChildSpec(overflow, Gate, (notes, gate), name=overflow, mailbox=1, overflow=overflow)
        for overflow in ("raise", "drop_newest", "drop_oldest")
    ]
    async with open_supervisor(specs) as sup:
        for spec in specs:
            await sup.name(spec.id).cast("wait")
        await settled()
        for spec in specs:
            await sup.name(spec.id).cast(1)
        with pytest.raises(MailboxFull, match=r"the mailbox of <root/raise at .*> is full"):
            await sup.name("raise").cast(2)
        with pytest.raises(MailboxFull):
            await sup.name("raise").call(2)
        with pytest.raises(MailboxFull):
            await sup.name("drop_newest").call(2)
        with pytest.raises(MailboxFull):
            async with sup.name("drop_newest").stream(2):
                pass
        async with trio.open_nursery() as nursery:

            async def displaced() -> None:
                with pytest.raises(MailboxFull):
                    await sup.name("drop_oldest").call("x")

            nursery.start_soon(displaced)
            await settled()
            await sup.name("drop_oldest").cast(3)
        gate.set()


@pytest.mark.covers("M5")
async def test_what_comes_while_an_actor_starts_waits_for_init_and_continue() -> None:
    order: list[str] = []

    class Slow(Actor):
        async def init(self) -> Continue:
            order.append("init")
            self.send_info("own")
            await gate.wait()
            return Continue("more")

        async def handle_continue(self, arg: Any) -> Continue | None:
            order.append(f"continue {arg}")
            await settled()
            return Continue("again") if arg == "more" else None

        async def handle_cast(self, msg: Any) -> None:
            order.append(f"cast {msg}")

        async def handle_info(self, msg: Any) -> None:
            order.append(f"info {msg}")

    gate = trio.Event()
    async with open_supervisor() as sup, trio.open_nursery() as nursery:
        nursery.start_soon(sup.start_child, ChildSpec("a", Slow, name="a"))
        await settled()
        await sup.name("a").cast(1)
        gate.set()
        await settled()
        await settled()
    assert order == ["init", "continue more", "continue again", "info own", "cast 1"]


@pytest.mark.covers("M6", "R059")
async def test_system_messages_need_no_room_and_come_first() -> None:
    notes: Notes = []
    gate = trio.Event()

    class Own(Gate):
        async def init(self, notes: Notes, gate: trio.Event) -> None:
            await super().init(notes, gate)
            self.nursery.start_soon(self.speak)

        async def speak(self) -> None:
            await asked.wait()
            self.send_info("first")

    asked = trio.Event()
    async with open_supervisor([ChildSpec("a", Own, (notes, gate), name="a", mailbox=1)]) as sup:
        await sup.name("a").cast("wait")
        await settled()
        await sup.name("a").cast("second")
        asked.set()
        await settled()
        gate.set()
        await settled()
    assert notes[2:] == ["info first", "begin second", "end second"]


@pytest.mark.covers("M7", "M8", "M9")
async def test_a_stop_cancels_the_handler_and_discards_what_is_queued() -> None:
    notes: Notes = []
    async with open_supervisor([gated(notes, trio.Event())]) as sup:
        ref = sup.name("a").ref()
        await ref.cast("wait")
        await settled()
        with sup.events() as events:
            await ref.cast("queued")
            async with trio.open_nursery() as nursery:

                async def call() -> None:
                    with pytest.raises(ActorExited) as caught:
                        await ref.call("x")
                    assert caught.value.reason == Shutdown()

                nursery.start_soon(call)
                await settled()
                await sup.terminate_child("a")
            assert [event.msg for event in heard(events) if isinstance(event, DeadLetter)] == ["queued"]
    assert notes == ["begin wait"]


@pytest.mark.covers("M7", "M8")
async def test_a_draining_actor_handles_what_is_queued_and_refuses_more() -> None:
    notes: Notes = []
    gate = trio.Event()
    async with open_supervisor([gated(notes, gate, drain=True)]) as sup:
        ref = sup.name("a").ref()
        await ref.cast("wait")
        await settled()
        await ref.cast(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call, 2)
            await settled()
            nursery.start_soon(sup.terminate_child, "a")
            await settled()
            with sup.events() as events:
                await ref.cast("late")
                with pytest.raises(NoProc):
                    await ref.call("late")
                assert [event.msg for event in heard(events) if isinstance(event, DeadLetter)] == ["late"]
            gate.set()
        assert ref.exit_reason == Shutdown()
    assert notes == ["begin wait", "end wait", "begin 1", "end 1", "call 2"]


@pytest.mark.covers("M8")
async def test_a_drain_ends_with_the_grace(autojump_clock: MockClock) -> None:
    notes: Notes = []
    async with open_supervisor([gated(notes, trio.Event(), drain=True, shutdown=3)]) as sup:
        ref = sup.name("a").ref()
        await ref.cast("wait")
        await settled()
        begun = trio.current_time()
    assert trio.current_time() - begun == 3
    assert str(ref.exit_reason) == "killed"


@pytest.mark.covers("M8")
async def test_an_idle_draining_actor_stops_at_once() -> None:
    async with open_supervisor([gated([], trio.Event(), drain=True)]) as sup:
        await settled()
        ref = sup.name("a").ref()
    assert ref.exit_reason == Shutdown()


@pytest.mark.covers("M9")
async def test_what_was_queued_is_not_given_to_the_next_incarnation() -> None:
    notes: Notes = []
    async with open_supervisor([gated(notes, trio.Event(), restart="permanent")]) as sup:
        await sup.name("a").cast("wait")
        await settled()
        await sup.name("a").cast("old")
        sup.name("a").kill()
        await settled()
        await sup.name("a").cast("new")
        await settled()
    assert notes == ["begin wait", "begin new", "end new"]


@pytest.mark.parametrize("kind", ["call", "cast", "stream"])
async def test_a_message_without_a_handler_is_a_crash(kind: str) -> None:
    async with open_supervisor([ChildSpec("a", Actor, name="a", restart="temporary")]) as sup:
        ref = sup.name("a").ref()
        with ref.monitor() as monitor:
            if kind == "call":
                with pytest.raises(ActorExited):
                    await ref.call(1)
            elif kind == "cast":
                await ref.cast(1)
            else:
                with pytest.raises(ActorExited):
                    async with ref.stream(1) as items:
                        await anext(items)
            reason = (await monitor).reason
    assert isinstance(reason, Crash)
    assert isinstance(reason.error, UnknownMessage)
    assert f"does not handle this {kind}: 1" in str(reason.error)


async def test_information_without_a_handler_is_a_dead_letter() -> None:
    class Talks(Actor):
        async def init(self) -> None:
            self.send_info("hm")

    async with open_supervisor() as sup:
        with sup.events() as events:
            await sup.start_child(ChildSpec("a", Talks))
            await settled()
            assert [e.why for e in heard(events) if isinstance(e, DeadLetter)] == ["not handled"]


@pytest.mark.parametrize("where", ["info", "cast", "continue"])
async def test_any_handler_may_stop_its_actor(where: str) -> None:
    class Stops(Actor):
        async def init(self) -> Continue | None:
            if where == "info":
                self.send_info("go")
            return Continue() if where == "continue" else None

        async def handle_continue(self, arg: Any) -> Stop:
            return Stop(Shutdown(where))

        async def handle_cast(self, msg: Any) -> Stop:
            return Stop(Shutdown(where))

        async def handle_info(self, msg: Any) -> Stop:
            return Stop(Shutdown(where))

    async with open_supervisor() as sup:
        ref = await sup.start_child(ChildSpec("a", Stops, restart="temporary"))
        await ref.cast("go")
        await settled()
        assert ref.exit_reason == Shutdown(where)


@pytest.mark.covers("M6", "M26")
async def test_a_down_comes_after_what_was_queued_before_it() -> None:
    order: list[str] = []

    class Watches(Actor):
        async def init(self) -> None:
            self.watch = self.monitor(target)

        async def handle_cast(self, msg: Any) -> None:
            order.append(str(msg))
            await gate.wait()

        async def handle_info(self, msg: Any) -> None:
            assert isinstance(msg, Down)
            order.append(f"down {msg.reason}")

    gate = trio.Event()
    async with open_supervisor([gated([], gate)]) as sup:
        target = sup.name("a").ref()
        watcher = await sup.start_child(ChildSpec("w", Watches, name="w", mailbox=2))
        for n in (1, 2, 3):
            await watcher.cast(n)
            await settled()
        target.kill()
        await settled()
        gate.set()
        await watcher.cast(4)
        await settled()
    assert order == ["1", "2", "3", "down killed", "4"]


@pytest.mark.covers("M25")
async def test_a_withdrawn_monitor_leaves_no_down_behind() -> None:
    order: list[str] = []

    class Watches(Actor):
        async def init(self) -> None:
            self.watch = self.monitor(target)

        async def handle_cast(self, msg: Any) -> None:
            await gate.wait()
            self.watch.close()

        async def handle_info(self, msg: Any) -> None:
            order.append("down")

    gate = trio.Event()
    async with open_supervisor([gated([], gate)]) as sup:
        target = sup.name("a").ref()
        watcher = await sup.start_child(ChildSpec("w", Watches))
        await watcher.cast("close")
        await settled()
        target.kill()
        await settled()
        gate.set()
        await settled()
    assert order == []


@pytest.mark.covers("M6", "M8", "D4")
async def test_a_kill_overtakes_what_a_drain_would_still_handle() -> None:
    notes: Notes = []
    async with (
        open_supervisor([gated(notes, trio.Event(), drain=True)]) as sup,
        trio.open_nursery() as nursery,
    ):
        ref = sup.name("a").ref()
        await ref.cast("wait")
        await settled()
        await ref.cast(1)
        nursery.start_soon(sup.terminate_child, "a")
        await settled()
        assert ref.is_alive()
        ref.kill()
    assert str(ref.exit_reason) == "killed"
    assert notes == ["begin wait"]


@pytest.mark.covers("X10")
async def test_a_dead_letter_says_what_for_whom_and_why_and_never_blocks() -> None:
    async with open_supervisor([gated([], trio.Event())]) as sup:
        ref = sup.name("a").ref()
        ref.kill()
        await settled()
        with sup.events(buffer=2) as events:
            for n in range(5):
                await ref.cast(n)
                sup.name("nobody").cast_nowait(n)
            letters = [event for event in heard(events) if isinstance(event, DeadLetter)]
            assert events.dropped == 8
        assert [(e.msg, e.target, e.path, e.why) for e in letters] == [
            (4, ref, "root/a", "no such actor"),
            (4, letters[1].target, "nobody", "no such actor"),
        ]
        assert str(letters[1].target) == "<name 'nobody'>"


@pytest.mark.covers("M1")
async def test_two_full_mailboxes_starve_nobody() -> None:
    turns: list[str] = []

    class Busy(Actor):
        async def handle_cast(self, msg: Any) -> None:
            turns.append(self.id)

    async with open_supervisor([ChildSpec(id, Busy, name=id) for id in "ab"]) as sup:
        for _ in range(900):
            await sup.name("a").cast(1)
            await sup.name("b").cast(1)
        await settled()
    assert "b" in turns[: 3 * BURST]
    assert "a" in turns[: 3 * BURST]


@pytest.mark.covers("M10")
async def test_an_error_in_a_handler_reaches_the_caller_as_an_exit() -> None:
    class Fails(Actor):
        async def handle_call(self, msg: Any, from_: object) -> None:
            raise Boom("handler")

    async with open_supervisor([ChildSpec("a", Fails, name="a", restart="temporary")]) as sup:
        with pytest.raises(ActorExited) as caught:
            await sup.name("a").call(1)
    assert isinstance(caught.value.reason, Crash)
    assert isinstance(caught.value.reason.error, Boom)
