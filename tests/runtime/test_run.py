from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial

import pytest
import trio

from proctor.runtime import run
from tests.runtime.stage import Boom

PROGRAM = """
import sys, trio
from proctor.runtime import Actor, ChildSpec, open_supervisor, run

class Child(Actor):
    async def init(self, seconds):
        self.seconds = seconds
    async def terminate(self, reason):
        print("stopping", self.id, flush=True)
        await trio.sleep(self.seconds)
        print("stopped", self.id, flush=True)

async def main(seconds):
    children = [ChildSpec(id, Child, (seconds,), shutdown=1000) for id in "ab"]
    try:
        async with open_supervisor(children):
            print("up", flush=True)
            await trio.sleep_forever()
    finally:
        print("over", flush=True)

(run if sys.argv[2] == "proctor" else trio.run)(main, float(sys.argv[1]))
"""


async def interrupted(
    seconds: float, *signals: signal.Signals, under: str = "proctor"
) -> tuple[list[str], int, str]:
    """Output, exit code and standard error of the program, sent one signal per line of its output."""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            argv = [sys.executable, "-c", PROGRAM, str(seconds), under]
            pipe = subprocess.PIPE
            start = partial(
                trio.run_process, argv, check=False, stdout=pipe, stderr=pipe, capture_stderr=False
            )
            process: trio.Process = await nursery.start(start)
            return await _talk(process, list(signals))


async def _talk(process: trio.Process, signals: list[signal.Signals]) -> tuple[list[str], int, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    seen = b""
    async for chunk in process.stdout:
        seen += chunk
        if signals and chunk.endswith(b"\n"):  # a line may come in two pieces
            process.send_signal(signals.pop(0))
    errors = b"".join([chunk async for chunk in process.stderr])
    return seen.decode().split("\n")[:-1], await process.wait(), errors.decode()


STOPPED = ["up", "stopping b", "stopped b", "stopping a", "stopped a", "over"]


@pytest.mark.covers("T5")
@pytest.mark.parametrize("under", ["proctor", "trio"])
async def test_ctrl_c_stops_in_order_and_is_raised_bare(under: str) -> None:
    lines, code, errors = await interrupted(0.01, signal.SIGINT, under=under)
    assert lines == STOPPED
    assert code in (-signal.SIGINT, 130)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert "Group" not in errors


@pytest.mark.covers("T5")
async def test_sigterm_stops_in_order_and_exits_with_143() -> None:
    assert await interrupted(0.01, signal.SIGTERM) == (STOPPED, 143, "")


@pytest.mark.covers("T5")
@pytest.mark.parametrize("under", ["proctor", "trio"])
async def test_a_second_ctrl_c_kills(under: str) -> None:
    lines, code, _ = await interrupted(1000, signal.SIGINT, signal.SIGINT, under=under)
    assert lines == ["up", "stopping b", "over"]
    assert code in (-signal.SIGINT, 130)


def test_run_returns_what_main_returns() -> None:
    async def main(a: int, b: int) -> int:
        await trio.lowlevel.checkpoint()
        return a + b

    assert run(main, 1, 2) == 3


def test_run_raises_what_main_raises() -> None:
    async def main() -> None:
        raise Boom("main")

    with pytest.raises(Boom, match="main"):
        run(main)
