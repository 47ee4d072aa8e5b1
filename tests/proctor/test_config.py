"""`proctor config`, and the fleet file that commands find by themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.proctor.command import proctor
from tests.proctor.scripts import ANSWERS, Fleet, agent

TEXT = """
budget = { usd = 3.0, period = "1d" }
[defaults]
permission = "ask"
[defaults.mcp.search]
url = "http://127.0.0.1:1/mcp"
headers = { Authorization = "Bearer hush" }
[[agents]]
kind = "claude"
name = "a"
replicas = 2
env = ["KEY=hush", "WHERE=${PLACE:-here}"]
prompt = "In ${PLACE:-here}."
"""


def test_a_file_is_printed_as_what_it_comes_to_and_without_secrets(home: Path, fleet: Fleet) -> None:
    path = fleet(TEXT)
    done = proctor("config", str(path), home=home, env={"PLACE": "Paris"})
    assert (done.status, done.err) == (0, "")
    assert "hush" not in done.out
    printed = json.loads(done.out)
    assert printed["name"] == "fleet"
    assert printed["budget"]["usd"] == 3.0
    [first, second] = printed["agents"]
    assert first == {
        "kind": "claude",
        "name": "a-1",
        "prompt": "In Paris.",
        "env": ["KEY", "WHERE"],
        "permission": "ask",
        "mcp": first["mcp"],
    }
    assert (first["mcp"]["search"]["url"], second["name"]) == ("http://127.0.0.1:1/mcp", "a-2")


def test_a_file_with_faults_is_a_line_for_each(home: Path, fleet: Fleet) -> None:
    path = fleet('[[agents]]\nkind = "claude"\nname = "a"\nmodell = "x"\npark = 1\n')
    done = proctor("config", str(path), home=home)
    assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 2)


def test_commands_find_the_fleet_file_of_the_project(
    home: Path, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(agent("a", script='"a.ndjson"', prompt='"x"'), a=ANSWERS)
    (tmp_path / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "down")
    assert '"name": "a"' in proctor("config", home=home).out
    assert "All is well, x" in proctor("up", home=home).out
    assert "proctor-fleet.service" in proctor("service", "install", "--dry-run", home=home).out


@pytest.mark.parametrize("command", ["up", "web", "config", "service install"])
def test_without_a_fleet_file_a_command_says_where_it_looked(
    command: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    done = proctor(*command.split(), home=home)
    assert (done.status, done.out) == (2, "")
    assert done.complaint == "proctor: no fleet.toml in / or above: name a fleet file, or make one"
