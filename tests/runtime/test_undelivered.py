"""The message that did not arrive is in the error, and in its dead letter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from proctor.runtime import (
    Actor,
    ActorExited,
    Call,
    CallingSelf,
    CallTimeout,
    ChildSpec,
    DeadLetter,
    MailboxFull,
    Name,
    NoMailbox,
    NoProc,
    Sink,
    open_supervisor,
)
from proctor.runtime.exits import DeliveryError
from tests.runtime.stage import forever, heard, settled


class Desk(Actor):
    """Takes its time, and ends while it does."""

    async def handle_call(self, msg: Any, from_: Call) -> Any:
        if msg == "self":
            await self.ref.call("inner")
        await trio.sleep(10)

    async def handle_cast(self, msg: Any) -> None:
        await trio.sleep(10)

    async def handle_stream(self, msg: Any, sink: Sink) -> None:
        await trio.sleep(10)


async def call(target: Name) -> None:
    await target.call("x", 1)


async def request(target: Name) -> None:
    await target.send_request("x", 1).wait()


async def stream(target: Name) -> None:
    async with target.stream("x") as items:
        await anext(items)


async def cast_one(target: Name) -> None:
    await target.cast("x")


Send = Callable[[Name], Awaitable[None]]


@pytest.mark.parametrize(
    ("name", "overflow", "send", "error"),
    [
        ("nobody", "block", call, NoProc),
        ("nobody", "block", request, NoProc),
        ("nobody", "block", stream, NoProc),
        ("function", "block", call, NoMailbox),
        ("function", "block", stream, NoMailbox),
        ("desk", "block", call, CallTimeout),
        ("desk", "raise", request, MailboxFull),
        ("desk", "raise", call, MailboxFull),
        ("desk", "raise", cast_one, MailboxFull),
        ("desk", "drop_newest", call, MailboxFull),
    ],
)
async def test_an_error_has_the_message_that_was_not_delivered(
    name: str, overflow: str, send: Send, error: type[DeliveryError], autojump_clock: MockClock
) -> None:
    fields: dict[str, Any] = {"overflow": overflow}
    specs = [
        ChildSpec("desk", Desk, name="desk", mailbox=1, **fields),
        ChildSpec("function", forever, name="function"),
    ]
    async with open_supervisor(specs) as sup:
        for _ in range(2):
            await sup.name("desk").cast("busy")
            await settled()
        with pytest.raises(error) as raised:
            await send(sup.name(name))
    assert raised.value.msg == "x"


@pytest.mark.covers("M15", "X13")
@pytest.mark.parametrize("send", [call, request, stream])
@pytest.mark.parametrize("keep_mailbox", [True, False])
async def test_the_end_of_an_actor_gives_each_caller_its_own_message_back(
    send: Send, keep_mailbox: bool, autojump_clock: MockClock
) -> None:
    spec = ChildSpec("desk", Desk, name="desk", restart="transient", keep_mailbox=keep_mailbox)
    errors: list[DeliveryError] = []
    async with open_supervisor([spec]) as sup, trio.open_nursery() as nursery:
        desk = sup.name("desk")

        async def other() -> None:
            with pytest.raises(ActorExited) as raised:
                await desk.call("y")
            errors.append(raised.value)

        async def ask() -> None:
            with pytest.raises(ActorExited) as raised:
                await send(desk)
            errors.append(raised.value)

        nursery.start_soon(other)
        nursery.start_soon(ask)
        await settled()
        desk.kill()
    assert sorted(cast("str", error.msg) for error in errors) == ["x", "y"]


@pytest.mark.covers("M18")
async def test_a_call_to_oneself_has_its_message() -> None:
    async with open_supervisor([ChildSpec("desk", Desk, name="desk", restart="temporary")]) as sup:
        with pytest.raises(ActorExited) as raised:
            await sup.name("desk").call("self")
    assert raised.value.msg == "self"
    cause = getattr(raised.value.reason, "error", None)
    assert isinstance(cause, CallingSelf)
    assert cause.msg == "inner"


async def test_whoever_keeps_dead_letters_gets_all_of_them_whatever_else_happens() -> None:
    async with open_supervisor([ChildSpec("desk", Desk, name="desk", restart="temporary")]) as sup:
        letters, everything = sup.events(5, kinds=("dead_letter",)), sup.events(5)
        for number in range(5):
            await sup.name("nobody").cast(number)
        sup.name("desk").kill()
        await settled()
        assert [cast("DeadLetter", event).msg for event in heard(letters)] == [0, 1, 2, 3, 4]
        assert (letters.dropped, everything.dropped > 0) == (0, True)
        with pytest.raises(ValueError, match="unknown event kind 'dead_leter'; kinds: child_started"):
            sup.events(kinds=["dead_leter"])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="unknown event kind 'deadletters'"):
            sup.events(kinds="deadletters")  # type: ignore[arg-type]
