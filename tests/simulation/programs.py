"""Random programs: small trees and short scripts whose paths mostly exist. The same seed gives the same program.

Chosen with plain `random` and shrunk by `shrinking`: strategies of Hypothesis took longer to choose a program than
the runtime takes to run it, and two fifths of what they chose had no script at all.

A first life seldom fails to start, because nothing comes of a program whose root does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

from proctor.runtime.spec import AutoShutdown, Restart
from tests.simulation.program import Delays, Life, Node, Op, Pool, Program, Tree, Verb, Worker

LONGEST = 40
ABSENT = "z"
IDS = ("a", "b", "c", "d")
DEPTH = 2

STILL = Life()
BIRTHS: tuple[Mapping[str, Any], ...] = (
    *({"after": after} for after in (0, 0, 0, 1, 2, 5) for _ in range(5)),
    {"start": "ignores"},
    {"start": "ignores", "after": 3},
    {"start": "fails"},
    {"start": "fails", "after": 4},
    {"start": "shielded", "after": 4},
)
REBIRTHS: tuple[Mapping[str, Any], ...] = (
    *({"after": after} for after in (0, 0, 0, 0, 1, 3, 9)),
    *({"start": "fails", "after": after} for after in (0, 0, 2, 7, 16)),
    {"start": "ignores"},
    {"start": "hangs"},
    {"start": "shielded", "after": 4},
)
DEATHS: tuple[Mapping[str, Any], ...] = (
    *({} for _ in range(8)),
    *(
        {"lasts": lasts, "end": end}
        for lasts, end in product((2, 7), ("crash", "normal", "shutdown", "status"))
    ),
    *({"lasts": lasts, "end": "crash"} for lasts in (1, 3, 5, 10, 16)),
)
INTERRUPTING: tuple[Mapping[str, Any], ...] = (
    *DEATHS,
    *({"lasts": lasts, "end": "interrupt", "cleanup": 4} for lasts in (3, 5)),
)
"""Of those that clean up then: of another, whether it ends or is asked to end first is open."""

CLEANUPS: tuple[Mapping[str, Any], ...] = (
    *({} for _ in range(7)),
    *({"cleanup": cleanup} for cleanup in (1, 3, 7, 25)),
    {"spoiled": True},
    {"cleanup": 3, "spoiled": True},
)
TREATMENTS: tuple[Mapping[str, Any], ...] = (
    *({} for _ in range(14)),
    *({"shutdown": shutdown} for shutdown in (4, 1, 0, "brutal_kill", 30)),
    {"start_timeout": 4},
    {"start_timeout": 5, "shutdown": 2},
    {"name": "n"},
    {"name": "m", "shutdown": 2},
)
BACKOFFS: tuple[Delays | None, ...] = (
    *(None for _ in range(12)),
    Delays(),
    Delays(least=2, most=20, factor=3, max_in_row=2),
    Delays(least=1, most=4, reset_after=6),
    Delays(least=3, most=12, jitter=0.5, reset_after=2),
    Delays(least=0, most=8, jitter=1.0, max_in_row=1, reset_after=1),
)
FLAGS: tuple[Mapping[str, Any], ...] = tuple(
    {"strategy": strategy, "intensity": intensity, "period": period}
    for (intensity, period), strategy in product(
        ((1, 20), (2, 20), (3, 30), (5, 40), (0, 20), (1, 4), (3, 20), (8, 40)),
        ("one_for_one", "one_for_all", "rest_for_one"),
    )
)
VERBS: tuple[Verb, ...] = (
    *(
        "kill",
        "terminate",
        "restart",
        "start",
        "kill",
        "look",
        "exit",
        "delete",
        "terminate",
        "restart",
        "start",
    ),
    *("kill", "kill", "exit", "which", "count", "look", "restart", "terminate", "cancel", "leave", "raise"),
)

IN_POOL: tuple[Verb, ...] = ("terminate", "terminate", "kill", "exit", "restart", "delete")
RESTARTS: tuple[Restart, ...] = ("permanent", "permanent", "transient", "temporary")
AUTO_SHUTDOWNS: tuple[AutoShutdown, ...] = ("never", "never", "never", "any_significant", "all_significant")
KINDS = (*("worker" for _ in range(8)), "stubborn", "stubborn", *("tree" for _ in range(4)), "pool")


class Chooser:
    """Chooses one program."""

    def __init__(self, random: Random) -> None:
        self._random, self._pick = random, random.choice

    def program(self, ties: bool) -> Program:
        """The whole of it."""
        flags = self._flags()
        root = Tree("root", self._children(flags, 1, 0), **flags)
        paths = [*_paths(root), ABSENT]
        ops = [self._op(paths) for _ in range(self._random.randint(0, 9))]
        for pool in _pools(root):
            for _ in range(self._random.randint(2, 5)):
                ops.extend(self._visit(pool))
        return Program(root=root, ops=tuple(ops), ties=ties, seed=self._random.randrange(1000))

    def _visit(self, pool: str) -> Iterator[Op]:
        """A child of a pool, and what is then done to it or to its double."""
        at, child = self._random.randint(0, LONGEST // 2), self._new_child("never")
        yield Op(at, "start", pool, child)
        for _ in range(self._pick((0, 1, 1, 2))):
            id = child.id + self._pick(("", "", "-2"))
            yield Op(at + self._random.randint(1, LONGEST // 2), self._pick(IN_POOL), f"{pool}/{id}")

    def _flags(self) -> dict[str, Any]:
        return {**self._pick(FLAGS), "auto_shutdown": self._pick(AUTO_SHUTDOWNS)}

    def _children(self, flags: Mapping[str, Any], least: int, depth: int) -> tuple[Node, ...]:
        ids = IDS[: self._random.randint(least, len(IDS))]
        return tuple(self._node(id, flags, self._pick(KINDS), depth) for id in ids)

    def _node(self, id: str, parent: Mapping[str, Any], kind: str, depth: int) -> Node:
        if kind == "pool":
            flags = self._flags()
            limits = {"intensity": flags["intensity"], "period": flags["period"]}
            return Pool(id, max_children=self._pick((None, 2, 1)), **limits, **self._treatment(parent))
        if kind != "tree" or depth == DEPTH:
            lives = self._lives(DEATHS if kind == "stubborn" else INTERRUPTING)
            return Worker(id, lives, stubborn=kind == "stubborn", **self._treatment(parent))
        flags = self._flags()
        return Tree(id, self._children(flags, 0, depth + 1), **flags, **self._treatment(parent))

    def _lives(self, deaths: Sequence[Mapping[str, Any]]) -> tuple[Life, ...]:
        lives = [Life(**{**self._pick(BIRTHS), **self._pick(CLEANUPS), **self._pick(deaths)})]
        for _ in range(self._pick((0, 0, 1, 2, 3))):
            lives.append(Life(**self._pick(REBIRTHS), **self._pick(deaths)))
        if lives[-1].lasts is not None and len(lives) > 1:
            lives.append(STILL)
        return tuple(lives)

    def _treatment(self, parent: Mapping[str, Any]) -> dict[str, Any]:
        restart = self._pick(RESTARTS)
        can_matter = restart != "permanent" and parent["auto_shutdown"] != "never"
        significant = can_matter and self._pick((True, False))
        parallel = self._pick((False, False, True, True))
        rest = {"backoff": self._pick(BACKOFFS), "parallel": parallel, **self._pick(TREATMENTS)}
        return {"restart": restart, "significant": significant, **rest}

    def _op(self, paths: Sequence[str]) -> Op:
        at, verb, path = self._random.randint(0, LONGEST), self._pick(VERBS), self._pick(paths)
        above = path.rpartition("/")[0]
        if verb in ("look", "cancel", "leave", "raise"):
            return Op(at, verb)
        if verb in ("which", "count"):
            return Op(at, verb, above)
        if verb == "start":
            return Op(at, verb, above, self._new_child(self._pick(("never", "any_significant"))))
        return Op(at, verb, "" if path == ABSENT and verb in ("exit", "kill") else path)

    def _new_child(self, rule: AutoShutdown) -> Node:
        kind = self._pick(("worker", "worker", "worker", "worker", "stubborn", "tree", "tree", "pool"))
        return self._node(self._pick(("e", "a")), {"auto_shutdown": rule}, kind, 1)


def _paths(tree: Tree, above: str = "") -> Iterator[str]:
    """Each child's path."""
    for node in tree.children:
        yield f"{above}{node.id}"
        if isinstance(node, Tree):
            yield from _paths(node, f"{above}{node.id}/")


def _pools(tree: Tree, above: str = "") -> Iterator[str]:
    for node in tree.children:
        if isinstance(node, Pool):
            yield f"{above}{node.id}"
        elif isinstance(node, Tree):
            yield from _pools(node, f"{above}{node.id}/")


def programs(seed: int, size: int, ties: bool = False) -> Iterator[Program]:
    """`size` programs."""
    for number in range(size):
        yield Chooser(Random(f"{seed} {number}")).program(ties)
