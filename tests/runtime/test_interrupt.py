from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from proctor.runtime.processes.orphans import find_marked
from proctor.runtime.processes.process import Command, open_process
from tests.runtime.hosts import FAMILY
from tests.runtime.programs import AT_ONCE, ENV

# a, [b, [c, process, busy]], e: three levels of supervisors
PROGRAM = """
import functools, signal, sys, time, trio
from proctor.runtime import Actor, ChildSpec, open_supervisor, run, supervisor_spec
from proctor.runtime.processes.process import Command, open_process
from proctor.runtime.processes.stopping import Step

under, how, patience, program, marker = sys.argv[1:]
say = functools.partial(print, flush=True)

class Child(Actor):
    async def init(self, seconds=0.0):
        say("start", self.id)
        self.seconds = seconds
    async def terminate(self, reason):
        say("stopping", self.id)
        await trio.sleep(self.seconds)
        say("stopped", self.id)

async def busy(up, *, task_status):
    say("start busy")
    task_status.started()
    try:
        while True:
            end = time.perf_counter() + 0.05
            while time.perf_counter() < end:
                if how == "inside" and up.is_set():
                    signal.raise_signal(signal.SIGINT)
            await trio.lowlevel.checkpoint()
    finally:
        say("stopped busy")

async def family(*, task_status):
    command = Command((sys.executable, "-I", "-S", "-c", program), {"PATH": "/usr/bin:/bin"})
    ladder = (Step("close_stdin", 0.1), Step("terminate", 0.5), Step("kill"))
    try:
        async with open_process(command, guard=True, marker=marker, ladder=ladder) as process:
            await process.receive()
            say("start process")
            task_status.started()
            await process.wait()
    finally:
        say("stopped process")

async def main():
    up = trio.Event()
    low = [ChildSpec("c", Child), ChildSpec("process", family), ChildSpec("busy", busy, (up,))]
    mid = [ChildSpec("b", Child), supervisor_spec("low", low)]
    top = [ChildSpec("a", Child), supervisor_spec("mid", mid), ChildSpec("e", Child, (float(patience),), shutdown=1000)]
    try:
        async with open_supervisor(top):
            up.set()
            say("up")
            await trio.sleep_forever()
    finally:
        say("over")

(run if under == "proctor" else trio.run)(main)
"""
STARTED = ["start a", "start b", "start c", "start process", "start busy", "start e", "up"]
C_B_A = ["stopping c", "stopped c", "stopping b", "stopped b", "stopping a", "stopped a", "over"]
E = ["stopping e", "stopped e"]


@pytest.fixture
def marker(tmp_path: Path) -> str:
    return f"{os.getpid()}-{tmp_path.name}"


async def interrupted(
    marker: str, *after: str, under: str, how: str = "outside", patience: float = 0.01
) -> tuple[list[str], int, str]:
    """Lines, status and standard error of the program, sent a SIGINT after each of these lines."""
    words = (under, how, str(patience), FAMILY + "time.sleep(600)", marker)
    env = {**ENV, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    waited, lines, rest = list(after), list[str](), b""
    with trio.fail_after(60):
        async with open_process(
            Command((sys.executable, "-c", PROGRAM, *words), env), ladder=AT_ONCE
        ) as process:
            while data := await process.receive():
                *whole, rest = (rest + data).split(b"\n")
                for line in whole:
                    lines.append(line.decode())
                    if waited and lines[-1] == waited[0]:
                        waited.pop(0)
                        assert find_marked({marker})
                        os.kill(process.pid, signal.SIGINT)
            exit = await process.wait()
    code = getattr(exit, "code", None)
    return lines, -getattr(exit, "signal", 0) if code is None else code, process.stderr.decode()


def is_bare(errors: str) -> bool:
    return errors.rstrip().splitlines()[-1] == "KeyboardInterrupt" and "Group" not in errors


@pytest.mark.covers("T5", "S72")
async def test_ctrl_c_stops_three_levels_in_order_past_a_busy_child(marker: str) -> None:
    lines, code, errors = await interrupted(marker, "up", under="proctor")
    assert lines == [*STARTED, *E, "stopped busy", "stopped process", *C_B_A]
    assert code in (-signal.SIGINT, 130)
    assert is_bare(errors), errors
    assert find_marked({marker}) == ()


@pytest.mark.covers("T5", "S72")
async def test_ctrl_c_inside_a_busy_child_stops_three_levels_in_order(marker: str) -> None:
    lines, code, errors = await interrupted(marker, under="trio", how="inside")
    assert lines == [*STARTED, "stopped busy", *E, "stopped process", *C_B_A]  # not restarted, not escalated
    assert code in (-signal.SIGINT, 130)
    assert is_bare(errors), errors
    assert find_marked({marker}) == ()


@pytest.mark.covers("T5")
async def test_ctrl_c_wherever_it_surfaces_stops_all_and_is_raised_bare(marker: str) -> None:
    lines, code, errors = await interrupted(marker, "up", under="trio")
    assert [line for line in lines if line != "stopped busy"] == [*STARTED, *E, "stopped process", *C_B_A]
    assert lines.count("stopped busy") == 1
    assert code in (-signal.SIGINT, 130)
    assert is_bare(errors), errors
    assert find_marked({marker}) == ()


@pytest.mark.covers("T5")
@pytest.mark.parametrize("under", ["proctor", "trio"])
async def test_a_second_ctrl_c_kills_three_levels_with_their_processes(marker: str, under: str) -> None:
    lines, code, errors = await interrupted(marker, "up", "stopping e", under=under, patience=1000)
    assert {*lines[len(STARTED) :]} == {
        "stopping e",
        "stopped busy",
        "stopped process",
        "over",
    }  # no hook runs
    assert lines[-1] == "over"
    assert code in (-signal.SIGINT, 130)
    assert is_bare(errors), errors
    assert find_marked({marker}) == ()
