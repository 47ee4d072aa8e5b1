"""Blocks and streams across the bridge."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
import trio.testing

import proctor
from proctor import sync
from proctor.bridge import BridgeClosed, TrioThread, WrongFace, asyncio_face, pump, sync_face


@pytest.fixture
def thread() -> Generator[TrioThread]:
    with TrioThread() as thread:
        yield thread


def as_is(value: Any, thread: TrioThread) -> Any:
    return value


class Manager:
    """An async context manager of Trio that keeps what its body ended with."""

    def __init__(self, swallows: type[Exception] | None = None) -> None:
        self.ended_with: BaseException | None = None
        self.is_left = False
        self._swallows = swallows

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Manager]:
        try:
            yield self
        except BaseException as error:
            self.ended_with = error
            if self._swallows is None or not isinstance(error, self._swallows):
                raise
        finally:
            self.is_left = True


@asynccontextmanager
async def gives_up() -> AsyncGenerator[None]:
    """A block that fails by itself, as a supervisor does."""
    failed = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_fail_soon, nursery)
        try:
            yield
        except trio.Cancelled:
            failed = True
            raise
    if failed:
        raise ArithmeticError("it gave up")


async def _fail_soon(nursery: trio.Nursery) -> None:
    await trio.sleep(0.02)
    nursery.cancel_scope.cancel()


def in_asyncio(thread: TrioThread, open_: Callable[[], Any], body: Callable[[], None]) -> None:
    async def main() -> None:
        async with asyncio_face.Block(thread, as_is, open_):
            body()

    asyncio.run(main())


def in_plain(thread: TrioThread, open_: Callable[[], Any], body: Callable[[], None]) -> None:
    with sync_face.Block(thread, as_is, open_):
        body()


def raise_key_error() -> None:
    raise KeyError("of the body")


FACES = pytest.mark.parametrize("face", [in_asyncio, in_plain])


@FACES
def test_an_error_of_the_body_is_raised_in_the_manager_and_leaves_as_it_is(
    face: Callable[..., None], thread: TrioThread
) -> None:
    manager = Manager()
    with pytest.raises(KeyError) as caught:
        face(thread, manager.open, raise_key_error)
    assert manager.ended_with is caught.value


@FACES
def test_a_manager_can_swallow_the_error(face: Callable[..., None], thread: TrioThread) -> None:
    face(thread, Manager(KeyError).open, raise_key_error)


@FACES
def test_what_keeps_a_block_from_opening_is_raised(face: Callable[..., None], thread: TrioThread) -> None:
    @asynccontextmanager
    async def refused() -> AsyncGenerator[None]:
        raise LookupError("no room")
        yield

    with pytest.raises(LookupError, match="no room"):
        face(thread, refused, raise_key_error)


def test_a_block_that_gives_up_cancels_its_asyncio_body_and_raises(thread: TrioThread) -> None:
    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(ArithmeticError, match="it gave up"):
            async with asyncio_face.Block(thread, as_is, gives_up):
                await asyncio.Event().wait()
        return task.cancelling()

    assert asyncio.run(main()) == 0


def test_a_cancellation_from_outside_is_kept_when_the_block_fails_too(thread: TrioThread) -> None:
    async def body() -> None:
        async with asyncio_face.Block(thread, as_is, gives_up):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(body())


def test_a_block_that_gives_up_raises_when_plain_code_leaves_it(thread: TrioThread) -> None:
    with pytest.raises(ArithmeticError, match="it gave up"), sync_face.Block(thread, as_is, gives_up):
        sync_face.call(thread, trio.sleep, 0.1)


def test_an_interrupted_body_cancels_the_block(thread: TrioThread) -> None:
    manager = Manager()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_plain(thread, manager.open, interrupt)
    assert isinstance(manager.ended_with, trio.Cancelled)


def test_a_generator_that_is_closed_leaves_its_block(thread: TrioThread) -> None:
    manager = Manager()

    def values() -> Generator[int]:
        with sync_face.Block(thread, as_is, manager.open):
            yield 1

    generator = values()
    next(generator)
    generator.close()
    assert manager.is_left


def test_a_block_is_left_by_another_task_than_it_was_entered_by(thread: TrioThread) -> None:
    manager = Manager()

    async def main() -> None:
        block = asyncio_face.Block[Manager](thread, as_is, manager.open)
        async with asyncio.TaskGroup() as group:
            group.create_task(block.__aenter__())
        await block.__aexit__(None, None, None)

    asyncio.run(main())
    assert manager.is_left


def test_a_block_is_entered_once(thread: TrioThread) -> None:
    block = sync_face.Block[Manager](thread, as_is, Manager().open)
    with block, pytest.raises(WrongFace, match="entered already"), block:
        pass


class Counting:
    """An async iterator of numbers that never waits, and then fails."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.read = 0
        self._count = count
        self._error = error

    def __aiter__(self) -> Counting:
        return self

    async def __anext__(self) -> int:
        if self.read == self._count:
            raise self._error or StopAsyncIteration
        self.read += 1
        return self.read


def test_a_stream_gives_each_item_once_in_order_and_then_the_error(thread: TrioThread) -> None:
    count = 5 * pump.WINDOW + 3

    async def main() -> list[int]:
        found: list[int] = []
        stream = asyncio_face.Stream[int].around(Counting(count, ValueError("the end")), thread)

        async def read() -> None:
            async for item in stream:
                found.append(item)

        with pytest.raises(ValueError, match="the end"):
            await read()
        return found

    assert asyncio.run(main()) == [*range(1, count + 1)]
    found: list[int] = []
    plain = sync_face.Stream[int].around(Counting(count, ValueError("the end")), thread)
    with pytest.raises(ValueError, match="the end"):
        found.extend(plain)
    assert found == [*range(1, count + 1)]


def test_a_slow_reader_stops_the_producer(thread: TrioThread) -> None:
    source = Counting(10 * pump.WINDOW)
    stream = sync_face.Stream[int].around(source, thread)
    assert next(stream) == 1
    sync_face.call(thread, trio.testing.wait_all_tasks_blocked)
    assert source.read <= 2 * pump.WINDOW
    stream.stop_reading()


def test_a_stream_that_is_left_can_be_read_on(thread: TrioThread) -> None:
    stream = sync_face.Stream[int].around(Counting(10), thread)
    assert [next(stream), next(stream)] == [1, 2]
    assert [*stream] == [*range(3, 11)]
    assert stream.batch() == []


def test_a_cancelled_reader_loses_nothing(thread: TrioThread) -> None:
    send, receive = trio.open_memory_channel[int](10)

    async def main() -> list[int]:
        stream = asyncio_face.Stream[int].around(receive, thread)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await anext(stream)
        await asyncio_face.call_plain(thread, send.send_nowait, 7)
        await asyncio_face.call_plain(thread, send.close)
        return [item async for item in stream]

    assert asyncio.run(main()) == [7]


def test_the_failure_of_the_thread_ends_the_body_of_a_block() -> None:
    thread = TrioThread().start()

    def break_the_loop() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with asyncio_face.Block(thread, as_is, Manager().open):
            thread.soon(break_the_loop)
            await asyncio.Event().wait()

    with pytest.raises(BridgeClosed, match="the Trio thread failed") as caught:
        asyncio.run(main())
    assert isinstance(caught.value.__cause__, trio.TrioInternalError)


@asynccontextmanager
async def slow_to_open(steps: list[str]) -> AsyncGenerator[None]:
    try:
        await trio.sleep_forever()
        yield
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.05)
        steps.append("cleaned up")


def test_a_block_that_is_cancelled_while_it_opens_is_waited_for(thread: TrioThread) -> None:
    steps: list[str] = []

    async def main() -> None:
        async with asyncio.timeout(0.02):
            async with asyncio_face.Block(thread, as_is, slow_to_open, steps):
                steps.append("body")

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert steps == ["cleaned up"]
    steps.clear()
    with pytest.raises(TimeoutError), sync_face.timeout(0.02):
        sync_face.Block(thread, as_is, slow_to_open, steps).__enter__()
    assert steps == ["cleaned up"]


def test_a_list_is_the_same_object_on_both_sides(thread: TrioThread) -> None:
    found: list[object] = []

    async def keep(given: list[str]) -> None:
        found.append(given)

    given = ["a"]
    sync_face.call(thread, keep, given)
    assert found[0] is given
    sync_face.call(thread, keep, [sync.MemoryStore(), 1])
    assert [type(one) for one in cast("list[object]", found[1])] == [proctor.MemoryStore, int]


def test_a_scope_of_anyio_that_cancels_again_and_again_leaves_nothing_behind(thread: TrioThread) -> None:
    scopes, steps = importlib.import_module("anyio"), list[str]()

    async def main() -> None:
        with scopes.move_on_after(0.02) as scope:
            async with asyncio_face.Block(thread, as_is, slow_to_open, steps):
                steps.append("body")
        assert scope.cancelled_caught

    asyncio.run(main())
    sync_face.call(thread, trio.sleep, 0.1)
    assert steps == ["cleaned up"]


def test_a_second_interrupt_does_not_wait_for_the_clean_up(thread: TrioThread) -> None:
    release = threading.Event()

    async def stubborn() -> None:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(release.wait)

    async def main() -> None:
        call = asyncio.ensure_future(asyncio_face.call(thread, stubborn))  # noqa: TID251
        for _ in range(2):
            await asyncio.sleep(0.02)
            call.cancel()
        await call

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    release.set()
