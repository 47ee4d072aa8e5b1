"""The name of each kind of command line is one, wherever it is used."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proctor.actors.errors import BadOption
from proctor.actors.opencode_server.plan import served_plan
from proctor.actors.operations.metrics import AgentLabels, agents_in
from proctor.actors.plan.account_id import KINDS, kind_of
from proctor.actors.plan.plan import Plan, acp_plan, claude_plan, codex_plan, opencode_plan, scripted_plan
from proctor.actors.scripted.launch import SCRIPTED_WIRES
from proctor.actors.serving.pool import Pools
from proctor.actors.specs import agent_spec
from proctor.cli.agent_kinds import KINDS as OF_THE_COMMAND_LINE
from tests.actors.far_end import write_script
from tests.tables import each_row

PLANS: Mapping[str, Plan] = {
    "claude": claude_plan("a", {}),
    "claude, one-shot": claude_plan("a", {"mode": "oneshot"}),
    "codex": codex_plan("a", {}),
    "codex, exec": codex_plan("a", {"mode": "exec"}),
    "opencode": opencode_plan("a", {}),
    "opencode, run": opencode_plan("a", {"mode": "run"}),
    "opencode, served": served_plan("a", {}, server="s"),
    "opencode, by its profile": acp_plan("a", [sys.executable], {}, profile="opencode"),
    "gemini": acp_plan("a", ["gemini", "--acp"], {}, profile="gemini"),
    "gemini, by its profile": acp_plan("a", [sys.executable], {}, profile="gemini"),
    "acp": acp_plan("a", [sys.executable], {}),
    "acp, codex": acp_plan("a", ["codex-acp"], {}, profile="codex"),
    "acp, claude": acp_plan("a", ["claude-agent-acp"], {}, profile="claude"),
}


@each_row("held", PLANS)
def test_limits_by_kind_hold_for_every_way_to_hold_a_command_line(held: str) -> None:
    kind, plan = held.partition(",")[0], PLANS[held]
    pool = Pools(limit=6, limits={kind: 2}).of(plan)
    assert (pool.name, pool.statistics().limit) == (kind, 2)


@each_row("held", PLANS)
def test_metrics_and_pools_name_a_kind_alike(held: str) -> None:
    plan = PLANS[held]
    assert agents_in([agent_spec("a", plan, {})], "root") == {"root/a": AgentLabels("a", kind_of(plan))}
    assert Pools().of(plan).name == kind_of(plan) == held.partition(",")[0]


@pytest.mark.parametrize("dialect", SCRIPTED_WIRES)
def test_a_scripted_agent_is_scripted_in_every_wire(dialect: str, tmp_path: Path) -> None:
    plan = scripted_plan("a", write_script(tmp_path, [{"reply": "x"}]), {}, dialect=dialect)
    assert kind_of(plan) == "scripted"


def test_the_kinds_are_those_of_the_command_line() -> None:
    assert set(KINDS) == set(OF_THE_COMMAND_LINE)


@each_row(
    ("options", "text"),
    [
        ({"limits": {"Codex": 2}}, r"limits names the kind 'Codex'.*did you mean 'codex'"),
        (
            {"limits": {"x": 2}},
            r"limits names the kind 'x'; known: claude, codex, opencode, gemini, acp, scripted",
        ),
        ({"limits": {"codex": 0}}, "limit of 'codex' must be a number of 1 or more, got 0"),
        ({"limits": {"codex": True}}, "limit of 'codex' must be a number of 1 or more, got True"),
        ({"limits": {"codex": 1.5}}, "limit of 'codex' must be a number of 1 or more, got 1.5"),
        ({"limit": 0}, "limit must be a number of 1 or more, got 0"),
        ({"limit": "6"}, "limit must be a number of 1 or more, got '6'"),
        ({"queue": -1}, "queue must be a number of 0 or more, got -1"),
    ],
)
def test_limits_that_make_no_sense_are_refused_when_the_pools_are_made(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadOption, match=text):
        Pools(**options)
