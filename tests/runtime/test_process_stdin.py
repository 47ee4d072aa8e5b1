"""What a writer hears of a process that is ending: its exit, whichever of pipe and status the system shows first."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from proctor.runtime.exits import ExitStatus
from proctor.runtime.processes.process import Process, open_process
from proctor.runtime.processes.process_errors import ProcessGone, StdinClosed
from tests.runtime.programs import AT_ONCE, line, sh

TRIES = 200


async def refusal(process: Process, message: bytes = b"x") -> ProcessGone | StdinClosed:
    """The error of the first message that is refused; those before went into the pipe of a living process."""
    while True:
        try:
            await process.send(message)
        except (ProcessGone, StdinClosed) as error:
            return error


def verdict(error: ProcessGone | StdinClosed) -> str:
    return f"ProcessGone {error.exit}" if isinstance(error, ProcessGone) else f"StdinClosed {error}"


@pytest.mark.covers("T19")
@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
async def test_writing_to_a_process_that_has_just_ended_names_its_exit_every_time(guard: bool) -> None:
    verdicts: Counter[str] = Counter()
    for _ in range(TRIES if not guard else TRIES // 10):
        async with open_process(sh("exit 7"), guard=guard) as process:
            verdicts[verdict(await refusal(process))] += 1
    assert set(verdicts) == {f"ProcessGone {ExitStatus(code=7)}"}, verdicts


@pytest.mark.covers("T19")
async def test_each_of_several_writers_at_the_exit_hears_of_the_exit() -> None:
    verdicts: Counter[str] = Counter()

    async def write(process: Process) -> None:
        verdicts[verdict(await refusal(process))] += 1

    for _ in range(TRIES // 4):
        async with open_process(sh("exit 7")) as process, trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(write, process)
    assert verdicts == {f"ProcessGone {ExitStatus(code=7)}": TRIES}


@pytest.mark.covers("T19")
async def test_a_message_that_is_half_taken_at_the_exit_names_the_exit() -> None:
    verdicts: Counter[str] = Counter()
    for _ in range(TRIES // 4):
        async with open_process(sh("head -c 100000 >/dev/null; exit 7")) as process:
            verdicts[verdict(await refusal(process, bytes(1_000_000)))] += 1
    assert verdicts == {f"ProcessGone {ExitStatus(code=7)}": TRIES // 4}


@pytest.mark.covers("T19")
async def test_writing_after_our_own_end_of_input_to_a_process_that_ends_names_the_exit() -> None:
    verdicts: Counter[str] = Counter()
    for _ in range(TRIES // 4):
        async with open_process(sh("exec >&-; read x; exit 7")) as process:
            process.close_stdin()
            while await process.receive():
                pass
            while isinstance(error := await refusal(process), StdinClosed):
                await trio.lowlevel.checkpoint()  # it lives: it has closed its output only
            verdicts[verdict(error)] += 1
    assert verdicts == {f"ProcessGone {ExitStatus(code=7)}": TRIES // 4}


async def test_a_living_process_that_closed_its_stdin_is_told_to_every_writer_as_that() -> None:
    async with open_process(sh("exec <&-; echo closed; exec sleep 60"), ladder=AT_ONCE) as process:
        await line(process)
        for _ in range(3):
            error = await refusal(process)
            assert isinstance(error, StdinClosed)
            assert "the process closed its end" in str(error)
        assert process.exit is None
