"""Whatever is raised, wherever: each cell closes, each name is released, each monitor is told once, nothing runs on."""

from __future__ import annotations

import pytest

from proctor.runtime.exits import ExitReason
from proctor.runtime.supervision.child import Incarnation
from tests.simulation.faults import Branch, Deed, Leaf, Plan, makes_sense, plan
from tests.simulation.faulty import broken_laws
from tests.simulation.program import written
from tests.simulation.search import ALL, SEED, share
from tests.simulation.shrinking import smallest

pytestmark = pytest.mark.no_cover  # traced line by line, thousands of plans take minutes more

PARTS = 5
"""Tests that the search is cut into, so that none lasts as long as one that hangs."""

SIGHTS = {
    *("root: NoneType", "root: cancelled", "root: StartError", "root: MaxRestartsExceeded"),
    *("root: TreeTerminated", "root: KeyboardInterrupt", "root: SystemExit", "root: CancelledError"),
    *(
        "root: BaseExceptionGroup",
        "Normal",
        "Shutdown",
        "FinalShutdown",
        "TreeShutdown",
        "Killed",
        "ExitStatus",
    ),
    *("Boom", "Alien", "CancelledError", "GeneratorExit", "BaseExceptionGroup", "ProbeFailed", "StartError"),
}


def fails(plan: Plan) -> bool:
    return makes_sense(plan) and bool(broken_laws(plan))


@pytest.mark.covers("T3", "T4", "T5", "M25", "M30")
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_is_raised_each_end_is_whole_and_told_once(part: int) -> None:
    number = share(ALL) // PARTS
    for seed in range(SEED + part * number, SEED + (part + 1) * number):
        if broken_laws(plan(seed)):
            least = smallest(plan(seed), fails)
            laws = broken_laws(least) or broken_laws(plan(seed))
            pytest.fail(f"SIMULATE_SEED={SEED}\n{laws}\n\n{written(least)}", pytrace=False)


def test_the_plans_reach_every_kind_of_end() -> None:
    seen = set[str]()
    for seed in range(600):
        assert not broken_laws(plan(seed), seen)
        if seen >= SIGHTS:
            return
    assert seen >= SIGHTS, SIGHTS - seen


def test_a_plan_comes_again_from_its_seed_and_as_it_is_written() -> None:
    known = {kind.__name__: kind for kind in (Plan, Branch, Leaf, Deed)}
    for seed in range(50):
        assert eval(written(plan(seed)), known) == plan(seed)


def test_two_monitors_of_one_actor_may_have_a_notice_each() -> None:
    twice = Deed(1, "watch", path="a", word="b")
    assert not broken_laws(Plan(Branch("root", (Leaf("a"), Leaf("b"))), (twice, twice)))


def test_a_cell_that_never_closes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    raises = Plan(Branch("root", (Leaf("a", lasts=1, end="handler", fault="generator"),)))
    assert not broken_laws(raises)
    # ours, and replaced on purpose: no fault from outside makes a right runtime forget an end, and a law that has never
    # been seen to fail may be one that cannot
    end = Incarnation._end  # pyright: ignore[reportPrivateUsage]

    def forget(self: Incarnation, reason: ExitReason) -> None:
        if not isinstance(getattr(reason, "error", None), GeneratorExit):
            end(self, reason)

    monkeypatch.setattr(Incarnation, "_end", forget)
    assert "hangs, never closed: ['root', 'root/a']" in broken_laws(raises)
