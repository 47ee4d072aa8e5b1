from __future__ import annotations

from typing import Any

import pytest
import trio

from proctor.runtime import (
    Actor,
    ActorExited,
    Call,
    ChildSpec,
    Crash,
    DeadLetter,
    Killed,
    Supervisor,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.errors import ActorRestarting
from tests.runtime.stage import Boom, end, heard, settled


class Keeper(Actor):
    """Notes what it handles; stands still, or fails, when told so."""

    async def init(self, notes: list[str], gate: trio.Event, fails_at: tuple[int, ...] = ()) -> None:
        self.notes, self.gate = notes, gate
        if self.incarnation in fails_at:
            raise Boom("start")

    async def handle_cast(self, msg: Any) -> None:
        self.notes.append(f"{self.incarnation}:{msg}")
        if msg == "wait":
            await self.gate.wait()
        if msg == "fail":
            raise Boom("crash")

    async def handle_call(self, msg: Any, from_: Call) -> Any:
        if isinstance(msg, Exception):
            raise msg
        return msg

    async def handle_info(self, msg: Any) -> None:
        self.notes.append(f"info {msg}")


def keeper(notes: list[str], gate: trio.Event, *fails_at: int, **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"name": "k", "keep_mailbox": True}
    return ChildSpec("k", Keeper, (notes, gate, fails_at), **(fields | spec))


async def busy(sup: Supervisor, *queued: object) -> None:
    """Have `k` stand still, with casts queued."""
    await sup.name("k").cast("wait")
    await settled()
    for msg in queued:
        await sup.name("k").cast(msg)


@pytest.mark.covers("X13")
@pytest.mark.parametrize("how", ["killed", "crashed"])
async def test_queued_casts_survive_a_restart_in_order_and_the_one_being_handled_does_not(
    how: str,
) -> None:
    notes: list[str] = []
    gate = trio.Event()
    async with open_supervisor([keeper(notes, gate)]) as sup:
        await busy(sup, 1, 2)
        ref = sup.name("k").ref()
        with sup.events() as events:
            if how == "killed":
                await end(ref, Killed())
            else:
                ref.exit(Crash(Boom()))
            await settled()
            assert [event.msg for event in heard(events) if isinstance(event, DeadLetter)] == []
        await sup.name("k").cast(3)
        await settled()
    assert notes == ["1:wait", "2:1", "2:2", "2:3"]


@pytest.mark.covers("X13")
async def test_a_poisonous_cast_costs_one_incarnation_and_no_other_message() -> None:
    notes: list[str] = []
    async with open_supervisor([keeper(notes, trio.Event())], intensity=2) as sup:
        for msg in ("a", "fail", "b", "fail", "c"):
            await sup.name("k").cast(msg)
        await settled()
    assert notes == ["1:a", "1:fail", "2:b", "2:fail", "3:c"]


@pytest.mark.covers("X13")
async def test_queued_calls_and_streams_fail_as_safe_to_repeat() -> None:
    notes: list[str] = []
    caught: list[str] = []
    async with (
        open_supervisor([keeper(notes, trio.Event())]) as sup,
        trio.open_nursery() as nursery,
    ):
        await busy(sup)

        async def call() -> None:
            with pytest.raises(ActorRestarting, match="ended before it handled the message: killed") as error:
                await sup.name("k").call("x")
            assert error.value.reason == Killed()
            caught.append(await sup.name("k").call("again", wait_for=1))

        async def stream() -> None:
            with pytest.raises(ActorRestarting):
                async with sup.name("k").stream("x") as items:
                    await anext(items)
            caught.append("stream")

        nursery.start_soon(call)
        nursery.start_soon(stream)
        await settled()
        sup.name("k").kill()
        await settled()
        assert sorted(caught) == ["again", "stream"]


@pytest.mark.covers("X13", "M15")
async def test_the_call_being_handled_is_not_safe_to_repeat() -> None:
    async with open_supervisor([keeper([], trio.Event())]) as sup:
        with pytest.raises(ActorExited) as caught:
            await sup.name("k").call(Boom("crash"))
        assert not isinstance(caught.value, ActorRestarting)


@pytest.mark.covers("X13", "S28")
async def test_the_mail_waits_through_failing_starts() -> None:
    notes: list[str] = []
    async with open_supervisor([keeper(notes, trio.Event(), 2, 3)], intensity=5) as sup:
        await busy(sup, 1, 2)
        sup.name("k").kill()
        await settled()
    assert notes == ["1:wait", "4:1", "4:2"]


@pytest.mark.covers("X13", "S22")
async def test_the_mail_waits_through_a_group_restart() -> None:
    notes: list[str] = []
    specs = [keeper(notes, trio.Event()), ChildSpec("b", Keeper, ([], trio.Event()), name="b")]
    async with open_supervisor(specs, strategy="one_for_all") as sup:
        await busy(sup, 1)
        sup.name("b").kill()
        await settled()
    assert notes == ["1:wait", "2:1"]


@pytest.mark.covers("X13")
@pytest.mark.parametrize("how", ["gave up", "ended", "stopped"])
async def test_what_is_kept_becomes_dead_letters_when_nobody_follows(how: str) -> None:
    notes: list[str] = []
    restart = "temporary" if how == "ended" else "permanent"
    spec = keeper(notes, trio.Event(), restart=restart)
    intensity = 0 if how == "gave up" else 1
    inner = supervisor_spec("s", [spec], intensity=intensity, restart="temporary")
    async with open_supervisor([inner]) as root:
        sup = root.child("s").ref()
        await busy(root, 1, 2)
        with root.events() as events:
            if how == "stopped":
                await root.terminate_child("s")
            else:
                root.name("k").kill()
                await settled()
            letters = [event.msg for event in heard(events) if isinstance(event, DeadLetter)]
        assert sup.is_alive() == (how == "ended")
    assert letters == [1, 2]
    assert notes == ["1:wait"]


@pytest.mark.covers("X13", "S49")
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
async def test_what_is_kept_is_not_handed_on_when_the_child_comes_to_rest(restart: str) -> None:
    notes: list[str] = []
    async with open_supervisor([keeper(notes, trio.Event(), restart=restart)]) as sup:
        await busy(sup, 1, 2)
        with sup.events() as events:
            await sup.terminate_child("k")
            assert [event.msg for event in heard(events) if isinstance(event, DeadLetter)] == [1, 2]
        if restart != "temporary":
            await sup.restart_child("k")
        await settled()
    assert notes == ["1:wait"]


@pytest.mark.covers("X13", "M4")
async def test_what_is_kept_has_the_room_it_had() -> None:
    notes: list[str] = []
    gate = trio.Event()
    async with open_supervisor([keeper(notes, gate, mailbox=3)]) as sup:
        await busy(sup, "wait", 1, 2)
        sup.name("k").kill()
        await settled()
        for msg in (3,):
            sup.name("k").cast_nowait(msg)
        gate.set()
        await settled()
    assert notes == ["1:wait", "2:wait", "2:1", "2:2", "2:3"]


@pytest.mark.covers("X13", "M9")
async def test_a_mailbox_is_kept_only_if_asked() -> None:
    notes: list[str] = []
    async with open_supervisor([keeper(notes, trio.Event(), keep_mailbox=False)]) as sup:
        await busy(sup, 1)
        sup.name("k").kill()
        await settled()
    assert notes == ["1:wait"]


@pytest.mark.covers("X13", "S73", "M4")
@pytest.mark.parametrize(
    ("overflow", "handled", "dropped"),
    [
        ("block", ["2:a", "2:b"], ["c", "d"]),
        ("raise", ["2:a", "2:b"], ["c", "d"]),
        ("drop_newest", ["2:a", "2:b"], ["c", "d"]),
        ("drop_oldest", ["2:c", "2:d"], ["a", "b"]),
    ],
)
async def test_kept_mail_for_which_a_change_leaves_no_room_is_dead_letters(
    overflow: str, handled: list[str], dropped: list[str]
) -> None:
    notes: list[str] = []
    gate = trio.Event()
    async with open_supervisor([keeper(notes, gate, overflow=overflow)]) as sup:
        await busy(sup, "a", "b", "c", "d")
        events = sup.events()
        await sup.change([keeper(notes, gate, overflow=overflow, mailbox=2)])
        sup.name("k").kill()
        await settled()
        letters = [event for event in heard(events) if isinstance(event, DeadLetter)]
        assert [letter.msg for letter in letters] == dropped
        assert {letter.why for letter in letters} == {f"the mailbox of {sup.name('k').ref()} is full"}
    assert notes[1:] == handled


@pytest.mark.covers("X13", "S73")
async def test_kept_mail_is_dead_letters_when_a_change_keeps_no_mail_any_more() -> None:
    notes: list[str] = []
    gate = trio.Event()
    async with open_supervisor([keeper(notes, gate)]) as sup:
        await busy(sup, "a", "b")
        events = sup.events()
        await sup.change([keeper(notes, gate, keep_mailbox=False)])
        sup.name("k").kill()
        await settled()
        assert [event.msg for event in heard(events) if isinstance(event, DeadLetter)] == ["a", "b"]
    assert notes == ["1:wait"]
