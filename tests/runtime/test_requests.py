from __future__ import annotations

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
    DeadLetter,
    Killed,
    LateReply,
    MailboxFull,
    NoMailbox,
    NoProc,
    open_supervisor,
    reply,
    reply_error,
)
from proctor.runtime.messaging.requests import Request, Requests
from proctor.runtime.spec import Overflow
from tests.runtime.stage import Boom, end, forever, heard, settled


class Office(Actor):
    """Answers at once, after a time, or when somebody else does."""

    async def init(self, shelf: list[Call]) -> None:
        self.shelf = shelf

    async def handle_call(self, msg: Any, from_: Call) -> Any:
        match msg:
            case "later":
                self.shelf.append(from_)
                return NO_REPLY
            case ("after", seconds):
                await trio.sleep(seconds)
                return seconds
            case trio.Event():
                await msg.wait()
                return None
            case "myself":
                return await self.ref.send_request("x").wait()
            case _:
                return msg


def office(shelf: list[Call] | None = None, id: str = "o", **spec: Any) -> ChildSpec:
    fields: dict[str, Any] = {"name": id, "restart": "temporary"}
    return ChildSpec(id, Office, ([] if shelf is None else shelf,), **(fields | spec))


@pytest.mark.covers("M21")
async def test_a_request_is_sent_at_once_and_its_answer_waited_for_later() -> None:
    async with open_supervisor([office()]) as sup:
        request = sup.name("o").send_request(7)
        with pytest.raises(trio.WouldBlock):
            request.result()
        await settled()
        assert (request.settled, request.result()) == (True, 7)
        assert await request.wait() == await request.wait(0) == await request.receive() == 7
        assert await sup.name("o").ref().send_request("x").wait() == "x"


@pytest.mark.covers("M21")
async def test_a_wait_without_an_answer_keeps_the_request_open(autojump_clock: MockClock) -> None:
    async with open_supervisor([office()]) as sup:
        request = sup.name("o").send_request(("after", 5))
        begun = trio.current_time()
        for _ in range(2):
            with pytest.raises(CallTimeout, match=r"no answer from <name 'o'> within 2 s"):
                await request.wait(2)
        assert trio.current_time() - begun == 4
        assert await request.wait(2) == 5


@pytest.mark.covers("M21", "M17")
async def test_receiving_without_an_answer_abandons_the_request(autojump_clock: MockClock) -> None:
    async with open_supervisor([office()]) as sup:
        request = sup.name("o").send_request(("after", 5))
        with sup.events() as events:
            with pytest.raises(CallTimeout):
                await request.receive(2)
            with pytest.raises(trio.ClosedResourceError):
                await request.wait()
            await trio.sleep(5)
            assert [event.msg for event in heard(events) if isinstance(event, LateReply)] == [5]
        assert not request.settled


@pytest.mark.covers("M21")
async def test_a_cancelled_wait_keeps_the_request_and_a_cancelled_receive_abandons_it(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([office()]) as sup:
        request = sup.name("o").send_request(("after", 5))
        with trio.move_on_after(1):
            await request.wait()
        assert not request.abandoned
        with trio.move_on_after(1):
            await request.receive()
        assert request.abandoned


@pytest.mark.covers("M21")
@pytest.mark.parametrize("verb", ["wait", "receive"])
async def test_several_tasks_may_wait_for_one_request(verb: str) -> None:
    shelf: list[Call] = []
    got: list[object] = []
    async with open_supervisor([office(shelf)]) as sup, trio.open_nursery() as nursery:
        request = sup.name("o").send_request("later")

        async def wait() -> None:
            got.append(await (request.wait() if verb == "wait" else request.receive()))

        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await settled()
        reply(shelf[0], "here")
        await settled()
        assert got == ["here", "here"]


@pytest.mark.covers("T15")
async def test_an_answer_of_the_same_tick_as_the_deadline_is_not_lost(autojump_clock: MockClock) -> None:
    shelf: list[Call] = []
    async with open_supervisor([office(shelf)]) as sup, trio.open_nursery() as nursery:
        request = sup.name("o").send_request("later")
        got: list[object] = []

        async def receive() -> None:
            with trio.CancelScope() as scope:
                scopes.append(scope)
                got.append(await request.receive())

        scopes: list[trio.CancelScope] = []
        nursery.start_soon(receive)
        await settled()
        reply(shelf[0], "just in time")
        scopes[0].cancel()
        await settled()
        assert got == ["just in time"]


@pytest.mark.covers("M21", "M14")
async def test_nobody_ends_a_request_at_once() -> None:
    async with open_supervisor([office(), ChildSpec("f", forever, name="f")]) as sup:
        ref = sup.name("o").ref()
        await end(ref, Killed())
        for target in (ref, sup.name("o"), sup.name("nobody")):
            request = target.send_request(1)
            assert request.settled
            with pytest.raises(NoProc):
                await request.wait()
        with pytest.raises(NoMailbox):
            sup.name("f").send_request(1).result()


@pytest.mark.covers("M21", "M15")
@pytest.mark.parametrize("handled", [False, True])
async def test_the_end_of_the_target_ends_its_requests(handled: bool) -> None:
    shelf: list[Call] = []
    async with open_supervisor([office(shelf)]) as sup:
        ref = sup.name("o").ref()
        request = ref.send_request("later")
        if handled:
            await settled()
            assert shelf
        ref.kill()
        with pytest.raises(ActorExited) as caught:
            await request.wait()
        assert caught.value.reason == Killed()


@pytest.mark.covers("M21", "M10")
async def test_an_error_answered_with_is_raised_where_one_waits() -> None:
    shelf: list[Call] = []
    async with open_supervisor([office(shelf)]) as sup:
        request = sup.name("o").send_request("later")
        await settled()
        reply_error(shelf[0], Boom("an answer"))
        with pytest.raises(Boom, match="an answer"):
            await request.wait()


@pytest.mark.covers("M21", "T14")
async def test_a_request_has_a_time_of_its_own(autojump_clock: MockClock) -> None:
    shelf: list[Call] = []
    async with open_supervisor([office(shelf)]) as sup:
        begun = trio.current_time()
        request = sup.name("o").send_request("later", timeout=3)
        with pytest.raises(CallTimeout, match="within 3 s"):
            await request.wait()
        assert trio.current_time() - begun == 3
        assert shelf[0].deadline == begun + 3


@pytest.mark.covers("M21", "M4")
@pytest.mark.parametrize(
    ("overflow", "kept", "lost"),
    [("block", [1], [2]), ("raise", [1], [2]), ("drop_newest", [1], [2]), ("drop_oldest", [2], [1])],
)
async def test_a_request_that_finds_no_room_ends_at_once(
    overflow: Overflow, kept: list[int], lost: list[int]
) -> None:
    shelf: list[Call] = []
    async with open_supervisor([office(shelf, mailbox=1, overflow=overflow)]) as sup:
        gate = trio.Event()
        sup.name("o").send_request(gate)
        await settled()
        requests: dict[int, Request] = {}
        with sup.events() as events:
            for n in (1, 2):
                requests[n] = sup.name("o").send_request(n)
            letters = [event.msg for event in heard(events) if isinstance(event, DeadLetter)]
        gate.set()
        await settled()
        for n in kept:
            assert requests[n].result() == n
        for n in lost:
            with pytest.raises(MailboxFull):
                requests[n].result()
        assert letters == (lost if overflow.startswith("drop") else [])


@pytest.mark.covers("M21", "M18")
async def test_an_actor_that_waits_for_its_own_request_is_refused() -> None:
    async with open_supervisor([office()]) as sup:
        ref = sup.name("o").ref()
        with pytest.raises(ActorExited) as caught:
            await ref.call("myself")
        assert isinstance(getattr(caught.value.reason, "error", None), CallingSelf)


@pytest.mark.covers("M21")
async def test_requests_are_handed_out_in_the_order_of_their_answers() -> None:
    shelf: list[Call] = []
    async with open_supervisor([office(shelf), office(id="p")]) as sup, trio.open_nursery() as nursery:
        requests = Requests()
        for label in "abc":
            requests.add(sup.name("o").send_request("later"), label)
        requests.add(sup.name("nobody").send_request(1), "nobody")
        await settled()

        async def answer() -> None:
            for n in (2, 0, 1):
                reply(shelf[n], n)
                await settled()

        nursery.start_soon(answer)
        label, request = await requests.receive()
        assert label == "nobody"
        with pytest.raises(NoProc):
            request.result()
        assert len(requests) == 3
        got = [(label, request.result()) async for label, request in requests]
        assert got == [("c", 2), ("a", 0), ("b", 1)]
        with pytest.raises(trio.EndOfChannel):
            await requests.receive()


@pytest.mark.covers("M21")
async def test_those_that_ended_before_anybody_asked_keep_their_order() -> None:
    shelf: list[Call] = []
    async with open_supervisor([office(shelf)]) as sup:
        requests = Requests()
        for label in "abc":
            requests.add(sup.name("o").send_request("later"), label)
        await settled()
        for n in (1, 2, 0):
            reply(shelf[n], n)
        assert [label async for label, _ in requests] == ["b", "c", "a"]
        assert len(requests) == 0


@pytest.mark.covers("M21")
async def test_a_collection_waits_no_longer_than_told_and_takes_more_meanwhile(
    autojump_clock: MockClock,
) -> None:
    async with open_supervisor([office(), office(id="p")]) as sup:
        requests = Requests()
        requests.add(sup.name("o").send_request(("after", 5)), "slow")
        begun = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            await requests.receive(2)
        assert trio.current_time() - begun == 2
        requests.add(sup.name("p").send_request(("after", 1)), "quick")
        assert [label async for label, _ in requests] == ["quick", "slow"]
        assert trio.current_time() - begun == 5


@pytest.mark.covers("M21")
async def test_an_abandoned_request_is_not_handed_out_and_may_be_the_last() -> None:
    shelf: list[Call] = []
    async with open_supervisor([office(shelf)]) as sup, trio.open_nursery() as nursery:
        requests, request = Requests(), sup.name("o").send_request("later")
        requests.add(request)
        got: list[object] = []

        async def collect() -> None:
            got.extend([label async for label, _ in requests])
            got.append("over")

        nursery.start_soon(collect)
        await settled()
        request.abandon()
        await settled()
        assert got == ["over"]
        with pytest.raises(ValueError, match="abandoned"):
            Requests().add(request)


@pytest.mark.covers("M21")
async def test_a_request_stands_in_one_collection_once() -> None:
    async with open_supervisor([office()]) as sup:
        requests, request = Requests(), sup.name("o").send_request(1)
        requests.add(request)
        for other in (requests, Requests()):
            with pytest.raises(ValueError, match="one collection"):
                other.add(request)
