from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from proctor.runtime import (
    NO_REPLY,
    Actor,
    ActorExited,
    CallingSelf,
    ChildSpec,
    Crash,
    Killed,
    NoProc,
    Shutdown,
    Sink,
    Stop,
    StreamClosed,
    StreamError,
    open_supervisor,
)
from tests.runtime.stage import Boom, Notes, settled


class Source(Actor):
    """Counts, in the way the message says."""

    async def init(self, notes: Notes | None = None, sinks: list[Sink] | None = None) -> None:
        self.notes = [] if notes is None else notes
        self.sinks = [] if sinks is None else sinks

    async def handle_call(self, msg: Any, from_: object) -> Any:
        return msg

    async def handle_stream(self, msg: Any, sink: Sink) -> Any:
        match msg:
            case int():
                for n in range(msg):
                    await sink.send(n)
            case "endless":
                sink.produce(self.count, sink)
            case ("produce", count):
                sink.produce(self.count, sink, count)
            case "fail":
                await sink.send(1)
                raise StreamError("out of paper")
            case "fail in a task":
                sink.produce(self.fail, sink)
            case "crash":
                await sink.send(1)
                raise Boom
            case "open":
                self.sinks.append(sink)
                return NO_REPLY
            case "self":
                async with self.ref.stream(1):
                    pass
            case "stop":
                await sink.send("last")
                return Stop(Shutdown("served"))
            case _:
                raise AssertionError(msg)
        return None

    async def count(self, sink: Sink, limit: int = 10**9) -> None:
        try:
            for n in range(limit):
                await sink.send(n)
                self.notes.append(f"sent {n}")
        finally:
            self.notes.append("production over")

    async def fail(self, sink: Sink) -> None:
        await sink.send(1)
        raise StreamError("jammed")


def source(notes: Notes | None = None, sinks: list[Sink] | None = None) -> ChildSpec:
    return ChildSpec("s", Source, (notes, sinks), name="s", restart="temporary")


@pytest.mark.covers("M22", "P05")
@pytest.mark.parametrize("demand", [1, 2, 3, 10, 1000])
async def test_all_items_arrive_in_order_whatever_the_demand(demand: int) -> None:
    async with open_supervisor([source()]) as sup:
        for msg in (100, ("produce", 100)):
            async with sup.name("s").stream(msg, demand=demand) as items:
                assert [item async for item in items] == list(range(100))


@pytest.mark.covers("M22")
async def test_a_slow_consumer_stops_the_producer_and_nobody_else() -> None:
    notes: Notes = []
    async with open_supervisor([source(notes)]) as sup, sup.name("s").stream("endless", demand=10) as items:
        await settled()
        assert len(notes) == 10
        assert await sup.name("s").call("others") == "others"
        for _ in range(4):
            await anext(items)
        await settled()
        assert len(notes) == 10
        await anext(items)  # half is consumed
        await settled()
        assert len(notes) == 15


@pytest.mark.covers("M22")
@given(demand=st.integers(1, 12), steps=st.lists(st.integers(1, 5), max_size=20))
def test_never_more_is_under_way_than_was_asked_for(demand: int, steps: list[int]) -> None:
    async def main() -> None:
        notes: Notes = []
        async with (
            open_supervisor([source(notes)]) as sup,
            sup.name("s").stream("endless", demand=demand) as items,
        ):
            consumed = 0
            for step in steps:
                for _ in range(step):
                    assert await anext(items) == consumed
                    consumed += 1
                await settled()
                assert 0 < len(notes) - consumed <= demand

    trio.run(main)


@pytest.mark.covers("M24", "P05")
async def test_closing_the_consumer_cancels_the_production_and_the_actor_lives() -> None:
    notes: Notes = []
    async with open_supervisor([source(notes)]) as sup:
        for msg in ("endless", 10**9):
            async with sup.name("s").stream(msg, demand=3) as items:
                await anext(items)
            await settled()
        assert notes.count("production over") == 1
        assert await sup.name("s").call("alive") == "alive"
        with pytest.raises(trio.ClosedResourceError):
            await anext(items)


@pytest.mark.covers("M24")
async def test_a_stream_that_was_closed_before_it_was_handled_is_not_produced() -> None:
    notes: Notes = []
    async with open_supervisor([source(notes)]) as sup:
        async with sup.name("s").stream("endless"):
            pass
        assert await sup.name("s").call("alive") == "alive"
        await settled()
    assert notes == []


@pytest.mark.covers("T18")
async def test_a_stream_that_was_not_entered_or_was_left_gives_nothing() -> None:
    notes: Notes = []
    async with open_supervisor([source(notes)]) as sup:
        items = sup.name("s").stream("endless", demand=3)
        with pytest.raises(trio.ClosedResourceError):
            await anext(items)
        await settled()
        assert notes == []
        async with items:
            async for item in items:
                if item == 1:
                    break
        await settled()
        assert notes[-1] == "production over"
        with pytest.raises(trio.ClosedResourceError):
            await items.receive_batch()


async def test_several_consumers_are_served_at_once() -> None:
    async with (
        open_supervisor([source()]) as sup,
        sup.name("s").stream("endless") as one,
        sup.name("s").stream("endless") as two,
    ):
        assert [await anext(one), await anext(two), await anext(one)] == [0, 0, 1]


@pytest.mark.covers("M23")
@pytest.mark.parametrize(("msg", "value"), [("fail", "out of paper"), ("fail in a task", "jammed")])
async def test_a_stream_may_fail_on_purpose(msg: str, value: str) -> None:
    async with open_supervisor([source()]) as sup:
        async with sup.name("s").stream(msg) as items:
            assert await anext(items) == 1
            with pytest.raises(StreamError, match=value) as caught:
                await anext(items)
            assert caught.value.value == value
        assert sup.name("s").is_alive()


@pytest.mark.covers("M23", "M26")
async def test_a_crash_of_the_producer_is_told_after_its_items() -> None:
    async with open_supervisor([source()]) as sup:
        async with sup.name("s").stream("crash") as items:
            await settled()
            assert await anext(items) == 1
            with pytest.raises(ActorExited) as caught:
                await anext(items)
        assert isinstance(caught.value.reason, Crash)


@pytest.mark.covers("M26")
async def test_a_kill_is_told_after_the_items_that_were_sent() -> None:
    async with open_supervisor([source()]) as sup:
        async with sup.name("s").stream("endless", demand=5) as items:
            await settled()
            sup.name("s").kill()
            assert [await anext(items) for _ in range(5)] == [0, 1, 2, 3, 4]
            with pytest.raises(ActorExited) as caught:
                await anext(items)
        assert caught.value.reason == Killed()


async def test_a_handler_may_serve_and_stop() -> None:
    async with open_supervisor([source()]) as sup, sup.name("s").stream("stop") as items:
        assert [item async for item in items] == ["last"]


async def test_a_sink_may_be_kept_and_ended_later() -> None:
    sinks: list[Sink] = []
    async with open_supervisor([source(None, sinks)]) as sup, sup.name("s").stream("open", demand=2) as items:
        await settled()
        (sink,) = sinks
        sink.send_nowait("a")
        sink.send_nowait("b")
        with pytest.raises(trio.WouldBlock):
            sink.send_nowait("c")
        assert await items.receive_batch() == ["a", "b"]
        await sink.send_all(["c", "d"])
        sink.end()
        sink.end()
        with pytest.raises(StreamClosed):
            sink.send_nowait("e")
        assert await items.receive_batch() == ["c", "d"]
        with pytest.raises(trio.EndOfChannel):
            await items.receive_batch()


async def test_a_sender_that_waits_for_credit_is_released_by_the_end_and_by_the_close() -> None:
    sinks: list[Sink] = []
    async with open_supervisor([source(None, sinks)]) as sup, trio.open_nursery() as nursery:

        async def send(sink: Sink) -> None:
            with pytest.raises(StreamClosed):
                await sink.send_all(["a", "b"])

        for close in (False, True):
            async with sup.name("s").stream("open", demand=1):
                await settled()
                nursery.start_soon(send, sinks[-1])
                await settled()
                if not close:
                    sinks[-1].end()
            await settled()


async def test_produce_is_for_once_and_for_the_handler() -> None:
    sinks: list[Sink] = []
    async with open_supervisor([source(None, sinks)]) as sup, sup.name("s").stream("open"):
        await settled()
        sinks[0].produce(trio.sleep_forever)
        with pytest.raises(RuntimeError, match="once"):
            sinks[0].produce(trio.sleep_forever)


@pytest.mark.covers("M14", "M18")
async def test_opening_a_stream_of_nobody_or_of_oneself_is_refused() -> None:
    async with open_supervisor([source()]) as sup:
        with pytest.raises(NoProc):
            async with sup.name("nobody").stream(1):
                pass
        ref = sup.name("s").ref()
        with ref.monitor() as monitor, pytest.raises(ActorExited):
            async with ref.stream("self") as items:
                await anext(items)
        assert isinstance(getattr((await monitor).reason, "error", None), CallingSelf)
        with pytest.raises(ValueError, match="demand is 0: expected an int >= 1"):
            ref.stream(1, demand=0)


async def test_a_cancelled_opening_leaves_nothing() -> None:
    async with open_supervisor([source()]) as sup:
        ref = sup.name("s").ref()
        with trio.CancelScope() as scope:
            scope.cancel()
            async with ref.stream("endless"):
                raise AssertionError("not reached")
        assert scope.cancelled_caught
        assert ref.endpoint.watchers == {}


async def test_a_finished_stream_leaves_no_watcher() -> None:
    async with open_supervisor([source()]) as sup:
        async with sup.name("s").stream(3) as items:
            assert [item async for item in items] == [0, 1, 2]
        assert sup.name("s").ref().endpoint.watchers == {}
