from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.fakes.messages_api import MessagesApi
from tests.fakes.steps import Text
from tests.real.conftest import Cli, newest_claude
from tests.real.homes import ClaudeHome

MEGABYTE = 1_000_000
ANSWER = 60 * MEGABYTE
PAUSE = float(os.environ.get("PROCTOR_SLOW_READER", "8"))
"""Seconds the reader sleeps in mid-stream."""


def resident(pid: int, field: str) -> int:
    """A line of /proc/PID/status, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


@pytest.mark.covers("R053")
@newest_claude
async def test_a_reader_that_sleeps_gets_every_byte_and_costs_no_memory(
    claude_cli: Cli, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    answer = Text(size=ANSWER)
    messages_api.play(answer)
    words = [
        "run",
        "claude",
        "write a very long book",
        "--executable",
        str(claude_cli.path),
        "--timeout",
        "300",
    ]
    named = [word for name, value in claude_home.environment.items() for word in ("--env", f"{name}={value}")]
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "proctor", *words, *named, "--cwd", str(claude_home.work), "--no-record"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=claude_home.environment,
    )
    stdout, stderr = process.stdout, process.stderr
    assert stdout is not None
    assert stderr is not None
    with trio.fail_after(PAUSE + 240):
        received = bytearray(await stdout.receive_some(65536))
        before = resident(process.pid, "VmRSS")
        while len(received) < MEGABYTE:
            received += await stdout.receive_some(65536)
        await trio.sleep(PAUSE)
        peak = before
        while chunk := await stdout.receive_some(1 << 20):
            received += chunk
            peak = resident(process.pid, "VmHWM")
        told = b"".join([part async for part in stderr])
        assert await process.wait() == 0, told
    assert received.decode() == answer.whole() + "\n"
    assert peak - before < 64 * MEGABYTE
    assert claude_home.leftovers() == []
