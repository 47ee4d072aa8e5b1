"""Functions of the caller, called from Trio."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
import trio

from proctor.bridge import CallerGone, TrioThread, WrongFace, asyncio_face, sync_face
from proctor.bridge.callers import on_loop
from proctor.bridge.workers import in_thread

ROOT = Path(__file__).parents[2]
USER: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


@pytest.fixture
def thread() -> Generator[TrioThread]:
    with TrioThread() as thread:
        yield thread


def test_a_coroutine_runs_in_the_loop_of_its_caller_with_its_variables(thread: TrioThread) -> None:
    async def main() -> tuple[bool, str]:
        loop = asyncio.get_running_loop()
        USER.set("ada")

        async def look(greeting: str) -> tuple[bool, str]:
            await asyncio.sleep(0)
            return asyncio.get_running_loop() is loop, f"{greeting} {USER.get()}"

        return await asyncio_face.call(thread, on_loop(look), "hello")

    assert asyncio.run(main()) == (True, "hello ada")


def test_a_plain_function_runs_in_a_worker_thread_and_may_call_back(thread: TrioThread) -> None:
    USER.set("ada")

    async def double(number: int) -> int:
        return 2 * number

    def look(number: int) -> tuple[str, int, bool]:
        inside = threading.current_thread() is threading.main_thread()
        return USER.get(), sync_face.call(thread, double, number), inside

    assert sync_face.call(thread, in_thread(look), 4) == ("ada", 8, False)


def test_an_error_of_the_function_is_raised_in_its_agent(thread: TrioThread) -> None:
    async def wrong() -> None:
        raise LookupError("not there")

    async def main() -> None:
        await asyncio_face.call(thread, on_loop(wrong))

    with pytest.raises(LookupError, match="not there"):
        asyncio.run(main())


def test_a_withdrawn_call_cancels_the_coroutine_and_waits_for_its_clean_up(thread: TrioThread) -> None:
    steps: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    async def withdrawn() -> None:
        with trio.move_on_after(0.02):
            await on_loop(slow)()
        steps.append("went on")

    async def main() -> None:
        await asyncio_face.call(thread, withdrawn)

    asyncio.run(main())
    assert steps == ["cleaned up", "went on"]


def test_the_end_of_the_loop_ends_the_call(thread: TrioThread) -> None:
    began = threading.Event()

    async def slow() -> None:
        began.set()
        await asyncio.Event().wait()

    found: list[BaseException] = []

    async def tool() -> None:
        try:
            await on_loop(slow)()
        except CallerGone as error:
            found.append(error)
        try:
            while True:
                await on_loop(slow)()
        except CallerGone as error:
            found.append(error)

    async def main() -> None:
        thread.submit(lambda outcome: ended.set(), tool, _context_of(asyncio.get_running_loop()))
        await asyncio.to_thread(began.wait)

    ended = threading.Event()
    asyncio.run(main())
    assert ended.wait(5)
    assert {str(error) for error in found} <= {"its event loop cancelled it", "its event loop has ended"}
    assert len(found) == 2


def _context_of(loop: asyncio.AbstractEventLoop) -> contextvars.Context:
    from proctor.bridge.callers import LOOP

    context = contextvars.copy_context()
    context.run(LOOP.set, loop)
    return context


async def test_a_coroutine_for_asyncio_says_so_in_trio() -> None:
    async def add() -> None: ...

    with pytest.raises(WrongFace, match="'add' is for asyncio"):
        await on_loop(add)()


def test_plain_programs_load_no_asyncio() -> None:
    program = "import sys; from proctor import sync; sync.ask, sync.tool, sync.Pool; print('asyncio' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
