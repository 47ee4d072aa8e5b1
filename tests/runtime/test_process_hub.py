from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from proctor.runtime.processes.hub import STEP_BYTES
from proctor.runtime.processes.pipes import SMALL_READ, OutputPipe, output_pipe
from proctor.runtime.processes.process import open_process
from proctor.testing.leaks import no_leaks
from tests.runtime.belongings import descriptors
from tests.runtime.programs import AT_ONCE, sh

LINES = "".join(f"line {number}\n" for number in range(300)).encode()


class Enough(Exception):
    """A reader has had what it came for."""


async def listened(out: OutputPipe, take: Callable[[bytes], object]) -> None:
    """All of an output, as a process has it read."""
    await out.hand_over(take)
    while data := await out.receive():
        take(data)


def ignore(data: bytes) -> None:
    return


async def to_the_end(number: int, ends: dict[str, int]) -> None:
    taken = bytearray()
    async with open_process(
        sh("i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done"), ladder=()
    ) as it:
        await it.listen(taken.extend)
    assert taken == LINES
    ends["ended"] += 1


async def until_stopped(number: int, ends: dict[str, int]) -> None:
    async with (
        open_process(sh("echo begun; exec sleep 1000"), ladder=AT_ONCE) as it,
        trio.open_nursery() as nursery,
    ):
        await it.listen(lambda data: nursery.start_soon(it.stop))
    ends["stopped"] += 1


async def until_its_function_fails(number: int, ends: dict[str, int]) -> None:
    def take(data: bytes) -> None:
        raise Enough

    with pytest.raises(Enough):
        async with open_process(sh("exec yes"), ladder=AT_ONCE) as it:
            await it.listen(take)
    ends["failed"] += 1


async def until_cancelled(number: int, ends: dict[str, int]) -> None:
    with trio.CancelScope() as scope:
        async with open_process(sh("exec yes"), ladder=AT_ONCE) as it:
            await it.listen(lambda data: scope.cancel())
    ends["cancelled"] += scope.cancelled_caught


async def test_two_hundred_processes_that_end_are_stopped_fail_or_are_left_while_they_are_read_leave_nothing() -> (
    None
):
    ends: dict[str, int] = dict.fromkeys(("ended", "stopped", "failed", "cancelled"), 0)
    kinds = (to_the_end, until_stopped, until_its_function_fails, until_cancelled)
    with no_leaks():
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(kinds[number % 4], number, ends)
    assert ends == dict.fromkeys(ends, 50)


async def test_many_pipes_share_one_descriptor_that_goes_with_the_last() -> None:
    pipes = [output_pipe() for _ in range(3)]
    before = descriptors()
    async with trio.open_nursery() as nursery:
        for out, _ in pipes:
            nursery.start_soon(listened, out, ignore)
        await wait_all_tasks_blocked()
        assert len(descriptors()) == len(before) + 1
        for _, fd in pipes:
            os.close(fd)
    assert len(descriptors()) == len(before) - 6


async def test_a_pipe_that_floods_delays_a_quiet_one_by_few_reads() -> None:
    (loud, loud_fd), (quiet, quiet_fd) = output_pipe(), output_pipe()
    reads, delay = list[int](), list[int]()

    def flood(data: bytes) -> None:
        reads.append(len(data))
        if len(reads) == 10:
            os.write(quiet_fd, b"hello")
        if len(reads) < 100:
            os.write(loud_fd, b"x" * SMALL_READ)
        else:
            os.close(loud_fd)
            os.close(quiet_fd)

    def hear(data: bytes) -> None:
        delay.append(len(reads) - 10)

    os.write(loud_fd, b"x" * SMALL_READ)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listened, loud, flood)
        nursery.start_soon(listened, quiet, hear)
    assert len(delay) == 1
    assert delay[0] <= 2


async def test_other_tasks_have_their_turn_while_many_pipes_flood() -> None:
    pipes, order, over = [output_pipe() for _ in range(32)], list[str](), trio.Event()

    def flood(fd: int) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            order.append("read")
            os.write(fd, b"x" * SMALL_READ)
            if order.count("read") == 500:
                over.set()

        return take

    async def live() -> None:
        while not over.is_set():
            await trio.lowlevel.checkpoint()
            order.append("step")

    async with trio.open_nursery() as nursery:
        for out, fd in pipes:
            os.write(fd, b"x" * SMALL_READ)
            nursery.start_soon(listened, out, flood(fd))
        await live()
        nursery.cancel_scope.cancel()
    longest = max(map(len, "".join("r" if did == "read" else " " for did in order).split()))
    # the order of tasks within a pass is random: last in one and first in the next are two steps in a row
    assert longest <= 2 * STEP_BYTES // SMALL_READ
    for out, fd in pipes:
        out.close()
        os.close(fd)


async def test_what_a_process_wrote_on_stderr_comes_before_its_stdout_however_many_pipes_are_read_first() -> (
    None
):
    pipes, seen = [output_pipe() for _ in range(200)], list[bytes]()

    async with (
        trio.open_nursery() as nursery,
        open_process(sh("for i in 1 2 3; do echo log >&2; echo out; read next; done"), ladder=AT_ONCE) as it,
    ):
        for out, fd in pipes:
            os.write(fd, b"x")
            nursery.start_soon(listened, out, partial(os.write, fd))

        def take(data: bytes) -> None:
            seen.append(it.stderr)
            nursery.start_soon(it.send, b"\n")

        await it.listen(take, after_stderr=True)
        nursery.cancel_scope.cancel()
    assert seen == [b"log\n" * number for number in (1, 2, 3)]
    for out, fd in pipes:
        out.close()
        os.close(fd)


async def test_every_flooding_pipe_is_read_as_often_as_the_others() -> None:
    pipes, reads = [output_pipe() for _ in range(20)], dict[int, int]()

    def flood(fd: int) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            reads[fd] = reads.get(fd, 0) + 1
            os.write(fd, b"x" * SMALL_READ)
            if sum(reads.values()) == 400:
                raise Enough

        return take

    with pytest.RaisesGroup(Enough):
        async with trio.open_nursery() as nursery:
            for out, fd in pipes:
                os.write(fd, b"x" * SMALL_READ)
                nursery.start_soon(listened, out, flood(fd))
    assert {fd: abs(reads[fd] - 20) <= 2 for _, fd in pipes} == {fd: True for _, fd in pipes}
    for out, fd in pipes:
        out.close()
        os.close(fd)


async def test_what_a_function_raises_is_raised_where_it_was_given_and_the_next_consumer_goes_on() -> None:
    out, fd = output_pipe()

    def take(data: bytes) -> None:
        raise Enough

    os.write(fd, b"first")
    with pytest.raises(Enough):
        await out.hand_over(take)
    os.write(fd, b"second")
    os.close(fd)
    assert [await out.receive() for _ in range(2)] == [b"second", b""]


async def test_what_a_function_raises_after_it_has_cancelled_its_own_task_is_raised_there() -> None:
    out, fd = output_pipe()
    scope = trio.CancelScope()

    def take(data: bytes) -> None:
        scope.cancel()
        raise Enough

    os.write(fd, b"first")
    with pytest.raises(Enough), scope:
        await out.hand_over(take)
    os.close(fd)
    assert await out.receive() == b""


async def test_one_that_is_cancelled_leaves_what_it_did_not_take() -> None:
    out, fd = output_pipe()
    taken = list[bytes]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(out.hand_over, taken.append)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        os.write(fd, b"late")
    os.close(fd)
    assert taken == []
    assert await out.receive() == b"late"


async def test_an_expired_pipe_is_read_to_what_it_held_then() -> None:
    out, fd = output_pipe()
    taken = list[bytes]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listened, out, taken.append)
        await wait_all_tasks_blocked()
        os.write(fd, b"before")
        out.expire()
        os.write(fd, b" after")
    os.close(fd)
    assert taken == [b"before"]


async def test_one_that_is_taken_over_hands_over_to_the_next() -> None:
    out, fd = output_pipe()
    taken = list[bytes]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(out.hand_over, taken.append)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await out.receive()
        out.take_over()
        os.write(fd, b"for the next")
        os.close(fd)
        assert await out.receive() == b"for the next"
    assert taken == []


async def test_a_pipe_that_is_closed_while_another_is_read_is_read_no_more_and_its_number_may_be_used_again() -> (
    None
):
    (first, first_fd), (second, second_fd) = output_pipe(), output_pipe()
    again = list[tuple[OutputPipe, int]]()
    taken = list[bytes]()

    def take(data: bytes) -> None:
        taken.append(data)
        for out in (first, second):
            if not out.closed:
                out.close()
        again.append(output_pipe())

    os.write(first_fd, b"one")
    os.write(second_fd, b"one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listened, first, take)
        nursery.start_soon(listened, second, take)
    assert taken == [b"one"]
    for out, fd in again:
        out.close()
        os.close(fd)
    os.close(first_fd)
    os.close(second_fd)


NAME: ContextVar[str] = ContextVar("name", default="the hub's")


async def test_a_function_and_the_tasks_that_it_starts_have_the_variables_of_the_task_that_gave_it() -> None:
    seen = set[tuple[str, str]]()
    async with trio.open_nursery() as nursery:

        async def note(name: str) -> None:
            seen.add((name, NAME.get()))

        async def listen(name: str, out: OutputPipe) -> None:
            NAME.set(name)
            await listened(out, lambda data: nursery.start_soon(note, name))

        for name in ("a", "b"):
            out, fd = output_pipe()
            nursery.start_soon(listen, name, out)
            os.write(fd, b"x")
            os.close(fd)
    assert seen == {("a", "a"), ("b", "b")}


async def test_a_pipe_that_the_system_refuses_to_read_says_so_to_its_own_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (bad, bad_fd), (good, good_fd) = output_pipe(), output_pipe()
    number, read, taken = bad._fd, os.read, list[bytes]()  # pyright: ignore[reportPrivateUsage]

    def refusing(fd: int, size: int) -> bytes:
        if fd == number:
            raise OSError(errno.EIO, "no")
        return read(fd, size)

    monkeypatch.setattr(os, "read", refusing)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listened, good, taken.append)
        os.write(bad_fd, b"x")
        with pytest.raises(OSError, match="no"):
            await listened(bad, taken.append)
        os.write(good_fd, b"still read")
        os.close(good_fd)
    assert taken == [b"still read"]
    assert bad.closed
    os.close(bad_fd)


@pytest.mark.parametrize("refusal", ["there is none", "it is refused", "this pipe is refused"])
async def test_without_an_epoll_the_output_is_read_all_the_same(
    refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused:
        def __init__(self) -> None:
            if refusal == "it is refused":
                raise OSError(errno.EMFILE, "too many open files")
            self.closed = False

        def register(self, fd: int, events: int) -> None:
            raise OSError(errno.ENOSPC, "too many watches")

        def fileno(self) -> int:
            return -1

        def close(self) -> None:
            self.closed = True

    if refusal == "there is none":
        monkeypatch.delattr(select, "epoll")
    else:
        monkeypatch.setattr(select, "epoll", Refused)
    taken = bytearray()
    async with open_process(sh("echo one; echo two"), ladder=()) as it:
        await it.listen(taken.extend)
    assert taken == b"one\ntwo\n"
