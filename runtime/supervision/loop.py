"""A supervisor's one inbox, and the loop that carries out what `decide` says.

Guarantees: one thing at a time: an exit, a request or a retry is handled when the one before is done.
Exits come before requests, but after each restart a request has its turn: a child that crashes as fast as it is
restarted delays no request. A stop or kill is a flag, seen before either, and ends a wait for a start at once. Once ending, nothing is started. A stop phase is complete before the first start.
An exit counts only for the incarnation that its slot holds, so what died during a stop phase is consumed by it.


`run` must not be cancelled: its owner turns a cancellation into `stop`.

Not here: how a child is started and stopped (`children`), who owns the loop's task (`supervisor`), what a child does in its own task (`child`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

import trio

from proctor.runtime import events
from proctor.runtime.errors import (
    AlreadyPresent,
    AlreadyStarted,
    MaxRestartsExceeded,
    NotFound,
    Restarting,
    Running,
    StartError,
    SupervisionError,
    WouldDeadlock,
)
from proctor.runtime.exits import ExitReason, Killed, NoProc, Shutdown, TreeTerminated, raised_above
from proctor.runtime.messaging import Call, Down, Kept, Ref, SupervisorHandle
from proctor.runtime.spec import ChildSpec, Flags, check_significance
from proctor.runtime.supervision import decide
from proctor.runtime.supervision.backoff import delay, is_too_long, waits_out
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.child_table import Slot
from proctor.runtime.supervision.children import Children
from proctor.runtime.supervision.grace import StopReport
from proctor.runtime.supervision.reconfigure import changed_flags, changed_slots
from proctor.runtime.supervision.tree import Tree

T = TypeVar("T")


class SupervisorLoop:
    """One incarnation of a supervisor."""

    def __init__(
        self,
        children: Sequence[ChildSpec],
        flags: Flags,
        ref: Ref,
        system: Tree,
        handle: Callable[[SupervisorLoop], SupervisorHandle],
    ) -> None:
        self.flags = flags
        self.ref, self.endpoint = ref, ref.endpoint
        self.system = system
        self.path = ref.path
        self.failure: StartError | MaxRestartsExceeded | TreeTerminated | None = None
        self.handle = handle(self)
        self.children = Children(ref.path, system, self.handle, self._on_child_end)
        self.slots = self.children.slots
        self._first = children
        self._window = decide.Window(flags.intensity, flags.period)
        self._exits: deque[Incarnation] = deque()
        self._requests: deque[Callable[[], Awaitable[None]]] = deque()
        self._news = trio.Event()
        self._reason: ExitReason | None = None
        self._killed = self._restarted = False
        self.was_ready = False
        """Whether all its first children were ready, before any stop."""
        self._report: StopReport | None = None
        self.endpoint.watchers[self] = None

    def stop(self, reason: ExitReason) -> None:
        """End in order, with `reason`; a start under way is aborted."""
        self._end_with(reason)
        self.children.abort_start()
        self._news.set()

    def _end_with(self, reason: ExitReason) -> None:
        if self._reason is None:
            self._reason = reason
            self._report = self.system.late.report(self.path)
            self.endpoint.control.ending()

    def kill(self) -> None:
        """End at once: all children are killed."""
        self._killed = True
        self.stop(Killed())
        self.children.kill()

    def deliver(self, down: Down) -> None:
        """The supervisor's own end, reported by its endpoint."""
        if self._report is not None:
            self._report.close()
        if self.was_ready:
            self.system.events.emit(events.SupervisorStopped(path=self.path, reason=down.reason))

    @property
    def reason(self) -> ExitReason:
        """Why it ended, or is going to."""
        return Killed() if self._killed else self._reason or Shutdown()

    @property
    def late(self) -> tuple[events.LateStop, ...]:
        """What did not end in time since its own end began."""
        return () if self._report is None else self._report.events

    @property
    def left(self) -> Mapping[str, Kept]:
        """The names that were still due at its end, each with the place that owns it."""
        return self.children.left

    @trio.lowlevel.enable_ki_protection
    async def ask(
        self, work: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[None]] | None = None
    ) -> T:
        """Have `work` done by the loop in its turn. Raises what it raises, `NoProc`, `ActorExited`, `WouldDeadlock`.

        A caller that is cancelled before has asked nothing; for one that is cancelled meanwhile, `undo` takes back what
        `work` returned.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.endpoint.exit is not None:
            raise NoProc(self.ref)
        if self.children.waits_for_current_task():
            raise WouldDeadlock(self.path)
        call = Call(work, self.endpoint, float("inf"))
        self._requests.append(partial(self._answer, call, work, undo))
        self._news.set()
        result: T = await call.wait()
        return result

    async def _answer(
        self,
        call: Call,
        work: Callable[[], Awaitable[T]],
        undo: Callable[[T], Awaitable[None]] | None,
    ) -> None:
        if call.settled:
            return
        try:
            result = await work()
            if call.settled and undo is not None:
                await undo(result)
            else:
                call.reply(result)
        except SupervisionError as error:
            if not self._ending:  # else the answer is the end of the supervisor, which is the cause
                call.fail(error)

    def _on_child_end(self, incarnation: Incarnation) -> None:
        self._exits.append(incarnation)
        self._news.set()

    @trio.lowlevel.enable_ki_protection
    async def run(self, ready: Callable[[], None]) -> None:
        """Start the children, serve, stop the children. `failure` says why it could not start or gave up."""
        async with self._nursery() as self.children.nursery:
            if await self._start_first() and not self._ending:
                ready()
                self.was_ready = True
                self.system.events.emit(events.SupervisorStarted(path=self.path))
            await self._serve()
            await self._stop_children()
            self.children.leave()

    def _nursery(self) -> AbstractAsyncContextManager[trio.Nursery]:
        return trio.open_nursery()

    async def _stop_children(self) -> None:
        await self._stop(reversed(self.slots.values()))

    async def _stop(self, slots: Iterable[Slot]) -> None:
        if self.flags.stop_order == "parallel":
            await self.children.stop_together(slots)
        else:
            await self.children.stop_all(slots)

    @property
    def _ending(self) -> bool:
        return self._reason is not None

    @property
    def may_start(self) -> bool:
        """Whether anything may be started, or restarted, here."""
        return self._reason is None and self.system.interrupted is None

    async def _serve(self) -> None:
        while not self._ending:
            if self._requests and self.may_start and (self._restarted or not self._exits):
                self._restarted = False
                await self._requests.popleft()()
            elif self._exits:
                await self._on_exit(self._exits.popleft())
            else:
                self._news = trio.Event()
                await self._news.wait()

    async def _start_first(self) -> bool:
        for spec in self._first:
            if not self.may_start:
                return False
            await self._start_initially(spec)
        self._first = ()
        return True

    async def _start_initially(self, spec: ChildSpec) -> None:
        self.slots[spec.id] = slot = Slot(spec)
        try:
            await self.children.start(slot)
        except StartError as error:
            self.failure = self.failure or (None if self._ending else error)
            self._end_with(Shutdown("start failed"))

    async def _on_exit(self, incarnation: Incarnation) -> None:
        slot = self.slots.get(incarnation.spec.id)
        if slot is None or slot.incarnation is not incarnation:
            return
        reason = incarnation.reason or Killed()
        action = decide.after_exit(slot.spec.restart, reason, self.system.restarts)
        self.children.ended(slot, incarnation, reason, "restarting" if action == "restart" else "down")
        if action == "drop":
            self.children.drop(slot.spec.id)
        self._report_exit(slot, incarnation, reason)
        if action == "keep":
            self.children.rest(slot)
        if action == "restart":
            await self._restart(slot, reason)
        elif action == "terminate":
            self._end_tree(slot, reason)
        else:
            self._stays_down(slot)

    def _stays_down(self, slot: Slot) -> None:
        if decide.ends_supervisor(self.flags.auto_shutdown, slot.spec.significant, self._peers()):
            self._end_with(Shutdown("auto_shutdown"))

    def _end_tree(self, slot: Slot, reason: ExitReason) -> None:
        if self._reason is None:
            whole = raised_above(reason, self.children.path_of(slot.spec))
            self.failure = TreeTerminated(whole)
            self._end_with(whole)

    def _report_exit(self, slot: Slot, incarnation: Incarnation, reason: ExitReason) -> None:
        path, ref = incarnation.endpoint.path, incarnation.ref
        self.system.events.emit(events.ChildExited(path=path, ref=ref, reason=reason))
        if decide.is_reported(slot.spec.restart, reason):
            self.system.events.emit(events.ChildTerminated(path=path, ref=ref, reason=reason))

    def _peers(self) -> Iterable[decide.Peer]:
        return (decide.Peer(slot.spec.significant, slot.state != "down") for slot in self.slots.values())

    async def _restart(self, slot: Slot, reason: ExitReason) -> None:
        if not self.may_start:
            slot.state = "down"
            return
        limit = self._limit_exceeded(slot, reason)
        if limit is not None:
            self._give_up(slot, reason, limit)
            return
        slot.attempt += 1
        slot.restarts += 1
        delay_seconds = self._delay(slot)
        path = self.children.path_of(slot.spec)
        self.system.events.emit(
            events.ChildRestarting(path=path, attempt=slot.attempt, delay=delay_seconds, reason=reason)
        )
        if slot.spec.backoff is None:
            self._restarted = True
            await self._carry_out(self._plan(slot))
        else:
            self.system.timers.at(trio.current_time() + delay_seconds, DelayedRestart(self, slot))

    def _limit_exceeded(self, slot: Slot, reason: ExitReason) -> str | None:
        backoff = slot.spec.backoff
        # what the machine lacks is no fault of the child, and restarts would be spent before it is there again
        counted = not waits_out(backoff, reason)
        if counted and not self._window_of(slot).add(trio.current_time(), reason):
            return f"more than {self.flags.intensity} restarts in {self.flags.period:g} s"
        if backoff is None or not is_too_long(backoff, slot.attempt + 1):
            return None
        return f"more than {backoff.max_in_row} restarts of {slot.spec.id!r} in a row"

    def _window_of(self, slot: Slot) -> decide.Window:
        if self.flags.give_up == "supervisor":
            return self._window
        if slot.window is None:
            slot.window = decide.Window(self.flags.intensity, self.flags.period)
        slot.window.intensity, slot.window.period = self.flags.intensity, self.flags.period
        return slot.window

    def _delay(self, slot: Slot) -> float:
        if slot.spec.backoff is None:
            return 0.0
        return delay(slot.spec.backoff, slot.attempt - 1, self.system.random.random())

    def resume(self, slot: Slot) -> None:
        """The time of a restart that was put off has come."""
        self._requests.append(partial(self._restart_now, slot, slot.count))
        self._news.set()

    async def _restart_now(self, slot: Slot, count: int) -> None:
        if self.is_restart_due(slot, count):
            await self._carry_out(self._plan(slot))

    def is_restart_due(self, slot: Slot, count: int) -> bool:
        """Whether a restart of `slot` is due, and its incarnation `count` was the last that was tried."""
        held = self.slots.get(slot.spec.id) is slot and slot.state == "restarting"
        return held and slot.count == count and not self._ending

    def _give_up(self, slot: Slot, reason: ExitReason, limit: str) -> None:
        slot.state = "down"
        alone = self.flags.give_up == "child"
        if not alone:
            self.failure = MaxRestartsExceeded.of(self.path, self._window.causes(), limit)
            self._end_with(Shutdown("max_restarts"))
        self.system.events.emit(
            events.MaxRestarts(path=self.path, id=slot.spec.id, reason=reason, limit=limit, child_only=alone)
        )
        if alone:
            slot.window, slot.attempt = None, 0  # who starts it again begins anew
            self.children.come_to_rest(slot)
            self._stays_down(slot)

    def _plan(self, slot: Slot) -> decide.Plan:
        # among thousands, the others are not worth a list each time
        alone = self.flags.strategy == "one_for_one"
        members = [
            decide.Member(id, held.spec.restart, held.incarnation is not None, decide.is_final(held.exit))
            for id, held in ({slot.spec.id: slot} if alone else self.slots).items()
        ]
        return decide.group_plan(self.flags.strategy, members, slot.spec.id)

    async def _carry_out(self, plan: decide.Plan) -> None:
        await self._stop([self.slots[id] for id in plan.stop])
        self.children.drop(*plan.drop)
        for at, id in enumerate(plan.start, 1):
            if not self.may_start:
                return
            if not await self._start_again(self.slots[id]):
                self._wait_for_retry(plan.start[at:])
                return

    def _wait_for_retry(self, ids: Sequence[str]) -> None:
        for id in ids:
            self.slots[id].state = "down"  # one restart is due now, that of the child that failed

    async def _start_again(self, slot: Slot) -> bool:
        try:
            await self.children.start(slot)
        except StartError as error:
            return self._not_started_again(slot, error.reason)
        return True

    def _not_started_again(self, slot: Slot, reason: ExitReason) -> bool:
        """Whether the rest of its group is started now: a restart that is due does that later."""
        action = decide.after_failed_restart(slot.spec.restart, reason, self.system.restarts)
        if action == "restart":
            slot.state = "restarting"
            self._requests.append(partial(self._retry, slot, slot.count, reason))
        elif action == "terminate":
            self._end_tree(slot, reason)
        else:
            self.children.come_to_rest(slot)
            self._stays_down(slot)
        return action not in ("restart", "terminate")

    async def _retry(self, slot: Slot, count: int, reason: ExitReason) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_restart_due(slot, count):
            await self._restart(slot, reason)

    def held(self, id: str) -> Slot:
        """The slot of a child. Raises `NotFound`."""
        if id not in self.slots:
            raise NotFound(id)
        return self.slots[id]

    async def start_child(self, spec: ChildSpec) -> Incarnation:
        """Start a child and hold its spec."""
        check_significance(spec, self.flags.auto_shutdown)
        self._refuse_held(spec.id)
        self.slots[spec.id] = slot = Slot(spec)
        try:
            return await self.children.start(slot)
        except StartError:
            self.children.drop(spec.id)
            raise

    def _refuse_held(self, id: str) -> None:
        slot = self.slots.get(id)
        if slot is None:
            return
        if slot.incarnation is not None:
            raise AlreadyStarted(id, slot.incarnation.ref)
        raise AlreadyPresent(id)

    async def change(self, specs: Sequence[ChildSpec], given: Mapping[str, Any]) -> None:
        """Go on with other flags and specs."""
        self.flags = flags = changed_flags(self.flags, given, specs, self.slots)
        self._window.intensity, self._window.period = flags.intensity, flags.period
        slots = changed_slots(self.slots, specs)
        self.slots.clear()
        self.slots.update(slots)
        for id, slot in slots.items():
            if slot.state == "restarting" and slot.spec.restart == "temporary":
                self.children.drop(id)
        self._rest_those_not_due()

    async def terminate_child(self, id: str) -> tuple[events.LateStop, ...]:
        """Stop a child; returns what did not end in time."""
        slot = self.held(id)
        with self.system.late.report(self.children.path_of(slot.spec)) as report:
            await self.children.stop(slot)
        self.children.come_to_rest(slot)
        self._rest_those_not_due()
        return report.events

    def _rest_those_not_due(self) -> None:
        """Bring to rest who is down and was to be started after a child whose restart is not due any more."""
        restarting = [slot for slot in self.slots.values() if slot.state == "restarting"]
        due = {id for slot in restarting for id in self._plan(slot).start}
        for id, slot in list(self.slots.items()):
            if slot.state == "down" and not slot.at_rest and id not in due:
                self.children.come_to_rest(slot)

    async def restart_child(self, id: str) -> Incarnation:
        """Start a child that is down."""
        slot = self._down(id)
        try:
            return await self.children.start(slot)
        except StartError:
            self.children.rest(slot)
            raise

    async def delete_child(self, id: str) -> None:
        """Forget a child that is down."""
        self._down(id)
        self.children.drop(id)

    def _down(self, id: str) -> Slot:
        slot = self.held(id)
        if slot.state == "restarting":
            raise Restarting(id)
        if slot.incarnation is not None:
            raise Running(id)
        return slot


class DelayedRestart:
    """A restart that waits out its back-off; over when somebody started or stopped the child meanwhile."""

    def __init__(self, loop: SupervisorLoop, slot: Slot) -> None:
        self._loop, self._slot, self._count = loop, slot, slot.count

    @property
    def over(self) -> bool:
        """Whether the restart is not due any more."""
        return not self._loop.is_restart_due(self._slot, self._count)

    def ring(self) -> None:
        """Tell the loop."""
        self._loop.resume(self._slot)
