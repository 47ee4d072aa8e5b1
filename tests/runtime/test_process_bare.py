from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio
import trio.testing

from proctor.runtime.exits import ExitStatus, Killed, Normal, Shutdown
from proctor.runtime.processes.process import Command, Process, open_process
from proctor.runtime.processes.stopping import Step
from tests.runtime.belongings import children, descriptors, descriptors_at_first, tasks
from tests.runtime.programs import AT_ONCE, ENV, appears, gone


def bare(script: str) -> Command:
    """A program without any pipe."""
    return Command(("sh", "-c", script), ENV, stdin="null", stdout="null", stderr="null")


async def test_a_process_without_pipes_needs_no_task_while_it_runs() -> None:
    before = tasks()
    async with open_process(bare("exec sleep 60"), ladder=AT_ONCE):
        assert tasks() == before


@pytest.mark.covers("T19")
@pytest.mark.parametrize(
    ("script", "reason"),
    [("exit 0", Normal()), ("exit 3", ExitStatus(code=3)), ("kill -9 $$", ExitStatus(signal=9))],
)
async def test_several_tasks_wait_for_one_exit_without_a_pipe(script: str, reason: object) -> None:
    seen: list[object] = []

    async def wait(process: Process) -> None:
        seen.append(await process.wait())

    with trio.fail_after(30):
        async with open_process(bare(f"sleep 0.1; {script}")) as process, trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait, process)
    assert seen == [reason] * 3


@pytest.mark.covers("T19")
async def test_of_several_waiting_tasks_the_first_may_be_cancelled() -> None:
    seen: list[object] = []

    async def wait(process: Process) -> None:
        seen.append(await process.wait())

    async with open_process(bare("exec sleep 60")) as process, trio.open_nursery() as nursery:
        first = trio.CancelScope()
        nursery.start_soon(_within, first, process)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(wait, process)
        nursery.start_soon(wait, process)
        await trio.testing.wait_all_tasks_blocked()
        first.cancel()
        await trio.testing.wait_all_tasks_blocked()
        os.kill(process.pid, signal.SIGKILL)
        with trio.fail_after(30):
            await process.wait()
    assert seen == [ExitStatus(signal=9)] * 2


async def _within(scope: trio.CancelScope, process: Process) -> None:
    with scope:
        await process.wait()


async def test_who_waits_is_told_when_somebody_else_stops_and_reaps_it() -> None:
    seen: list[object] = []

    async def wait(process: Process) -> None:
        seen.append(await process.wait())

    async with trio.open_nursery() as nursery:
        async with open_process(bare("exec sleep 60"), ladder=(Step("terminate"),)) as process:
            nursery.start_soon(wait, process)
            await trio.testing.wait_all_tasks_blocked()
        assert process.exit == Shutdown()
    assert seen == [Shutdown()]


async def test_the_exit_is_there_without_anybody_waiting() -> None:
    async with open_process(bare("exit 7")) as process:
        watch = os.pidfd_open(process.pid)
        await trio.lowlevel.wait_readable(watch)
        os.close(watch)
        assert process.exit == ExitStatus(code=7)
        assert await process.wait() == ExitStatus(code=7)


@pytest.mark.covers("T19")
async def test_a_signal_that_comes_after_the_death_does_not_explain_it() -> None:
    async with open_process(bare("kill -15 $$")) as process:
        watch = os.pidfd_open(process.pid)
        await trio.lowlevel.wait_readable(watch)
        os.close(watch)
        process.terminate()
        process.kill()
        assert await process.stop() == ExitStatus(signal=15)


@pytest.mark.covers("L22")
async def test_a_cancelled_stop_goes_on_without_its_caller_and_without_pipes(tmp_path: Path) -> None:
    ladder = (Step("terminate", 1), Step("kill"))
    deaf = bare(f"trap '' TERM; echo > {tmp_path}/deaf; while :; do sleep 0.05; done")
    async with open_process(deaf, ladder=ladder) as process:
        await appears(tmp_path / "deaf")
        with trio.move_on_after(0.05) as scope:
            await process.stop()
        assert scope.cancelled_caught
        assert process.exit is None
        with trio.fail_after(30):
            assert await process.wait() == Killed()


async def test_output_goes_to_a_file_and_is_added_to_what_is_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for number in range(2):
        command = Command(
            ("sh", "-c", f"echo {number}; echo e{number} >&2"), ENV, stdin="null", stdout=log, stderr=log
        )
        async with open_process(command) as process:
            assert await process.wait() == Normal()
    assert log.read_text().split() == ["0", "e0", "1", "e1"]
    assert log.stat().st_mode & 0o777 == 0o600


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    before = descriptors_at_first()
    command = Command(("true",), ENV, stdin="null", stdout=tmp_path / "no" / "log")
    with pytest.raises(Exception, match=r"its output cannot go to '.*/no/log': No such file or directory"):
        async with open_process(command):
            pass
    assert descriptors() == before


async def test_output_is_inherited_by_choice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    saved, fd = os.dup(1), os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(fd, 1)
    try:
        command = Command(("echo", "hers"), ENV, stdin="null", stdout="inherit", stderr="null")
        async with open_process(command) as process:
            await process.wait()
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(fd)
    assert log.read_text() == "hers\n"


async def test_all_of_stdout_goes_to_its_callback_as_it_comes() -> None:
    got: list[bytes] = []
    command = Command(("sh", "-c", "echo one; sleep 0.1; printf two"), ENV, stdin="null")
    async with open_process(command, on_stdout=got.append) as process:
        assert await process.wait() == Normal()
    assert b"".join(got) == b"one\ntwo"


@pytest.mark.covers("T19")
async def test_a_group_left_behind_without_pipes_goes_with_its_leader(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    async with open_process(bare(f"sleep 60 & echo $! > {note}")) as process:
        await process.wait()
    await gone(int(note.read_text()))


async def test_a_thousand_runs_without_pipes_leave_nothing() -> None:
    before, others = descriptors_at_first(), children()
    limiter = trio.CapacityLimiter(32)

    async def run() -> None:
        async with limiter, open_process(bare("exit 0")) as process:
            await process.wait()

    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(run)
    assert descriptors() == before
    assert children() == others
