"""The child table of a supervisor: one slot for each spec, the snapshots of it that callers get, and its change to other specs.

Guarantees of a change: everything is checked before anything changes. What a supervisor does about a child (`restart`,
`shutdown`, `significant`) holds from the next event on, what a child is started with from its next start. A restart that
was due for a child that has become temporary is not due any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import trio

from proctor.runtime.exits import ExitReason
from proctor.runtime.messaging import ChildCounts, ChildInfo, ChildState, Kept, OneShotEvent, Ref
from proctor.runtime.spec import ChildSpec, Flags, Grace, check_childspecs
from proctor.runtime.supervision.backoff import ends_row
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.decide import Window


class OrphanHolder(Protocol):
    """The place of the children of a nested supervisor while that is down."""

    def kill(self) -> None:
        """Kill the orphans. Returns at once."""

    async def stop(self, grace: Grace) -> None:
        """Stop the orphans and wait for that; after `grace` seconds they are killed."""


@attrs.define(eq=False)
class Slot:
    """The place of one child: its spec, who stands there now, and what came before.

    `count` numbers the incarnations, `restarts` the automatic restarts, `attempt` those in a row: since one was
    last ready, under back-off ready for long enough. `latest` is the last incarnation that was ready.
    `names` are due from here: its own while it is not at rest, those below a nested supervisor that is being restarted.
    `at_rest`: it is down, and no restart of it is due. `window` counts its restarts where those are counted for each
    child. `kept` is what `Actor.kept` shows: it goes with the slot. `start` is the start in progress.
    """

    spec: ChildSpec
    incarnation: Incarnation | None = None
    latest: Ref | None = None
    state: ChildState = "down"
    count: int = 0
    attempt: int = 0
    restarts: int = 0
    exit: ExitReason | None = None
    exited_at: float | None = None
    at_rest: bool = True
    window: Window | None = None
    names: frozenset[str] = frozenset()
    kept: Kept = attrs.field(factory=Kept)
    orphans: OrphanHolder | None = None
    start: Start | None = None

    def change(self, spec: ChildSpec) -> None:
        """Another spec, for the next start; a temporary child that runs needs no arguments any more."""
        # A temporary child's arguments were let go at its start, and must not come back with a new spec.
        begun = spec.restart == "temporary" and self.incarnation is not None
        if self.incarnation is not None:
            # The policy about its stop holds at once, also for the incarnation that runs.
            self.incarnation.grace, self.incarnation.own_grace = spec.grace, spec.own_grace
        self.spec = attrs.evolve(spec, args=()) if begun else spec

    def begin(self, incarnation: Incarnation) -> None:
        """A new incarnation starts. A temporary child's arguments are not retained."""
        self.incarnation, self.state, self.at_rest = incarnation, "starting", False
        if self.spec.restart == "temporary" and self.spec.args:
            self.spec = incarnation.spec = attrs.evolve(self.spec, args=())

    def running(self) -> None:
        """The incarnation is ready."""
        assert self.incarnation is not None
        self.latest = self.incarnation.ref
        self.state = "running"

    def ended(self, reason: ExitReason | None, state: ChildState) -> None:
        """The incarnation ended; the slot is empty."""
        ended = self.incarnation
        if ended is not None and ended.ref is self.latest:  # a start that was too late was none
            ready_for = ended.ended_at - ended.started_at
            self.attempt = 0 if ends_row(self.spec.backoff, ready_for) else self.attempt
        self.incarnation, self.state = None, state
        self.exit, self.exited_at = reason, trio.current_time()


@attrs.define(eq=False)
class Start:
    """A start in progress: of `incarnation`, until that is ready or has ended.

    `aborted`: it is ended before its outcome is known, and what follows is decided by the one that aborted it. `on_failure`
    is what a request does with the slot of a child that did not start. `over` is set when a start beside the loop has been
    dealt with.
    """

    slot: Slot
    incarnation: Incarnation
    aborted: bool = False
    on_failure: Callable[[Slot], None] | None = None
    over: OneShotEvent = attrs.field(factory=OneShotEvent)

    def abort(self) -> None:
        """End the wait for it, unless it has an outcome. Returns at once."""
        # With an outcome the start is over, and `aborted` would hide its failure.
        if not self.incarnation.settled.is_set():
            self.aborted = True
            # Wakes `_await_start`, which then sees no outcome and ends the child.
            self.incarnation.settled.release()


def child_info(slot: Slot) -> ChildInfo:
    """A slot as `which_children` shows it."""
    if slot.state == "restarting":
        return ChildInfo(slot.spec.id, "restarting", slot.spec.type)
    ref = None if slot.incarnation is None else slot.incarnation.ref
    return ChildInfo(slot.spec.id, ref, slot.spec.type)


def counts(slots: list[Slot]) -> ChildCounts:
    """Slots as `count_children` shows them."""
    supervisors = sum(slot.spec.type == "supervisor" for slot in slots)
    active = sum(slot.incarnation is not None for slot in slots)
    return ChildCounts(len(slots), active, supervisors, len(slots) - supervisors)


def changed_flags(
    flags: Flags, changes: Mapping[str, Any], specs: Sequence[ChildSpec], held: Mapping[str, Slot]
) -> Flags:
    """`flags` with `changes`, checked with all specs that will be held. Raises `InvalidSpec`."""
    changed = attrs.evolve(flags, **changes)
    check_childspecs(specs, changed.auto_shutdown)
    named = {spec.id for spec in specs}
    check_childspecs([slot.spec for id, slot in held.items() if id not in named], changed.auto_shutdown)
    return changed


def changed_slots(held: Mapping[str, Slot], specs: Sequence[ChildSpec]) -> dict[str, Slot]:
    """The slots in their new order: first those of `specs`, each in its old place's state and new ones down; behind them, in
    their old order, those that `specs` does not name."""
    slots = {spec.id: held.get(spec.id) or Slot(spec) for spec in specs}
    for spec in specs:
        slots[spec.id].change(spec)
    return slots | {id: slot for id, slot in held.items() if id not in slots}
