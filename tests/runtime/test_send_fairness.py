from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import cast

import pytest
import trio

from proctor.runtime import (
    Actor,
    Address,
    ChildSpec,
    DeadLetter,
    MailboxFull,
    NoProc,
    Subscription,
    open_supervisor,
)
from proctor.runtime.messaging.refs import CASTS
from proctor.runtime.spec import Overflow
from tests.runtime.stage import heard, settled


async def turns_while(body: Callable[[], Awaitable[object]]) -> int:
    """How often another task has its turn while `body` runs."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await body()
        nursery.cancel_scope.cancel()
    return turns


class Idle(Actor):
    """Handles nothing before the gate opens."""

    async def init(self, gate: trio.Event) -> None:
        self.gate = gate

    async def handle_cast(self, msg: object) -> None:
        await self.gate.wait()


@contextlib.asynccontextmanager
async def without_takers(kind: str) -> AsyncGenerator[tuple[Address, Subscription], None]:
    """An address at which a cast is not queued, and the events of its tree."""
    gate = trio.Event()
    overflow = cast("Overflow", "raise" if kind in ("gone", "unknown") else kind)
    spec = ChildSpec("idle", Idle, (gate,), name="idle", mailbox=1, overflow=overflow, restart="temporary")
    async with open_supervisor([spec]) as sup:
        ref = sup.name("idle").ref()
        if kind == "gone":
            ref.kill()
            await settled()
        else:
            for _ in range(2):
                await ref.cast("first")
                await settled()
        yield sup.name("nobody") if kind == "unknown" else ref, sup.events()
        gate.set()


@pytest.mark.covers("M3", "M4")
@pytest.mark.parametrize("kind", ["gone", "unknown", "drop_newest", "drop_oldest", "raise"])
async def test_casts_that_are_not_queued_let_others_run(kind: str) -> None:
    async with without_takers(kind) as (target, _):

        async def casts() -> None:
            for _ in range(100):
                with contextlib.suppress(MailboxFull):
                    await target.cast("x")

        assert await turns_while(casts) >= 90


@pytest.mark.covers("M3", "M4")
@pytest.mark.parametrize("kind", ["gone", "unknown", "drop_newest", "drop_oldest", "raise"])
async def test_a_cast_in_a_cancelled_scope_is_cancelled_and_drops_nothing(kind: str) -> None:
    async with without_takers(kind) as (target, events):
        with trio.CancelScope() as scope:
            scope.cancel()
            await target.cast("x")
        assert scope.cancelled_caught
        assert heard(events) == []


@pytest.mark.covers("M3")
async def test_casts_to_one_with_much_room_let_others_run() -> None:
    specs = [ChildSpec(f"e{n}", Idle, (trio.Event(),), name=f"e{n}", mailbox=10**6) for n in range(10)]
    async with open_supervisor(specs) as sup:
        refs = [sup.name(spec.id).ref() for spec in specs]

        async def casts() -> None:
            for n in range(20 * CASTS):
                await refs[n % 10].cast(n)

        assert await turns_while(casts) >= 15


@pytest.mark.covers("M3")
async def test_a_producer_that_only_casts_can_be_cancelled_and_loses_nothing() -> None:
    sent = 0
    async with open_supervisor([ChildSpec("e", Idle, (trio.Event(),), name="e", mailbox=10**6)]) as sup:
        with trio.CancelScope() as scope:
            scope.cancel()
            for _ in range(2 * CASTS):
                await sup.name("e").cast(sent)
                sent += 1
        assert scope.cancelled_caught
        events = sup.events(10 * CASTS)
        sup.name("e").kill()
        await settled()
        assert [event.msg for event in heard(events) if isinstance(event, DeadLetter)] == list(range(sent))[
            1:
        ]


async def by_call(target: Address) -> None:
    await target.call("x")


async def by_request(target: Address) -> None:
    await target.send_request("x").wait()


async def by_stream(target: Address) -> None:
    async with target.stream("x"):
        pass


@pytest.mark.covers("M14", "M4")
@pytest.mark.parametrize("kind", ["gone", "unknown", "drop_newest", "raise"])
@pytest.mark.parametrize("ask", [by_call, by_request, by_stream])
async def test_questions_that_fail_at_once_let_others_run(
    kind: str, ask: Callable[[Address], Awaitable[None]]
) -> None:
    async with without_takers(kind) as (target, _):

        async def asks() -> None:
            for _ in range(100):
                with pytest.raises((NoProc, MailboxFull)):
                    await ask(target)

        assert await turns_while(asks) >= 90
