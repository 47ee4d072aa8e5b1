from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from proctor.cli.commands.setup import own_command
from tests.proctor.command import EXAMPLES, ROOT, proctor

CONFIGS = ROOT / "tests" / "actors" / "configs"
FILES: Mapping[str, str] = {
    "claude.before.json": ".claude.json",
    "codex.before.toml": ".codex/config.toml",
    "opencode.before.jsonc": ".config/opencode/opencode.jsonc",
}


def furnished(home: Path) -> Path:
    for name, place in FILES.items():
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CONFIGS / name, home / place)
    return home


def contents(home: Path) -> dict[str, bytes]:
    """Every file of a home, but for our own state folder."""
    files = (path for path in home.rglob("*") if path.is_file())
    return {
        name: path.read_bytes()
        for path in files
        if not (name := str(path.relative_to(home))).startswith("state/")
    }


@pytest.mark.covers("R175")
def test_every_client_is_told_of_this_very_proctor_and_of_nothing_else(home: Path) -> None:
    before = contents(furnished(home))
    fleet = EXAMPLES / "demo.toml"
    done = proctor("setup", "--fleet", str(fleet), home=home)
    assert (done.status, done.err) == (0, "")
    words = [sys.executable, "-m", "proctor", "serve", "--fleet", str(fleet)]
    first, second, third, fourth = (line for line in done.out.splitlines() if not line.startswith(" "))
    assert first == f"claude    registered in {home}/.claude.json"
    assert second == f"codex     registered in {home}/.codex/config.toml"
    assert third == f"opencode  registered in {home}/.config/opencode/opencode.jsonc"
    assert fourth == "gemini    not installed; --client gemini registers it anyway"
    assert "secret" not in done.out
    entry = json.loads((home / ".claude.json").read_text())["mcpServers"]["proctor"]
    assert [entry["command"], *entry["args"]] == words
    table = tomllib.loads((home / ".codex/config.toml").read_text())["mcp_servers"]["proctor"]
    assert [table["command"], *table["args"]] == words

    again = proctor("setup", "--fleet", str(fleet), home=home)
    assert again.out.count("is already registered") == 3
    removed = proctor("setup", "--remove", home=home)
    assert (removed.status, removed.out.count(" removed in ")) == (0, 3)
    assert contents(home) == before


@pytest.mark.covers("R171")
def test_a_dry_run_names_each_file_and_changes_none(home: Path) -> None:
    before = contents(furnished(home))
    done = proctor("setup", "--dry-run", home=home)
    assert (done.status, contents(home)) == (0, before)
    for place in FILES.values():
        assert f"would register in {home}/{place}\n" in done.out
    assert "+ [mcp_servers.proctor]" in done.out


@pytest.mark.covers("R173", "R174", "C10")
def test_one_that_fails_is_told_and_the_others_are_done(home: Path) -> None:
    furnished(home)
    (home / ".claude.json").write_text('{"oauth": "very-secret",')
    done = proctor("setup", home=home, env={"CODEX_HOME": str(home / "none")})
    assert (done.status, done.err) == (1, "")
    assert (home / ".claude.json").read_text() == '{"oauth": "very-secret",'
    lines = done.out.splitlines()
    assert lines[0] == (
        f"claude    FAILED {home}/.claude.json: it cannot be read and was not changed: "
        "line 1, column 25: expected JSON (expecting property name enclosed in double quotes)"
    )
    assert lines[1] == f"codex     FAILED {home}/none/config.toml: the folder '{home}/none' does not exist"
    assert lines[2].startswith("opencode  registered in ")


def test_a_client_that_is_not_here_is_left_alone_unless_named(home: Path) -> None:
    (home / ".codex").mkdir()
    alone = proctor("setup", home=home, env={"PATH": "/none"})
    assert alone.status == 0
    assert alone.out.startswith("claude    not installed; --client claude registers it anyway\ncodex     reg")
    assert [*contents(home)] == [".codex/config.toml"]
    named = proctor("setup", "--client", "claude", "--name", "mine", home=home, env={"PATH": "/none"})
    assert named.status == 0
    assert [*json.loads((home / ".claude.json").read_text())["mcpServers"]] == ["mine"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--name", "a b"), "which every client accepts"), (("--fleet", "/none/x.toml"), "/none/x.toml")],
)
def test_wrong_words_change_nothing(words: tuple[str, ...], said: str, home: Path) -> None:
    before = contents(furnished(home))
    done = proctor("setup", *words, home=home)
    assert (done.status, said in done.complaint) == (2, True)
    assert contents(home) == before


@pytest.mark.covers("R188", "R134")
def test_no_other_command_changes_a_file_in_the_home(home: Path, tmp_path: Path) -> None:
    before = contents(furnished(home))
    script = tmp_path / "agent.ndjson"
    script.write_text('{"say": "hello"}\n')
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[[agents]]\nkind = "scripted"\nname = "a"\nscript = "agent.ndjson"\nprompt = "hi"\n')
    for words in (("run", f"scripted:{script}", "hi"), ("up", str(fleet)), ("doctor",)):
        done = proctor(*words, home=home, env={"PATH": os.environ["PATH"]})
        assert done.status == 0, done.err
        assert contents(home) == before


def test_the_command_is_the_script_that_was_started_or_the_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "proctor"
    module = (sys.executable, "-m", "proctor")
    assert own_command(str(script)) == module  # it is not there
    script.touch()
    assert own_command(str(script)) == module  # it cannot be run
    script.chmod(0o755)
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "proctor"
    link.symlink_to(script)
    assert own_command(str(link)) == (str(link),)
    assert own_command(str(tmp_path / "__main__.py")) == module


def test_what_is_registered_carries_the_options_of_the_server(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "a.ndjson"
    script.write_text('{"reply": "x"}\n')
    furnished(home)
    words = ("--agents", f"claude,scripted:{script}", "--root", str(tmp_path), "--permission", "allow")
    done = proctor("setup", *words, "--env", "API_KEY", "--env", "MODE=x=y", home=home)
    assert (done.status, done.err) == (0, "")
    entry = json.loads((home / ".claude.json").read_text())["mcpServers"]["proctor"]
    assert entry["args"] == [
        *("-m", "proctor", "serve", "--agents", "claude", "--agents", f"scripted:{script}"),
        *("--root", str(tmp_path), "--permission", "allow", "--env", "API_KEY", "--env", "MODE=x=y"),
    ]
    again = proctor("setup", *words, "--env", "API_KEY", "--env", "MODE=x=y", home=home)
    assert again.out.count("is already registered") == 3
    assert proctor("setup", "--root", str(tmp_path), home=home).out.count("updated in") == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--agents", "cloud"), "unknown agent 'cloud'"),
        (("--agents", "scripted:/nowhere"), "/nowhere"),
        (("--root", "/nowhere"), "root '/nowhere' cannot be used"),
        (("--env", "=x"), "expected NAME or NAME=VALUE"),
        (("--permission", "maybe"), "permission"),
    ],
)
def test_an_option_of_the_server_that_makes_no_sense_is_refused_and_nothing_registered(
    words: tuple[str, ...], said: str, home: Path
) -> None:
    before = contents(furnished(home))
    done = proctor("setup", *words, home=home)
    assert done.status == 2
    assert said in done.complaint
    assert contents(home) == before
