"""Calls across the bridge: results, errors, context variables, cancellation, and the end of the Trio thread."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Generator
from functools import partial

import pytest
import trio

from proctor.bridge import BridgeClosed, TrioThread, WrongFace, asyncio_face, sync_face

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


@pytest.fixture
def thread() -> Generator[TrioThread]:
    with TrioThread() as thread:
        yield thread


class Sleeper:
    """An async function that waits until it is cancelled, and keeps the reason."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ended = threading.Event()

    async def sleep(self) -> None:
        try:
            self.began.set()
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            self.ended.set()


async def failing() -> None:
    try:
        raise KeyError("the cause")
    except KeyError as error:
        raise ValueError("the error") from error


async def recolour(colour: str) -> str:
    before = COLOUR.get()
    COLOUR.set(colour)
    return before


def test_an_error_crosses_with_its_type_and_cause(thread: TrioThread) -> None:
    async def main() -> None:
        await asyncio_face.call(thread, failing)

    def in_asyncio() -> None:
        asyncio.run(main())

    for call in (partial(sync_face.call, thread, failing), in_asyncio):
        with pytest.raises(ValueError, match="the error") as caught:
            call()
        assert isinstance(caught.value.__cause__, KeyError)


def test_context_variables_cross_both_ways(thread: TrioThread) -> None:
    async def main() -> tuple[str, str]:
        COLOUR.set("red")
        return await asyncio_face.call(thread, recolour, "blue"), COLOUR.get()

    assert asyncio.run(main()) == ("red", "blue")
    COLOUR.set("green")
    assert sync_face.call(thread, recolour, "white") == "green"
    assert COLOUR.get() == "white"


def test_a_cancelled_asyncio_task_cancels_its_call_and_waits_for_the_clean_up(thread: TrioThread) -> None:
    sleeper = Sleeper()

    async def main() -> None:
        async with asyncio.timeout(0.05):
            await asyncio_face.call(thread, sleeper.sleep)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert sleeper.ended.is_set()


def test_the_failure_of_one_task_of_a_group_cancels_the_call_of_another(thread: TrioThread) -> None:
    sleeper = Sleeper()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio_face.call(thread, sleeper.sleep))
            await asyncio.to_thread(sleeper.began.wait)
            group.create_task(asyncio_face.call(thread, failing))

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert [type(error) for error in caught.value.exceptions] == [ValueError]
    assert sleeper.ended.is_set()


def test_a_timeout_block_ends_plain_calls_and_the_inner_one_cannot_be_longer(thread: TrioThread) -> None:
    sleeper = Sleeper()
    with pytest.raises(TimeoutError), sync_face.timeout(0.05), sync_face.timeout(1000):
        sync_face.call(thread, sleeper.sleep)
    assert sleeper.ended.is_set()


def test_a_closed_thread_ends_the_calls_that_wait_and_refuses_others() -> None:
    thread, sleeper = TrioThread().start(), Sleeper()
    found: list[BaseException] = []

    def wait() -> None:
        try:
            sync_face.call(thread, sleeper.sleep)
        except BridgeClosed as error:
            found.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    sleeper.began.wait()
    thread.close()
    waiting.join()
    assert str(found[0]) == "the Trio thread was closed"
    with pytest.raises(BridgeClosed, match="the Trio thread was closed"):
        sync_face.call(thread, failing)


def test_a_thread_that_failed_gives_its_failure_as_the_cause() -> None:
    thread, sleeper = TrioThread().start(), Sleeper()

    def break_the_loop() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        call = asyncio.ensure_future(asyncio_face.call(thread, sleeper.sleep))  # noqa: TID251
        await asyncio.to_thread(sleeper.began.wait)
        thread.soon(break_the_loop)
        await call

    with pytest.raises(BridgeClosed, match="the Trio thread failed: TrioInternalError") as caught:
        asyncio.run(main())
    assert isinstance(caught.value.__cause__, trio.TrioInternalError)


def test_an_interrupt_in_a_call_is_its_callers_and_the_thread_goes_on(thread: TrioThread) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        sync_face.call(thread, leave)
    assert thread.is_open


def test_the_plain_face_refuses_to_stop_a_loop(thread: TrioThread) -> None:
    async def inside() -> None:
        sync_face.call(thread, failing)

    with pytest.raises(WrongFace, match=r"use|await the same names of proctor\.aio"):
        asyncio.run(inside())
    with pytest.raises(WrongFace, match=r"await the same names of proctor$"):
        trio.run(inside)
    with pytest.raises(WrongFace, match=r"await the same names of proctor$"):
        sync_face.call(thread, inside)


def test_the_asyncio_face_names_the_face_to_use_elsewhere(thread: TrioThread) -> None:
    with pytest.raises(WrongFace, match="use proctor itself"):
        trio.run(asyncio_face.call, thread, failing)
    with pytest.raises(WrongFace, match=r"use proctor\.sync"):
        asyncio_face.call(thread, failing).send(None)


def test_a_thread_that_was_not_started_says_so() -> None:
    with pytest.raises(BridgeClosed, match="the Trio thread was not started"):
        sync_face.call(TrioThread(), failing)


def test_a_thread_cannot_close_itself(thread: TrioThread) -> None:
    async def close() -> None:
        thread.close()

    with pytest.raises(WrongFace, match="from another thread"):
        sync_face.call(thread, close)


def test_a_result_for_a_loop_that_was_closed_meanwhile_is_dropped(thread: TrioThread) -> None:
    sleeper = Sleeper()
    loop = asyncio.new_event_loop()
    task = loop.create_task(asyncio_face.call(thread, sleeper.sleep))

    def stop() -> None:
        task.cancel()
        loop.call_soon(loop.stop)

    loop.call_soon(stop)
    loop.run_forever()
    loop.close()
    assert sync_face.call(thread, recolour, "grey") is not None
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # the task of a loop that is closed is lost on purpose
