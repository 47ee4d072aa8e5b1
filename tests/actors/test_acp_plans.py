from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.actors.errors import BadOption, NotExecutable, NotInstalled
from proctor.actors.plan.discovery import GEMINI, OPENCODE, unknown_product
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import acp_plan, opencode_plan
from proctor.protocols.acp import GEMINI as GEMINI_PROFILE
from proctor.protocols.acp import Profile
from tests.runtime.programs import installed
from tests.tables import each_row


def test_opencode_is_held_as_a_session_or_started_for_each_prompt() -> None:
    held, run = opencode_plan("a", {}), opencode_plan("a", {"mode": "run"})
    assert (held.dialect.name, held.launch.mode, held.product) == ("opencode", "session", OPENCODE)
    assert (run.dialect.name, run.launch.mode, run.product) == ("opencode", "oneshot", OPENCODE)
    assert held.dialect != run.dialect
    with pytest.raises(BadOption, match="mode 'exec' is not a choice for OpenCode; accepted: session, run"):
        opencode_plan("a", {"mode": "exec"})


def test_an_agent_is_found_on_path_and_keeps_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = installed(tmp_path / "myagent")
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = acp_plan("a", ["myagent", "--acp", "-v"], {})
    assert plan.locate() == (str(found), "--acp", "-v")
    assert (plan.dialect.name, plan.launch.mode) == ("acp", "session")


def test_a_path_is_taken_as_it_is_and_an_executable_beats_it(tmp_path: Path) -> None:
    one, two = installed(tmp_path / "one"), installed(tmp_path / "two")
    assert acp_plan("a", [str(one), "x"], {}).locate() == (str(one), "x")
    assert acp_plan("a", [str(one), "x"], {"executable": two}).locate() == (str(two), "x")


def test_a_program_that_is_not_there_is_named_with_the_places_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        NotInstalled, match=r"nobody is not installed; .* \(looked for 'nobody' on PATH"
    ) as caught:
        acp_plan("a", ["nobody"], {}).locate()
    assert "(not set)" not in str(caught.value)
    with pytest.raises(NotInstalled, match="npm install -g @google/gemini-cli"):
        acp_plan("a", ["gemini"], {"executable": tmp_path / "none"}).locate()
    with pytest.raises(NotExecutable, match="no execute permission"):
        acp_plan("a", [str(installed(tmp_path / "plain", mode=0o644))], {}).locate()


def test_a_known_program_is_known_by_its_name_and_a_stranger_has_no_variable() -> None:
    assert acp_plan("a", ["gemini"], {}).product == GEMINI
    assert acp_plan("a", ["x"], {}).product == unknown_product("x")
    assert unknown_product("x").variable == ""


@each_row(
    ("profile", "name"),
    [
        ("generic", "acp"),
        ("opencode", "opencode"),
        ("gemini", "gemini"),
        ("codex", "codex-acp"),
        ("claude", "claude-agent-acp"),
        (GEMINI_PROFILE, "gemini"),
        (Profile(name="mine"), "mine"),
    ],
)
def test_a_profile_is_given_by_its_name_or_as_a_record(profile: str | Profile, name: str) -> None:
    assert acp_plan("a", ["x"], {}, profile=profile).dialect.name == name


@each_row(
    ("argv", "options", "profile", "why"),
    [
        ([], {}, "generic", "argv must be a program"),
        ("gemini --acp", {}, "generic", "argv must be a program"),
        ([""], {}, "generic", "argv must be a program"),
        (["x"], {}, "gemni", "profile 'gemni' is not known .did you mean 'gemini'"),
        (["x"], {"mode": "oneshot"}, "generic", "mode 'oneshot' is not a choice for x; accepted: session"),
        (["x"], {"modle": "m"}, "generic", "unknown option 'modle'"),
        (["x"], {"secret": "s"}, "generic", "unknown option 'secret'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_is_accepted(
    argv: Any, options: Any, profile: str, why: str
) -> None:
    with pytest.raises(BadOption, match=why):
        acp_plan("a", argv, options, profile=profile)


def test_each_opening_has_a_secret_of_its_own_and_what_the_owner_named(tmp_path: Path) -> None:
    named = {"OPENCODE_CONFIG_CONTENT": json.dumps({"model": "a/b"})}
    options: AgentOptions = {"env": named, "cwd": tmp_path}
    plan = opencode_plan("a", options)
    one, two = (plan.opening(resume=None, fork=False) for _ in range(2))
    assert len({one.secret, two.secret, ""}) == 3
    assert one.env == named
    assert "a/b" not in repr(one)
    assert json.loads(plan.dialect.launch(one).joined["OPENCODE_CONFIG_CONTENT"])["model"] == "a/b"
