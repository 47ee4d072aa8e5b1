"""Fleets of which one agent cannot be had: the others answer, and what is wrong is named."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.proctor.command import proctor, running
from tests.proctor.scripts import ANSWERS, Fleet, agent
from tests.proctor.test_crowded import IDLE, idle_clients
from tests.proctor.test_up import CRASHES
from tests.proctor.test_web import address, ready
from tests.runtime.programs import installed

WORDS = ("--listen", "127.0.0.1:0", "--no-token")
FULL_DISK = """
import errno, os, stat
folder = os.environ.get("FULL_DISK")
def full(path):
    if isinstance(path, int):
        if not stat.S_ISREG(os.fstat(path).st_mode):
            return False
        path = os.readlink(f"/proc/self/fd/{path}")
    return os.path.abspath(path).startswith(folder)
def refusing(real, needs_room):
    def call(path, *args, **more):
        if needs_room(*args) and full(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(path, *args, **more)
    return call
if folder:
    os.write = refusing(os.write, lambda *_: True)
    os.mkdir = refusing(os.mkdir, lambda *_: True)
    os.open = refusing(os.open, lambda flags, *_: flags & os.O_CREAT)
"""
"""A machine on which nothing can be written below a folder."""


def full_disk_at(folder: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a command for which that folder is full."""
    (tmp_path / "sitecustomize.py").write_text(FULL_DISK)
    return {"FULL_DISK": str(folder), "PYTHONPATH": f"{tmp_path}:{Path('src').absolute()}"}


def exits_at_once(folder: Path) -> str:
    """The table of an agent whose program does nothing but exit."""
    program = installed(folder / "broken", "echo out of order >&2; exit 3")
    return f'[[agents]]\nkind = "claude"\nname = "broken"\nexecutable = "{program}"\nhome = "private"'


def asked(client: httpx2.Client, name: str) -> str:
    """Its answer to a prompt."""
    text = client.post(f"/agents/{name}/turns", json={"prompt": name}).json()["answer"]["text"]
    return str(text)


def test_nine_agents_answer_beside_one_whose_program_exits_at_once(
    home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    names = [f"a{number}" for number in range(9)]
    script = dict.fromkeys(names, ANSWERS)
    tables = [agent(name, script=f'"{name}.ndjson"') for name in names]
    path = fleet(exits_at_once(tmp_path), *tables, **script)
    with running("web", str(path), *WORDS, home=home) as command:
        with httpx2.Client(base_url=address(command), timeout=30, verify=False) as client:
            said = ready(client)
            assert [asked(client, name) for name in names] == [f"All is well, {name}" for name in names]
            broken = client.get("/agents/broken").json()
            refused = client.post("/agents/broken/turns", json={"prompt": "x"})
            started = client.post("/agents/broken/start")
        command.signal(signal.SIGTERM)
        log = command.err.read().decode()
        assert command.end() == 0
    assert (said["ready"], said["grade"]) == (False, "degraded")
    assert {name for name, why in said["agents"].items() if why is None} == {*names}
    assert said["agents"].keys() == {*names, "broken"}
    assert "broken: could not start: " in said["checks"]["fleet"]
    assert "out of order" in said["checks"]["fleet"]
    assert (broken["state"], "could not start" in broken["evidence"]) == ("failed", True)
    assert refused.status_code >= 400
    assert started.status_code >= 400
    assert "out of order" in started.text
    assert "broken: could not start: " in log


def test_an_agent_that_is_restarted_too_often_is_given_up_alone(home: Path, fleet: Fleet) -> None:
    crashing = agent("a", script='"a.ndjson"', prompt='"x"', on_crash='"retry"')
    path = fleet(
        "intensity = 2\nperiod = 60", crashing, agent("b", script='"b.ndjson"'), a=CRASHES, b=ANSWERS
    )
    with running("web", str(path), *WORDS, home=home) as command:
        with httpx2.Client(base_url=address(command), timeout=30, verify=False) as client:
            said = until_absent(client)
            assert asked(client, "b") == "All is well, b"
            given_up = client.get("/agents/a").json()
            assert client.post("/agents/a/start").status_code == 200
            assert client.get("/readyz").json()["checks"] == {}
        command.signal(signal.SIGTERM)
        log = command.err.read().decode()
        assert command.end() == 0
    assert said["checks"]["fleet"].startswith("a: was given up: more than 2 restarts in 60 s; last cause: ")
    assert given_up["evidence"] in said["checks"]["fleet"]
    assert re.search(r"a: restarting in [\d.]+ m?s \(1 of 2 in 1 min\): killed by SIGKILL", log)
    assert "a: was given up: more than 2 restarts in 60 s; last cause: killed by SIGKILL" in log


def until_absent(client: httpx2.Client) -> dict[str, Any]:
    """What it says of itself, once an agent is absent."""
    limit = time.monotonic() + 60
    while "fleet" not in (said := client.get("/readyz").json())["checks"]:
        assert time.monotonic() < limit
        time.sleep(0.05)
    return dict(said)


@pytest.mark.parametrize("command", ["up", "web"])
def test_a_strict_fleet_ends_with_the_first_that_cannot_start(
    command: str, home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), exits_at_once(tmp_path), a=ANSWERS)
    words = WORDS if command == "web" else ()
    done = proctor(command, str(path), *words, "--strict", home=home)
    assert done.status == 1
    assert "proctor: broken could not start: " in done.err


@pytest.mark.parametrize("command", ["up", "web"])
def test_a_fleet_of_which_nobody_is_left_ends_and_says_why(
    command: str, home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    path = fleet(exits_at_once(tmp_path))
    words = WORDS if command == "web" else ()
    done = proctor(command, str(path), *words, home=home)
    assert done.status == 1
    assert "no agent of fleet is left: broken: could not start: " in done.err


def test_a_fleet_goes_on_in_the_foreground_without_the_one_that_cannot_start(
    home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    path = fleet(exits_at_once(tmp_path), agent("a", script='"a.ndjson"', prompt='"x"'), a=ANSWERS)
    done = proctor("up", str(path), home=home)
    assert done.status == 1
    assert "All is well, x" in done.out
    assert "proctor: broken: could not start: " in done.err


def test_a_full_disk_a_crash_and_a_thousand_idle_clients_keep_no_agent_from_answering(
    home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    names = ["a", "b", "c"]
    tables = [agent(name, script=f'"{name}.ndjson"') for name in names]
    path = fleet(exits_at_once(tmp_path), *tables, **dict.fromkeys(names, ANSWERS))
    env = full_disk_at(home / "state" / "proctor" / "runs", tmp_path)
    with running("web", str(path), *WORDS, home=home, under="ulimit -n 256", env=env) as command:
        where = address(command)
        with httpx2.Client(base_url=where, timeout=60, verify=False) as client:
            ready(client)
            with idle_clients(where, IDLE):
                assert [asked(client, name) for name in names] == [f"All is well, {name}" for name in names]
                said = client.get("/readyz").json()
                states = [client.get(f"/agents/{name}").json() for name in names]
        command.signal(signal.SIGTERM)
        assert command.end() == 0
    assert "broken: could not start: " in said["checks"]["fleet"]
    for name, state in zip(names, states, strict=True):
        assert f"{name} is not recorded: " in said["checks"]["agents"]
        assert "No space left on device" in state["not_recorded"]
    assert not [*(home / "state" / "proctor").glob("runs/*")]
