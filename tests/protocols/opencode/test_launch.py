from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.protocols.dialect import Launch
from proctor.protocols.opencode import OPENCODE
from proctor.protocols.opencode.launch import joined

CONFIG = "OPENCODE_CONFIG_CONTENT"


def config(**launch: Any) -> dict[str, Any]:
    command = OPENCODE.launch(Launch(executable=("/o",), **launch))
    found: dict[str, Any] = json.loads(command.joined[CONFIG])
    return found


def test_the_server_that_comes_with_a_session_has_a_password() -> None:
    command = OPENCODE.launch(Launch(executable=("/o",), secret="xyz"))
    assert command.argv[:2] == ("/o", "acp")
    assert command.env["OPENCODE_SERVER_PASSWORD"] == "xyz"
    assert "xyz" not in repr(Launch(executable=("/o",), secret="xyz"))


@pytest.mark.covers("L03")
def test_what_changes_or_reaches_anything_is_asked_about_and_nothing_is_updated_or_shared() -> None:
    found = config()
    assert (found["autoupdate"], found["share"]) == (False, "disabled")
    assert next(iter(found["permission"].items())) == ("*", "ask")
    assert found["permission"]["external_directory"] == "ask"
    assert {found["permission"][tool] for tool in ("read", "grep", "glob")} == {"allow"}
    assert "bash" not in found["permission"]


def test_tools_that_are_allowed_or_denied_by_name_are_not_asked_about() -> None:
    found = config(allowed_tools=("bash",), disallowed_tools=("webfetch", "read"))["permission"]
    assert (found["bash"], found["webfetch"], found["read"]) == ("allow", "deny", "deny")


def test_what_the_owner_named_wins_key_by_key() -> None:
    named = {
        "model": "a/b",
        "permission": {"bash": "allow"},
        "provider": {"x": {"name": "X"}},
        "share": "manual",
    }
    found = config(env={CONFIG: json.dumps(named)}, model="c/d")
    assert (found["model"], found["share"], found["autoupdate"]) == ("a/b", "manual", False)
    assert (found["permission"]["bash"], found["permission"]["*"]) == ("allow", "ask")
    assert found["provider"] == {"x": {"name": "X"}}


def test_what_the_owner_named_that_is_no_configuration_is_left_as_it_is() -> None:
    for named in ("{", "[]", "3"):
        assert OPENCODE.launch(Launch(executable=("/o",), env={CONFIG: named})).joined == {}


def test_joining_goes_to_every_depth_and_a_shape_that_differs_is_replaced() -> None:
    base = {"a": {"b": {"c": 1, "d": 2}}, "e": {"f": 1}}
    assert joined(base, {"a": {"b": {"d": 3}}, "e": 5}) == {"a": {"b": {"c": 1, "d": 3}}, "e": 5}
