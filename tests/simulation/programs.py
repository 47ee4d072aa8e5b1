"""Random programs, for Hypothesis: small trees and short scripts whose paths mostly exist.

Every choice shrinks towards what does the least: a permanent child that starts at once and lives for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.simulation.program import Life, Node, Op, Program, Tree, Verb, Worker

T = TypeVar("T")

LONGEST = 40
ABSENT = "z"

TICKS = st.sampled_from((0, 0, 0, 1, 2, 3, 5, 8, 13))
LASTS = st.sampled_from((None, None, 1, 2, 3, 4, 6, 9, 14, 20))
SHUTDOWNS = st.sampled_from((None, None, 4, 1, 0, "brutal_kill", 30))
TIMEOUTS = st.sampled_from((None, None, None, 2, 5))
NAMES = st.sampled_from((None, None, None, None, "m", "n"))
RESTARTS = st.sampled_from(("permanent", "transient", "temporary"))
STARTS = st.sampled_from(("ready", "ready", "ready", "ready", "fails", "ignores", "hangs"))
ENDS = st.sampled_from(("crash", "normal", "shutdown", "status"))
RARELY = st.sampled_from((False, False, False, False, False, True))
STRATEGIES = st.sampled_from(("one_for_one", "one_for_all", "rest_for_one"))
SHUTDOWN_RULES = st.sampled_from(("never", "never", "any_significant", "all_significant"))
INTENSITIES = st.sampled_from((1, 2, 0, 3, 5))
PERIODS = st.sampled_from((20, 4, 10, 40))
VERBS: st.SearchStrategy[Verb] = st.sampled_from(
    (
        *("kill", "terminate", "restart", "start", "look", "exit", "delete", "terminate", "restart", "start", "kill"),
        *("which", "count", "look", "cancel", "leave", "raise"),
    )
)


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """One incarnation."""
    fields: dict[str, Any] = {"start": draw(STARTS), "after": draw(TICKS)}
    if fields["start"] == "ready":
        fields |= {"lasts": draw(LASTS), "cleanup": draw(TICKS), "spoiled": draw(RARELY)}
        if fields["lasts"] is not None:
            fields["end"] = draw(ENDS)
    return Life(**fields)


LIVES = st.lists(lives(), min_size=1, max_size=3).map(tuple)
IDS = ("a", "b", "c", "d")
DEPTH = 2


def _common(draw: st.DrawFn, parent: dict[str, Any]) -> dict[str, Any]:
    restart = draw(RESTARTS)
    can_matter = restart != "permanent" and parent["auto_shutdown"] != "never"
    return {
        "restart": restart,
        "shutdown": draw(SHUTDOWNS),
        "significant": can_matter and draw(st.booleans()),
        "name": draw(NAMES),
        "start_timeout": draw(TIMEOUTS),
    }


def _worker(draw: st.DrawFn, id: str, parent: dict[str, Any]) -> Worker:
    return Worker(id, draw(LIVES), stubborn=draw(RARELY), **_common(draw, parent))


def _flags(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "strategy": draw(STRATEGIES),
        "intensity": draw(INTENSITIES),
        "period": draw(PERIODS),
        "auto_shutdown": draw(SHUTDOWN_RULES),
    }


def _children(draw: st.DrawFn, flags: dict[str, Any], depth: int) -> tuple[Node, ...]:
    kinds = draw(st.lists(RARELY, max_size=len(IDS)))
    return tuple(_node(draw, id, flags, depth, nested) for id, nested in zip(IDS, kinds, strict=False))


def _node(draw: st.DrawFn, id: str, parent: dict[str, Any], depth: int, nested: bool) -> Node:
    if not nested or depth == DEPTH:
        return _worker(draw, id, parent)
    flags = _flags(draw)
    return Tree(id, _children(draw, flags, depth + 1), **flags, **_common(draw, parent))


def _paths(tree: Tree, above: str = "") -> Iterator[tuple[str, Tree]]:
    """Each child's path, with the supervisor over it."""
    for node in tree.children:
        yield f"{above}{node.id}", tree
        if isinstance(node, Tree):
            yield from _paths(node, f"{above}{node.id}/")


def _op(draw: st.DrawFn, root: Tree) -> Op:
    at, verb = draw(st.integers(0, LONGEST)), draw(VERBS)
    places = [*_paths(root), (ABSENT, root)]
    path, over = draw(st.sampled_from(places))
    above = path.rpartition("/")[0]
    if verb in ("which", "count"):
        return Op(at, verb, above)
    if verb == "start":
        flags = {"auto_shutdown": over.auto_shutdown}
        return Op(at, verb, above, _node(draw, draw(st.sampled_from(("e", "a"))), flags, 1, draw(RARELY)))
    if verb in ("exit", "kill") and path == ABSENT:
        path = ""
    return Op(at, verb) if verb in ("look", "cancel", "leave", "raise") else Op(at, verb, path)


@st.composite
def programs(draw: st.DrawFn, ties: bool = False) -> Program:
    """A whole program."""
    flags = _flags(draw)
    root = Tree("root", _children(draw, flags, 0), **flags)
    ops = tuple(_op(draw, root) for _ in range(draw(st.integers(0, 6))))
    return Program(root=root, ops=ops, ties=ties, seed=draw(st.integers(0, 1000)))
