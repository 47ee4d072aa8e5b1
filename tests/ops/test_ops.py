"""`ops/` and the runbook beside the metrics that there are: each name, each label, each value of a label."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from proctor.actors.agent.states import State
from proctor.actors.operations.metrics import Clock, Source
from proctor.actors.operations.prometheus import METRICS, Histogram
from proctor.actors.outcomes import OUTCOMES

ROOT = Path(__file__).parents[2]
yaml: Any = importlib.import_module("yaml")  # which brings no types
RULES: list[dict[str, Any]] = yaml.safe_load((ROOT / "ops" / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "ops" / "dashboard.json").read_text())
RUNBOOK = (ROOT / "docs" / "guides" / "runbook.md").read_text()
LABELS: Mapping[str, set[str]] = {
    metric.name: {*metric.subject.labels, *([metric.label] if metric.label else [])} for metric in METRICS
}
VALUES: Mapping[str, tuple[str, ...]] = {
    "state": get_args(State),
    "outcome": (*OUTCOMES,),
    "clock": get_args(Clock),
    "source": get_args(Source),
    "result": ("read", "garbled", "unrecognized", "misplaced", "ok", "error", "cancelled"),
}
PANELS = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
}
EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in RULES} | PANELS


def selectors(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each metric in an expression, with the labels that it is chosen by."""
    for name, chosen in re.findall(r"\b(proctor_\w+)(?:\{([^}]*)\})?", expression):
        yield name, dict(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"', chosen))


def base(name: str) -> str:
    """The metric that a series of a histogram belongs to."""
    histograms = {metric.name for metric in METRICS if isinstance(metric, Histogram)}
    return next((own for own in histograms if name in (f"{own}_bucket", f"{own}_sum", f"{own}_count")), name)


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_an_expression_names_metrics_labels_and_values_that_there_are(where: str) -> None:
    expression = EXPRESSIONS[where]
    found = [*selectors(expression)]
    assert found or expression.startswith("up{")
    for name, chosen in found:
        assert base(name) in LABELS, name
        assert {*chosen} <= LABELS[base(name)]
        for label, pattern in chosen.items():
            unknown = {*pattern.split("|")} - {*VALUES.get(label, pattern.split("|"))}
            assert unknown == set(), f"{label}: {unknown}"
    by = {
        label.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(",")
    }
    assert by - {"le"} <= {label for name, _ in found for label in LABELS[base(name)]}


def test_each_alert_has_its_section_of_the_runbook_and_each_section_its_alert() -> None:
    names = [rule["alert"] for rule in RULES]
    assert re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE) == names
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/guides/runbook.md#{rule['alert'].lower()}"
        assert f"\n    {rule['expr']}" in RUNBOOK
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def test_the_summary_of_an_alert_uses_labels_that_its_expression_leaves() -> None:
    for rule in RULES:
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        kept = re.search(r"\bby \(([^)]*)\)", rule["expr"])
        there = {label for name, _ in selectors(rule["expr"]) for label in LABELS[base(name)]}
        left = {label.strip() for label in kept[1].split(",")} if kept else there
        assert used <= left, rule["alert"]


def test_every_agent_metric_that_can_fail_is_on_the_dashboard_or_in_an_alert() -> None:
    shown = {base(name) for expression in EXPRESSIONS.values() for name, _ in selectors(expression)}
    left_out = {name for name in LABELS if name not in shown}
    assert left_out == {
        "proctor_account_turns_total",  # the account book is shown by `proctor cost`
        "proctor_account_unpriced_turns_total",
        "proctor_account_cost_usd_total",
        "proctor_account_tokens_total",
        "proctor_turns_running",  # the states say it
        "proctor_supervisor_restarts_total",
        "proctor_mcp_calls_running",
        "proctor_mcp_call_seconds_total",
    }
