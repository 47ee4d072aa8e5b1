from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, TypeAlias

import pytest

from proctor.runtime import (
    FinalShutdown,
    MaxRestartsExceeded,
    Normal,
    TerminateTree,
    TreeShutdown,
    open_supervisor,
)
from proctor.runtime.spec import Restart, Strategy
from proctor.runtime.supervision.decide import RESTARTS, Action, ExitClass, RestartTable
from tests.runtime import stage
from tests.runtime.stage import Notes, end, kinds, picture, player

KINDS: tuple[Restart, ...] = ("permanent", "transient", "temporary")
STRATEGIES: tuple[Strategy, ...] = ("one_for_one", "one_for_all", "rest_for_one")
Seen: TypeAlias = tuple[dict[str, int | str], list[str]]

EXITS = {**stage.EXITS, "final": FinalShutdown("for good"), "tree": TreeShutdown("all of it")}

# what becomes of the child that exits: does it come back (S14-S16), and is its exit an error report (S19)
FATE: Mapping[tuple[Restart, str], tuple[str, bool]] = {
    ("permanent", "normal"): ("back", True),
    ("permanent", "shutdown"): ("back", True),
    ("permanent", "crash"): ("back", True),
    ("permanent", "killed"): ("back", True),
    ("permanent", "exit status 0"): ("back", True),
    ("permanent", "exit status 1"): ("back", True),
    ("permanent", "final"): ("held", True),
    ("permanent", "tree"): ("ended", True),
    ("transient", "normal"): ("held", False),
    ("transient", "shutdown"): ("held", False),
    ("transient", "crash"): ("back", True),
    ("transient", "killed"): ("back", True),
    ("transient", "exit status 0"): ("held", False),
    ("transient", "exit status 1"): ("back", True),
    ("transient", "final"): ("held", False),
    ("transient", "tree"): ("ended", False),
    ("temporary", "normal"): ("gone", False),
    ("temporary", "shutdown"): ("gone", False),
    ("temporary", "crash"): ("gone", True),
    ("temporary", "killed"): ("gone", True),
    ("temporary", "exit status 0"): ("gone", False),
    ("temporary", "exit status 1"): ("gone", True),
    ("temporary", "final"): ("gone", False),
    ("temporary", "tree"): ("ended", False),
}

# what the supervisor then holds: before, x (the one that exits), after (permanent), bystander (temporary), and
# rested (transient, had ended cleanly)
AFTERWARDS: Mapping[tuple[Strategy, str], dict[str, int | str]] = {
    ("one_for_one", "back"): {"before": 1, "x": 2, "after": 1, "bystander": 1, "rested": "down"},
    ("one_for_all", "back"): {"before": 2, "x": 2, "after": 2, "rested": 2},
    ("rest_for_one", "back"): {"before": 1, "x": 2, "after": 2, "rested": 2},
    ("one_for_one", "held"): {"before": 1, "x": "down", "after": 1, "bystander": 1, "rested": "down"},
    ("one_for_all", "held"): {"before": 1, "x": "down", "after": 1, "bystander": 1, "rested": "down"},
    ("rest_for_one", "held"): {"before": 1, "x": "down", "after": 1, "bystander": 1, "rested": "down"},
    ("one_for_one", "gone"): {"before": 1, "after": 1, "bystander": 1, "rested": "down"},
    ("one_for_all", "gone"): {"before": 1, "after": 1, "bystander": 1, "rested": "down"},
    ("rest_for_one", "gone"): {"before": 1, "after": 1, "bystander": 1, "rested": "down"},
}

# what it tells meanwhile
TOLD: Mapping[tuple[Strategy, str], list[str]] = {
    ("one_for_one", "back"): ["child_restarting root/x", "child_started root/x"],
    ("one_for_all", "back"): [
        "child_restarting root/x",
        "child_exited root/bystander",
        "child_exited root/after",
        "child_exited root/before",
        "child_started root/before",
        "child_started root/x",
        "child_started root/after",
        "child_started root/rested",
    ],
    ("rest_for_one", "back"): [
        "child_restarting root/x",
        "child_exited root/bystander",
        "child_exited root/after",
        "child_started root/x",
        "child_started root/after",
        "child_started root/rested",
    ],
}


def expected(kind: Restart, how: str, strategy: Strategy) -> Seen:
    fate, reported = FATE[kind, how]
    if fate == "ended":
        return {}, ["-bystander", "-after", "-before"]
    report = ["child_terminated root/x"] if reported else []
    return AFTERWARDS[strategy, fate], ["child_exited root/x", *report, *TOLD.get((strategy, fate), [])]


async def seen(kind: Restart, how: str, strategy: Strategy, restarts: RestartTable = RESTARTS) -> Seen:
    notes: Notes = []
    children = [
        player("before", notes),
        player("x", notes, restart=kind),
        player("after", notes),
        player("bystander", notes, restart="temporary"),
        player("rested", notes, restart="transient"),
    ]
    try:
        async with open_supervisor(children, strategy=strategy, restarts=restarts) as sup:
            await end(sup.name("rested"), Normal())
            await picture(sup)
            with sup.events() as events:
                await end(sup.name("x"), EXITS[how])
                return await picture(sup), kinds(events)
    except TerminateTree:
        return {}, notes[-3:]


@pytest.mark.covers("P03")
def test_the_grid_is_complete() -> None:
    assert set(FATE) == set(product(KINDS, EXITS))
    assert len(list(product(FATE, STRATEGIES))) == 72


@pytest.mark.covers("S14", "S15", "S16", "S20", "P03")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("how", EXITS)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_exit_has_the_effect_of_its_cell(kind: Restart, how: str, strategy: Strategy) -> None:
    assert await seen(kind, how, strategy) == expected(kind, how, strategy)


ACTIONS: tuple[Action, ...] = ("restart", "keep", "drop", "terminate")
FLIPS = [(*cell, action) for cell, right in RESTARTS.items() for action in ACTIONS if action != right]


async def holds(kind: Restart, how: str, restarts: RestartTable) -> bool:
    try:
        return await seen(kind, how, "one_for_one", restarts) == expected(kind, how, "one_for_one")
    except MaxRestartsExceeded:
        return False


@pytest.mark.covers("P03")
@pytest.mark.parametrize(("kind", "exit_class", "action"), FLIPS, ids=str)
async def test_the_grid_finds_a_wrong_cell(kind: Restart, exit_class: ExitClass, action: Action) -> None:
    wrong: dict[Any, Action] = {**RESTARTS, (kind, exit_class): action}
    assert not all([await holds(kind, how, wrong) for how in EXITS])
