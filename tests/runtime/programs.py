"""Programs that several tests of processes start, and how those tests wait for them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

from proctor.runtime.processes.process import Command, Process
from proctor.runtime.processes.stopping import Step

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
QUICK = (Step("close_stdin", 0.2), Step("terminate", 0.2), Step("kill"))
AT_ONCE = (Step("kill"),)


def sh(script: str) -> Command:
    return Command(("sh", "-c", script), ENV)


def python(program: str) -> Command:
    return Command((sys.executable, "-I", "-S", "-c", program), ENV)


def installed(path: Path, script: str = "", *, mode: int = 0o755) -> Path:
    """A program at this path, in the shell's words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(mode)
    return path


async def line(process: Process) -> bytes:
    """What it says up to the end of a line; a process that ends before is an error with its stderr."""
    said = b""
    while not said.endswith(b"\n"):
        data = await process.receive()
        assert data, f"ended after {said!r}: {process.stderr!r}"
        said += data
    return said


async def everything(process: Process) -> bytes:
    """All that it says until it ends."""
    said = b""
    while data := await process.receive():
        said += data
    return said


async def gone(pid: int) -> None:
    """Wait for the end of a process that is not ours."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with trio.fail_after(10):
        await trio.lowlevel.wait_readable(watch)
    os.close(watch)


def filled(path: Path) -> bool:
    """Whether there is a file with something in it."""
    return path.exists() and path.stat().st_size > 0


async def appears(path: Path) -> None:
    """Wait for a file that a process of ours makes, with something in it."""
    with trio.fail_after(10):
        while not filled(path):  # noqa: ASYNC110  # nobody tells
            await trio.sleep(0.01)
