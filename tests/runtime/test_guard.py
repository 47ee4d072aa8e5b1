from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest
import trio

from proctor.runtime.exits import ExitReason, ExitStatus, Killed, Normal, Shutdown
from proctor.runtime.processes import guard
from proctor.runtime.processes.process import Command, Process, open_process
from proctor.runtime.processes.process_errors import CwdMissing, NotFound, ProcessGone, SpawnFailed
from proctor.runtime.processes.stopping import Step
from tests.runtime.hosts import FAMILY, FORKER, dead, host, key_in, marked, none_marked, ready, some_marked
from tests.runtime.programs import ENV, QUICK, python, sh

GUARD = str(Path(guard.__file__))


@pytest.fixture
def marker(request: pytest.FixtureRequest) -> str:
    return f"{os.getpid()}-{request.node.name}".replace("/", "-")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 0", Normal()),
        ("exit 77", ExitStatus(code=77)),
        ("exit 127", ExitStatus(code=127)),
        ("kill -9 $$", ExitStatus(signal=9)),
        ("kill -TERM $$", ExitStatus(signal=15)),
        ("kill -SEGV $$", ExitStatus(signal=11)),
        ("kill -PIPE $$", ExitStatus(signal=13)),
        ("kill -USR1 $$", ExitStatus(signal=10)),
    ],
)
async def test_the_exit_is_the_programs_own(script: str, reason: ExitReason) -> None:
    async with open_process(sh(script), guard=True) as process:
        assert await process.wait() == reason


@pytest.mark.covers("L33")
@pytest.mark.parametrize("program", [FAMILY, FORKER], ids=["family", "forking daemons"])
@pytest.mark.parametrize("how", ["kill", "stop", "exit", "program killed"])
async def test_nothing_survives_whatever_session_it_hides_in(marker: str, program: str, how: str) -> None:
    last = "" if how == "exit" else "time.sleep(60)"
    async with open_process(python(program + last), guard=True, marker=marker, ladder=QUICK) as process:
        await ready(process)
        match how:
            case "kill":
                process.kill()
            case "stop":
                await process.stop()
            case "program killed":
                os.kill(process.leader_pid, signal.SIGKILL)
            case _:
                pass
        with trio.fail_after(10):
            reason = await process.wait()
        assert marked(marker) == []
    expected = {
        "kill": Killed(),
        "stop": Shutdown(),
        "exit": Normal(),
        "program killed": ExitStatus(signal=9),
    }
    assert reason == expected[how]


@pytest.mark.covers("L23")
@pytest.mark.parametrize("program", [FAMILY, FORKER], ids=["family", "forking daemons"])
async def test_nothing_survives_a_runtime_that_is_killed(tmp_path: Path, program: str) -> None:
    async with host(tmp_path, program, guarded=True) as victim:
        key = key_in(tmp_path)
        await some_marked(key, 2)
        os.kill(victim.pid, signal.SIGKILL)
        await none_marked(key)


async def test_nothing_survives_a_runtime_that_is_killed_while_its_guard_is_stopped(tmp_path: Path) -> None:
    async with host(tmp_path, FAMILY, guarded=True) as victim:
        key = key_in(tmp_path)
        await some_marked(key, 2)
        for pid in marked(key):  # a stopped guard sees no end of its runtime
            os.kill(pid, signal.SIGSTOP)
        os.kill(victim.pid, signal.SIGKILL)
        await none_marked(key)


async def test_the_program_dies_with_a_guard_that_is_killed() -> None:
    async with open_process(sh("echo ready; sleep 60"), guard=True) as process:
        await ready(process)
        program = process.leader_pid
        os.kill(process.pid, signal.SIGKILL)
        assert await process.wait() == ExitStatus(signal=9)
        await dead([program])


async def test_the_program_is_the_guards_child() -> None:
    async with open_process(sh("echo ready; read x"), guard=True) as process:
        await ready(process)
        assert guard.tree(process.pid) == [process.leader_pid]
        assert guard.children_by_scan()(process.pid) == [process.leader_pid]
        assert process.pid in guard.children_by_scan()(os.getpid())


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "WINCH", "TSTP"])
async def test_a_signal_to_the_group_is_the_programs_business(name: str) -> None:
    script = f"trap 'echo got; exit 5' {name}; echo ready; while :; do sleep 0.02; done"
    async with open_process(sh(script), guard=True) as process:
        await ready(process)
        process.signal(getattr(signal, f"SIG{name}"))
        assert await process.wait() == ExitStatus(code=5)
        assert await process.receive() == b"got\n"


async def test_a_frozen_guard_is_woken_to_kill(marker: str) -> None:
    async with open_process(python(FAMILY + "time.sleep(60)"), guard=True, marker=marker) as process:
        await ready(process)
        process.signal(signal.SIGSTOP)
        process.kill()
        with trio.fail_after(10):
            assert await process.wait() == Killed()
        assert marked(marker) == []


@pytest.mark.covers("T10")
async def test_a_guard_that_does_not_answer_is_killed_with_the_group() -> None:
    told: list[float] = []
    ladder = (Step("kill", 0.2),)
    script = "echo ready; sleep 60"
    async with open_process(sh(script), guard=True, ladder=ladder, on_unresponsive=told.append) as process:
        await ready(process)
        process.kill_sent = True  # as if the request had been lost
        assert await process.stop() == Killed()
    assert len(told) == 1


@pytest.mark.covers("R040")
async def test_the_end_of_the_output_is_the_programs_doing() -> None:
    async with open_process(sh("exec >&- 2>&-; read line; exit 5"), guard=True) as process:
        assert await process.receive() == b""
        assert process.exit is None
        await process.send(b"go\n")
        assert await process.wait() == ExitStatus(code=5)


@pytest.mark.parametrize(
    ("runtime", "command", "code", "said"),
    [
        (None, "no-such-program", 127, "proctor guard: no-such-program: No such file or directory\n"),
        (None, "/etc/passwd", 126, "proctor guard: /etc/passwd: Permission denied\n"),
        (1, "true", 125, ""),
        (None, "true", 0, ""),
    ],
    ids=["not there", "not executable", "of a runtime that is gone", "good"],
)
def test_a_guard_by_itself_says_why_it_starts_nothing(
    runtime: int | None, command: str, code: int, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", GUARD, str(runtime or os.getpid()), command],
        capture_output=True,
        text=True,
        env=ENV,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, said)


async def test_an_error_of_a_guarded_program_has_the_pid_of_the_program_and_not_of_its_guard() -> None:
    async with open_process(sh("exit 3"), guard=True) as process:
        program = process.leader_pid
        await process.wait()
        with pytest.raises(ProcessGone, match=rf"pid {program}, after") as caught:
            await process.send(b"x")
        assert (caught.value.pid, caught.value.pid != process.pid) == (program, True)


async def test_a_program_that_its_guard_could_not_start_has_no_pid() -> None:
    born = list[Process]()
    nowhere = attrs.evolve(sh("exit 0"), cwd="/nowhere")
    with pytest.raises(CwdMissing) as caught:
        async with open_process(nowhere, guard=True, on_birth=born.append):
            pass
    with pytest.raises(NotFound) as missing:
        async with open_process(Command(("no-such-program",), ENV), guard=True, on_birth=born.append):
            pass
    assert (caught.value.pid, missing.value.pid, len(born)) == (None, None, 1)


@pytest.mark.parametrize("delay", [0.0, 0.03, 0.06], ids=str)
async def test_a_guard_that_is_stopped_while_it_starts_the_program_does_not_hang_its_owner(
    marker: str, delay: float
) -> None:
    def stop(process: Process) -> None:
        time.sleep(delay)  # the guard's interpreter starts meanwhile; this loop is not to see its report
        os.kill(process.pid, signal.SIGSTOP)

    refusal = ""
    with trio.fail_after(20):
        try:
            async with open_process(
                python(FAMILY + "time.sleep(60)"), guard=True, marker=marker, on_birth=stop, ladder=QUICK
            ) as process:
                assert process.leader_pid != process.pid  # its report was before the stop
        except SpawnFailed as error:
            refusal = str(error)
    assert not refusal or "the guard was stopped" in refusal
    await none_marked(marker)
