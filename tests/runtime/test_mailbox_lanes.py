from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from proctor.runtime.messaging.mailbox import BURST, Mailbox
from proctor.runtime.spec import Overflow
from tests.runtime.effort import instructions
from tests.runtime.stage import settled


@pytest.mark.covers("M1")
async def test_a_busy_mailbox_lets_others_run() -> None:
    box: Mailbox[int] = Mailbox(10 * BURST, "block")
    for n in range(10 * BURST):
        assert box.offer(n)
    assert not box.offer(-1)
    turns = 0

    async def counts() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(counts)
        assert [await box.take() for _ in range(10 * BURST)] == list(range(10 * BURST))
        nursery.cancel_scope.cancel()
    assert turns >= 8


async def test_a_sender_that_gives_up_leaves_no_hole() -> None:
    box: Mailbox[int] = Mailbox(1, "block")
    box.offer(1)
    scope = trio.CancelScope()

    async def put() -> None:
        with scope:
            await box.put(2)

    async def offer() -> None:
        box.offer(3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(put)
        await settled()
        scope.cancel()
        assert await box.take() == 1
        nursery.start_soon(offer)
        assert await box.take() == 3


@pytest.mark.covers("M4", "M2")
async def test_senders_without_room_are_let_in_in_their_order_and_nobody_overtakes_them() -> None:
    box: Mailbox[int] = Mailbox(2, "block")
    box.offer(1)
    box.offer(2)
    async with trio.open_nursery() as nursery:
        for n in (3, 4, 5):
            nursery.start_soon(box.put, n)
            await settled()
        assert box.take_nowait() == 1
        assert not box.offer(6)
        assert [box.take_nowait() for _ in range(4)] == [2, 3, 4, 5]
        assert box.offer(6)
        assert [box.take_nowait(), box.take_nowait()] == [6, None]


@pytest.mark.covers("M4", "T15")
async def test_a_sender_cancelled_in_the_tick_it_is_let_in_has_sent() -> None:
    box: Mailbox[int] = Mailbox(1, "block")
    box.offer(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.put, 2)
        await settled()
        assert box.take_nowait() == 1
        nursery.cancel_scope.cancel()
    assert not nursery.cancel_scope.cancelled_caught
    assert box.take_nowait() == 2


@pytest.mark.covers("M4")
@pytest.mark.parametrize("end", ["close", "cancel"])
async def test_a_sender_without_room_that_is_not_let_in_has_sent_nothing(end: str) -> None:
    box: Mailbox[int] = Mailbox(1, "block")
    box.offer(1)
    refused: list[int] = []

    async def put(n: int) -> None:
        try:
            await box.put(n)
        except trio.BrokenResourceError:
            refused.append(n)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(put, 2)
        nursery.start_soon(put, 3)
        await settled()
        if end == "close":
            assert box.close() == [1]
        else:
            nursery.cancel_scope.cancel()
    assert sorted(refused) == ([2, 3] if end == "close" else [])
    assert box.take_nowait() == (None if end == "close" else 1)
    assert box.take_nowait() is None


@pytest.mark.covers("M4", "M26")
async def test_the_oldest_message_is_dropped_and_no_notice() -> None:
    box: Mailbox[int] = Mailbox(2, "drop_oldest")
    box.put_in_order(-1)
    box.offer(1)
    box.put_in_order(-2)
    box.offer(2)
    assert not box.offer(3)
    assert box.displace(3) == 1
    assert [box.take_nowait() for _ in range(5)] == [-1, -2, 2, 3, None]


@pytest.mark.covers("M25", "M26")
async def test_a_notice_taken_back_leaves_the_room_as_it_was() -> None:
    box: Mailbox[int] = Mailbox(1, "raise")
    box.put_in_order(-1)
    box.offer(1)
    box.withdraw(-1)
    box.withdraw(-1)
    assert not box.offer(2)
    assert box.take_nowait() == 1
    assert [box.offer(2), box.offer(3)] == [True, False]


@pytest.mark.covers("M8", "M4")
@pytest.mark.parametrize("overflow", ["block", "raise", "drop_newest", "drop_oldest"])
async def test_after_a_refusal_what_is_queued_is_handed_out_and_nothing_is_dropped_for_more(
    overflow: Overflow,
) -> None:
    box: Mailbox[int] = Mailbox(2, overflow)
    box.offer(1)
    box.put_system(2)
    box.refuse()
    assert not box.offer(3)
    assert not box.waits()
    with pytest.raises(trio.BrokenResourceError):
        box.displace(3)
    assert [await box.take() for _ in range(3)] == [2, 1, None]
    assert not box.offer(3)


@pytest.mark.covers("M7")
async def test_a_halted_mailbox_hands_out_nothing() -> None:
    box: Mailbox[int] = Mailbox(2, "block")
    box.offer(1)
    box.put_system(2)
    box.halt()
    box.refuse()
    assert await box.take() is None
    assert box.close() == [2, 1]


async def test_a_cancelled_take_has_taken_nothing() -> None:
    box: Mailbox[int] = Mailbox(3, "block")
    with trio.move_on_after(0):
        await box.take()
    box.offer(1)
    assert await box.take() == 1


class Model:
    """What a mailbox that drops its oldest message holds, in plain lists."""

    def __init__(self, size: int) -> None:
        self.size, self.system, self.user = size, list[int](), list[tuple[int, bool]]()

    def room(self) -> bool:
        return sum(1 for _, notice in self.user if not notice) < self.size

    def drop_oldest(self) -> int:
        dropped = next(entry for entry in self.user if not entry[1])
        self.user.remove(dropped)
        return dropped[0]

    def take(self) -> int | None:
        if self.system:
            return self.system.pop(0)
        return self.user.pop(0)[0] if self.user else None


OPERATIONS = ["offer", "offer and take back", "displace", "system", "notice", "withdraw", "take"]


@pytest.mark.covers("M1", "M4", "M6", "M26")
@given(ops=st.lists(st.sampled_from(OPERATIONS), max_size=60), size=st.integers(1, 4))
def test_a_mailbox_hands_out_what_a_plain_model_does(ops: list[str], size: int) -> None:
    async def main() -> None:
        box, model = Mailbox[int](size, "drop_oldest"), Model(size)
        for n, op in enumerate(ops, start=1):
            notices = [entry for entry in model.user if entry[1]]
            if op.startswith("offer"):
                room = model.room()
                assert box.offer(n) == room
                if op == "offer":
                    model.user += [(n, False)] if room else []
                else:
                    box.take_back(n)
            elif op == "displace" and not model.room():
                assert box.displace(n) == model.drop_oldest()
                model.user.append((n, False))
            elif op == "system":
                box.put_system(n)
                model.system.append(n)
            elif op == "notice":
                box.put_in_order(n)
                model.user.append((n, True))
            elif op == "withdraw" and notices:
                withdrawn = notices[n % len(notices)]
                box.withdraw(withdrawn[0])
                model.user.remove(withdrawn)
            elif op == "take" and (wanted := model.take()) is not None:
                assert await box.take() == wanted
            assert box.is_empty() == (not model.system and not model.user)
        assert box.close() == model.system + [n for n, _ in model.user]

    trio.run(main)


def put_and_take(notices: list[object]) -> None:
    box: Mailbox[object] = Mailbox(len(notices), "block")
    for notice in notices:
        box.put_in_order(notice)
        box.offer("message")
    for _ in range(2 * len(notices)):
        box.burst = 0
        assert box.take_nowait() is not None


def put_and_withdraw(notices: list[object]) -> None:
    box: Mailbox[object] = Mailbox(1, "block")
    box.offer("message")
    for notice in notices:
        box.put_in_order(notice)
    for notice in notices:
        box.withdraw(notice)
    assert box.take_nowait() == "message"
    assert box.is_empty()


def displace_behind(notices: list[object]) -> None:
    box: Mailbox[object] = Mailbox(1, "drop_oldest")
    for notice in notices:
        box.put_in_order(notice)
    box.offer(0)
    for number in range(len(notices)):
        assert box.displace(number + 1) == number


@pytest.mark.covers("M26")
@pytest.mark.parametrize("work", [put_and_take, put_and_withdraw, displace_behind])
def test_twice_as_many_notices_are_twice_the_work(work: Callable[[list[object]], None]) -> None:
    few, many = ([object() for _ in range(count)] for count in (200, 400))
    assert instructions(partial(work, many)) <= 2.2 * instructions(partial(work, few))


@pytest.mark.covers("M4")
async def test_what_was_offered_last_can_be_taken_back_with_its_room() -> None:
    box: Mailbox[str] = Mailbox(2, "block")
    first, last = "first", "last"
    assert box.offer(first)
    assert box.offer(last)
    box.take_back(first)
    box.take_back(last)
    box.take_back(last)
    assert [box.offer("other"), box.offer("one more")] == [True, False]
    assert [box.take_nowait() for _ in range(3)] == [first, "other", None]


@pytest.mark.covers("M4")
async def test_the_room_of_what_was_taken_back_is_the_first_waiting_senders() -> None:
    box: Mailbox[int] = Mailbox(1, "block")
    box.offer(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.put, 2)
        await settled()
        box.take_back(1)
        assert not box.offer(3)
    assert [box.take_nowait(), box.take_nowait()] == [2, None]
    assert box.offer(3)


@pytest.mark.covers("M8")
async def test_a_closing_mailbox_has_no_room_for_what_was_taken_back() -> None:
    box: Mailbox[int] = Mailbox(1, "block")
    box.offer(1)
    box.refuse()
    box.take_back(1)
    assert not box.offer(2)
    assert await box.take() is None
