"""What a supervisor holds per child spec, and the pictures of it that it hands out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import attrs
import trio

from proctor.runtime.exits import ExitReason
from proctor.runtime.kept import Kept
from proctor.runtime.spec import ChildSpec, ChildType

if TYPE_CHECKING:
    from proctor.runtime.calls import Ref
    from proctor.runtime.child import Incarnation

ChildState: TypeAlias = Literal["starting", "running", "restarting", "stopping", "down"]


@attrs.define(eq=False)
class Slot:
    """The place of one child: its spec, who stands there now, and what came before.

    `count` numbers the incarnations, `attempt` the restarts since one was last ready, `restarts` all of them.
    `kept` is what `Actor.kept` shows: it goes with the slot. `latest` is the last incarnation that was ready.
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
    kept: Kept = attrs.field(factory=Kept)

    def begin(self, incarnation: Incarnation) -> None:
        """A new incarnation starts. A temporary child's arguments are not retained (S16)."""
        self.incarnation, self.state = incarnation, "starting"
        if self.spec.restart == "temporary" and self.spec.args:
            self.spec = attrs.evolve(self.spec, args=())

    def running(self) -> None:
        """The incarnation is ready."""
        assert self.incarnation is not None
        self.latest = self.incarnation.cell.ref
        self.state, self.attempt = "running", 0

    def ended(self, reason: ExitReason | None, state: ChildState) -> None:
        """The incarnation ended; nobody stands here."""
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

    `incarnation` is 0 before the first start, `restarts` counts the automatic ones. `exit` is how the last
    incarnation that ended did, at `exited_at` seconds of the run's clock.
    """

    path: str
    id: str
    type: ChildType
    state: ChildState
    incarnation: int = 0
    restarts: int = 0
    ref: Ref | None = None
    exit: ExitReason | None = None
    exited_at: float | None = None
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
