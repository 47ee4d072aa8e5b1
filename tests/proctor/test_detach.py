"""`proctor up --detach`: a fleet in the background, which the verbs reach when the command returns."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proctor.command import once, processes_with, proctor, proctor_process, wait_for
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
