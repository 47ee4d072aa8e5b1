"""Random trees in which anything may be raised anywhere, and ended in any way. The same seed gives the same plan.

A plan is data, so that one that breaks a law can be made smaller and pasted. Times are seconds of a virtual clock; many
things fall into one instant, on purpose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Literal, TypeAlias

import attrs

from proctor.runtime import (
    Crash,
    DoNotRestart,
    ExitReason,
    ExitStatus,
    FinalShutdown,
    Killed,
    Normal,
    Shutdown,
    TerminateTree,
    TreeShutdown,
)
from proctor.runtime.spec import AutoShutdown, Restart, Strategy

Grace: TypeAlias = int | Literal["brutal_kill"] | None
End: TypeAlias = Literal["returns", "handler", "stop", "nursery", "background"]
Cleanup: TypeAlias = Literal["", "slow", "hangs", "shielded"]
Verb: TypeAlias = Literal[
    "exit",
    "kill",
    "stop",
    "cancel",
    "leave",
    "raise",
    "terminate",
    "restart",
    "start",
    "cast",
    "call",
    "stream",
    "link",
    "watch",
    "monitor",
    "wait_out",
]

KINDS: tuple[Restart, ...] = ("permanent", "permanent", "transient", "temporary")
RULES: tuple[AutoShutdown, ...] = ("never", "never", "any_significant", "all_significant")
STRATEGIES: tuple[Strategy, ...] = ("one_for_one", "one_for_all", "rest_for_one")
ENDS: tuple[End, ...] = ("returns", "handler", "stop", "nursery", "background")
CLEANUPS: tuple[Cleanup, ...] = ("", "", "", "slow", "hangs", "shielded")
GRACES: tuple[Grace, ...] = (None, None, None, 0, 1, 3, 99, "brutal_kill")
"""99 is without limit."""

DEEPEST = 3
LONGEST = 9


class Boom(Exception):
    """A failure on purpose."""


class Alien(BaseException):
    """Neither an `Exception` nor an interrupt."""


FAULTS: Mapping[str, Callable[[], BaseException]] = {
    "error": lambda: Boom("error"),
    "asyncio": asyncio.CancelledError,
    "generator": GeneratorExit,
    "alien": Alien,
    "final": lambda: DoNotRestart("enough"),
    "tree": lambda: TerminateTree("enough"),
    "group": lambda: BaseExceptionGroup("several", [Boom("one"), Alien("two"), GeneratorExit()]),
    "interrupt": KeyboardInterrupt,
    "exit": lambda: SystemExit(3),
    "beside an interrupt": lambda: BaseExceptionGroup(
        "outer", [Boom("one"), BaseExceptionGroup("inner", [Alien("two"), KeyboardInterrupt()])]
    ),
}
SELDOM = ("interrupt", "exit", "beside an interrupt")

REASONS: Mapping[str, ExitReason] = {
    "shutdown": Shutdown(),
    "normal": Normal(),
    "killed": Killed(),
    "crash": Crash(Boom("asked")),
    "alien": Crash(Alien("asked")),
    "status": ExitStatus(1),
    "final": FinalShutdown("asked"),
    "tree": TreeShutdown("asked"),
}


@attrs.frozen
class Leaf:
    """A child without children: an actor, or a function. Its first `faulty` incarnations do what is said of them."""

    id: str
    is_function: bool = attrs.field(default=False, kw_only=True)
    restart: Restart = attrs.field(default="permanent", kw_only=True)
    shutdown: Grace = attrs.field(default=None, kw_only=True)
    is_named: bool = attrs.field(default=False, kw_only=True)
    is_significant: bool = attrs.field(default=False, kw_only=True)
    after: int = attrs.field(default=0, kw_only=True)
    start: str = attrs.field(default="", kw_only=True)
    """What is raised instead of becoming ready; "hangs" never becomes ready."""
    lasts: int | None = attrs.field(default=None, kw_only=True)
    end: End = attrs.field(default="returns", kw_only=True)
    fault: str = attrs.field(default="error", kw_only=True)
    cleanup: Cleanup = attrs.field(default="", kw_only=True)
    spoiled: str = attrs.field(default="", kw_only=True)
    """What the clean-up raises."""
    left: str = attrs.field(default="", kw_only=True)
    """What is raised by a function that it leaves to be called when it is at rest."""
    probe: str = attrs.field(default="", kw_only=True)
    """What its liveness probe raises."""
    faulty: int = attrs.field(default=2, kw_only=True)


@attrs.frozen
class Branch:
    """A supervisor. One with a `set_up` gets its children from an async function that takes so long."""

    id: str
    children: tuple[Part, ...] = ()
    is_dynamic: bool = attrs.field(default=False, kw_only=True)
    strategy: Strategy = attrs.field(default="one_for_one", kw_only=True)
    intensity: int = attrs.field(default=1, kw_only=True)
    auto_shutdown: AutoShutdown = attrs.field(default="never", kw_only=True)
    restart: Restart = attrs.field(default="permanent", kw_only=True)
    shutdown: Grace = attrs.field(default=None, kw_only=True)
    start_timeout: int | None = attrs.field(default=None, kw_only=True)
    set_up: int | None = attrs.field(default=None, kw_only=True)
    is_significant: bool = attrs.field(default=False, kw_only=True)


Part: TypeAlias = Leaf | Branch


@attrs.frozen
class Deed:
    """One thing done from outside. `path` is below the root; `word` is a reason, a fault or another path."""

    at: int
    do: Verb
    path: str = ""
    word: str = ""
    child: Leaf | None = None


@attrs.frozen
class Plan:
    """A root, what is done to it, and the scheduler's seed."""

    root: Branch
    deeds: tuple[Deed, ...] = ()
    leave: int = attrs.field(default=9, kw_only=True)
    seed: int = attrs.field(default=0, kw_only=True)


def plan(seed: int) -> Plan:
    """The plan of that seed."""
    chance = Random(seed)
    root = _branch(chance, "root", 1, None)
    paths = list(_paths(root, ""))
    deeds = tuple(_deed(chance, paths) for _ in range(chance.choice((1, 2, 2, 3, 5))))
    return Plan(root, deeds, leave=chance.randint(1, LONGEST), seed=seed)


def makes_sense(plan: Plan) -> bool:
    """Whether all of it is allowed; of a plan made smaller, something may not be."""
    return plan.root.set_up is None and not plan.root.is_dynamic and _is_allowed(plan.root, None)


def _is_allowed(part: Part, rule: AutoShutdown | None) -> bool:
    if part.is_significant and (part.restart == "permanent" or rule in (None, "never")):
        return False
    return isinstance(part, Leaf) or all(_is_allowed(child, part.auto_shutdown) for child in part.children)


def _paths(part: Part, path: str) -> list[str]:
    here = [path] if path else []
    if isinstance(part, Branch):
        here += [below for child in part.children for below in _paths(child, f"{path}/{child.id}".strip("/"))]
    return here


def _branch(chance: Random, id: str, depth: int, rule: AutoShutdown | None) -> Branch:
    own = chance.choice(RULES)
    if depth > 1 and chance.random() < 0.15:
        return Branch(
            id,
            is_dynamic=True,
            intensity=chance.randint(0, 3),
            shutdown=_grace(chance),
            restart=chance.choice(KINDS),
        )
    return Branch(
        id,
        tuple(_part(chance, name, depth, own) for name in "abcd"[: chance.choice((1, 2, 2, 3, 4))]),
        strategy=chance.choice(STRATEGIES),
        intensity=chance.choice((0, 1, 2, 3, 5)),
        auto_shutdown=own,
        start_timeout=chance.choice((None, None, None, 2)) if depth > 1 else None,
        set_up=chance.choice((None, None, 0, 1)) if depth > 1 else None,
        shutdown=_grace(chance) if depth > 1 else None,
        **_kind(chance, rule),
    )


def _kind(chance: Random, rule: AutoShutdown | None) -> dict[str, Any]:
    restart = chance.choice(KINDS)
    matters = rule not in (None, "never") and restart != "permanent" and chance.random() < 0.5
    return {"restart": restart, "is_significant": matters}


def _part(chance: Random, id: str, depth: int, rule: AutoShutdown) -> Part:
    if depth < DEEPEST and chance.random() < 0.35:
        return _branch(chance, id, depth + 1, rule)
    return _leaf(chance, id, rule)


def _leaf(chance: Random, id: str, rule: AutoShutdown | None) -> Leaf:
    is_mortal = chance.random() < 0.45
    return Leaf(
        id,
        is_function=chance.random() < 0.3,
        shutdown=_grace(chance),
        is_named=chance.random() < 0.3,
        after=chance.choice((0, 0, 0, 1, 2)),
        start=chance.choice(("hangs", _fault(chance))) if chance.random() < 0.06 else "",
        lasts=chance.choice((0, 1, 2, 4)) if is_mortal else None,
        end=chance.choice(("returns", "handler", "stop", "nursery", "background"))
        if is_mortal
        else "returns",
        fault=_fault(chance) if is_mortal else "error",
        cleanup=chance.choice(CLEANUPS),
        spoiled=_fault(chance) if chance.random() < 0.12 else "",
        left=_fault(chance) if chance.random() < 0.05 else "",
        probe=_fault(chance) if chance.random() < 0.05 else "",
        faulty=chance.choice((1, 2, 9)),
        **_kind(chance, rule),
    )


def _grace(chance: Random) -> Grace:
    return chance.choice(GRACES)


def _fault(chance: Random) -> str:
    usual = [name for name in FAULTS if name not in SELDOM]
    return chance.choice(SELDOM if chance.random() < 0.15 else usual)


VERBS: tuple[Verb, ...] = (
    *("exit", "exit", "exit", "kill", "stop", "cancel", "cancel", "leave", "raise", "terminate", "restart"),
    *("start", "start", "cast", "call", "stream", "link", "link", "watch", "monitor", "wait_out"),
)


def _deed(chance: Random, paths: list[str]) -> Deed:
    do, at = chance.choice(VERBS), chance.randint(0, LONGEST)
    whole = [*paths, ""] if do in ("exit", "kill", "stop", "monitor", "start") else paths
    path = chance.choice(whole)
    match do:
        case "exit":
            return Deed(at, do, path, chance.choice(list(REASONS)))
        case "stop":
            return Deed(at, do, path, chance.choice([name for name in REASONS if name != "normal"]))
        case "raise" | "cast" | "call" | "stream":
            return Deed(at, do, "" if do == "raise" else path, _fault(chance))
        case "link" | "watch":
            return Deed(at, do, path, chance.choice(paths))
        case "start":
            return Deed(at, do, path, child=_leaf(chance, chance.choice("ae"), None))
        case "cancel" | "leave":
            return Deed(at, do)
        case _:
            return Deed(at, do, path)
