"""The decisions of a supervisor about an exit: plain functions over plain data, with no task and no clock.

Guarantees: `RESTARTS` has a cell for every restart kind and exit class, and nothing else decides whether a
child comes back. A plan names each child at most once per phase; it stops in reverse order, starts in order,
and never starts a temporary bystander. `Window` counts in continuous time.

Not here: when a plan is carried out, what happens if a start in it fails (`loop`), back-off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from proctor.runtime.exits import (
    Crash,
    ExitReason,
    ExitStatus,
    FinalShutdown,
    Killed,
    Normal,
    Shutdown,
    TreeShutdown,
    normalised,
)
from proctor.runtime.spec import AutoShutdown, Grace, Restart, StartOrder, Strategy

ExitClass: TypeAlias = Literal["normal", "shutdown", "final", "tree", "killed", "crash", "status"]
Action: TypeAlias = Literal["restart", "keep", "drop", "terminate"]
RestartTable: TypeAlias = Mapping[tuple[Restart, ExitClass], Action]

CLASSES: Mapping[type[object], ExitClass] = {
    Normal: "normal",
    Shutdown: "shutdown",
    FinalShutdown: "final",
    TreeShutdown: "tree",
    Killed: "killed",
    Crash: "crash",
    ExitStatus: "status",
}

CLEAN: frozenset[ExitClass] = frozenset({"normal", "shutdown", "final", "tree"})
ON_REQUEST: frozenset[ExitClass] = frozenset({"shutdown", "final", "tree"})
DIRECTED: frozenset[ExitClass] = frozenset({"final", "tree"})
"""What decides about the restart itself, instead of leaving that to the restart kind."""

RESTARTS: Mapping[tuple[Restart, ExitClass], Action] = {
    ("permanent", "normal"): "restart",
    ("permanent", "shutdown"): "restart",
    ("permanent", "killed"): "restart",
    ("permanent", "crash"): "restart",
    ("permanent", "status"): "restart",
    ("permanent", "final"): "keep",
    ("permanent", "tree"): "terminate",
    ("transient", "normal"): "keep",
    ("transient", "shutdown"): "keep",
    ("transient", "killed"): "restart",
    ("transient", "crash"): "restart",
    ("transient", "status"): "restart",
    ("transient", "final"): "keep",
    ("transient", "tree"): "terminate",
    ("temporary", "normal"): "drop",
    ("temporary", "shutdown"): "drop",
    ("temporary", "killed"): "drop",
    ("temporary", "crash"): "drop",
    ("temporary", "status"): "drop",
    ("temporary", "final"): "drop",
    ("temporary", "tree"): "terminate",
}


def exit_class(reason: ExitReason) -> ExitClass:
    """The column of `RESTARTS` for a reason; exit status 0 is normal."""
    return CLASSES[type(normalised(reason))]


def after_exit(restart: Restart, reason: ExitReason, table: RestartTable = RESTARTS) -> Action:
    """Decide about a child that ended by itself: restart it, keep it down, drop its spec, or end the whole tree."""
    return table[restart, exit_class(reason)]


def after_failed_restart(restart: Restart, reason: ExitReason, table: RestartTable = RESTARTS) -> Action:
    """Decide about a child that ended before it was ready again: it is tried again, unless it refuses.

    A temporary one has become so during its start.
    """
    how = exit_class(reason)
    return table[restart, how] if how in DIRECTED or restart == "temporary" else "restart"


def is_final(reason: ExitReason | None) -> bool:
    """Whether a child that ended so is not even started again with its group."""
    return reason is not None and exit_class(reason) == "final"


def is_reported(restart: Restart, reason: ExitReason) -> bool:
    """Whether an exit is also reported as `child_terminated`."""
    return restart == "permanent" or exit_class(reason) not in CLEAN


def is_shutdown_error(restart: Restart, grace: Grace, reason: ExitReason) -> bool:
    """Whether a stop on request ended otherwise than asked for."""
    how = exit_class(reason)
    as_asked = how == "killed" if grace == "brutal_kill" else how in ON_REQUEST
    return not as_asked and (restart == "permanent" or how not in CLEAN)


@attrs.frozen
class Member:
    """One held child, as a plan sees it. `final`: it ended last with the wish not to be restarted."""

    id: str
    restart: Restart
    alive: bool
    final: bool

    @property
    def comes_back(self) -> bool:
        """Whether it is started when its group is, as a bystander."""
        return self.restart != "temporary" and (self.alive or not self.final)


@attrs.frozen
class Plan:
    """Ids to stop, then specs to drop, then ids to start; each in the order in which to do it."""

    stop: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()


def group_plan(strategy: Strategy, members: Sequence[Member], exited: str) -> Plan:
    """The restart of `exited`, under its strategy, among `members` in start order."""
    group = _GROUPS[strategy](members, [member.id for member in members].index(exited))
    others = [member for member in group if member.id != exited]
    return Plan(
        stop=tuple(member.id for member in reversed(others) if member.alive),
        drop=tuple(member.id for member in others if member.restart == "temporary"),
        start=tuple(m.id for m in group if m.id == exited or m.comes_back),
    )


_GROUPS: Mapping[Strategy, Callable[[Sequence[Member], int], Sequence[Member]]] = {
    "one_for_one": lambda members, at: members[at : at + 1],
    "one_for_all": lambda members, at: members,
    "rest_for_one": lambda members, at: members[at:],
}


def starts_beside(strategy: Strategy, order: StartOrder) -> bool:
    """Whether a child starts beside what its supervisor does: the other strategies say that children depend on each other."""
    return strategy == "one_for_one" and order == "parallel"


def start_groups(strategy: Strategy, orders: Sequence[StartOrder]) -> tuple[range, ...]:
    """The first start of children in list order: positions that start together, each group when those before are ready.

    A sequential child is a group of its own, and so separates the parallel ones before it from those after it.
    """
    groups: list[range] = []
    for at, order in enumerate(orders):
        beside = starts_beside(strategy, order)
        if beside and groups and starts_beside(strategy, orders[at - 1]):
            groups[-1] = range(groups[-1].start, at + 1)
        else:
            groups.append(range(at, at + 1))
    return tuple(groups)


@attrs.frozen
class Peer:
    """A held child, as automatic shutdown sees it. `active` counts a restarting one."""

    significant: bool
    active: bool


def ends_supervisor(auto_shutdown: AutoShutdown, significant: bool, others: Iterable[Peer]) -> bool:
    """Whether the end, without a restart, of a child shuts its supervisor down."""
    if not significant or auto_shutdown == "never":
        return False
    if auto_shutdown == "any_significant":
        return True
    return not any(peer.significant and peer.active for peer in others)


@attrs.define
class Window:
    """The automatic restarts of the last `period` seconds, each with the exit that caused it."""

    intensity: int
    period: float
    entries: deque[tuple[float, ExitReason]] = attrs.field(factory=deque[tuple[float, ExitReason]])

    def add(self, now: float, cause: ExitReason) -> bool:
        """Count one restart at time `now` (seconds, not decreasing); False means give up."""
        # Strictly older, as in OTP: a restart exactly `period` ago still counts.
        while self.entries and now - self.entries[0][0] > self.period:
            self.entries.popleft()
        self.entries.append((now, cause))
        return len(self.entries) <= self.intensity

    def causes(self) -> tuple[ExitReason, ...]:
        """The exits still inside the window, oldest first."""
        return tuple(cause for _, cause in self.entries)
