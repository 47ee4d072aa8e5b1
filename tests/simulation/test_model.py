from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any

import attrs
import pytest

from proctor.runtime.spec import AutoShutdown, Restart, Strategy
from proctor.runtime.supervision.decide import RESTARTS, Action, ExitClass
from tests.simulation.prediction import Prediction
from tests.simulation.program import Delays, Life, Node, Op, Pool, Program, Tree, Worker, written
from tests.simulation.programs import programs
from tests.simulation.search import PROGRAMS, SEED
from tests.simulation.shrinking import smallest
from tests.simulation.story import Story, difference
from tests.simulation.world import happened
from tests.tables import each_row

pytestmark = pytest.mark.no_cover  # traced line by line, thousands of programs take minutes more

PARTS = 5
"""Tests that the search is cut into, so that none lasts as long as one that hangs."""

SIGHTS = (
    *(
        "restart",
        "retry",
        "group restart",
        "failed restart",
        "temporary bystander",
        "restart of a supervisor",
    ),
    *("root gives up", "nested gives up", "significant end", "initial start failed", "ignored", "name taken"),
    *(
        "start timed out",
        "start aborted",
        "ready too late",
        "start of a supervisor given up",
        "stop during a restart",
        "owed restart superseded",
        "request cut short by a stop",
    ),
    *(
        "brutal kill",
        "killed after its grace",
        "killed with its supervisor",
        "unresponsive",
        "shutdown error",
    ),
    *("death consumed by a stop phase", "kill of a worker", "kill of a supervisor", "exit of a worker"),
    *("exit of a supervisor", "terminate_child of one running", "terminate_child of one down"),
    *(
        "terminate_child of one restarting",
        "refused because restarting",
        "restart_child",
        "restart_child failed",
    ),
    *("put off", "stopped or started while put off", "stop while a restart is owed"),
    *("row goes on", "row ended", "too many in a row", "stopped together", "one id twice in a pool"),
    *("start in a pool: ok", "start in a pool: MaxChildren", "start in a pool: StartError"),
    *("start in a pool: AlreadyStarted", "terminate in a pool: ok", "terminate in a pool: NotFound"),
    "an earlier incarnation is not found",
    *("started together", "initial start failed together", "killed before its first step"),
    *("restarted beside another start", "failed restart beside others", "stopped while it starts"),
    *("asked to start beside what it does", "starts aborted at the end", "terminate_child of one starting"),
    *("delete_child", "start_child of a held id", "start_child failed", "cancelled", "leave", "raise"),
    *("ended before it was ready", "interrupted", "interrupted twice", "no restart after an interrupt"),
)

CRASHING = Program(root=Tree("root", (Worker("a", (Life(lasts=2), Life())),)), ops=(Op(8, "look"),))


@attrs.frozen
class Foretold:
    """What the model says of a program."""

    story: Story
    is_certain: bool
    sights: AbstractSet[str]


def foretold(program: Program) -> Foretold:
    model = Prediction(program)
    return Foretold(model.tell(), model.is_certain, model.sights)


told_before = lru_cache(maxsize=1500)(foretold)
"""For the programs that many tests go through."""


def disagreement(
    program: Program,
    run: Callable[[Program], Story] = happened,
    tell: Callable[[Program], Foretold] = foretold,
) -> str:
    expected = tell(program)
    return difference(run(program), expected.story) if expected.is_certain else ""


def disagrees(program: Program, run: Callable[[Program], Story] = happened) -> bool:
    return program.makes_sense() and bool(disagreement(program, run))


@pytest.mark.covers("S7", "S62")
@pytest.mark.parametrize("part", range(PARTS))
def test_the_runtime_does_what_the_statements_say(part: int) -> None:
    for program in programs(SEED + part, PROGRAMS // PARTS):
        if disagreement(program):
            least = smallest(program, disagrees)
            pytest.fail(f"SIMULATE_SEED={SEED}\n{disagreement(least)}\n\n{written(least)}", pytrace=False)


@pytest.fixture(scope="module")
def some() -> list[Program]:
    return list(programs(seed=1, size=1500))


def test_the_programs_reach_every_situation(some: list[Program]) -> None:
    seen = Counter(sight for program in some for sight in told_before(program).sights)
    assert set(seen) == set(SIGHTS), seen


def test_hardly_a_program_leaves_the_model_a_choice(some: list[Program]) -> None:
    assert sum(not told_before(program).is_certain for program in some) < len(some) // 20


def is_found_out(programs: Iterable[Program], run: Callable[[Program], Story]) -> bool:
    return any(disagreement(program, run, told_before) for program in programs)


ACTIONS: tuple[Action, ...] = ("restart", "keep", "drop")
ENDS = ("normal", "shutdown", "killed", "crash", "status")  # no program decides about its own restart
FLIPS = [
    (*cell, action)
    for cell, right in RESTARTS.items()
    for action in ACTIONS
    if action != right and cell[1] in ENDS
]


@pytest.mark.covers("S14", "S16")
@each_row(("kind", "exit_class", "action"), FLIPS, ids=str)
def test_a_wrong_cell_of_the_restart_table_is_found_out(
    some: list[Program], kind: Restart, exit_class: ExitClass, action: Action
) -> None:
    cell = (kind, exit_class)
    wrong: dict[Any, Action] = {**RESTARTS, cell: action}
    concerned = (program for program in some if cell in cells_used(program))  # the others run rightly
    assert is_found_out(concerned, lambda program: happened(program, wrong))


class Used(dict[Any, Action]):
    """The restart table, which notes what is looked up in it."""

    def __init__(self) -> None:
        super().__init__(RESTARTS)
        self.cells: set[Any] = set()

    def __getitem__(self, cell: Any) -> Action:
        self.cells.add(cell)
        return super().__getitem__(cell)


@lru_cache(maxsize=1500)
def cells_used(program: Program) -> AbstractSet[Any]:
    """The cells of the restart table that decide about the children of a program."""
    table = Used()
    happened(program, table)
    return table.cells


# what a supervisor could have got wrong: its flags, by the root's that the runtime is given instead
SLIPS: Mapping[str, Callable[[Tree], Tree]] = {
    "S7 together as one by one": lambda root: with_children(root, parallel=False),
    "S7 one by one as together": lambda root: with_children(root, parallel=True),
    "S21 one_for_one as one_for_all": lambda root: as_strategy(root, "one_for_one", "one_for_all"),
    "S22 one_for_all as rest_for_one": lambda root: as_strategy(root, "one_for_all", "rest_for_one"),
    "S23 rest_for_one as one_for_one": lambda root: as_strategy(root, "rest_for_one", "one_for_one"),
    "S30 one more restart": lambda root: attrs.evolve(root, intensity=root.intensity + 1),
    "S30 a longer window": lambda root: attrs.evolve(root, period=root.period * 2),
    "S36 another order": lambda root: attrs.evolve(root, children=root.children[::-1]),
    "S38 no time to stop": lambda root: with_children(root, shutdown=0),
    "S38 all the time to stop": lambda root: with_children(root, shutdown=1000),
    "S59 never": lambda root: as_rule(root, "any_significant", "all_significant"),
    "S60 the first instead of the last": lambda root: as_rule(root, "all_significant", "any_significant"),
    "X1 at once": lambda root: with_children(root, backoff=None),
    "X1 not growing": lambda root: with_delays(root, factor=1),
    "X1 no most": lambda root: with_delays(root, most=1000),
    "X1 no jitter": lambda root: with_delays(root, jitter=0.0),
    "X2 later": lambda root: with_delays(root, reset_after=1000),
    "X2 sooner": lambda root: with_delays(root, reset_after=1),
    "X3 no end": lambda root: with_delays(root, max_in_row=None),
    "X4 no start time-out": lambda root: with_children(root, start_timeout=None),
    "S64 one more": lambda root: with_pools(root, max_children=3),
}


@each_row("slip", SLIPS)
def test_a_supervisor_that_does_something_else_is_found_out(some: list[Program], slip: str) -> None:
    wrong = SLIPS[slip]
    concerned = [program for program in some if wrong(program.root) != program.root]  # the others run rightly
    assert is_found_out(concerned, lambda program: happened(attrs.evolve(program, root=wrong(program.root))))


def as_strategy(root: Tree, right: Strategy, wrong: Strategy) -> Tree:
    return attrs.evolve(root, strategy=wrong) if root.strategy == right else root


def as_rule(root: Tree, right: AutoShutdown, wrong: AutoShutdown) -> Tree:
    return attrs.evolve(root, auto_shutdown=wrong) if root.auto_shutdown == right else root


def with_delays(root: Tree, **changes: Any) -> Tree:
    def changed(child: Node) -> Node:
        delays = None if child.backoff is None else attrs.evolve(child.backoff, **changes)
        return attrs.evolve(child, backoff=delays)

    return attrs.evolve(root, children=tuple(map(changed, root.children)))


def with_pools(root: Tree, **changes: Any) -> Tree:
    children = tuple(
        attrs.evolve(child, **changes) if isinstance(child, Pool) else child for child in root.children
    )
    return attrs.evolve(root, children=children)


def with_children(root: Tree, **changes: Any) -> Tree:
    return attrs.evolve(root, children=tuple(attrs.evolve(child, **changes) for child in root.children))


def test_a_failure_is_written_as_a_program_that_can_be_pasted(some: list[Program]) -> None:
    known = {kind.__name__: kind for kind in (Program, Tree, Pool, Worker, Life, Delays, Op)}
    several = some[:300]
    assert [eval(written(program), known) for program in several] == several


def test_a_difference_is_shown_with_what_came_before() -> None:
    wrong: dict[Any, Action] = {**RESTARTS, ("permanent", "crash"): "keep"}
    text = difference(happened(CRASHING, wrong), Prediction(CRASHING).tell())
    before, seen, expected = text.partition("  seen:")[0], *text.partition("  seen:")[2].split("  expected:")
    assert "events differ at 4, after" in before
    assert "child_terminated" in before
    assert "supervisor_stopped" in seen
    assert "child_restarting" in expected


def test_a_failure_is_shrunk_to_what_matters(some: list[Program]) -> None:
    wrong: dict[Any, Action] = {**RESTARTS, ("transient", "normal"): "restart"}

    def fails(program: Program) -> bool:
        return disagrees(program, lambda program: happened(program, wrong))

    least = smallest(next(filter(fails, some)), fails)
    [child] = least.root.children
    assert least == Program(
        root=Tree("root", (Worker(child.id, (Life(lasts=0, end="normal"),), restart="transient"),))
    )
