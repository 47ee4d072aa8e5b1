from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from proctor.runtime.supervision.decide import RESTARTS, Action
from tests.simulation.laws import Court
from tests.simulation.program import Pool, Program, written
from tests.simulation.programs import programs
from tests.simulation.search import SEED, share
from tests.simulation.shrinking import smallest
from tests.simulation.story import Story
from tests.simulation.world import happened

pytestmark = pytest.mark.no_cover  # traced line by line, thousands of programs take minutes more

FEW = share(1000)


def breaches(program: Program, run: Callable[[Program], Story] = happened) -> list[str]:
    return Court(program, run(program)).breaches() if program.makes_sense() else []


def differs(program: Program) -> bool:
    return program.makes_sense() and happened(program) != happened(program)


@pytest.mark.covers("S16", "S72")
def test_whoever_comes_first_within_an_instant_the_laws_hold() -> None:
    for program in programs(SEED, FEW, ties=True):
        if breaches(program):
            least = smallest(program, lambda program: bool(breaches(program)))
            pytest.fail(f"SIMULATE_SEED={SEED}\n{breaches(least)}\n\n{written(least)}", pytrace=False)


@pytest.mark.covers("X16")
def test_a_program_of_ties_tells_the_same_story_again() -> None:
    for program in programs(SEED, FEW // 3, ties=True):
        if differs(program):
            pytest.fail(f"SIMULATE_SEED={SEED}\n{written(smallest(program, differs))}", pytrace=False)


@pytest.mark.covers("X16")
def test_another_seed_settles_ties_otherwise() -> None:
    several = list(programs(1, 50, ties=True))
    assert any(happened(program) != happened(attrs.evolve(program, seed=1001)) for program in several)


SLIPS: Mapping[str, Callable[[Program], Story]] = {
    "S16": lambda program: happened(program, with_cell(("temporary", "crash"), "restart")),
    "S30": lambda program: happened(
        attrs.evolve(program, root=attrs.evolve(program.root, intensity=program.root.intensity + 1))
    ),
    "S64": lambda program: happened(with_room(program)),
}


def with_room(program: Program) -> Program:
    children = (
        attrs.evolve(child, max_children=9) if isinstance(child, Pool) else child
        for child in program.root.children
    )
    return attrs.evolve(program, root=attrs.evolve(program.root, children=tuple(children)))


def with_cell(cell: Any, action: Action) -> dict[Any, Action]:
    return {**RESTARTS, cell: action}


@pytest.mark.parametrize("law", SLIPS)
def test_a_broken_law_is_found_out(law: str) -> None:
    found = (breaches(program, SLIPS[law]) for program in programs(1, 500, ties=True))
    assert any(breach.startswith(law) for several in found for breach in several)
