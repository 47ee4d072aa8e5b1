"""The handle by which an actor uses the supervisor above it, and the records that describe its children."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, Protocol, TypeAlias

import attrs

from proctor.runtime.events import EventKind, LateStop, Subscription
from proctor.runtime.exits import ExitReason
from proctor.runtime.messaging.names import Name
from proctor.runtime.messaging.refs import Ref
from proctor.runtime.messaging.registry import Registry
from proctor.runtime.spec import ChildType

ChildState: TypeAlias = Literal["starting", "running", "restarting", "stopping", "down"]


class ChildInfo(NamedTuple):
    """One held child, in start order."""

    id: str
    ref: Ref | Literal["restarting"] | None
    type: ChildType


@attrs.frozen
class ChildCounts:
    """`specs` held, `active` alive now, `supervisors` and `workers` by spec, dead or alive."""

    specs: int
    active: int
    supervisors: int
    workers: int


@attrs.frozen(kw_only=True)
class TreeNode:
    """One actor of a tree at one moment, with those below it in start order.

    `ready`: it runs, and has not marked itself otherwise.
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


class SupervisorHandle(Protocol):
    """The handle on a supervisor of any kind, as its children see it; `AnySupervisor` implements it."""

    @property
    def ref(self) -> Ref:
        """The supervisor as an actor: to monitor, to end."""
        ...

    @property
    def path(self) -> str:
        """Its place in the tree."""
        ...

    @property
    def registry(self) -> Registry:
        """The names of the whole tree."""
        ...

    @property
    def late(self) -> tuple[LateStop, ...]:
        """The children that did not end in time when this supervisor stopped."""
        ...

    async def which_children(self) -> tuple[ChildInfo, ...]:
        """`(id, ref | None | "restarting", type)` of each held spec, in start order."""
        ...

    async def count_children(self) -> ChildCounts:
        """The numbers of specs held and of children that live."""
        ...

    def name(self, name: str) -> Name:
        """The holder of `name` in this tree, looked up at each use."""
        ...

    def child(self, path: str) -> Name:
        """The actor at `path` below this supervisor; looked up at each use."""
        ...

    def supervisor(self, path: str) -> SupervisorHandle:
        """The handle on a supervisor below this one, which follows its restarts. Raises `NoProc`, `TypeError`."""
        ...

    def events(self, buffer: int = 1000, kinds: Iterable[EventKind] | None = None) -> Subscription:
        """The events of the whole tree from now on."""
        ...

    def tree(self) -> TreeNode:
        """This supervisor and all below it, as they are now."""
        ...

    async def stop(self, reason: ExitReason | None = None) -> tuple[LateStop, ...]:
        """Stop this supervisor and all below it, in order, and wait for that. Raises `WouldDeadlock` inside it."""
        ...

    async def wait_stopped(self) -> ExitReason:
        """Wait until it and all below it have ended: why. Raises `WouldDeadlock` inside it."""
        ...

    async def wait_ready(self) -> None:
        """Wait until it serves. Raises `NoProc` once its tree is ending."""
