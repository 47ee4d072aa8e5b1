from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from proctor.runtime.exits import ExitReason, ExitStatus, Killed, Normal, Shutdown
from proctor.runtime.processes.process import Command, Process, open_process
from proctor.runtime.processes.stopping import Step
from tests.runtime.belongings import belongings, belongings_at_first
from tests.runtime.programs import AT_ONCE, ENV, QUICK, gone, line, sh

DEAF = "trap '' TERM INT HUP; echo ready; sleep 60 & sleep 60"


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def steps(process: Process) -> list[str]:
    return [what for _, what in process.trace]


both = pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])


@pytest.mark.covers("T19", "C15", "R034", "R033", "R037")
@both
@pytest.mark.parametrize(
    ("script", "reason", "climbed"),
    [
        ("echo ready; cat", Normal(), ["close_stdin"]),
        ("echo ready; cat; exit 9", ExitStatus(code=9), ["close_stdin"]),
        ("echo ready; exec sleep 60", Shutdown("asked"), ["close_stdin", "terminate"]),
        (
            "trap 'exit 143' TERM; echo ready; sleep 60 & wait",
            Shutdown("asked"),
            ["close_stdin", "terminate"],
        ),
        ("trap 'exit 3' TERM; echo ready; sleep 60 & wait", ExitStatus(code=3), ["close_stdin", "terminate"]),
        (DEAF, Killed(), ["close_stdin", "terminate", "kill"]),
    ],
)
async def test_a_stop_goes_up_the_ladder_as_far_as_it_must_and_cleans_up_in_order(  # R0
    script: str, reason: ExitReason, climbed: list[str], guard: bool
) -> None:
    async with open_process(sh(script), ladder=QUICK, guard=guard) as process:
        await line(process)
        assert await process.stop(Shutdown("asked")) == reason
    assert steps(process) == [*climbed, "exited", "group killed", "reaped", "drained", "closed"]
    assert state(process.pid) == "gone"


@pytest.mark.covers("R042")
@both
async def test_leaving_the_block_stops_it(guard: bool) -> None:
    async with open_process(sh(DEAF), ladder=QUICK, guard=guard) as process:
        await line(process)
    assert process.exit == Killed()
    assert state(process.pid) == "gone"
    assert await process.stop() == Killed()
    process.kill()
    process.signal(signal.SIGTERM)


@pytest.mark.covers("R042")
@both
async def test_an_exception_of_the_body_leaves_bare_and_nothing_is_left(guard: bool) -> None:
    held: list[Process] = []

    async def fail() -> None:
        async with open_process(sh("sleep 60"), ladder=AT_ONCE, guard=guard) as process:
            held.append(process)
            raise KeyError("the body's own")

    with pytest.raises(KeyError, match="the body's own"):
        await fail()
    assert state(held[0].pid) == "gone"


async def test_an_exception_of_the_body_is_not_lost_to_a_cancellation_that_comes_while_leaving() -> None:
    held: list[Process] = []
    raised: list[KeyError] = []
    with trio.CancelScope() as scope:
        try:
            async with open_process(sh(DEAF), ladder=QUICK) as process:
                held.append(process)
                await line(process)
                scope.cancel()
                raise KeyError
        except KeyError as error:
            raised.append(error)
    assert (len(raised), held[0].exit) == (1, Killed())


@pytest.mark.covers("T2")
async def test_a_cancellation_that_comes_while_leaving_is_delivered() -> None:
    with trio.CancelScope() as scope:
        async with open_process(sh("sleep 60"), ladder=AT_ONCE):
            scope.cancel()
        raise AssertionError
    assert scope.cancelled_caught


@pytest.mark.covers("L22")
@both
async def test_a_cancelled_body_still_gets_the_whole_ladder(guard: bool) -> None:
    held: list[Process] = []
    with trio.CancelScope() as scope:
        async with open_process(sh(DEAF), ladder=QUICK, guard=guard) as process:
            held.append(process)
            await line(process)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert steps(held[0])[:4] == ["close_stdin", "terminate", "kill", "exited"]


@pytest.mark.covers("L22")
async def test_a_cancelled_stop_goes_on_without_its_caller() -> None:
    async with open_process(sh(DEAF), ladder=QUICK) as process:
        await line(process)
        with trio.move_on_after(0.05) as scope:
            await process.stop()
        assert scope.cancelled_caught
        assert process.exit is None
        with trio.fail_after(30):
            assert await process.wait() == Killed()


@pytest.mark.covers("R043")
async def test_two_stops_a_cancelled_one_and_leaving_are_one_stop() -> None:
    async with open_process(sh(DEAF), ladder=QUICK) as process, trio.open_nursery() as nursery:
        await line(process)
        nursery.start_soon(process.stop)
        nursery.start_soon(process.stop, Shutdown("second"))
        with trio.move_on_after(0.01):
            await process.stop()
    assert steps(process).count("terminate") == steps(process).count("kill") == 1


@pytest.mark.covers("R035", "R036")
async def test_a_stop_of_a_process_that_is_gone_is_no_error() -> None:
    async with open_process(sh("sleep 60")) as process:
        os.kill(process.pid, signal.SIGKILL)
        assert await process.stop() == ExitStatus(signal=9)
        process.terminate()
    assert steps(process)[-5:] == ["exited", "group killed", "reaped", "drained", "closed"]


@pytest.mark.covers("R059")
@both
async def test_a_kill_does_not_wait(guard: bool) -> None:
    async with open_process(sh(DEAF), guard=guard) as process:
        await line(process)
        process.kill()
        process.signal(signal.SIGKILL)
        with trio.fail_after(30):
            assert await process.wait() == Killed()
    assert steps(process)[0] == "exited"


async def test_a_stop_may_bring_a_ladder_of_its_own() -> None:
    script = "trap 'exit 130' INT; echo ready; while :; do sleep 0.05; done"
    async with open_process(sh(script), ladder=()) as process:
        await line(process)
        ladder = (Step("signal", 5, signal=signal.SIGINT),)
        assert await process.stop(ladder=ladder) == Shutdown()
    assert steps(process)[:2] == ["SIGINT", "exited"]


async def test_a_ladder_can_ask_in_the_process_own_words() -> None:
    script = 'echo ready; while read line; do [ "$line" = end ] && exit 0; done; exit 1'
    async with open_process(sh(script), ladder=(Step("write", 5, data=b"end\n"),)) as process:
        await line(process)
    assert process.exit == Normal()
    assert steps(process)[:2] == ["write", "exited"]


@pytest.mark.covers("T19")
async def test_the_stop_signal_is_the_one_configured() -> None:
    script = "trap 'exit 0' HUP; echo ready; while :; do sleep 0.05; done"
    async with open_process(sh(script), ladder=(Step("terminate"),), stop_signal=signal.SIGHUP) as process:
        await line(process)
    assert process.exit == Normal()


@pytest.mark.covers("L27")
async def test_a_process_that_flushes_after_the_end_of_its_input_is_given_the_time(
    tmp_path: Path,
) -> None:
    transcript = tmp_path / "transcript"
    script = f"echo ready; cat >/dev/null; sleep 0.4; echo flushed > {transcript}"
    async with open_process(sh(script)) as process:
        await line(process)
        process.close_stdin()
        await trio.sleep(0.1)
    assert (process.exit, transcript.read_text()) == (Normal(), "flushed\n")


@pytest.mark.covers("T19")
@both
async def test_a_signal_reaches_every_member_of_the_group(guard: bool) -> None:
    heed = "trap 'echo heard' USR2; echo ready; while :; do sleep 0.02; done"
    async with open_process(sh(f"({heed}) & {heed}"), ladder=AT_ONCE, guard=guard) as process:
        said = b""
        while said.count(b"ready") < 2:
            said += await process.receive()
        process.signal(signal.SIGUSR2)
        with trio.fail_after(30):
            while said.count(b"heard") < 2:
                said += await process.receive()


@pytest.mark.covers("T19", "L33")
@pytest.mark.parametrize("leader", ["echo; wait", "echo"], ids=["leader alive", "leader dead"])
async def test_the_group_goes_with_its_leader(leader: str) -> None:  # L3
    script = f"trap '' TERM; sleep 60 & echo $!; sleep 61 & echo $!; {leader}"
    async with open_process(sh(script), ladder=QUICK, drain=0.1) as process:
        said = b""
        while said.count(b"\n") < 3:
            said += await process.receive()
        if leader == "echo":
            await process.wait()
    for pid in said.split():
        await gone(int(pid))


@pytest.mark.covers("T19", "R190", "R031", "R032", "R036")
@both
async def test_after_many_runs_half_of_them_cancelled_nothing_is_left(
    guard: bool,
) -> None:
    ladder = (Step("terminate", 0.1), Step("kill"))

    async def run(number: int, limiter: trio.CapacityLimiter) -> None:
        async with limiter:
            with trio.move_on_after(0.002 * (number % 20) if number % 2 else 10):
                script = "echo one; echo two >&2; sleep 60" if number % 2 else "echo one; cat"
                async with open_process(sh(script), ladder=ladder, guard=guard) as process:
                    await process.receive()
                    if number % 2:
                        await trio.sleep_forever()
                    process.close_stdin()
                    await process.wait()

    before = belongings_at_first()
    async with trio.open_nursery() as nursery:
        limiter = trio.CapacityLimiter(8)
        for number in range(100):
            nursery.start_soon(run, number, limiter)
    assert belongings() == before


@pytest.mark.covers("T5")
async def test_ctrl_c_in_the_body_stops_the_process_and_leaves_as_it_is() -> None:
    host = f"""
import trio
from proctor.runtime.processes.process import Command, open_process
async def main():
    async with open_process(Command(("sh", "-c", "echo $$; exec sleep 60"), {ENV!r})) as process:
        print((await process.receive()).decode(), end="", flush=True)
        with trio.move_on_after(60):  # a test that loses it is to cost a minute, not a core
            while True:
                await trio.sleep(0)
try:
    trio.run(main)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    env = {**ENV, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    async with open_process(Command((sys.executable, "-c", host), env)) as process:
        pid = int(await line(process))
        os.kill(process.pid, signal.SIGINT)
        assert await line(process) == b"interrupted\n"
        assert state(pid) == "gone"
        assert await process.wait() == Normal()
