from __future__ import annotations

import os
import socket

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from proctor.runtime.processes.pipes import SMALL_READ, OutputPipe, StdinPipe, Tail, output_pipe, stdin_pipe


@pytest.fixture
def reading() -> tuple[OutputPipe, int]:
    return output_pipe()


@pytest.fixture
def writing() -> tuple[StdinPipe, int]:
    return stdin_pipe()


async def test_output_is_handed_out_and_then_the_end_for_ever(reading: tuple[OutputPipe, int]) -> None:
    out, fd = reading
    os.write(fd, b"last words")
    os.close(fd)
    assert [await out.receive() for _ in range(3)] == [b"last words", b"", b""]
    assert out.closed
    assert out.ended.is_set()


async def test_much_is_read_at_once_only_after_a_read_that_was_full() -> None:
    ours, theirs = socket.socketpair()  # a pipe need not hold so much
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
    out = OutputPipe(ours.detach())
    for written, read in (
        (100_000, [SMALL_READ, 100_000 - SMALL_READ]),
        (100_000, [SMALL_READ, 100_000 - SMALL_READ]),
        (150_000, [SMALL_READ, 150_000 - SMALL_READ]),
        (150_000, [150_000]),
        (10, [10]),
        (100_000, [SMALL_READ, 100_000 - SMALL_READ]),
    ):
        theirs.sendall(bytes(written))
        assert [len(await out.receive()) for _ in read] == read
    theirs.close()
    assert await out.receive() == b""


async def test_expired_output_gives_what_is_in_the_pipe_and_nothing_that_comes_later(
    reading: tuple[OutputPipe, int],
) -> None:
    out, fd = reading
    os.write(fd, b"before")
    out.expire()
    os.write(fd, b" after")
    assert [await out.receive() for _ in range(2)] == [b"before", b""]
    os.close(fd)


async def test_expiry_wakes_the_consumer_of_a_pipe_that_somebody_holds_open(
    reading: tuple[OutputPipe, int],
) -> None:
    out, fd = reading
    got: list[bytes] = []

    async def consume() -> None:
        got.append(await out.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        await wait_all_tasks_blocked()
        out.expire()
    assert got == [b""]
    os.close(fd)


@pytest.mark.covers("R058")
async def test_a_second_consumer_is_refused(reading: tuple[OutputPipe, int]) -> None:
    out, fd = reading
    async with trio.open_nursery() as nursery:
        nursery.start_soon(out.receive)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError, match="it has one consumer"):
            await out.receive()
        os.close(fd)


async def test_a_cancelled_consumer_makes_room_for_the_next_and_loses_nothing(
    reading: tuple[OutputPipe, int],
) -> None:
    out, fd = reading
    with trio.CancelScope() as scope:
        scope.cancel()
        await out.receive()
    os.write(fd, b"kept")
    assert await out.receive() == b"kept"
    os.close(fd)
    out.close()


async def test_output_taken_over_goes_to_the_next_consumer_whole(reading: tuple[OutputPipe, int]) -> None:
    out, fd = reading

    async def consume() -> None:
        with pytest.raises(trio.ClosedResourceError, match="taken over"):
            await out.receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        await wait_all_tasks_blocked()
        out.take_over()
        os.write(fd, b"whole")
        os.close(fd)
        assert [await out.receive() for _ in range(2)] == [b"whole", b""]


async def test_closing_wakes_a_waiting_sender(writing: tuple[StdinPipe, int]) -> None:
    into, fd = writing

    async def send() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await into.send(bytes(1_000_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        into.close()
    os.close(fd)


async def test_a_message_cut_by_cancellation_lets_no_other_follow(writing: tuple[StdinPipe, int]) -> None:
    into, fd = writing
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(into.send, bytes(1_000_000))
            await wait_all_tasks_blocked()
            scope.cancel()
    with pytest.raises(trio.ClosedResourceError):
        await into.send(b"next")
    os.close(fd)


async def test_a_message_cancelled_before_its_first_byte_has_not_happened(
    writing: tuple[StdinPipe, int],
) -> None:
    into, fd = writing
    first = bytes(1_000_000)
    waiting = trio.CancelScope()

    async def second() -> None:
        with waiting:
            await into.send(b"second")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(into.send, first)
        await wait_all_tasks_blocked()
        nursery.start_soon(second)
        await wait_all_tasks_blocked()
        waiting.cancel()
        await wait_all_tasks_blocked()
        left = len(first)
        while left:
            left -= len(os.read(fd, left))
            await wait_all_tasks_blocked()
    await into.send(b"third")
    assert os.read(fd, 100) == b"third"
    os.close(fd)
    into.close()


@pytest.mark.covers("R098")
async def test_the_far_end_closed_is_an_error_at_once(writing: tuple[StdinPipe, int]) -> None:
    into, fd = writing
    os.close(fd)
    with pytest.raises(trio.BrokenResourceError, match="the process closed its end"):
        await into.send(b"x")
    assert into.closed


@pytest.mark.parametrize("limit", [0, 1, 10, 64])
def test_a_tail_keeps_the_last_bytes_however_they_were_cut(limit: int) -> None:
    said = bytes(range(200))
    tail = Tail(limit)
    for start in range(0, 200, 7):
        tail.add(said[start : start + 7])
        assert tail.value == said[max(0, min(start + 7, 200) - limit) : start + 7]
    assert tail.total == 200
