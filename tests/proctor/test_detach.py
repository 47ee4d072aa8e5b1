"""`proctor up --detach`: a fleet in the background, which the verbs reach when the command returns."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proctor.command import (
    PATIENCE,
    PROCTOR,
    Terminal,
    environment,
    once,
    processes_with,
    proctor,
    proctor_process,
    running,
    wait_for,
)
from tests.proctor.scripts import ANSWERS, HANGS, Fleet, agent


@pytest.fixture(autouse=True)
def leaves_nothing(tmp_path: Path) -> Iterator[None]:
    yield
    for pid in processes_with(str(tmp_path / "fleet.toml")):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_fleet_in_the_background_is_reached_and_outlives_its_command(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"', prompt='"x"'), a=HANGS)
    done = proctor_process("up", "-d", str(path), home=home)
    assert (done.status, done.err) == (0, "")
    found = re.match(r"fleet runs in process (\d+); its output: (.+)\n", done.out)
    assert found is not None
    pid, log = int(found[1]), Path(found[2])
    assert os.getsid(pid) == pid
    assert "asked: x" in log.read_text()
    assert str(pid) in proctor("ls", home=home).out
    assert " a " in proctor("ps", home=home).out.replace("\n", " ")
    again = proctor_process("up", "-d", str(path), home=home)
    assert again.status == 1
    assert f"is running already (process {pid})" in again.err
    os.kill(pid, signal.SIGTERM)
    once(lambda: not processes_with(str(path)))
    assert "agent  result" in log.read_text()


@pytest.mark.parametrize(
    ("script", "status", "why"),
    [("missing", 2, "missing.ndjson: cannot be read"), ("crash", 1, "a could not start: ")],
)
def test_a_fleet_that_does_not_start_says_why_and_gives_its_status(
    script: str, status: int, why: str, home: Path, fleet: Fleet
) -> None:
    # the fault comes before the greeting
    path = fleet(
        agent("a", script=f'"{script}.ndjson"', prompt='"x"', faults='["exit@turn=0@line=0"]'), crash=ANSWERS
    )
    done = proctor_process("up", "--detach", "--strict", str(path), home=home)
    assert (done.status, done.out) == (status, "")
    assert why in done.err


def test_an_answer_of_a_fleet_that_ended_meanwhile_is_in_its_output(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"', prompt='"x"'), a=ANSWERS)
    done = proctor_process("up", "-d", str(path), home=home)
    # it may have ended before it could be reached: then its output is shown, and its status is that of the command
    log = wait_for(home, "state/proctor/fleets/*.log")
    once(lambda: not processes_with(str(path)))
    assert done.status == 0
    assert "All is well, x" in log.read_text()


def test_a_terminal_that_closes_ends_a_fleet_and_the_next_one_continues_it(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"', prompt='"x"'), a=HANGS)
    with Terminal(["up", str(path)], home) as terminal:
        once(lambda: "working" in proctor("ps", home=home).out)
        os.close(terminal.fd)
        assert terminal.process.wait(PATIENCE) == 128 + signal.SIGHUP
        terminal.fd = os.open(os.devnull, os.O_RDONLY)  # for its end
    with running("up", str(path), home=home) as command:
        command.said(b"continues the run of")


@pytest.mark.parametrize("under", ["trap '' HUP", 'exec setsid "$@"'], ids=["nohup", "setsid"])
def test_a_fleet_that_is_not_to_notice_a_closed_terminal_goes_on(
    under: str, home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    path = fleet(agent("a", script='"a.ndjson"', prompt='"x"'), a=HANGS)
    words = ["sh", "-c", f'{under}; exec "$@"', "sh", *PROCTOR, "up", str(path)]
    outer, inner = os.openpty()
    log = (tmp_path / "log").open("wb")
    # in a session with a terminal, as that of a login
    login = subprocess.Popen(
        [sys.executable, "-c", SESSION, *words], stdin=inner, stdout=log, stderr=log, env=environment(home)
    )
    os.close(inner)
    once(lambda: "working" in proctor("ps", home=home).out)
    os.close(outer)
    assert login.wait(PATIENCE) == -signal.SIGHUP
    assert "working" in proctor("ps", home=home).out
    assert proctor("down", home=home).status == 0
    log.close()


SESSION = """
import fcntl, os, signal, subprocess, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
subprocess.Popen(sys.argv[1:])
signal.pause()
"""
