"""Hosts that tests start as programs of their own, to kill them, and the families of processes they leave behind."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from proctor.runtime.processes import procfs
from proctor.runtime.processes.orphans import key_of
from proctor.runtime.processes.process import Command, Process, open_process
from tests.runtime.programs import AT_ONCE, ENV, gone

KEY = secrets.token_hex(16)
"""A host's key for made-up ledgers. A sweep looks at the whole machine: two test processes may not share one."""

FAMILY = """
import os, signal, sys, time
def stay(deaf=False):
    if deaf:
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
    time.sleep(60)
def child(body):
    if os.fork() == 0:
        body(); os._exit(0)
def in_own_session(): os.setsid(); stay()
def deaf_pair(): os.setsid(); child(lambda: stay(True)); stay(True)
def daemon():
    os.setsid()
    if os.fork(): os._exit(0)
    stay(True)
for body in (stay, in_own_session, deaf_pair, daemon): child(body)
time.sleep(0.2)
print("ready", flush=True)
"""
FORKER = """
import os, time
until = time.monotonic() + 60  # a test that loses them is to cost a minute, not the machine
def fork_on_and_on():
    while time.monotonic() < until:
        if os.fork(): os._exit(0)
        os.setsid(); time.sleep(0.001)
    os._exit(0)
for _ in range(3):
    if os.fork() == 0: fork_on_and_on()
print("ready", flush=True)
"""

HOST = f"""
import sys, trio
from pathlib import Path
from proctor.runtime.processes.ledger import open_ledger
from proctor.runtime.processes.process import Command, open_process
async def main(folder, program, guarded):
    command = Command((sys.executable, "-I", "-S", program), {ENV!r})
    async with open_ledger(Path(folder)):
        async with open_process(command, guard=guarded == "True") as process:
            print((await process.receive()).decode(), end="", flush=True)
            await trio.sleep_forever()
trio.run(main, *sys.argv[1:])
"""


@asynccontextmanager
async def host(folder: Path, program: str, *, guarded: bool) -> AsyncGenerator[Process]:
    """A host with a ledger in `folder` and one process below it, a Python `program` that says `ready` and stays."""
    (folder / "program.py").write_text(program + "time.sleep(600)")
    words = (str(folder / "hosts"), str(folder / "program.py"), str(guarded))
    env = {**ENV, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    async with open_process(Command((sys.executable, "-c", HOST, *words), env), ladder=AT_ONCE) as victim:
        await ready(victim)
        yield victim


async def ready(process: Process) -> None:
    """Wait until it says so."""
    said = b""
    while b"ready\n" not in said:
        data = await process.receive()
        assert data, f"ended after {said!r}: {process.stderr!r}"
        said += data


async def dead(pids: list[int]) -> None:
    """Wait for the end of processes that are not ours."""
    with trio.fail_after(10):
        for pid in pids:
            await gone(pid)


def key_in(folder: Path) -> str:
    """The key of the one host of this folder."""
    [path] = (folder / "hosts").glob("*.ledger")
    return path.stem


def marked(key: str) -> list[int]:
    """The numbers of all processes that carry a marker of this host's."""
    found: list[int] = []
    for pid in procfs.pids():
        with suppress(PermissionError):
            if key_of(procfs.marker_of(pid) or "") == key:
                found.append(pid)
    return found


async def some_marked(key: str, least: int = 1) -> None:
    """Wait until so many carry one: a look may miss those that fork on while it is taken."""
    with trio.fail_after(10):
        while len(marked(key)) < least:  # noqa: ASYNC110  nobody tells of those who are not ours
            await trio.sleep(0.01)


async def none_marked(key: str) -> None:
    """Wait until nobody carries a marker of this host's."""
    with trio.fail_after(10):
        while marked(key):  # noqa: ASYNC110  nobody tells of the end of those who are not ours
            await trio.sleep(0.01)
