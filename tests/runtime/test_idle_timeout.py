from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import proctor.runtime
from proctor.runtime import Actor, ChildSpec, Continue, DeadLetter, Sink, Stop, open_supervisor
from proctor.runtime.messaging.actor import IDLE
from tests.runtime.stage import heard


class Sleeper(Actor):
    """Notes when it was idle."""

    async def init(self, idle: list[float], timeout: float | None = None) -> Any:
        self.idle, self.begun = idle, trio.current_time()
        if timeout is not None:
            self.idle_timeout = timeout

    async def handle_info(self, msg: Any) -> Any:
        if msg is IDLE:
            self.idle.append(trio.current_time() - self.begun)

    async def handle_cast(self, msg: Any) -> Any:
        match msg:
            case ("set", seconds):
                self.idle_timeout = seconds
            case ("sleep", seconds):
                await trio.sleep(seconds)
            case _:
                return msg
        return None

    async def handle_call(self, msg: Any, from_: object) -> Any:
        return msg

    async def handle_stream(self, msg: Any, sink: Sink) -> None:
        await sink.send(msg)


def sleeper(idle: list[float], timeout: float | None = None) -> ChildSpec:
    return ChildSpec("a", Sleeper, (idle, timeout), name="a")


@pytest.mark.covers("M11")
async def test_nothing_for_so_long_is_told_and_told_again(autojump_clock: MockClock) -> None:
    idle: list[float] = []
    async with open_supervisor([sleeper(idle, 3)]):
        await trio.sleep(10)
    assert idle == [3, 6, 9]


@pytest.mark.covers("M11")
async def test_without_a_time_nothing_is_told(autojump_clock: MockClock) -> None:
    idle: list[float] = []
    async with open_supervisor([sleeper(idle)]):
        await trio.sleep(1000)
    assert idle == []


@pytest.mark.covers("M11")
@pytest.mark.parametrize("kind", ["cast", "call", "stream", "info"])
async def test_any_message_starts_the_time_anew(kind: str, autojump_clock: MockClock) -> None:
    idle: list[float] = []

    class Talks(Sleeper):
        async def init(self, idle: list[float], timeout: float | None = None) -> None:
            await super().init(idle, timeout)
            if kind == "info":
                self.nursery.start_soon(self.talk)

        async def talk(self) -> None:
            await trio.sleep(2)
            self.send_info("hm")

    async with open_supervisor([ChildSpec("a", Talks, (idle, 3), name="a")]) as sup:
        await trio.sleep(2)
        if kind == "cast":
            await sup.name("a").cast(None)
        elif kind == "call":
            await sup.name("a").call(1)
        elif kind == "stream":
            async with sup.name("a").stream(1) as items:
                assert [item async for item in items] == [1]
        await trio.sleep(4)
    assert idle == [5]


@pytest.mark.covers("M11")
async def test_the_time_counts_from_the_end_of_the_last_hook(autojump_clock: MockClock) -> None:
    idle: list[float] = []
    async with open_supervisor([sleeper(idle, 3)]) as sup:
        await sup.name("a").cast(("sleep", 10))
        await trio.sleep(14)
    assert idle == [13]


@pytest.mark.covers("M11")
async def test_any_hook_may_set_and_unset_the_time(autojump_clock: MockClock) -> None:
    idle: list[float] = []

    class Unsets(Sleeper):
        async def handle_info(self, msg: Any) -> None:
            await super().handle_info(msg)
            if len(idle) == 2:
                self.idle_timeout = None

        async def handle_continue(self, arg: float) -> None:
            self.idle_timeout = arg

    async with open_supervisor([ChildSpec("a", Unsets, (idle,), name="a")]) as sup:
        await sup.name("a").cast(("set", 5))
        await sup.name("a").cast(Continue(2))
        await trio.sleep(100)
    assert idle == [2, 4]


@pytest.mark.covers("M11")
async def test_being_idle_may_end_an_actor(autojump_clock: MockClock) -> None:
    class Ends(Sleeper):
        async def handle_info(self, msg: Any) -> Stop:
            return Stop()

    async with open_supervisor([ChildSpec("a", Ends, ([], 3), name="a", restart="temporary")]) as sup:
        begun = trio.current_time()
        with sup.name("a").monitor() as monitor:
            await monitor
        assert trio.current_time() - begun == 3


@pytest.mark.covers("M11", "T15")
async def test_a_message_of_the_same_tick_is_handled_and_nothing_is_idle(
    autojump_clock: MockClock,
) -> None:
    idle: list[float] = []
    async with open_supervisor([sleeper(idle, 3)]) as sup:
        for _ in range(20):
            await trio.sleep(3)
            assert await sup.name("a").call("x") == "x"
        told = len(idle)
    assert told <= 20


@pytest.mark.covers("M11")
async def test_idleness_that_nobody_handles_is_no_dead_letter(autojump_clock: MockClock) -> None:
    class Plain(Actor):
        idle_timeout = 1.0

    async with open_supervisor([ChildSpec("a", Plain)]) as sup:
        with sup.events() as events:
            await trio.sleep(5)
            assert [event for event in heard(events) if isinstance(event, DeadLetter)] == []


@pytest.mark.covers("M11")
async def test_a_time_of_zero_does_not_overtake_what_is_queued() -> None:
    order: list[object] = []

    class Hasty(Actor):
        idle_timeout = 0.0

        async def handle_cast(self, msg: Any) -> None:
            order.append(msg)

        async def handle_info(self, msg: Any) -> Stop | None:
            order.append(msg)
            return Stop() if len(order) > 1000 else None

    async with open_supervisor([ChildSpec("a", Hasty, name="a", restart="temporary")]) as sup:
        with sup.name("a").monitor() as monitor:
            for n in range(600):
                await sup.name("a").cast(n)
            await monitor
    assert [n for n in order if n is not IDLE] == list(range(600))
    assert IDLE not in order[order.index(0) : order.index(599)]


@pytest.mark.covers("M12")
def test_there_is_no_hibernation() -> None:
    offered = {*dir(Actor), *proctor.runtime.__all__, *ChildSpec.__annotations__}
    assert [name for name in offered if "hibernat" in name.lower()] == []
