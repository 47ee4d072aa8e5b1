from __future__ import annotations

from pathlib import Path

import pytest

from proctor.actors.errors import BadOption
from proctor.actors.plan.environment import build_environment, parse_env

PARENT = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LC_ALL": "C",
    "XDG_CONFIG_HOME": "/home/me/.cfg",
    "HTTPS_PROXY": "http://p",
    "CLAUDECODE": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
    "CLAUDE_CONFIG_DIR": "/home/me/.other",
    "ANTHROPIC_API_KEY": "sk-secret",
    "MY_TOKEN": "t",
}


@pytest.mark.covers("C08")
def test_only_the_allow_list_passes_and_a_key_only_when_named(tmp_path: Path) -> None:
    built = build_environment({}, home="user", private=tmp_path, extra={}, parent=PARENT)
    assert dict(built.variables) == {
        "PATH": "/bin",
        "HOME": "/home/me",
        "LC_ALL": "C",
        "XDG_CONFIG_HOME": "/home/me/.cfg",
        "HTTPS_PROXY": "http://p",
        "CLAUDE_CONFIG_DIR": "/home/me/.other",
        "TMPDIR": str(tmp_path / "tmp"),
    }
    assert built.withheld == ("ANTHROPIC_API_KEY",)


def test_what_is_named_passes_and_is_not_reported_as_withheld(tmp_path: Path) -> None:
    built = build_environment(
        {"ANTHROPIC_API_KEY": "sk-other"}, home="user", private=tmp_path, extra={}, parent=PARENT
    )
    assert built.variables["ANTHROPIC_API_KEY"] == "sk-other"
    assert built.withheld == ()


def test_the_owner_beats_the_dialect_and_the_dialect_beats_the_parent(tmp_path: Path) -> None:
    built = build_environment(
        {"A": "owner"}, home="user", private=tmp_path, extra={"A": "dialect", "PATH": "/d"}, parent=PARENT
    )
    assert (built.variables["A"], built.variables["PATH"]) == ("owner", "/d")


def test_a_private_home_is_the_agents_own_and_hides_the_users(tmp_path: Path) -> None:
    built = build_environment({}, home="private", private=tmp_path, extra={}, parent=PARENT)
    assert built.variables["HOME"] == str(tmp_path / "home")
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert not {"XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR"} & set(built.variables)


def test_names_and_values_are_parsed() -> None:
    assert parse_env(["PATH", "A=b=c", "E="], PARENT) == {"PATH": "/bin", "A": "b=c", "E": ""}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("NOT_SET", "env 'NOT_SET': not set here; write NOT_SET=VALUE to give it one"),
        ("=x", "env '=x': expected NAME or NAME=VALUE"),
        ("A=\0", r"env 'A=\\x00': expected NAME or NAME=VALUE"),
    ],
)
def test_a_wrong_item_is_named(item: str, text: str) -> None:
    with pytest.raises(BadOption, match=text):
        parse_env([item], PARENT)
