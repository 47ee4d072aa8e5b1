"""Programs that end, are interrupted or fork while agents run: nothing hangs, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
"""Seconds after which a program that does not end counts as one that hangs."""

SLEEP = 100_000 + os.getpid()
"""Seconds that no other program of the machine sleeps for, so that its process is known by them."""

HEAD = f"""
import asyncio, os, sys, threading, time
import proctor
from proctor import aio, sync

AGENT = proctor.scripted("a", {str(ROOT / "examples" / "hello.ndjson")!r}, shutdown=2.0)
SLEEPER = proctor.process(["sleep", "{SLEEP}"], id="sleeper", shutdown=2.0)

"""

LEFT_OPEN = """
block = sync.open_supervisor([SLEEPER, AGENT])
sup = block.__enter__()
print(sup.agent("a").ask("hi").text, flush=True)
"""

RAISES = """
async def main():
    async with aio.open_supervisor([SLEEPER, AGENT]) as sup:
        print((await sup.agent("a").ask("hi")).text, flush=True)
        raise SystemExit(3)

asyncio.run(main())
"""

INTERRUPTED_PLAIN = """
with sync.open_supervisor([SLEEPER, AGENT]) as sup:
    print(sup.agent("a").ask("hi").text, flush=True)
    sup.wait_stopped()
"""

INTERRUPTED_ASYNCIO = """
async def main():
    async with aio.open_supervisor([SLEEPER, AGENT]) as sup:
        print((await sup.agent("a").ask("hi")).text, flush=True)
        await sup.wait_stopped()

asyncio.run(main())
"""

FORKED = """
print(sync.ask(AGENT, "hi").text, flush=True)
pool = sync.Pool("p")
print(pool.run(AGENT, "hi").text, flush=True)
if (child := os.fork()) == 0:
    status = 1
    try:
        try:
            pool.run(AGENT, "in the child")
        except sync.BridgeClosed as error:
            print(str(error).partition(";")[2], flush=True)
        print(sync.ask(AGENT, "anew").text, flush=True)
        status = 0
    finally:
        if status == 0:
            sys.exit(0)
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(sync.ask(AGENT, "after").text, flush=True)
"""

FORKED_IN_A_BLOCK = """
with sync.open_supervisor([AGENT]) as sup, sup.agent("a").stream("go") as turn:
    next(turn)
    if (child := os.fork()) == 0:
        try:
            for event in turn:
                pass
        except sync.BridgeClosed as error:
            sys.exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    print(turn.finish().text, flush=True)
"""

AFTER_THE_MAIN_THREAD = """
def work():
    threading.main_thread().join()
    for _ in range(3):
        text = sync.ask(AGENT, "from a thread that goes on").text
    print(text, flush=True)

sync.ask(AGENT, "first")
threading.Thread(target=work).start()
"""

IN_A_WORKER = """
def work():
    print(sync.ask(AGENT, "from a worker").text, flush=True)

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def sleepers() -> set[int]:
    """The processes that the programs of this run of the tests have left."""
    found = set[int]()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\x00{SLEEP}\x00".encode():
                found.add(int(path.parent.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    def started(program: str) -> subprocess.Popen[str]:
        path = tmp_path / "program.py"
        path.write_text(HEAD + program)
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
        # from Python 3.12 on a fork of a program with threads warns
        argv = [sys.executable, "-W", "ignore:This process:DeprecationWarning", str(path)]
        return subprocess.Popen(argv, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return started


Start = Callable[[str], "subprocess.Popen[str]"]


def ended(program: subprocess.Popen[str], before: set[int]) -> tuple[int, str, str]:
    """The status and the output of a program, when nothing of it is left."""
    out, err = program.communicate(timeout=PATIENCE)
    until = time.monotonic() + PATIENCE
    while sleepers() - before and time.monotonic() < until:
        time.sleep(0.02)
    assert sleepers() - before == set()
    return program.returncode, out, err


@pytest.mark.parametrize(
    ("program", "status"), [(LEFT_OPEN, 0), (RAISES, 3), (IN_A_WORKER, 0), (AFTER_THE_MAIN_THREAD, 0)]
)
def test_the_end_of_the_program_stops_its_agents(start: Start, program: str, status: int) -> None:
    before = sleepers()
    code, out, err = ended(start(program), before)
    assert (code, err) == (status, "")
    assert out.startswith("Hello! You said: ")


@pytest.mark.parametrize("program", [INTERRUPTED_PLAIN, INTERRUPTED_ASYNCIO], ids=["plain", "asyncio"])
def test_ctrl_c_stops_the_agents_in_order_and_ends_the_program(start: Start, program: str) -> None:
    before = sleepers()
    running = start(program)
    assert running.stdout is not None
    assert running.stdout.readline() == "Hello! You said: hi\n"
    running.send_signal(signal.SIGINT)
    code, _, err = ended(running, before)
    assert code == -signal.SIGINT
    assert err.splitlines()[-1] == "KeyboardInterrupt"


def test_a_fork_within_a_block_leaves_it_to_its_parent(start: Start) -> None:
    code, out, err = ended(start(FORKED_IN_A_BLOCK), sleepers())
    assert (code, out, err) == (0, "Hello! You said: go\n", "")


def test_a_fork_has_a_trio_thread_of_its_own(start: Start) -> None:
    code, out, err = ended(start(FORKED), sleepers())
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "Hello! You said: hi",
        "Hello! You said: hi",
        " this one is a fork of that and opens its own",
        "Hello! You said: anew",
        "Hello! You said: after",
    ]
