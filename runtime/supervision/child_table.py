"""What a supervisor holds per child spec, and the pictures of it that it hands out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import attrs
import trio

from proctor.runtime.exits import ExitReason
from proctor.runtime.messaging.persistent_state import Kept
from proctor.runtime.spec import ChildSpec, ChildType
from proctor.runtime.supervision.backoff import ends_row
from proctor.runtime.supervision.decide import Window

if TYPE_CHECKING:
    from proctor.runtime.messaging.refs import Ref
    from proctor.runtime.supervision.child import Incarnation

ChildState: TypeAlias = Literal["starting", "running", "restarting", "stopping", "down"]


@attrs.define(eq=False)
class Slot:
    """The place of one child: its spec, who stands there now, and what came before.

    `count` numbers the incarnations, `restarts` the automatic restarts, `attempt` those in a row: since one was
    last ready, under back-off ready for long enough (X2). `latest` is the last incarnation that was ready.
    `names` are due from here: its own while it is not at rest, those below a nested supervisor that is being restarted.
    `at_rest`: it is down, and no restart of it is owed. `window` counts its restarts where those are counted for each
    child. `kept` is what `Actor.kept` shows: it goes with the slot.
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

    def change(self, spec: ChildSpec) -> None:
        """Another spec, for the next start; a temporary child that runs needs no arguments any more (S16)."""
        begun = spec.restart == "temporary" and self.incarnation is not None
        if self.incarnation is not None:
            self.incarnation.grace, self.incarnation.own_grace = spec.grace, spec.own_grace
        self.spec = attrs.evolve(spec, args=()) if begun else spec

    def begin(self, incarnation: Incarnation) -> None:
        """A new incarnation starts. A temporary child's arguments are not retained (S16)."""
        self.incarnation, self.state, self.at_rest = incarnation, "starting", False
        if self.spec.restart == "temporary" and self.spec.args:
            self.spec = incarnation.spec = attrs.evolve(self.spec, args=())

    def running(self) -> None:
        """The incarnation is ready."""
        assert self.incarnation is not None
        self.latest = self.incarnation.cell.ref
        self.state = "running"

    def ended(self, reason: ExitReason | None, state: ChildState) -> None:
        """The incarnation ended; nobody stands here."""
        ended = self.incarnation
        if ended is not None and ended.cell.ref is self.latest:  # a start that was too late was none
            ready_for = ended.ended_at - ended.started_at
            self.attempt = 0 if ends_row(self.spec.backoff, ready_for) else self.attempt
        self.incarnation, self.state = None, state
        self.exit, self.exited_at = reason, trio.current_time()


class ChildInfo(NamedTuple):
    """One held child, in start order (S52)."""

    id: str
    ref: Ref | Literal["restarting"] | None
    type: ChildType


@attrs.frozen
class ChildCounts:
    """`specs` held, `active` alive now, `supervisors` and `workers` by spec, dead or alive (S53)."""

    specs: int
    active: int
    supervisors: int
    workers: int


@attrs.frozen(kw_only=True)
class TreeNode:
    """One actor of a tree at one moment, with those below it in start order.

    `ready`: it runs, and has not marked itself otherwise (X5).
    `incarnation` is 0 before the first start, `restarts` counts the automatic ones. `exit` is how the last
    incarnation that ended did, at `exited_at` seconds of the run's clock. `busy_for` is how many seconds ago an actor last
    waited for messages, None while it waits; `handling` the type of the message of the call that it handles.
    """

    path: str
    id: str
    type: ChildType
    state: ChildState
    ready: bool = False
    incarnation: int = 0
    restarts: int = 0
    ref: Ref | None = None
    exit: ExitReason | None = None
    exited_at: float | None = None
    busy_for: float | None = None
    handling: str | None = None
    children: tuple[TreeNode, ...] = ()


def child_info(slot: Slot) -> ChildInfo:
    """A slot as `which_children` shows it."""
    if slot.state == "restarting":
        return ChildInfo(slot.spec.id, "restarting", slot.spec.type)
    ref = None if slot.incarnation is None else slot.incarnation.cell.ref
    return ChildInfo(slot.spec.id, ref, slot.spec.type)


def counts(slots: list[Slot]) -> ChildCounts:
    """Slots as `count_children` shows them."""
    supervisors = sum(slot.spec.type == "supervisor" for slot in slots)
    active = sum(slot.incarnation is not None for slot in slots)
    return ChildCounts(len(slots), active, supervisors, len(slots) - supervisors)
