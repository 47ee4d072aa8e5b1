from __future__ import annotations

from pathlib import Path

import pytest

from proctor.actors.errors import BadOption
from proctor.actors.plan.environment import build_environment
from proctor.actors.plan.plan import codex_plan
from proctor.protocols.codex import CODEX, CODEX_EXEC


def test_a_session_is_held_by_the_app_server_and_exec_is_a_process_for_each_request() -> None:
    held, run = codex_plan("a", {}), codex_plan("a", {"mode": "exec", "sandbox": "workspace-write"})
    assert (held.dialect, held.launch.mode) == (CODEX, "session")
    assert (run.dialect, run.launch.mode, run.launch.sandbox) == (CODEX_EXEC, "oneshot", "workspace-write")
    assert held.product is not None
    assert held.product.variable == "PROCTOR_CODEX"


def test_a_mode_of_another_cli_is_refused_with_what_is_accepted() -> None:
    with pytest.raises(BadOption, match="mode 'oneshot' is not a choice for Codex; accepted: session, exec"):
        codex_plan("a", {"mode": "oneshot"})


def test_the_whole_ladder_fits_into_the_time_of_a_stop() -> None:
    assert sum(step.grace for step in CODEX.stop) < codex_plan("a", {}).shutdown


@pytest.mark.covers("C08")
def test_a_key_is_passed_only_when_it_is_named_and_a_private_home_is_its_own(tmp_path: Path) -> None:
    parent = {"CODEX_API_KEY": "k", "CODEX_ACCESS_TOKEN": "t", "CODEX_HOME": "/mine", "HOME": "/h"}
    made = build_environment({}, home="user", private=tmp_path, extra={}, parent=parent)
    assert {*made.withheld} == {"CODEX_API_KEY", "CODEX_ACCESS_TOKEN"}
    assert (made.variables["CODEX_HOME"], "CODEX_API_KEY" in made.variables) == ("/mine", False)
    private = build_environment(
        {"CODEX_API_KEY": "k"}, home="private", private=tmp_path, extra={}, parent=parent
    )
    assert "CODEX_HOME" not in private.variables
    assert (private.variables["CODEX_API_KEY"], private.variables["HOME"]) == ("k", str(tmp_path / "home"))
