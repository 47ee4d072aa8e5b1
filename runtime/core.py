"""A supervisor's one inbox, and the loop that carries out what `decide` says.

Guarantees: one thing at a time (S55): an exit, a request or a retry is handled when the one before is done.
Exits come before requests (M6); a stop or kill is a flag, seen before either, and ends a wait for a start at
once (D5, S43). Once ending, nothing is started (S41, T6). A stop phase is over when every child in it has ended,
however long that takes (S25, T10). An exit counts only for the incarnation that its slot holds (S17), so what
died during a stop phase is consumed by it (S29).

Invariants: a slot's `incarnation` is set from the start of the child until the core has seen its end. `_awaited` is
the child that the loop waits for right now, to start or to stop. Events follow the state they describe.

`run` must not be cancelled: its owner turns a cancellation into `stop` (T1, T2).

Not here: who owns the loop's task (`supervisor`), what a child does in its own task (`child`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from proctor.runtime import decide, events
from proctor.runtime.calls import Call
from proctor.runtime.cell import Cell
from proctor.runtime.child import Incarnation
from proctor.runtime.errors import (
    AlreadyPresent,
    AlreadyRegistered,
    AlreadyStarted,
    MaxRestartsExceeded,
    NotFound,
    Restarting,
    Running,
    StartError,
    StartTimeout,
    SupervisionError,
    WouldDeadlock,
)
from proctor.runtime.exits import Crash, ExitReason, Killed, NoProc, Shutdown
from proctor.runtime.monitors import Down
from proctor.runtime.slots import Slot
from proctor.runtime.spec import ChildSpec, Flags, check_significance

if TYPE_CHECKING:
    from proctor.runtime.supervisor import Supervisor
    from proctor.runtime.system import System

T = TypeVar("T")

KILL_PATIENCE = 5.0
"""Seconds after which a child that was killed and lives is reported (T10)."""


class Core:
    """One incarnation of a supervisor."""

    def __init__(
        self,
        children: Sequence[ChildSpec],
        flags: Flags,
        cell: Cell,
        system: System,
        handle: Callable[[Core], Supervisor],
    ) -> None:
        self.flags = flags
        self.cell = cell
        self.system = system
        self.path = cell.path
        self.slots: dict[str, Slot] = {}
        self.failure: StartError | MaxRestartsExceeded | None = None
        self.handle = handle(self)
        self._first = children
        self._window = decide.Window(flags.intensity, flags.period)
        self._exits: deque[Incarnation] = deque()
        self._requests: deque[Callable[[], Awaitable[None]]] = deque()
        self._news = trio.Event()
        self._reason: ExitReason | None = None
        self._killed = self._served = False
        self._awaited: Incarnation | None = None
        self._start_scope, self._stop_scope = trio.CancelScope(), trio.CancelScope()
        cell.watchers[self] = None

    def stop(self, reason: ExitReason) -> None:
        """End in order, with `reason` (S42); a start under way is aborted."""
        if self._reason is None:
            self._reason = reason
        self._start_scope.cancel(reason="the supervisor stops")
        self._news.set()

    def kill(self) -> None:
        """End at once: all children are killed (S45)."""
        self._killed = True
        self.stop(Killed())
        self._stop_scope.cancel(reason="the supervisor was killed")
        for slot in self.slots.values():
            if slot.incarnation is not None:
                slot.incarnation.kill()

    def deliver(self, down: Down) -> None:
        """The supervisor's own end, told by its cell."""
        if self._served:
            self.system.events.emit(events.SupervisorStopped(path=self.path, reason=down.reason))

    @property
    def reason(self) -> ExitReason:
        """Why it ended, or is going to."""
        return Killed() if self._killed else self._reason or Shutdown()

    async def ask(self, work: Callable[[], Awaitable[T]]) -> T:
        """Have `work` done by the loop in its turn. Raises what it raises, `NoProc`, `ActorExited`, `WouldDeadlock`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.cell.exit is not None:
            raise NoProc(self.cell.ref)
        if self._awaited is not None and _waits_in(self._awaited):
            raise WouldDeadlock(self.path)
        call = Call(work, self.cell, float("inf"))
        self._requests.append(partial(self._answer, call, work))
        self._news.set()
        try:
            result: T = await call.wait()
        finally:
            if not call.settled:
                call.give_up()
        return result

    async def _answer(self, call: Call, work: Callable[[], Awaitable[object]]) -> None:
        if call.settled:
            return
        try:
            call.reply(await work())
        except SupervisionError as error:
            if not (isinstance(error, StartError) and self._ending):
                call.fail(error)

    def _hear(self, incarnation: Incarnation) -> None:
        self._exits.append(incarnation)
        self._news.set()

    @trio.lowlevel.enable_ki_protection
    async def run(self, ready: Callable[[], None]) -> None:
        """Start the children, serve, stop the children. `failure` says why it could not start or gave up."""
        async with trio.open_nursery() as self._nursery:
            await self._start_first()
            if not self._ending:
                ready()
                self._served = True
                self.system.events.emit(events.SupervisorStarted(path=self.path))
                await self._serve()
            await self._stop_children(reversed(self.slots.values()))
            self._drop(*self.slots)

    @property
    def _ending(self) -> bool:
        return self._reason is not None

    @property
    def _may_start(self) -> bool:
        return self._reason is None and self.system.interrupted is None

    async def _serve(self) -> None:
        while not self._ending:
            if self._exits:
                await self._on_exit(self._exits.popleft())
            elif self._requests:
                await self._requests.popleft()()
            else:
                self._news = trio.Event()
                await self._news.wait()

    async def _start_first(self) -> None:
        for spec in self._first:
            if not self._may_start:
                return
            self.slots[spec.id] = slot = Slot(spec)
            try:
                await self._start(slot)
            except StartError as error:
                self.failure = self.failure or (None if self._ending else error)
                self._reason = self._reason or Shutdown("start failed")
        self._first = ()

    async def _on_exit(self, incarnation: Incarnation) -> None:
        slot = self.slots.get(incarnation.spec.id)
        if slot is None or slot.incarnation is not incarnation:
            return
        reason = incarnation.reason or Killed()
        action = decide.after_exit(slot.spec.restart, reason, self.system.restarts)
        slot.ended(reason, "restarting" if action == "restart" else "down")
        if action == "drop":
            self._drop(slot.spec.id)
        self._report_exit(slot, incarnation, reason)
        if action == "keep":
            self._rest(slot)
        if action == "restart":
            await self._restart(slot, reason)
        elif decide.ends_supervisor(self.flags.auto_shutdown, slot.spec.significant, self._peers()):
            self._reason = self._reason or Shutdown("auto_shutdown")

    def _report_exit(self, slot: Slot, incarnation: Incarnation, reason: ExitReason) -> None:
        path, ref = incarnation.cell.path, incarnation.cell.ref
        self.system.events.emit(events.ChildExited(path=path, ref=ref, reason=reason))
        if decide.is_reported(slot.spec.restart, reason):
            self.system.events.emit(events.ChildTerminated(path=path, ref=ref, reason=reason))

    def _peers(self) -> Iterable[decide.Peer]:
        return (decide.Peer(slot.spec.significant, slot.state != "down") for slot in self.slots.values())

    async def _restart(self, slot: Slot, reason: ExitReason) -> None:
        if not self._may_start:
            slot.state = "down"
        elif self._window.add(trio.current_time(), reason):
            slot.restarts += 1
            slot.attempt += 1
            restarting = events.ChildRestarting(
                path=self._path(slot.spec), attempt=slot.attempt, delay=0.0, reason=reason
            )
            self.system.events.emit(restarting)
            await self._carry_out(self._plan(slot))
        else:
            self._give_up(slot, reason)

    def _give_up(self, slot: Slot, reason: ExitReason) -> None:
        slot.state, flags = "down", self.flags
        self.failure = MaxRestartsExceeded.of(self.path, self._window.causes(), flags.intensity, flags.period)
        self._reason = Shutdown("max_restarts")
        self.system.events.emit(events.MaxRestarts(path=self.path, id=slot.spec.id, reason=reason))

    def _plan(self, slot: Slot) -> decide.Plan:
        members = [
            decide.Member(id, held.spec.restart, held.incarnation is not None)
            for id, held in self.slots.items()
        ]
        return decide.group_plan(self.flags.strategy, members, slot.spec.id)

    async def _carry_out(self, plan: decide.Plan) -> None:
        await self._stop_children([self.slots[id] for id in plan.stop])
        self._drop(*plan.drop)
        for id in plan.start:
            if not self._may_start or not await self._start_again(self.slots[id]):
                return

    async def _start_again(self, slot: Slot) -> bool:
        try:
            await self._start(slot)
        except StartError as error:
            slot.state = "restarting"
            self._requests.append(partial(self._retry, slot, slot.count, error.reason))
            return False
        return True

    async def _retry(self, slot: Slot, count: int, reason: ExitReason) -> None:
        await trio.lowlevel.checkpoint()
        if self.slots.get(slot.spec.id) is slot and slot.state == "restarting" and slot.count == count:
            await self._restart(slot, reason)

    async def _start(self, slot: Slot) -> Incarnation:
        slot.count += 1
        spec = slot.spec
        incarnation = Incarnation(
            spec, self._path(spec), self.system, slot.kept, slot.count, self.handle, self._hear
        )
        self._register(slot, incarnation)
        slot.begin(incarnation)
        self._nursery.start_soon(incarnation.run, name=incarnation.cell.path)
        late = await self._await_start(incarnation, spec.start_timeout)
        if incarnation.ready:
            slot.running()
            started = events.ChildStarted(
                path=incarnation.cell.path, ref=incarnation.cell.ref, incarnation=slot.count
            )
            self.system.events.emit(started)
        elif incarnation.ignored:
            self._ignored(slot)
        else:
            self._not_started(slot, late or incarnation.reason or Killed())
        return incarnation

    def _path(self, spec: ChildSpec) -> str:
        return f"{self.path}/{spec.id}"

    def _register(self, slot: Slot, incarnation: Incarnation) -> None:
        ref, registry = incarnation.cell.ref, self.system.registry
        try:
            registry.register("/" + ref.path, ref)
            if slot.spec.name is not None:
                registry.register(slot.spec.name, ref)
                registry.expect(slot.spec.name)
        except AlreadyRegistered as error:
            incarnation.cell.close(Killed())
            taken = AlreadyStarted(slot.spec.id, error.ref)
            slot.ended(taken.reason, "down")
            self.system.events.emit(events.StartFailed(path=ref.path, reason=taken.reason))
            raise taken from None

    async def _await_start(self, incarnation: Incarnation, limit: float | None) -> ExitReason | None:
        self._awaited = incarnation
        with trio.CancelScope() as self._start_scope:
            if limit is not None:
                self._start_scope.deadline = trio.current_time() + limit
            await incarnation.settled.wait()
        late = None
        if not incarnation.settled.is_set():
            incarnation.kill()
            await self._await_death(incarnation)
            late = Crash(StartTimeout(limit)) if limit is not None and not self._ending else None
        self._awaited = None
        return late

    def _ignored(self, slot: Slot) -> None:
        slot.ended(None, "down")
        self._come_to_rest(slot)

    def _come_to_rest(self, slot: Slot) -> None:
        if slot.spec.restart == "temporary":
            self._drop(slot.spec.id)
        else:
            self._rest(slot)

    def _rest(self, slot: Slot) -> None:
        self._call(slot, slot.kept.resting)

    def _drop(self, *ids: str) -> None:
        for slot in [self.slots.pop(id) for id in ids]:
            self._call(slot, slot.kept.resting + slot.kept.dropped)

    def _call(self, slot: Slot, left: Iterable[Callable[[], object]]) -> None:
        if slot.spec.name is not None:
            self.system.registry.settle(slot.spec.name)
        for fn in left:
            try:
                fn()
            except Exception as error:  # noqa: BLE001  # a child's code, run in the supervisor's task
                self.system.events.emit(events.KeptFailed(path=self._path(slot.spec), error=error))

    def _not_started(self, slot: Slot, reason: ExitReason) -> None:
        slot.ended(reason, "down")
        self.system.events.emit(events.StartFailed(path=self._path(slot.spec), reason=reason))
        raise StartError(slot.spec.id, reason)

    async def _stop_children(self, slots: Iterable[Slot]) -> None:
        for slot in list(slots):
            await self._stop(slot)

    async def _stop(self, slot: Slot) -> None:
        incarnation = slot.incarnation
        if incarnation is None:
            slot.state = "down"
            return
        slot.state, self._awaited = "stopping", incarnation
        await self._end(incarnation)
        self._awaited = None
        self._stopped(slot, incarnation)

    async def _end(self, incarnation: Incarnation) -> None:
        grace = incarnation.spec.grace
        if grace != "brutal_kill" and not self._killed:
            incarnation.stop(Shutdown())
            if grace > 0:
                with trio.move_on_after(grace) as self._stop_scope:
                    await incarnation.ended.wait()
        if not incarnation.ended.is_set():
            incarnation.kill()
        await self._await_death(incarnation)

    async def _await_death(self, incarnation: Incarnation) -> None:
        with trio.move_on_after(KILL_PATIENCE):
            await incarnation.ended.wait()
        if not incarnation.ended.is_set():
            unresponsive = events.ChildUnresponsive(path=incarnation.cell.path, ref=incarnation.cell.ref)
            self.system.events.emit(unresponsive)
            await incarnation.ended.wait()

    def _stopped(self, slot: Slot, incarnation: Incarnation) -> None:
        reason = incarnation.reason or Killed()
        slot.ended(reason, "down")
        path, ref = incarnation.cell.path, incarnation.cell.ref
        self.system.events.emit(events.ChildExited(path=path, ref=ref, reason=reason))
        spec = incarnation.spec
        if not self._killed and decide.is_shutdown_error(spec.restart, spec.grace, reason):
            self.system.events.emit(events.ShutdownFailed(path=path, ref=ref, reason=reason))

    def held(self, id: str) -> Slot:
        """The slot of a child. Raises `NotFound`."""
        if id not in self.slots:
            raise NotFound(id)
        return self.slots[id]

    async def start_child(self, spec: ChildSpec) -> Incarnation:
        """S47, S48."""
        check_significance(spec, self.flags.auto_shutdown)
        self._refuse_held(spec.id)
        self.slots[spec.id] = slot = Slot(spec)
        try:
            return await self._start(slot)
        except StartError:
            self._drop(spec.id)
            raise

    def _refuse_held(self, id: str) -> None:
        slot = self.slots.get(id)
        if slot is None:
            return
        if slot.incarnation is not None:
            raise AlreadyStarted(id, slot.incarnation.cell.ref)
        raise AlreadyPresent(id)

    async def terminate_child(self, id: str) -> None:
        """S49."""
        slot = self.held(id)
        await self._stop(slot)
        self._come_to_rest(slot)

    async def restart_child(self, id: str) -> Incarnation:
        """S50."""
        slot = self._down(id)
        try:
            return await self._start(slot)
        except StartError:
            self._rest(slot)
            raise

    async def delete_child(self, id: str) -> None:
        """S51."""
        self._down(id)
        self._drop(id)

    def _down(self, id: str) -> Slot:
        slot = self.held(id)
        if slot.state == "restarting":
            raise Restarting(id)
        if slot.incarnation is not None:
            raise Running(id)
        return slot


def _waits_in(incarnation: Incarnation) -> bool:
    """Whether the current task is the child's own or one that it waits for; its nursery's tasks are not."""
    task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
    while task is not None and task is not incarnation.cell.task:
        nursery = task.parent_nursery
        task = None if nursery is None or incarnation.owns(nursery) else nursery.parent_task
    return task is not None
