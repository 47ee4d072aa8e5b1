"""What is asked of processes and is not a matter of one function. Real processes: they are the subject."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from proctor.runtime import open_supervisor, process, supervisor_spec
from proctor.runtime.exits import Killed, Normal, Shutdown
from proctor.runtime.processes.outputs import LEFTOVER_LIMIT
from proctor.runtime.processes.process import Command, open_process
from proctor.runtime.processes.stopping import Step
from proctor.runtime.spec import ChildSpec
from tests.runtime.programs import ENV, QUICK, appears, everything, gone, python, sh

MEGABYTE = 1_000_000
LOUD = "import os; [os.write({fd}, b'x' * {size}) for _ in range(50)]; os.write({fd}, b'the end')"

ROOT = Path(__file__).parents[2]
AS_PROCESS_ONE = """
import ctypes, os, trio
from proctor.runtime.processes.process import Command, open_process
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # orphans come to us, as they do to process one
async def one(limit):
    async with limit, open_process(Command(("sh", "-c", "(setsid sleep 60 &) ; exit 0"), {{"PATH": os.environ["PATH"]}}), guard=True) as p:
        await p.wait()
async def main():
    limit = trio.CapacityLimiter(8)
    async with trio.open_nursery() as nursery:
        for _ in range({agents}):
            nursery.start_soon(one, limit)
trio.run(main)
try:
    print("left", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("nobody")
"""
AGENTS = int(os.environ.get("PROCTOR_REQUIREMENTS_AGENTS", "24"))
"""Asked for: 100. In the gate fewer; each is three processes."""


@pytest.mark.covers("P02")
async def test_a_leaf_that_is_killed_changes_nothing_outside_of_its_supervisor(tmp_path: Path) -> None:
    def leaf(name: str) -> ChildSpec:
        return process(["sh", "-c", f"echo $$ >> {tmp_path}/{name}; exec sleep 60"], id=name, shutdown=1)

    left = supervisor_spec("left", [leaf("a"), leaf("b")], strategy="one_for_all", intensity=3, period=60)
    right = supervisor_spec("right", [leaf("c"), leaf("d")])
    async with open_supervisor([left, right]):
        for name in "abcd":
            await appears(tmp_path / name)
        before = {name: (tmp_path / name).read_text() for name in "abcd"}
        os.kill(int(before["a"]), signal.SIGKILL)
        with trio.fail_after(10):
            while any((tmp_path / name).read_text() == before[name] for name in "ab"):  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert {name: (tmp_path / name).read_text() for name in "cd"} == {n: before[n] for n in "cd"}
        for name in "cd":
            os.kill(int(before[name]), 0)


@pytest.mark.covers("R054", "R055", "R056", "R057", "C11", "C13")
async def test_fifty_megabytes_that_nobody_reads_harm_nobody_and_are_counted() -> None:
    loud = python(LOUD.format(fd=1, size=MEGABYTE))
    with trio.fail_after(30):
        async with open_process(loud, ladder=(Step("close_stdin", 25), Step("kill"))) as process_:
            pass
    kept = await everything(process_)
    assert process_.exit == Normal()
    assert len(kept) == LEFTOVER_LIMIT < 10 * MEGABYTE
    assert len(kept) + process_.discarded == 50 * MEGABYTE + len(b"the end")


@pytest.mark.covers("R054", "R055", "R057", "C11")
async def test_fifty_megabytes_on_stderr_keep_their_end_and_their_size() -> None:
    with trio.fail_after(30):
        async with open_process(python(LOUD.format(fd=2, size=MEGABYTE)), stderr_limit=1000) as process_:
            assert await process_.wait() == Normal()
    assert (len(process_.stderr), process_.stderr[-7:]) == (1000, b"the end")
    assert process_.stderr_total == 50 * MEGABYTE + len(b"the end")


@pytest.mark.covers("C16")
async def test_one_that_has_closed_its_output_and_lives_on_is_stopped_by_a_signal() -> None:
    async with open_process(
        sh("echo up; exec >&- 2>&-; trap 'exit 0' TERM; sleep 60 & wait"), ladder=QUICK
    ) as process_:
        assert await everything(process_) == b"up\n"
        assert process_.exit is None
    assert process_.exit in (Normal(), Shutdown())


@pytest.mark.covers("C15")
async def test_one_that_is_deaf_to_everything_is_killed() -> None:
    async with open_process(sh("trap '' TERM; echo up; while :; do sleep 1; done"), ladder=QUICK) as process_:
        assert await process_.receive() == b"up\n"
    assert process_.exit == Killed()
    await gone(process_.pid)


@pytest.mark.covers("C24")
async def test_starts_at_the_same_time_have_each_their_own_environment() -> None:
    ours = dict(os.environ)
    told = dict[int, bytes]()

    async def start(number: int) -> None:
        command = Command(("sh", "-c", "echo $WHO $OTHER"), {**ENV, "WHO": f"{number}"})
        async with open_process(command) as process_:
            told[number] = await everything(process_)

    async with trio.open_nursery() as nursery:
        for number in range(16):
            nursery.start_soon(start, number)
    assert told == {number: f"{number}\n".encode() for number in range(16)}
    assert dict(os.environ) == ours


@pytest.mark.covers("L17")
def test_as_process_one_it_leaves_nobody_unreaped() -> None:
    program = AS_PROCESS_ONE.format(agents=AGENTS)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert (done.stdout, done.stderr) == ("nobody\n", "")
