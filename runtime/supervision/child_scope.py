"""The nursery of the children of a supervisor with `orphans="keep"`, which outlives its incarnations.

Guarantees: a task of the parent owns their nursery, from the first start of the supervisor until the parent drops its
spec. Orphans are stopped by that task, in reverse order and each by its `shutdown`, when their time is up, or at once
when the place comes to rest, is dropped, or the parent stops it.

Invariant: a child is held by exactly one of the serving incarnation and the home; it is the home's from the step in
which the supervisor stops serving until the step in which it is adopted or has ended.

Not here: who leaves children and adopts them (`adoption`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import trio

from proctor.runtime import events
from proctor.runtime.exits import Killed
from proctor.runtime.spec import ChildSpec, Grace
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.child_table import Slot
from proctor.runtime.supervision.children import Children
from proctor.runtime.supervision.deadlock import STAND_IN


class Serving(Protocol):
    """The incarnation of the supervisor that serves now."""

    def receive(self, incarnation: Incarnation) -> None:
        """A child that this incarnation holds has ended."""


class Home:
    """The nursery and task in which the children of one supervisor run, over its incarnations."""

    nursery: trio.Nursery
    task: trio.lowlevel.Task

    def __init__(self, timeout: float) -> None:
        self.incarnation: Incarnation | None = None
        self.loop: Serving | None = None
        self._timeout = timeout
        self._children: Children | None = None
        self._orphans: dict[str, Slot] = {}
        self._stopped: Slot | None = None
        self._deadline = math.inf
        self._closed = self._stopping = False
        self._news, self._empty = trio.Event(), trio.Event()

    @trio.lowlevel.enable_ki_protection
    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Own the children's tasks, and stop orphans whose time is up. In a task of the parent's nursery."""
        # The children's tasks hang below this one, which is no incarnation: the deadlock check must know
        # whose place it takes.
        STAND_IN.set(self)
        self.task = trio.lowlevel.current_task()
        async with trio.open_nursery() as self.nursery:
            task_status.started()
            # Runs on after the close as long as orphans live: their tasks are below this one.
            while not self._closed or self._orphans:
                await self._wait()
                if self._orphans and self._deadline <= trio.current_time():
                    await self._stop_orphans()

    async def _wait(self) -> None:
        """Wait for news, or until the time of the orphans is up."""
        # No checkpoint since the loop looked at its conditions, so the new event can miss no news.
        self._news = trio.Event()
        with trio.move_on_at(self._deadline if self._orphans else math.inf):
            await self._news.wait()

    def keep(self, children: Children) -> None:
        """Take over what runs of `children`, whose supervisor does not serve any more."""
        self._children = children
        self._orphans = {id: slot for id, slot in children.slots.items() if slot.incarnation is not None}
        # Out of the old incarnation's table first, so that each child is held by one place at any moment.
        for id, slot in self._orphans.items():
            del children.slots[id]
            self._emit(events.ChildOrphaned, slot)
        self._wait_for_adoption()

    def _wait_for_adoption(self) -> None:
        # Closed: no incarnation is to come, so the orphans are stopped at once.
        self._deadline = -math.inf if self._closed else trio.current_time() + self._timeout
        self._empty = trio.Event()
        self._news.set()
        self._check_empty()

    def leave(self) -> None:
        """The present incarnation has ended: what it did not come to adopt waits again."""
        self.loop = self.incarnation = None
        if self._deadline == math.inf:
            self._wait_for_adoption()

    def on_child_end(self, incarnation: Incarnation) -> None:
        """A child has ended: an orphan is forgotten, what the supervisor holds is for the supervisor."""
        slot = self._orphans.get(incarnation.spec.id)
        # The slot may hold a newer incarnation by now; an end counts only for the one that it was of.
        if slot is not None and slot.incarnation is incarnation:
            if slot is not self._stopped:  # else the one who stops it waits for its end
                self._ended(slot, incarnation)
        elif self.loop is not None:
            self.loop.receive(incarnation)

    def _ended(self, slot: Slot, incarnation: Incarnation) -> None:
        assert self._children is not None
        reason = incarnation.reason or Killed()
        self._children.ended(slot, incarnation, reason, "down")
        exited = events.ChildExited(path=incarnation.endpoint.path, ref=incarnation.ref, reason=reason)
        incarnation.endpoint.system.events.emit(exited)
        self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        assert self._children is not None
        del self._orphans[slot.spec.id]
        self._children.slots[slot.spec.id] = slot
        self._children.drop(slot.spec.id)
        self._check_empty()

    def _check_empty(self) -> None:
        if not self._orphans:
            self._empty.set()
            self._news.set()

    async def prepare(self, specs: Sequence[ChildSpec]) -> None:
        """Stop the orphans that a supervisor of `specs` does not adopt, before it starts anything."""
        if self._stopping:
            # The task of the home is stopping them: a second stop beside it would break the order.
            await self._empty.wait()
        # While an incarnation adopts, their time does not run out; `leave` sets it anew if adoption is cut
        # short.
        self._deadline = math.inf
        specs_by_id = {spec.id: spec for spec in specs}
        # In reverse order of the start, as everywhere. Equal ids with another spec are other children.
        for slot in reversed(list(self._orphans.values())):
            if specs_by_id.get(slot.spec.id) != slot.spec:
                await self._stop(slot)

    def take(self, spec: ChildSpec) -> Slot | None:
        """The orphan for `spec`, if there is one that lives: it belongs to the supervisor from here."""
        slot = self._orphans.get(spec.id)
        # Ended but not yet reported: that is started afresh, since an adopted dead child would never be
        # restarted.
        if slot is None or slot.incarnation is None or slot.incarnation.reason is not None:
            return None
        del self._orphans[spec.id]
        self._check_empty()
        self._emit(events.ChildAdopted, slot)
        return slot

    def _emit(self, kind: type[events.ChildOrphaned | events.ChildAdopted], slot: Slot) -> None:
        assert slot.incarnation is not None
        endpoint = slot.incarnation.endpoint
        endpoint.system.events.emit(kind(path=endpoint.path, ref=slot.incarnation.ref))

    async def _stop_orphans(self) -> None:
        self._stopping = True
        for slot in reversed(list(self._orphans.values())):
            await self._stop(slot)
        self._stopping = False

    async def _stop(self, slot: Slot) -> None:
        # While the one before was stopped, this one may have ended or been adopted.
        if self._orphans.get(slot.spec.id) is not slot:
            return
        assert self._children is not None
        # Marks who waits for it, so that `on_child_end` leaves it to this method.
        self._stopped = slot
        await self._children.stop(slot)
        self._stopped = None
        self._forget(slot)

    def expire(self) -> None:
        """No incarnation is to come: the time of the orphans is up. Never waits."""
        if self._orphans:
            self._deadline = -math.inf
            self._news.set()

    def close(self) -> None:
        """The spec is dropped, or the parent has ended."""
        self._closed = True
        self.expire()
        self._news.set()

    def kill(self) -> None:
        """Kill the orphans, whatever grace they are in."""
        if self._children is not None and self._orphans:
            self._children.kill_all(self._orphans.values())

    async def stop(self, grace: Grace) -> None:
        """Stop the orphans and wait for that; after `grace` seconds they are killed. For the parent."""
        self.expire()
        if grace == "brutal_kill":
            self.kill()
        elif self._orphans:
            with trio.move_on_after(grace):
                await self._empty.wait()
            # After the grace in any case: a kill of none does nothing.
            self.kill()
        if self._orphans:
            await self._empty.wait()
