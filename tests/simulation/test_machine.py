"""Programs built step by step by Hypothesis: each rule adds a child, a turn of its life, or something done from outside.

Guarantees: what a rule adds makes sense where it stands, so that each example is a whole program; it is run at the
end and compared with the model. A failure is shrunk by Hypothesis, rule by rule, and printed as a program to paste.

Why not all of the search: choosing a program took Hypothesis 4.3 ms, and it chose many twice; `programs` takes 0.13 ms,
and the runtime about as long as Hypothesis to run one. Here are the few that are built from what came before: a call
for a child that was just added, a kill one instant after a crash was planned.
"""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from proctor.runtime.spec import AutoShutdown, Restart, Strategy
from proctor.runtime.supervision.decide import RESTARTS, RestartTable
from tests.simulation.prediction import Prediction
from tests.simulation.program import (
    Delays,
    End,
    Life,
    Node,
    Op,
    Pool,
    Program,
    Start,
    Tree,
    Verb,
    Worker,
    written,
)
from tests.simulation.search import SEED, share
from tests.simulation.story import difference
from tests.simulation.world import happened

pytestmark = pytest.mark.no_cover  # traced line by line, thousands of programs take minutes more

EXAMPLES = share(300)
STEPS = 12
DEEPEST = 2
IDS = "abcdefghijklmnopqrstuvwxyz"

TICKS = st.integers(0, 9)
GAPS = st.sampled_from((0, 1, 1, 2, 5))
KINDS: st.SearchStrategy[Restart] = st.sampled_from(("permanent", "transient", "temporary"))
STRATEGIES: st.SearchStrategy[Strategy] = st.sampled_from(("one_for_one", "one_for_all", "rest_for_one"))
RULES: st.SearchStrategy[AutoShutdown] = st.sampled_from(
    ("never", "never", "any_significant", "all_significant")
)
GRACES = st.sampled_from((None, None, None, 3, 0, "brutal_kill", 30))
ENDS: st.SearchStrategy[End] = st.sampled_from(("crash", "normal", "shutdown", "status"))
STARTS: st.SearchStrategy[Start] = st.sampled_from(("ready", "fails", "ignores", "hangs", "shielded"))
REQUESTS: st.SearchStrategy[Verb] = st.sampled_from(("terminate", "restart", "delete", "which", "count"))
ENDINGS: st.SearchStrategy[Verb] = st.sampled_from(("look", "look", "look", "cancel", "leave", "raise"))
DELAYS = st.builds(
    Delays,
    least=st.integers(0, 4),
    most=st.integers(4, 12),
    factor=st.integers(1, 3),
    jitter=st.sampled_from((0.0, 0.5, 1.0)),
    reset_after=st.none() | TICKS,
    max_in_row=st.none() | st.integers(0, 3),
)


class Building(RuleBasedStateMachine):
    """One program, from its root on. Paths are those of `Op`."""

    restarts: ClassVar[RestartTable] = RESTARTS
    supervisors: Bundle[str] = Bundle("supervisors")
    pools: Bundle[str] = Bundle("pools")
    workers: Bundle[str] = Bundle("workers")

    def __init__(self) -> None:
        super().__init__()
        self.root = Tree("root")
        self.ops: list[Op] = []
        self.now = 0

    @initialize(
        target=supervisors, strategy=STRATEGIES, intensity=st.sampled_from((1, 2, 3, 9, 0)), auto=RULES
    )
    def begin(self, strategy: Strategy, intensity: int, auto: AutoShutdown) -> str:
        self.root = Tree("root", strategy=strategy, intensity=intensity, auto_shutdown=auto)
        return ""

    @rule(
        target=workers,
        under=supervisors,
        restart=KINDS,
        shutdown=GRACES,
        significant=st.booleans(),
        stubborn=st.booleans(),
        parallel=st.booleans(),
        lasts=st.none() | TICKS,
        end=ENDS,
    )
    def add_worker(self, under: str, significant: bool, lasts: int | None, end: End, **fields: Any) -> str:
        """With a first life, which begins well: of a program whose root does not start nothing comes."""
        life = Life(lasts=lasts, end=end)
        return self._add(under, Worker(self._free_id(under), (life,), **fields), significant)

    @rule(
        target=supervisors,
        under=supervisors,
        restart=KINDS,
        shutdown=GRACES,
        significant=st.booleans(),
        strategy=STRATEGIES,
        intensity=st.integers(0, 3),
        auto_shutdown=RULES,
        parallel=st.booleans(),
    )
    def add_supervisor(self, under: str, significant: bool, **fields: Any) -> str | MultipleResults[str]:
        if _depth(under) == DEEPEST:
            return multiple()
        return self._add(under, Tree(self._free_id(under), **fields), significant)

    @rule(
        target=pools,
        under=supervisors,
        restart=KINDS,
        intensity=st.integers(0, 3),
        max_children=st.none() | st.integers(1, 2),
    )
    def add_pool(self, under: str, **fields: Any) -> str:
        return self._add(under, Pool(self._free_id(under), **fields), significant=False)

    def _free_id(self, under: str) -> str:
        return IDS[len(_tree(self.root, under).children)]

    def _add(self, under: str, node: Node, significant: bool) -> str:
        tree = _tree(self.root, under)
        matters = significant and node.restart != "permanent" and tree.auto_shutdown != "never"
        node = attrs.evolve(node, significant=matters)
        self.root = _with(self.root, under, children=(*tree.children, node))
        return f"{under}/{node.id}".lstrip("/")

    @rule(worker=workers, start=STARTS, after=TICKS, lasts=st.none() | TICKS, end=ENDS)
    def live(self, worker: str, **life: Any) -> None:
        """One more incarnation: a start, perhaps slow or failing, and an end."""
        held = _at(self.root, worker)
        assert isinstance(held, Worker)
        self.root = _with(self.root, worker, lives=(*held.lives, Life(**life)))

    @rule(worker=workers, cleanup=st.integers(1, 30), spoiled=st.booleans())
    def cling(self, worker: str, **cleanup: Any) -> None:
        """The last incarnation so far takes its time to end."""
        held = _at(self.root, worker)
        assert isinstance(held, Worker)
        lives = (*held.lives[:-1], attrs.evolve(held.lives[-1], **cleanup))
        self.root = _with(self.root, worker, lives=lives)

    @rule(child=st.one_of(workers, pools), backoff=DELAYS)
    def put_off(self, child: str, backoff: Delays) -> None:
        self.root = _with(self.root, child, backoff=backoff)

    @rule(child=workers, limit=TICKS)
    def limit_start(self, child: str, limit: int) -> None:
        self.root = _with(self.root, child, start_timeout=limit)

    @rule(gap=GAPS, child=st.one_of(workers, supervisors, pools), verb=REQUESTS)
    def ask(self, gap: int, child: str, verb: Verb) -> None:
        above = child.rpartition("/")[0]
        self._do(gap, verb, above if verb in ("which", "count") else child)

    @rule(gap=GAPS, under=st.one_of(supervisors, pools), id=st.sampled_from("ae"), restart=KINDS, lasts=TICKS)
    def start(self, gap: int, under: str, id: str, restart: Restart, lasts: int) -> None:
        child = Worker(id, (Life(lasts=lasts), Life()), restart=restart)
        self._do(gap, "start", under, child)

    @rule(
        gap=GAPS,
        pool=pools,
        id=st.sampled_from(("a", "e", "a-2", "e-2")),
        verb=st.sampled_from(("terminate", "kill")),
    )
    def end_in_pool(self, gap: int, pool: str, id: str, verb: Verb) -> None:
        self._do(gap, verb, f"{pool}/{id}")

    @rule(gap=GAPS, child=st.one_of(workers, supervisors, pools), verb=st.sampled_from(("kill", "exit")))
    def end(self, gap: int, child: str, verb: Verb) -> None:
        """A child, a supervisor among them or the root, is asked to end or killed."""
        self._do(gap, verb, child)

    @rule(gap=GAPS, verb=ENDINGS)
    def finish(self, gap: int, verb: Verb) -> None:
        """The whole is stopped, or cancelled, at a next instant; what follows finds it ending."""
        self._do(gap, verb)

    def _do(self, gap: int, verb: Verb, path: str = "", child: Node | None = None) -> None:
        self.now += gap
        self.ops.append(Op(self.now, verb, path, child))

    def teardown(self) -> None:
        program = Program(root=self.root, ops=tuple(self.ops), leave=max(40, self.now))
        assert program.makes_sense(), written(program)
        model = Prediction(program)
        expected = model.tell()
        differs = difference(happened(program, self.restarts), expected) if model.is_certain else ""
        if differs:
            raise AssertionError(f"{differs}\n\n{written(program)}")


def _depth(path: str) -> int:
    return len(path.split("/")) if path else 0


def _at(node: Node, path: str) -> Node:
    if not path:
        return node
    assert isinstance(node, Tree)
    id, _, rest = path.partition("/")
    return _at(next(child for child in node.children if child.id == id), rest)


def _tree(root: Tree, path: str) -> Tree:
    found = _at(root, path)
    assert isinstance(found, Tree)
    return found


def _with(node: Node, path: str, **changes: Any) -> Any:
    """The same tree, but for what stands at a path."""
    if not path:
        return attrs.evolve(node, **changes)
    assert isinstance(node, Tree)
    id, _, rest = path.partition("/")
    children = (_with(child, rest, **changes) if child.id == id else child for child in node.children)
    return attrs.evolve(node, children=tuple(children))


def run(machine: type[Building], examples: int, **other: Any) -> None:
    chosen = settings(max_examples=examples, stateful_step_count=STEPS, deadline=None, database=None, **other)
    run_state_machine_as_test(seed(SEED)(machine), settings=chosen)


@pytest.mark.covers("S7", "S67")
def test_what_is_built_step_by_step_does_what_the_statements_say() -> None:
    run(Building, EXAMPLES)


class Mistaken(Building):
    """With a cell of the restart table that is wrong."""

    restarts: ClassVar[RestartTable] = {**RESTARTS, ("permanent", "crash"): "keep"}


@pytest.mark.covers("S14")
def test_a_mistake_is_found_and_written_to_be_pasted() -> None:
    with pytest.raises(AssertionError) as caught:
        run(Mistaken, 2000, phases=[Phase.generate])
    known = {kind.__name__: kind for kind in (Program, Tree, Pool, Worker, Life, Delays, Op)}
    pasted = eval(str(caught.value).rpartition("\n\n")[2], known)
    model = Prediction(pasted)
    expected = model.tell()
    assert difference(happened(pasted, Mistaken.restarts), expected)
    assert not difference(happened(pasted), expected)
