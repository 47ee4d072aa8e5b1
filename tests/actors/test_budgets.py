from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from proctor.actors.errors import BadOption
from proctor.actors.plan.budgets import Budget, Spending
from tests.tables import each_row

Spent = tuple[float, float | None]


def after(budget: Budget, *spent: Spent) -> tuple[Spending, Sequence[str]]:
    spending = Spending(budget, "a")
    alarms: list[str] = [alarm for at, usd in spent for alarm in spending.spend(usd, at)]
    return spending, alarms


@each_row(
    ("spent", "alarms", "now", "left_in_window", "frees_in"),
    [
        ([], [], 0.0, 0.0, 0.0),
        ([(0, 1.0)], [], 0.0, 1.0, 0.0),
        ([(0, 8.0)], ["budget_near"], 1.0, 8.0, 0.0),
        ([(0, 8.0), (1, 1.0)], ["budget_near"], 1.0, 9.0, 0.0),
        ([(0, 10.0)], ["budget_exceeded"], 0.0, 10.0, 100.0),
        ([(0, 8.0), (10, 2.0)], ["budget_near", "budget_exceeded"], 10.0, 10.0, 90.0),
        ([(0, 8.0), (10, 2.0)], ["budget_near", "budget_exceeded"], 100.0, 2.0, 0.0),
        ([(0, 1.0), (10, 11.0)], ["budget_exceeded"], 20.0, 12.0, 90.0),  # the first alone does not free it
        ([(0, 12.0), (50, 12.0)], ["budget_exceeded"], 60.0, 24.0, 90.0),
        ([(0, 10.0), (120, 10.0)], ["budget_exceeded", "budget_exceeded"], 120.0, 10.0, 100.0),
        ([(0, 0.0)], [], 0.0, 0.0, 0.0),
    ],
)
def test_a_window_slides(
    spent: list[Spent], alarms: list[str], now: float, left_in_window: float, frees_in: float
) -> None:
    spending, told = after(Budget(10.0, 100.0), *spent)
    assert told == alarms
    assert spending.spent(now) == pytest.approx(left_in_window)
    assert spending.frees_in(now) == pytest.approx(frees_in)


def test_a_cost_that_was_not_told_is_counted_and_told_once_in_a_period() -> None:
    spending, alarms = after(Budget(10.0, 100.0), (0, None), (1, None), (2, 1.0), (101, None))
    assert alarms == ["cost_unknown", "cost_unknown"]
    assert spending.unknown == 3
    assert spending.text(2.0) == "a has spent $1 of $10 in 100 s, and 3 turns of unknown cost"


def test_many_small_costs_are_held_in_bounded_space_and_none_is_lost() -> None:
    spending = Spending(Budget(1e9, 10.0), "a")
    for n in range(100_000):
        spending.spend(0.01, n * 0.0001)
    assert spending.spent(9.99) == pytest.approx(1000.0, rel=0.01)
    assert len(spending._entries) <= 1001  # pyright: ignore[reportPrivateUsage]
    assert spending.spent(30.0) == 0.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"usd": 0, "period": 60}, "usd of a budget must be a number above 0, got 0"),
        ({"usd": 1, "period": float("inf")}, "period of a budget must be a number above 0, got inf"),
        ({"usd": True, "period": 1}, "usd of a budget must be a number above 0, got True"),
        (
            {"usd": 1, "period": 1, "warn": 1.5},
            r"warn of a budget must be a share above 0 and up to 1, got 1\.5",
        ),
        (
            {"usd": 1, "period": 1, "then": "pray"},
            "then of a budget 'pray' is not a choice; accepted: park, escalate, warn",
        ),
    ],
)
def test_a_wrong_budget_is_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadOption, match=text):
        Budget(**options)
