"""The configuration of a supervisor: child specs and flags, frozen and checked where they are made.

A value that is not allowed raises `InvalidSpec` with the field, the value and what would be accepted, before
anything starts. Rules over one record are in a table of its own, as `SPEC_RULES`; rules over several specs
(one id twice, significance against automatic shutdown) are in `check_childspecs`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import attrs

from proctor.runtime.errors import InvalidSpec

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]
StartOrder: TypeAlias = Literal["sequential", "parallel"]
StopOrder: TypeAlias = Literal["reverse", "parallel"]
GiveUp: TypeAlias = Literal["supervisor", "child"]
Overflow: TypeAlias = Literal["block", "raise", "drop_newest", "drop_oldest"]
Routing: TypeAlias = Literal["key", "round_robin", "least_loaded", "sticky"]
Shed: TypeAlias = Literal["newest", "oldest"]
Orphans: TypeAlias = Literal["stop", "keep"]
OnTimeout: TypeAlias = Literal["exit", "kill"]
ChildType: TypeAlias = Literal["worker", "supervisor"]
Grace: TypeAlias = float | Literal["brutal_kill"]

Rule: TypeAlias = tuple[Callable[[Any], bool], str]

WORKER_SHUTDOWN = 5.0


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _one_of(*words: str) -> Rule:
    return lambda value: isinstance(value, str) and value in words, " or ".join(repr(word) for word in words)


def _positive(value: Any) -> bool:
    return _number(value) and 0 < value < math.inf


def _count(least: int) -> Rule:
    return (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least,
        f"an int >= {least}",
    )


def _or_none(rule: Rule) -> Rule:
    allowed, accepted = rule
    return lambda value: value is None or allowed(value), f"{accepted} or None"


_BOOL: Rule = (lambda value: isinstance(value, bool), "True or False")
_SECONDS: Rule = (_positive, "seconds > 0 and finite")

BACKOFF_RULES: Mapping[str, Rule] = {
    "min_delay": _SECONDS,
    "max_delay": _SECONDS,
    "factor": (lambda value: _number(value) and 1 <= value < math.inf, "a number >= 1"),
    "jitter": (lambda value: _number(value) and 0 <= value <= 1, "a number from 0 to 1"),
    "reset_after": _or_none(_SECONDS),
    "max_in_row": _or_none(_count(0)),
}

PROBE_RULES: Mapping[str, Rule] = {
    "check": (callable, "an async function without arguments"),
    "period": _SECONDS,
    "timeout": _SECONDS,
    "failures": _count(1),
}

SPEC_RULES: Mapping[str, Rule] = {
    "id": (
        lambda value: isinstance(value, str) and value != "" and "/" not in value,
        "a text, not empty, without '/'",
    ),
    "start": (callable, "an Actor subclass or an async function"),
    "restart": _one_of("permanent", "transient", "temporary"),
    "shutdown": (
        lambda value: value == "brutal_kill" or (_number(value) and value >= 0),
        "seconds >= 0, math.inf or 'brutal_kill'",
    ),
    "significant": _BOOL,
    "type": _one_of("worker", "supervisor"),
    "name": (
        lambda value: value is None or (isinstance(value, str) and value != "" and value[0] != "/"),
        "a text not beginning with '/', or None",
    ),
    "start_timeout": _or_none((_positive, "seconds > 0")),
    "start_order": _one_of("sequential", "parallel"),
    "backoff": (lambda value: value is None or isinstance(value, Backoff), "a Backoff or None"),
    "watchdog": _or_none((_positive, "seconds > 0")),
    "probe": (lambda value: value is None or isinstance(value, Probe), "a Probe or None"),
    "mailbox": _count(1),
    "overflow": _one_of("block", "raise", "drop_newest", "drop_oldest"),
    "drain": _BOOL,
    "keep_mailbox": _BOOL,
}

FLAG_RULES: Mapping[str, Rule] = {
    "strategy": _one_of("one_for_one", "one_for_all", "rest_for_one"),
    "intensity": _count(0),
    "period": _SECONDS,
    "auto_shutdown": _one_of("never", "any_significant", "all_significant"),
    "stop_order": _one_of("reverse", "parallel"),
    "give_up": _one_of("supervisor", "child"),
}

# one_for_one, never by itself, all asked together
DYNAMIC_RULES: Mapping[str, Rule] = {
    **FLAG_RULES,
    "strategy": _one_of("one_for_one"),
    "auto_shutdown": _one_of("never"),
    "stop_order": _one_of("parallel"),
    "max_children": _or_none(_count(0)),
}

ROUTING_RULES: Mapping[str, Rule] = {
    "routing": _one_of("key", "round_robin", "least_loaded", "sticky"),
    "max_queued": _or_none(_count(1)),
    "shed": _one_of("newest", "oldest"),
    "max_keys": _count(1),
}

ORPHAN_RULES: Mapping[str, Rule] = {
    "orphans": _one_of("stop", "keep"),
    "orphan_timeout": _SECONDS,
}

STREAM_RULES: Mapping[str, Rule] = {
    "max_concurrency": _count(1),
    "ordered": _BOOL,
    "timeout": _or_none((_positive, "seconds > 0")),
    "on_timeout": _one_of("exit", "kill"),
}


def _check(record: object, rules: Mapping[str, Rule], of: str | None = None) -> None:
    for field, (allowed, accepted) in rules.items():
        value = getattr(record, field)
        if not allowed(value):
            raise InvalidSpec(field, value, accepted, of=of)


def _as_tuple(args: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(args)


@attrs.frozen(kw_only=True)
class Backoff:
    """Delays of the restarts of a child that fails again and again. Times in seconds. Raises `InvalidSpec`.

    Restart k, from 0, waits `min(max_delay, min_delay * factor**k)`, times a random number from `1 - jitter` to 1.
    k is 0 again once an incarnation has been ready for `reset_after`, left out: `max_delay`. More than `max_in_row`
    restarts without that, and the supervisor gives up, besides its own intensity; `None` sets no such limit.

    An exit because the machine lacked something (`shortage`: descriptors, memory, space on the disk) is not counted by the
    intensity: the restarts are put off until it is there again.
    """

    min_delay: float = 1.0
    max_delay: float = 60.0
    factor: float = 2.0
    jitter: float = 0.2
    reset_after: float | None = None
    max_in_row: int | None = None

    def __attrs_post_init__(self) -> None:
        _check(self, BACKOFF_RULES, of="backoff")
        if self.max_delay < self.min_delay:
            raise InvalidSpec("max_delay", self.max_delay, f">= min_delay, {self.min_delay}", of="backoff")


@attrs.frozen(kw_only=True)
class Probe:
    """A liveness check of a ready child. Times in seconds. Raises `InvalidSpec`.

    `await check()` when ready and every `period` from then, one at a time; one that raises, returns `False` or takes longer than `timeout` has failed, and
    `failures` of them in a row are a crash of the child. `check` finds the child by `current_actor()`.
    """

    check: Callable[[], Awaitable[object]]
    period: float = 10.0
    timeout: float = 1.0
    failures: int = 3

    def __attrs_post_init__(self) -> None:
        _check(self, PROBE_RULES, of="probe")


@attrs.frozen
class ChildSpec:
    """One child: what to start and how to treat its end. Raises `InvalidSpec` when made wrong.

    `start` is an `Actor` subclass, or an async function `f(*args, task_status)` that calls
    `task_status.started()` when ready. `shutdown` is seconds of grace, `math.inf`, or `"brutal_kill"`; left
    out it is 5 s for a worker and infinite for a supervisor. `name` is registered in the root's registry for
    as long as an incarnation lives. `start_timeout` is in seconds, `mailbox` in messages. `watchdog` is the
    seconds within which a ready child must `beat`. `keep_mailbox` hands queued casts to the next incarnation.

    `start_order="parallel"` lets it start and restart while others do, under `one_for_one` and in a dynamic supervisor: for
    a child that does not depend on those before it. Its supervisor serves meanwhile.
    """

    id: str
    start: Callable[..., Any]
    args: tuple[Any, ...] = attrs.field(default=(), converter=_as_tuple)
    restart: Restart = attrs.field(default="permanent", kw_only=True)
    shutdown: Grace | None = attrs.field(default=None, kw_only=True)
    significant: bool = attrs.field(default=False, kw_only=True)
    type: ChildType = attrs.field(default="worker", kw_only=True)
    name: str | None = attrs.field(default=None, kw_only=True)
    start_timeout: float | None = attrs.field(default=None, kw_only=True)
    start_order: StartOrder = attrs.field(default="sequential", kw_only=True)
    backoff: Backoff | None = attrs.field(default=None, kw_only=True)
    watchdog: float | None = attrs.field(default=None, kw_only=True)
    probe: Probe | None = attrs.field(default=None, kw_only=True)
    mailbox: int = attrs.field(default=1000, kw_only=True)
    overflow: Overflow = attrs.field(default="block", kw_only=True)
    drain: bool = attrs.field(default=False, kw_only=True)
    keep_mailbox: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.shutdown is None:
            object.__setattr__(self, "shutdown", self.grace)
        _check(self, SPEC_RULES, of=self.id)
        if self.significant and self.restart == "permanent":
            raise InvalidSpec("significant", True, "False for a permanent child", of=self.id)

    @property
    def grace(self) -> Grace:
        """`shutdown` with the default filled in."""
        if self.shutdown is not None:
            return self.shutdown
        return default_grace(self.type)

    @property
    def own_grace(self) -> float:
        """Seconds to end in where the end is not begun by the supervisor, which alone may give none at all."""
        given = self.grace
        return default_grace(self.type) if given == "brutal_kill" or given == 0 else given


@attrs.frozen(kw_only=True)
class Flags:
    """Rules of a supervisor for its children together. `period` is in seconds. Raises `InvalidSpec`.

    `stop_order="parallel"` asks the children that are to stop all together, each with its own `shutdown`. It is for
    children that do not depend on each other, which those of `rest_for_one` do.

    `give_up="child"` leaves a child down that is restarted too often, instead of ending the supervisor; its siblings go on,
    and the restarts of each child are counted apart. It is for `one_for_one`, where they do not depend on each other.
    """

    strategy: Strategy = "one_for_one"
    intensity: int = 1
    period: float = 5.0
    auto_shutdown: AutoShutdown = "never"
    stop_order: StopOrder = "reverse"
    give_up: GiveUp = "supervisor"

    def __attrs_post_init__(self) -> None:
        _check(self, FLAG_RULES)
        if self.strategy != "one_for_one" and self.give_up == "child":
            accepted = f"'supervisor' under {self.strategy}, whose children depend on each other"
            raise InvalidSpec("give_up", self.give_up, accepted)
        if self.strategy == "rest_for_one" and self.stop_order == "parallel":
            accepted = "'reverse' under rest_for_one, whose children depend on those before them"
            raise InvalidSpec("stop_order", self.stop_order, accepted)


@attrs.frozen(kw_only=True)
class DynamicFlags(Flags):
    """The same for a dynamic supervisor. Raises `InvalidSpec`.

    At most `max_children` at a time, `None` sets no such limit; `extra_arguments` come before each spec's own.
    """

    stop_order: StopOrder = "parallel"
    max_children: int | None = None
    extra_arguments: tuple[Any, ...] = attrs.field(default=(), converter=_as_tuple)

    def __attrs_post_init__(self) -> None:
        _check(self, DYNAMIC_RULES)


@attrs.frozen(kw_only=True)
class StreamOptions:
    """Options of a task stream: how many items run at once, and what becomes of a slow one. Raises `InvalidSpec`."""

    max_concurrency: int
    ordered: bool = True
    timeout: float | None = 5.0
    on_timeout: OnTimeout = "exit"

    def __attrs_post_init__(self) -> None:
        _check(self, STREAM_RULES)


@attrs.frozen(kw_only=True)
class OrphanPolicy:
    """Rule for the children of a supervisor that fails; the time-out is in seconds. Raises `InvalidSpec`."""

    orphans: Orphans = "stop"
    orphan_timeout: float = 30.0

    def __attrs_post_init__(self) -> None:
        _check(self, ORPHAN_RULES)


@attrs.frozen(kw_only=True)
class RoutingOptions:
    """Rule for the choice of a partition, and for messages above `max_queued`. Raises `InvalidSpec`."""

    routing: Routing = "key"
    max_queued: int | None = None
    shed: Shed = "newest"
    max_keys: int = 10_000

    def __attrs_post_init__(self) -> None:
        _check(self, ROUTING_RULES)


def default_grace(type: ChildType) -> float:
    """The `shutdown` of a spec that does not give it, in seconds."""
    return math.inf if type == "supervisor" else WORKER_SHUTDOWN


def as_children(specs: Iterable[ChildSpec]) -> tuple[ChildSpec, ...]:
    """The specs as a tuple. Raises `InvalidSpec` for one spec alone, and for what cannot be iterated."""
    if isinstance(specs, ChildSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidSpec("children", specs, "a sequence of ChildSpecs, such as a list of this one")
    if not isinstance(specs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidSpec("children", specs, "a sequence of ChildSpecs")
    return tuple(specs)


def check_childspecs(specs: Iterable[ChildSpec], auto_shutdown: AutoShutdown = "never") -> None:
    """Check specs as one supervisor's children, without starting anything. Raises `InvalidSpec`."""
    seen: set[str] = set()
    for spec in as_children(specs):
        check_significance(spec, auto_shutdown)
        if spec.id in seen:
            raise InvalidSpec("id", spec.id, "an id used once")
        seen.add(spec.id)


def check_significance(spec: ChildSpec, auto_shutdown: AutoShutdown) -> None:
    """Refuse a significant child of a supervisor that never shuts itself down."""
    if not isinstance(spec, ChildSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidSpec("spec", spec, "a ChildSpec")
    if spec.significant and auto_shutdown == "never":
        raise InvalidSpec("significant", True, "False where auto_shutdown is 'never'", of=spec.id)
