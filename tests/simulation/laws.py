"""What holds in every story, whoever came first within an instant: laws over the events alone.

For programs in which much happens at one instant, where the model would have to know the scheduler's choice.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.program import Pool, Program, Tree, Worker
from tests.simulation.story import Story, Told

ENDS = ("child_exited", "start_error")


class Watched:
    """One supervisor's place, as its events show it."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.restarts: list[float] = []
        self.gave_up: float | None = None  # when


class Court:
    """Reads one story in order; `breaches` says which statements it broke."""

    def __init__(self, program: Program, story: Story) -> None:
        self._program, self._story = program, story
        self._watched: dict[str, Watched] = defaultdict(Watched)
        anew = {f"root/{op.path}/{op.child.id}".replace("//", "/") for op in program.ops if op.child}
        self._trees = {
            path: tree
            for path, tree in _trees(program.root, "root")
            if not any(f"{path}/".startswith(f"{other}/") for other in anew)
        }
        """Those that mean one spec throughout: the script starts nobody in their place."""
        self._parallel = {child.id for child in _children(program) if child.parallel}
        """The ids of children that may start beside the loop of their supervisor."""

    def breaches(self) -> list[str]:
        """Each with the event that broke it."""
        found = [f"{law}: {told}" for told in self._story.events for law in self._read(told)]
        return found + list(self._at_the_end())

    def _read(self, told: Told) -> Iterator[str]:
        above = self._watched[told.path.rpartition("/")[0]]
        match told.kind:
            case "child_started":
                yield from self._started(above, told)
            case "child_exited":
                yield from self._exited(above, told)
            case "child_restarting":
                yield from self._restarting(above, told)
            case "max_restarts":
                self._watched[told.path].gave_up = told.time
            case "supervisor_stopped":
                yield from self._stopped(told)
            case _:
                pass

    def _started(self, above: Watched, told: Told) -> Iterator[str]:
        if told.path in above.running:
            yield "S17 S25 started while it runs"
        # a start beside the loop that came to its end in the same instant is a start, and is stopped with the rest
        at_once = told.time == above.gave_up and _id(told.path) in self._parallel
        if above.gave_up is not None and not at_once:
            yield "S33 S41 started after giving up"
        above.running.append(told.path)
        pool = self._trees.get(told.path.rpartition("/")[0])
        if isinstance(pool, Pool) and len(above.running) > (pool.max_children or math.inf):
            yield "S64 more than its most children"

    def _exited(self, above: Watched, told: Told) -> Iterator[str]:
        if told.path not in above.running:
            yield "S19 exited without having been started"
        else:
            above.running.remove(told.path)

    def _restarting(self, above: Watched, told: Told) -> Iterator[str]:
        if told.path in above.running:
            yield "S20 restarting while it runs"
        tree = self._trees.get(told.path.rpartition("/")[0])
        if tree is None:
            return
        above.restarts.append(told.time)
        period = self._program.moment(tree.period, "period")
        if sum(told.time - then <= period for then in above.restarts) > tree.intensity:
            yield "S30 more restarts than its intensity"
        if all(kind == "temporary" for kind in self._kinds(told.path)):
            yield "S16 a temporary child restarts"

    def _kinds(self, path: str) -> Iterator[str]:
        """How a child at this path may be restarted: as first written, and as the script starts it anew."""
        above, _, id = path.partition("-")[0].rpartition("/")
        yield from (child.restart for child in self._trees[above].children if child.id == id)
        yield from (
            op.child.restart for op in self._program.ops if op.child is not None and op.child.id == id
        )

    def _stopped(self, told: Told) -> Iterator[str]:
        if self._watched[told.path].running:
            yield f"S36 S72 stopped before {self._watched[told.path].running}"
        self._watched[told.path] = Watched()
        if told.path == "root" and told != self._story.events[-1]:
            yield "S41 the root stopped, and more happened"

    def _at_the_end(self) -> Iterator[str]:
        story = self._story
        if missing := set(range(len(self._program.script()))) - set(story.answers):
            yield f"S54 without an answer: {sorted(missing)}"
        outcome = "" if story.outcome is None else story.outcome.result
        gave_up = any(told.kind == "max_restarts" and told.path == "root" for told in story.events)
        if outcome != "interrupted" and gave_up != outcome.startswith(
            "gave up"
        ):  # an interrupt comes first (T5)
            yield f"S35 the root gave up: {gave_up}, the outcome is {outcome!r}"
        if outcome in ("", "hangs"):
            yield "S43 S44 it never came to its end"
        if [told.time for told in story.events] != sorted(told.time for told in story.events):
            yield "X11 events out of order"


def _id(path: str) -> str:
    return path.rpartition("/")[2].partition("-")[0]


def _children(program: Program) -> Iterator[Worker | Tree | Pool]:
    """All that the program writes, and what its script starts."""
    for child in (program.root, *(op.child for op in program.ops if op.child is not None)):
        yield child
        if not isinstance(child, Worker):
            yield from (each for _, tree in _trees(child, "") for each in tree.children)


def _trees(tree: Tree | Pool, path: str) -> Iterator[tuple[str, Tree | Pool]]:
    yield path, tree
    for child in tree.children:
        if not isinstance(child, Worker):
            yield from _trees(child, f"{path}/{child.id}")
