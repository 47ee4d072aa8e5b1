"""The children of one supervisor: held, started, stopped, dropped.

Guarantees: `begin` starts a child without waiting; `finish` returns when the child is ready or ignores, or raises when it
has ended and left nothing behind; a start that is aborted or takes too long is ended first: a worker is killed, a
supervisor stops its children that are ready. `stop` returns when the child is dead, whatever that takes: asked, then killed by
its clock (`grace`) when its time is over, then waited for; a start in progress is aborted. Events follow the
state they describe.

Invariants: a slot's `incarnation` is set from the start of the child until the supervisor has seen its end.
`awaited` are the children that are waited for right now, each with the event that ends the wait. Down children are
held for a later start unless `forgetful`.

Not here: which child is started or stopped, and when (`loop`, `decide`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from proctor.runtime import events
from proctor.runtime.errors import AlreadyRegistered, AlreadyStarted, StartError, StartTimeout
from proctor.runtime.exits import Crash, ExitReason, Killed, Shutdown
from proctor.runtime.messaging import ChildState, Kept, OneShotEvent, SupervisorHandle, wait_in_time
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision import decide
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.child_table import Slot, Start
from proctor.runtime.supervision.deadlock import waited_for
from proctor.runtime.supervision.health import Watch
from proctor.runtime.supervision.tree import Tree


class Children:
    """The children of one supervisor. `nursery` is where they run, set by its loop; `on_end` is called at each end."""

    nursery: trio.Nursery

    def __init__(
        self, path: str, system: Tree, handle: SupervisorHandle, on_end: Callable[[Incarnation], None]
    ) -> None:
        self.slots: dict[str, Slot] = {}
        self.awaited: dict[Incarnation, OneShotEvent] = {}
        self.forgetful = False
        self.left: dict[str, Kept] = {}
        self._path, self._system, self._handle, self._on_end = path, system, handle, on_end
        self._killed = False

    def _starts(self) -> list[Start]:
        return [slot.start for slot in self.slots.values() if slot.start is not None]

    def abort_starts(self) -> None:
        """End the wait for all starts in progress. Returns at once."""
        for start in self._starts():
            start.abort()

    async def end_starts(self) -> None:
        """Abort all starts in progress beside the loop, and wait until they are over."""
        self.abort_starts()
        for start in self._starts():
            # Each by its own event: aborted together above, they end in parallel.
            await start.over.wait()

    def kill(self) -> None:
        """Kill all that run, whatever grace they are in."""
        # Set first: a stop that begins meanwhile must kill, too, not ask.
        self._killed = True
        self.kill_all(self.slots.values())

    def kill_all(self, slots: Iterable[Slot]) -> None:
        """Kill what runs at `slots`, and what supervisors there have left behind."""
        for slot in slots:
            incarnation = slot.incarnation
            # Orphans run in the home's task, which a kill of the supervisor does not reach.
            if slot.orphans is not None:
                slot.orphans.kill()
            if incarnation is not None:
                incarnation.kill()

    def waits_for_current_task(self) -> bool:
        """Whether the current task holds up a start or stop under way, so that waiting here would never end."""
        return any(not self.awaited[child].is_set() for child in waited_for() if child in self.awaited)

    def begin(self, slot: Slot) -> Start:
        """Start a new incarnation, which may end before it is ready: see `finish`. Raises `AlreadyStarted`, held down."""
        # Counted before anything can fail, so that no two incarnations have one number.
        slot.count += 1
        spec = slot.spec
        incarnation = Incarnation(
            spec, self.path_of(spec), self._system, slot.kept, slot.count, self._handle, self._on_end
        )
        # The names first: with a name that is taken no task may be started, and a child is found under its
        # names from its first step.
        self._register(slot, incarnation)
        slot.begin(incarnation)
        self.nursery.start_soon(incarnation.run, name=incarnation.endpoint.path)
        # Put down before any wait: a stop that comes from inside this child is a deadlock, and must be seen
        # as one.
        self.awaited[incarnation] = incarnation.settled
        slot.start = start = Start(slot, incarnation)
        return start

    async def finish(self, start: Start) -> Incarnation:
        """Wait until the child is ready or has ended. Raises `StartError`, held down."""
        slot, incarnation = start.slot, start.incarnation
        late = await self._await_start(start, incarnation.spec.start_timeout)
        # Cleared before the outcome is dealt with: who waits for `over` finds a slot without a start.
        slot.start = None
        if late is not None:
            self._not_started(slot, incarnation, late)
        elif incarnation.has_started:
            slot.running()
            self._settle(slot, slot.names - {slot.spec.name})  # they did not come back with it
            started = events.ChildStarted(
                path=incarnation.endpoint.path, ref=incarnation.ref, incarnation=slot.count
            )
            self._system.events.emit(started)
            self._watch(slot, incarnation)
        elif incarnation.ignored:
            self._ignored(slot)
        else:
            self._not_started(slot, incarnation, incarnation.reason or Killed())
        return incarnation

    def _watch(self, slot: Slot, incarnation: Incarnation) -> None:
        watched = incarnation.spec.watchdog is not None or incarnation.spec.probe is not None
        if watched and incarnation.reason is None:
            incarnation.watch = Watch(incarnation, self._system.timers)
            incarnation.watch.begin(self.nursery)

    def path_of(self, spec: ChildSpec) -> str:
        """The place of a child in the tree."""
        return f"{self._path}/{spec.id}"

    def _register(self, slot: Slot, incarnation: Incarnation) -> None:
        ref, registry = incarnation.ref, self._system.registry
        try:
            registry.register("/" + ref.path, ref)
            if slot.spec.name is not None:
                registry.register(slot.spec.name, ref)
                registry.expect(slot.spec.name, slot.kept)
                slot.names |= {slot.spec.name}
        except AlreadyRegistered as error:
            # Closed at once: its ref exists, and a monitor on it must see an end.
            incarnation.endpoint.close(Killed())
            taken = AlreadyStarted(slot.spec.id, error.ref)
            slot.ended(taken.reason, "down")
            self._system.events.emit(events.StartFailed(path=ref.path, reason=taken.reason))
            raise taken from None

    async def _await_start(self, start: Start, limit: float | None) -> ExitReason | None:
        incarnation = start.incarnation
        took = None if start.aborted else await self._settled(incarnation, limit)
        late: ExitReason | None = None
        # `settled` may have come in the tick in which the time ran out: then it counts as ready.
        if not incarnation.settled.is_set():  # from here on it cannot become ready any more
            too_slow = None if start.aborted else took  # as of now: a stop may come while it is being killed
            await self._abort(incarnation)
            if too_slow is None:
                late = incarnation.reason or Killed()
            else:
                late = Crash(StartTimeout(too_slow, incarnation.last_words))
        # Only after its death: until then a request from inside it still is a deadlock.
        del self.awaited[incarnation]
        # Readiness came: `extend` from here must not move a deadline of a scope that is left.
        incarnation.patience = None
        return late

    async def _abort(self, incarnation: Incarnation) -> None:
        # children of a supervisor that are ready already get their own `shutdown`, within that of the supervisor
        is_partly_ready = incarnation.spec.type == "supervisor" and incarnation.delegate is not None
        await self._end(incarnation, by_force=not is_partly_ready)

    async def _settled(self, incarnation: Incarnation, limit: float | None) -> float | None:
        if limit is None:
            await incarnation.settled.wait()
            return None
        begun = trio.current_time()
        incarnation.patience = patience = trio.CancelScope(deadline=begun + limit)
        await wait_in_time(incarnation.settled, patience)
        # Rounded: differences of clock readings would show as 4.999999999.
        return round(patience.deadline - begun, 6)

    def _ignored(self, slot: Slot) -> None:
        slot.ended(None, "down")
        self.come_to_rest(slot)

    def come_to_rest(self, slot: Slot) -> None:
        """The child is down and no restart is due: a temporary one is dropped, another held."""
        if slot.spec.restart == "temporary":
            self.drop(slot.spec.id)
        else:
            self.rest(slot)

    def rest(self, slot: Slot) -> None:
        """Hold a child that is down, and run what it left with `at_rest`; a forgetful supervisor drops it."""
        slot.at_rest = True
        if self.forgetful:
            self.drop(slot.spec.id)
        else:
            self._call(slot, slot.kept.resting)

    def leave(self) -> None:
        """The supervisor ends, after its children: forget them. Names that are due stay so for its parent."""
        for slot in self.slots.values():
            # All names pass to the parent before the slots are dropped, which would declare them as gone.
            self.left.update(dict.fromkeys(slot.names, slot.kept))
            slot.names = frozenset()
        self.drop(*self.slots)

    def forget(self, slot: Slot) -> None:
        """Drop a child, unless that was done before."""
        # The id may be held by a new child meanwhile, which this must not drop.
        if self.slots.get(slot.spec.id) is slot:
            self.drop(slot.spec.id)

    def drop(self, *ids: str) -> None:
        """Forget children that are down, and what they kept."""
        for slot in [self.slots.pop(id) for id in ids]:
            self._call(slot, slot.kept.resting + slot.kept.dropped)

    def _call(self, slot: Slot, left: Iterable[Callable[[], object]]) -> None:
        # Names first: a callback that looks one up must not find it still due.
        self._settle(slot, slot.names)
        for fn in left:
            # One callback's failure must not keep the others from running: they free locks and folders.
            try:
                fn()
            except BaseException as error:  # noqa: BLE001  # a child's code, run in the supervisor's task
                if not self._system.take_interrupt(error):
                    self._system.events.emit(events.KeptFailed(path=self.path_of(slot.spec), error=error))

    def _settle(self, slot: Slot, names: frozenset[str]) -> None:
        slot.names -= names
        for name in names:
            self._system.registry.settle(name, slot.kept)

    def ended(self, slot: Slot, incarnation: Incarnation, reason: ExitReason, state: ChildState) -> None:
        """The end of the child's incarnation is seen."""
        slot.ended(reason, state)
        self._inherit(slot, incarnation)

    def _inherit(self, slot: Slot, incarnation: Incarnation) -> None:
        if incarnation.delegate is None:
            return
        for name, owner in incarnation.delegate.left.items():
            # Only if it is still due there: a name that was registered elsewhere meanwhile has an owner.
            if self._system.registry.pass_on(name, owner, slot.kept):
                slot.names |= {name}

    def _not_started(self, slot: Slot, incarnation: Incarnation, reason: ExitReason) -> None:
        self.ended(slot, incarnation, reason, "down")
        self._system.events.emit(events.StartFailed(path=self.path_of(slot.spec), reason=reason))
        raise StartError(slot.spec.id, reason)

    async def stop_all(self, slots: Iterable[Slot]) -> None:
        """Stop children one after another, each dead before the next is asked."""
        # A copy: each stop lets other tasks change the table.
        for slot in list(slots):
            await self.stop(slot)

    async def stop_together(self, slots: Iterable[Slot]) -> None:
        """Stop children all at once, each by its own `shutdown`."""
        async with trio.open_nursery() as nursery:
            for slot in list(slots):
                nursery.start_soon(self.stop, slot)

    # An interrupt in the middle would leave a slot that says `stopping` without anyone who stops it.
    @trio.lowlevel.enable_ki_protection
    async def stop(self, slot: Slot) -> None:
        """Stop a child by its `shutdown`, and wait for its death, however long that takes."""
        if slot.start is not None:
            slot.start.abort()
            # The start's own task ends the child; two that end one slot would both report it.
            await slot.start.over.wait()
        incarnation = slot.incarnation
        # Nothing runs at the slot, yet orphans of a nested supervisor may live in its home.
        if incarnation is None:
            slot.state = "down"
            if slot.orphans is not None:
                await slot.orphans.stop("brutal_kill" if self._killed else slot.spec.grace)
            return
        slot.state = "stopping"
        # From here a request from inside the child would wait for itself: `waits_for_current_task` must know.
        self.awaited[incarnation] = incarnation.ended
        await self._end(incarnation, by_force=False)
        del self.awaited[incarnation]
        self._stopped(slot, incarnation)

    async def _end(self, incarnation: Incarnation, *, by_force: bool) -> None:
        # once the tree is killed no child is asked any more: a polite stop would spend the grace of the
        # parent.
        if self._killed or by_force:
            incarnation.kill()
        else:
            incarnation.shut_down(Shutdown())
        await incarnation.ended.wait()

    def _stopped(self, slot: Slot, incarnation: Incarnation) -> None:
        # The table is brought up to date before the event is emitted: a subscriber may look at it.
        reason = incarnation.reason or Killed()
        self.ended(slot, incarnation, reason, "down")
        path, ref = incarnation.endpoint.path, incarnation.ref
        self._system.events.emit(events.ChildExited(path=path, ref=ref, reason=reason))
        spec = slot.spec
        # A forced end is no failure of the child's shutdown.
        if not self._killed and decide.is_shutdown_error(spec.restart, spec.grace, reason):
            self._system.events.emit(events.ShutdownFailed(path=path, ref=ref, reason=reason))
