"""Random programs, for Hypothesis: small trees and short scripts whose paths mostly exist.

Every choice shrinks towards what does the least: a permanent child that starts at once and lives for ever. A choice
costs more than what is done with it, so what belongs together is chosen from one menu.

A first life seldom fails to start, because nothing comes of a program whose root does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from hypothesis import strategies as st

from proctor.runtime.spec import Strategy
from tests.simulation.program import Life, Node, Op, Program, Tree, Verb, Worker

LONGEST = 40
ABSENT = "z"
IDS = ("a", "b", "c", "d")
DEPTH = 2

STILL = Life()
BIRTHS: tuple[Mapping[str, Any], ...] = (
    *({"after": after} for after in (0, 0, 0, 0, 1, 2, 5)),
    {"start": "ignores"},
    {"start": "ignores", "after": 3},
    {"start": "fails"},
    {"start": "shielded", "after": 4},
)
REBIRTHS: tuple[Mapping[str, Any], ...] = (
    *({"after": after} for after in (0, 0, 0, 0, 1, 3, 9)),
    *({"start": "fails", "after": after} for after in (0, 0, 0, 2)),
    {"start": "ignores"},
    {"start": "hangs"},
    {"start": "shielded", "after": 4},
)
DEATHS: tuple[Mapping[str, Any], ...] = (
    *({} for _ in range(6)),
    *(
        {"lasts": lasts, "end": end}
        for lasts, end in product((2, 7), ("crash", "normal", "shutdown", "status"))
    ),
    *({"lasts": lasts, "end": "crash"} for lasts in (1, 3, 5, 10, 16)),
)
CLEANUPS: tuple[Mapping[str, Any], ...] = (
    *({} for _ in range(7)),
    *({"cleanup": cleanup} for cleanup in (1, 3, 7, 25)),
    {"spoiled": True},
    {"cleanup": 3, "spoiled": True},
)
TREATMENTS: tuple[Mapping[str, Any], ...] = (
    *({} for _ in range(6)),
    *({"shutdown": shutdown} for shutdown in (4, 1, 0, "brutal_kill", 30)),
    {"start_timeout": 2},
    {"start_timeout": 5, "shutdown": 2},
    {"name": "n"},
    {"name": "m", "shutdown": 2},
)
FLAGS: tuple[Mapping[str, Any], ...] = tuple(
    {"strategy": strategy, "intensity": intensity, "period": period}
    for (intensity, period), strategy in product(
        ((1, 20), (2, 20), (3, 30), (5, 40), (0, 20), (1, 4)), ("one_for_one", "one_for_all", "rest_for_one")
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

STRATEGIES: tuple[Strategy, ...] = ("one_for_one", "one_for_all", "rest_for_one")
FOCUSES = (*STRATEGIES, "auto_shutdown", "nested")
"""What a program is about in the first place: its root's strategy, significant children, or supervisors below it."""

births, rebirths, deaths = st.sampled_from(BIRTHS), st.sampled_from(REBIRTHS), st.sampled_from(DEATHS)
cleanups, treatments, flags = st.sampled_from(CLEANUPS), st.sampled_from(TREATMENTS), st.sampled_from(FLAGS)
restarts = st.sampled_from(("permanent", "permanent", "transient", "temporary"))
auto_shutdowns = st.sampled_from(("never", "never", "never", "any_significant", "all_significant"))
kinds = st.lists(
    st.sampled_from(("worker", "worker", "worker", "worker", "stubborn", "tree", "tree")), max_size=4
)
lengths, ticks, seeds = st.integers(0, 8), st.integers(0, LONGEST), st.integers(0, 999)
verbs, new_ids, numbers = st.sampled_from(VERBS), st.sampled_from(("e", "a")), st.sampled_from((1, 1, 2, 3))


def _worker(draw: st.DrawFn, id: str, parent: Mapping[str, Any], stubborn: bool) -> Worker:
    lives = [Life(**draw(births), **draw(deaths), **draw(cleanups))]
    for _ in range(1, draw(numbers)):
        lives.append(Life(**draw(rebirths), **draw(deaths)))
    if lives[-1].lasts is not None and len(lives) > 1:
        lives.append(STILL)
    return Worker(id, tuple(lives), stubborn=stubborn, **_treatment(draw, parent))


def _treatment(draw: st.DrawFn, parent: Mapping[str, Any]) -> dict[str, Any]:
    restart = draw(restarts)
    can_matter = restart != "permanent" and parent["auto_shutdown"] != "never"
    return {"restart": restart, "significant": can_matter and draw(st.booleans()), **draw(treatments)}


def _root(draw: st.DrawFn, focus: str) -> Tree:
    own = {**draw(flags), "auto_shutdown": draw(auto_shutdowns)}
    if focus in STRATEGIES:
        own |= {"strategy": focus, "auto_shutdown": "never"}
    if focus == "auto_shutdown":
        own |= {"auto_shutdown": draw(st.sampled_from(("any_significant", "all_significant")))}
    kind = "tree" if focus == "nested" else "worker"
    return Tree("root", _children(draw, own, [kind, *draw(kinds)], 0), **own)


def _tree(draw: st.DrawFn, id: str, depth: int, parent: Mapping[str, Any]) -> Tree:
    own = {**draw(flags), "auto_shutdown": draw(auto_shutdowns)}
    return Tree(id, _children(draw, own, draw(kinds), depth), **own, **_treatment(draw, parent))


def _children(draw: st.DrawFn, own: Mapping[str, Any], chosen: list[str], depth: int) -> tuple[Node, ...]:
    return tuple(_node(draw, id, own, kind, depth) for id, kind in zip(IDS, chosen, strict=False))


def _node(draw: st.DrawFn, id: str, parent: Mapping[str, Any], kind: str, depth: int) -> Node:
    if kind == "tree" and depth < DEPTH:
        return _tree(draw, id, depth + 1, parent)
    return _worker(draw, id, parent, kind == "stubborn")


def _paths(tree: Tree, above: str = "") -> Iterator[tuple[str, Tree]]:
    """Each child's path, with the supervisor over it."""
    for node in tree.children:
        yield f"{above}{node.id}", tree
        if isinstance(node, Tree):
            yield from _paths(node, f"{above}{node.id}/")


def _op(draw: st.DrawFn, root: Tree) -> Op:
    at, verb = draw(ticks), draw(verbs)
    if verb in ("look", "cancel", "leave", "raise"):
        return Op(at, verb)
    path, over = draw(st.sampled_from([*_paths(root), (ABSENT, root)]))
    above = path.rpartition("/")[0]
    if verb in ("which", "count"):
        return Op(at, verb, above)
    if verb == "start":
        kind = draw(st.sampled_from(("worker", "worker", "tree")))
        return Op(at, verb, above, _node(draw, draw(new_ids), {"auto_shutdown": over.auto_shutdown}, kind, 1))
    return Op(at, verb, "" if path == ABSENT and verb in ("exit", "kill") else path)


@st.composite
def programs(draw: st.DrawFn, focus: str, ties: bool = False) -> Program:
    """A whole program. `focus` is one of `FOCUSES`."""
    root = _root(draw, focus)
    ops = tuple(_op(draw, root) for _ in range(draw(lengths)))
    return Program(root=root, ops=ops, ties=ties, seed=draw(seeds))
