"""Supervisors whose children outlive their failures: the next incarnation adopts them.

Such a supervisor does not own the nursery of its children, their home does: a task of the parent. So the tree of tasks
stays a tree, and nothing runs that is not below the parent.

Guarantees: when the supervisor gives up or is killed, and its parent is to restart it, its children run on: no exit, no
`Down`, the same `Ref` and names. The next incarnation first stops those whose spec it has not, or not unchanged, then
adopts or starts each in its order. An orphan that ended meanwhile is started afresh.

Not here: a stop on request, automatic shutdown, a start that fails. Those end the children as in every supervisor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

import trio

from proctor.runtime.errors import MaxRestartsExceeded
from proctor.runtime.exits import Killed
from proctor.runtime.messaging import SupervisorHandle
from proctor.runtime.spec import ChildSpec, Flags
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.child_scope import Home
from proctor.runtime.supervision.child_table import Start
from proctor.runtime.supervision.handles import AnySupervisor
from proctor.runtime.supervision.loop import SupervisorLoop


class AdoptingLoop(SupervisorLoop):
    """One incarnation of a supervisor whose children outlive its failures."""

    def __init__(
        self,
        home: Home,
        parent: AnySupervisor,
        children: Sequence[ChildSpec],
        flags: Flags,
        incarnation: Incarnation,
        handle: Callable[[SupervisorLoop], SupervisorHandle],
    ) -> None:
        self._home, self._parent = home, parent
        super().__init__(children, flags, incarnation.ref, incarnation.system, handle)
        home.loop = self

    def receive(self, incarnation: Incarnation) -> None:
        """A child that this incarnation holds has ended."""
        # Not by name on `self`: the override below would send it round in a circle.
        super()._on_child_end(incarnation)

    def _on_child_end(self, incarnation: Incarnation) -> None:
        self._home.on_child_end(incarnation)  # it may be another's by now

    def _nursery(self) -> AbstractAsyncContextManager[trio.Nursery]:
        return nullcontext(self._home.nursery)

    def kill(self) -> None:
        """End at once: the children live on, if they are to have a supervisor again."""
        # The parent decides by its own state: a supervisor that will not be restarted has nothing to leave
        # to.
        if self._is_to_come_back():
            self._killed = True
            self.stop(Killed())
        else:
            super().kill()

    def _is_to_come_back(self) -> bool:
        # Asked anew each time, because the parent's own incarnation may change while this one lives.
        parent = self._parent.loop  # of now: it may have been adopted itself
        slot = parent.slots.get(self.path.rpartition("/")[2])
        return slot is not None and slot.state == "running" and parent.may_start

    @trio.lowlevel.enable_ki_protection
    async def run(self, ready: Callable[[], None]) -> None:
        """Adopt what was left, start the rest, serve; then stop the children, or leave them to the home."""
        try:
            # Before anything starts: an orphan with an old spec may hold the name that a new child needs.
            await self._home.prepare(self._first)
            await super().run(ready)
        finally:
            # In `finally`: also a start that fails hands back what it did not come to adopt.
            self._home.leave()

    def _begin_first(self, spec: ChildSpec) -> Start | None:
        slot = self._home.take(spec)
        if slot is None:
            return super()._begin_first(spec)
        # Its task runs on in the home; only the table moves.
        self.slots[spec.id] = slot
        return None

    async def _stop_children(self) -> None:
        failed = self._killed or isinstance(self.failure, MaxRestartsExceeded)
        if not (failed and self.was_ready and self._is_to_come_back()):
            await super()._stop_children()
            return
        # Ended in this moment and not seen yet: they are no orphans, and have to be stopped and reported
        # here.
        ended = [slot for slot in self.slots.values() if slot.incarnation and slot.incarnation.reason]
        await self._stop(reversed(ended))
        self._home.keep(self.children)


async def open_home(incarnation: Incarnation, parent: AnySupervisor, timeout: float) -> Home:
    """The home of the supervisor that `incarnation` is, made at its first start."""
    loop = parent.loop
    slot = loop.slots[incarnation.spec.id]
    home = slot.orphans
    if not isinstance(home, Home):
        home = Home(timeout)
        # `start`, not `start_soon`: the home's nursery must be open before the first child is put into it.
        await loop.children.nursery.start(home.run)
        slot.orphans = home
        # The slot's own hooks, not the incarnation's: they hold over restarts, until the spec is dropped.
        kept = slot.kept
        kept.at_rest(home.expire)
        kept.when_dropped(home.close)
    home.incarnation = incarnation
    return home
