"""A program as data: a tree of supervisors and a timed script of what is done to it.

The same program is run by `world` on the real runtime and by `model` on the statements. Times are ticks, a quarter of
a second each. `Instants` makes seconds of them: unless the program is about ties, each gets a fraction of its own, so
that no two things that are not cause and effect ever happen at one instant. The fractions are dyadic, so that sums
of them are exact and the virtual clock and the model agree to the last bit.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias, cast
from zlib import crc32

import attrs

from proctor.runtime.spec import AutoShutdown, Restart, Strategy

TICK = 0.25
PATIENCE = 160
FRACTION = 2.0**-38
"""Times 32 random bits it is below a sixteenth of a tick; up to 2 ** 14 s no bit of a sum is lost."""

Start: TypeAlias = Literal["ready", "fails", "ignores", "hangs", "shielded"]
End: TypeAlias = Literal["crash", "normal", "shutdown", "status", "interrupt"]
Verb: TypeAlias = Literal[
    "exit",
    "kill",
    "start",
    "terminate",
    "restart",
    "delete",
    "which",
    "count",
    "look",
    "cancel",
    "leave",
    "raise",
]


@attrs.frozen(kw_only=True)
class Life:
    """What one incarnation does: starts after a while, lasts, ends, cleans up. `None` lasts for ever.

    One that starts `shielded` is ready in the end, whoever stopped or killed it meanwhile.
    """

    start: Start = "ready"
    after: int = 0
    lasts: int | None = None
    end: End = "crash"
    cleanup: int = 0
    spoiled: bool = False
    """The cleanup ends with an exception."""


@attrs.frozen(kw_only=True)
class Delays:
    """How the restarts of a child are put off (X1-X3), in ticks."""

    least: int = 1
    most: int = 8
    factor: int = 2
    jitter: float = 0.0
    reset_after: int | None = None
    max_in_row: int | None = None


@attrs.frozen
class Worker:
    """A child without children; incarnation n lives `lives[n]`, later ones like the last.

    A `stubborn` one is a function that cleans up behind a shield, from its start on, but only when it is asked to
    end; another is an actor that cleans up once it was ready, whyever it ends, and can be killed meanwhile.
    """

    id: str
    lives: tuple[Life, ...] = (Life(),)
    restart: Restart = attrs.field(default="permanent", kw_only=True)
    shutdown: int | Literal["brutal_kill"] | None = attrs.field(default=None, kw_only=True)
    significant: bool = attrs.field(default=False, kw_only=True)
    name: str | None = attrs.field(default=None, kw_only=True)
    start_timeout: int | None = attrs.field(default=None, kw_only=True)
    backoff: Delays | None = attrs.field(default=None, kw_only=True)
    parallel: bool = attrs.field(default=False, kw_only=True)
    stubborn: bool = attrs.field(default=False, kw_only=True)

    def life(self, incarnation: int) -> Life:
        """What an incarnation, counted from 1, does."""
        return self.lives[min(incarnation, len(self.lives)) - 1]


@attrs.frozen
class Tree:
    """A supervisor and its first children. `period` is in ticks."""

    id: str
    children: tuple[Node, ...] = ()
    strategy: Strategy = attrs.field(default="one_for_one", kw_only=True)
    intensity: int = attrs.field(default=1, kw_only=True)
    period: int = attrs.field(default=20, kw_only=True)
    auto_shutdown: AutoShutdown = attrs.field(default="never", kw_only=True)
    restart: Restart = attrs.field(default="permanent", kw_only=True)
    shutdown: int | Literal["brutal_kill"] | None = attrs.field(default=None, kw_only=True)
    significant: bool = attrs.field(default=False, kw_only=True)
    name: str | None = attrs.field(default=None, kw_only=True)
    start_timeout: int | None = attrs.field(default=None, kw_only=True)
    backoff: Delays | None = attrs.field(default=None, kw_only=True)
    parallel: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class Pool:
    """A dynamic supervisor, empty at first (S63). `period` is in ticks."""

    id: str
    max_children: int | None = attrs.field(default=None, kw_only=True)
    intensity: int = attrs.field(default=1, kw_only=True)
    period: int = attrs.field(default=20, kw_only=True)
    restart: Restart = attrs.field(default="permanent", kw_only=True)
    shutdown: int | Literal["brutal_kill"] | None = attrs.field(default=None, kw_only=True)
    significant: bool = attrs.field(default=False, kw_only=True)
    name: str | None = attrs.field(default=None, kw_only=True)
    start_timeout: int | None = attrs.field(default=None, kw_only=True)
    backoff: Delays | None = attrs.field(default=None, kw_only=True)
    parallel: bool = attrs.field(default=False, kw_only=True)

    strategy: ClassVar[Strategy] = "one_for_one"
    auto_shutdown: ClassVar[AutoShutdown] = "never"
    children: ClassVar[tuple[Node, ...]] = ()


Node: TypeAlias = Worker | Tree | Pool


@attrs.frozen
class Op:
    """One thing done from outside, at a tick. `path` is below the root; of a request, its end is the child's id."""

    at: int
    do: Verb
    path: str = ""
    child: Node | None = None

    @property
    def supervisor(self) -> str:
        """Whom a request goes to; empty for the root."""
        if self.do in ("which", "count", "start"):
            return self.path
        return self.path.rpartition("/")[0]

    @property
    def id(self) -> str:
        """Which child a request is about."""
        return self.path.rpartition("/")[2]


@attrs.frozen(kw_only=True)
class Program:
    """A root, what is done to it, and when its `async with` is left at the latest.

    `ties` leaves out the fractions: much then happens at one instant. `seed` is the scheduler's.
    """

    root: Tree
    ops: tuple[Op, ...] = ()
    leave: int = 40
    ties: bool = False
    seed: int = 0

    def makes_sense(self) -> bool:
        """Whether every spec in it is allowed; one made smaller may not be."""
        started = [op.child for op in self.ops if op.do == "start"]
        return _is_allowed(self.root, None) and all(
            child is not None and _is_allowed(child, None) for child in started
        )

    def script(self) -> tuple[Op, ...]:
        """All ops, the last leave included, and a cancellation for what is still starting or stopping then."""
        return (*self.ops, Op(self.leave, "leave"), Op(self.leave + PATIENCE, "cancel"))

    def specified(self, ticks: int, path: str, what: str) -> float:
        """Seconds that a spec says, the same for all children of a pool that were started with one id."""
        return self.moment(ticks, "/".join(id.partition("-")[0] for id in path.split("/")), what)

    def moment(self, ticks: int, *key: object) -> float:
        """Seconds until something, never none: `key` says what it is."""
        if self.ties:
            return max(ticks, 1) * TICK
        return ticks * TICK + (crc32(repr(key).encode()) + 1) * FRACTION


def _is_allowed(node: Node, rule: AutoShutdown | None) -> bool:
    if node.significant and (node.restart == "permanent" or rule == "never"):
        return False
    if node.backoff is not None and not node.backoff.most >= node.backoff.least >= 0 < node.backoff.factor:
        return False
    if isinstance(node, Worker):
        return bool(node.lives)
    return all(_is_allowed(child, node.auto_shutdown) for child in node.children)


def written(value: object, indent: str = "") -> str:
    """A program as Python, defaults left out, to be pasted into a test."""
    if isinstance(value, tuple):
        return _written_tuple(cast("tuple[object, ...]", value), indent)
    if not attrs.has(type(value)):
        return repr(value)
    fields = attrs.fields(cast("type[attrs.AttrsInstance]", type(value)))
    parts = [text for field in fields if (text := _written_field(value, field, indent))]
    return f"{type(value).__name__}({', '.join(parts)})"


def _written_field(value: object, field: attrs.Attribute[Any], indent: str) -> str:
    held = getattr(value, field.name)
    if held == field.default:
        return ""
    text = written(held, indent)
    return f"{field.name}={text}" if field.kw_only or field.default is not attrs.NOTHING else text


def _written_tuple(values: tuple[object, ...], indent: str) -> str:
    deeper = indent + "    "
    lines = [f"\n{deeper}{written(value, deeper)}," for value in values]
    return f"({''.join(lines)}\n{indent})" if lines else "()"
