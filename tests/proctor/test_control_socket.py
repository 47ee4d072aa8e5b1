"""The control socket of a fleet's host, and the verbs that look at it."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.proctor.command import once, proctor, running
from tests.proctor.scripts import ANSWERS, HANGS, Fleet, agent

SOCKET = Path("state", "proctor", "run", "fleet.sock")


def listed(home: Path, *words: str) -> list[dict[str, Any]]:
    """The records that a verb lists."""
    ended = proctor(*words, "-o", "json", home=home)
    assert (ended.status, ended.err) == (0, "")
    records: list[dict[str, Any]] = json.loads(ended.out)
    return records


def states(home: Path) -> dict[str, str]:
    return {record["name"]: record["state"] for record in listed(home, "ps", "fleet")}


def test_a_fleet_is_listed_from_another_terminal_as_long_as_it_runs(home: Path, fleet: Fleet) -> None:
    path = fleet(
        agent("a", script='"a.ndjson"'), agent("b", script='"b.ndjson"', prompt='"go"'), a=ANSWERS, b=HANGS
    )
    with running("up", str(path), home=home) as command:
        once(lambda: listed(home, "ls"))
        once(lambda: states(home) == {"a": "idle", "b": "working"})
        [found] = listed(home, "ls")
        shown = proctor("ps", home=home)
        mode = (home / SOCKET).stat().st_mode & 0o777
        command.signal(signal.SIGTERM)
        assert command.end() == 128 + signal.SIGTERM
        assert command.err.read() == b"proctor: stopping; a second signal kills at once\n"
    assert (found["fleet"], found["pid"], mode) == ("fleet", command.process.pid, 0o600)
    titles, first, second = shown.out.splitlines()
    assert (titles.split()[:2], first.split()[:2], second.split()[:2]) == (
        ["AGENT", "STATE"],
        ["b", "working"],
        ["a", "idle"],
    )
    assert not (home / SOCKET).exists()
    assert listed(home, "ls") == []
    ended = proctor("ps", home=home)
    assert (ended.status, ended.out) == (1, "")
    assert ended.complaint == "proctor: no fleet runs under this user; start one with proctor up FLEET.toml"


def test_a_later_fleet_of_the_same_name_is_reached_under_a_name_of_its_own(
    home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    other = tmp_path / "other.toml"
    other.write_text(f'name = "fleet"\n{path.read_text()}')
    with running("up", str(path), home=home) as first:
        once(lambda: listed(home, "ls"))
        os.kill(first.process.pid, signal.SIGSTOP)  # also of one that answers nothing
        with running("up", str(other), home=home) as second:
            name, pid = f"fleet-{second.process.pid}", first.process.pid
            line = f"proctor: process {pid} runs a fleet of that name: this one is reached as {name}\n"
            assert second.err.readline().decode() == line
            once(lambda: proctor("ps", name, home=home).status == 0)
        os.kill(pid, signal.SIGCONT)


def test_the_socket_of_a_dead_host_is_not_listed_and_is_taken_over(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    with running("up", str(path), home=home) as first:
        once(lambda: listed(home, "ls"))
        first.signal(signal.SIGKILL)
        first.end()
    assert (home / SOCKET).exists()
    assert listed(home, "ls") == []
    with running("up", str(path), home=home) as second:
        [found] = once(lambda: listed(home, "ls"))
    assert found["pid"] == second.process.pid


def test_a_client_that_reads_nothing_or_sends_garbage_does_not_hold_up_the_host(
    home: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    garbage = (
        b"\0\xff" * 4096,
        b"GET /agents HTTP/1.1\r\n",
        b"POST /agents/a/queue HTTP/1.1\r\ncontent-length: 9\r\n\r\n{",
    )
    with running("up", str(path), home=home) as command:
        once(lambda: listed(home, "ls"))
        monkeypatch.chdir(home / SOCKET.parent)  # the path of a socket is short
        clients = [socket.socket(socket.AF_UNIX) for _ in garbage]
        for client, data in zip(clients, garbage, strict=True):
            client.connect(SOCKET.name)
            client.sendall(data)
        deaf = socket.socket(socket.AF_UNIX)
        deaf.connect(SOCKET.name)
        deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 200)
        once(lambda: states(home) == {"a": "idle"})
        command.signal(signal.SIGTERM)
        assert command.end() == 128 + signal.SIGTERM
        for client in (*clients, deaf):
            client.close()


def test_an_up_without_the_extra_http_says_so_once_and_runs_the_fleet(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"', prompt='"you"'), a=ANSWERS)
    absent = "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n, p=None: None if n == 'starlette' else f(n, p)"
    with running("up", str(path), home=home, first=absent) as command:
        out, err = command.out.read(), command.err.read()
        assert command.end() == 0
    assert b"answered" in out
    assert err == (
        b"proctor: no other terminal can reach fleet: this needs starlette: pip install 'proctor[http]'\n"
    )


def test_a_fleet_whose_socket_cannot_be_made_runs_without_it(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"', prompt='"you"'), a=ANSWERS)
    (home / "file").write_text("in the way")
    ended = proctor("up", str(path), home=home, env={"XDG_RUNTIME_DIR": str(home / "file")})
    assert ended.status == 0
    assert ended.complaint.startswith(
        f"proctor: no other terminal can reach fleet: {home}/file/proctor cannot be made"
    )


def test_a_socket_whose_path_is_longer_than_the_system_takes_is_reached_too(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    env = {"XDG_RUNTIME_DIR": str(home / ("long" * 30))}
    with running("up", str(path), home=home, env=env):
        ended = once(lambda: (found := proctor("ps", home=home, env=env)).status == 0 and found)
    assert ended.out.splitlines()[1].split()[0] == "a"


@pytest.mark.parametrize("command", ["web", "serve"])
def test_what_serves_a_fleet_elsewhere_has_the_control_socket_too(
    command: str, home: Path, fleet: Fleet
) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    words = {
        "web": ("web", str(path), "--listen", "127.0.0.1:0", "--no-token"),
        "serve": ("serve", "--fleet", str(path)),
    }
    with running(*words[command], home=home, asked=True):
        once(lambda: listed(home, "ls") and states(home) == {"a": "idle"})


def test_of_two_fleets_one_has_to_be_named(home: Path, fleet: Fleet, tmp_path: Path) -> None:
    path = fleet(agent("a", script='"a.ndjson"'), a=ANSWERS)
    other = tmp_path / "other.toml"
    other.write_text(path.read_text())
    with running("up", str(path), home=home), running("up", str(other), home=home):
        once(lambda: len(listed(home, "ls")) == 2)
        several, unknown = proctor("ps", home=home), proctor("ps", "third", home=home)
        assert proctor("ps", "other", home=home).status == 0
    assert several.complaint == "proctor: 2 fleets run: fleet, other; name one"
    assert unknown.complaint == "proctor: no fleet 'third' runs under this user; these do: fleet, other"
