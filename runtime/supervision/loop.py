"""A supervisor's one inbox, and the loop that carries out what `decide` says.

Guarantees: one thing at a time: an exit, a request or a retry is handled when the one before is done.
Exits come before requests, but after each restart a request has its turn: a child that crashes as fast as it is
restarted delays no request. A stop or kill is a flag, seen before either, and ends a wait for a start at once. Once ending,
nothing is started. A stop phase is complete before the first start.
An exit counts only for the incarnation that its slot holds, so what died during a stop phase is consumed by it.

A start beside the loop (`decide.starts_beside`) begins in its turn, in the loop; its outcome is waited for by a task of the
children's nursery, while the loop goes on. That task changes nothing but the slot of its child, in one step and without
a wait: the child is ready; or its restart is due again, which the loop does in its turn; or it stays down, which may end
the supervisor. A stop of the child meanwhile aborts the start, and decides what becomes of the child; a supervisor that
ends aborts all starts together before it stops the first child.

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
from proctor.runtime.supervision.child_table import Slot, Start, changed_flags, changed_slots
from proctor.runtime.supervision.children import Children
from proctor.runtime.supervision.grace import StopReport
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
        """End in order, with `reason`; starts in progress are aborted."""
        # The flag first: the outcome of a start that is aborted below is judged by it.
        self._end_with(reason)
        self.children.abort_starts()
        self._news.set()

    def _end_with(self, reason: ExitReason) -> None:
        if self._reason is None:
            # The first reason stays: a stop that follows a failure is only its effect.
            self._reason = reason
            # Opened as the end begins: what is late from now on belongs to this stop.
            self._report = self.system.late.report(self.path)
            # Refuses messages and, at a root, ends the waits for names, which no restart will fill.
            self.endpoint.control.ending()

    def kill(self) -> None:
        """End at once: all children are killed."""
        # Before `stop`: the reason of the end, and the way in which the children end, follow from it.
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
        """Children that did not end in time since its own end began."""
        return () if self._report is None else self._report.events

    @property
    def left(self) -> Mapping[str, Kept]:
        """The names that were still due at its end, each with the place that owns it."""
        return self.children.left

    async def ask(self, work: Callable[[], Awaitable[T]]) -> T:
        """Have `work` done by the loop in its turn. Raises what it raises, `NoProc`, `ActorExited`, `WouldDeadlock`.

        A caller that is cancelled before has asked nothing.
        """
        result: T = await self._request(partial(self._answer, work))
        return result

    async def ask_start(
        self, begin: Callable[[], Start], undo: Callable[[Start], Awaitable[None]] | None = None
    ) -> Incarnation:
        """Have a start begun by the loop in its turn, and wait for its outcome. Raises what `ask` raises, and `StartError`.

        For a caller that is cancelled meanwhile, `undo` takes back what was started.
        """
        incarnation: Incarnation = await self._request(partial(self._answer_start, begin, undo))
        return incarnation

    @trio.lowlevel.enable_ki_protection
    async def _request(self, answer: Callable[[Call], Awaitable[None]]) -> Any:
        # A caller that is cancelled by now has asked nothing; behind this line the request stands.
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.endpoint.exit is not None:
            raise NoProc(self.ref)
        # Before it is queued: the loop is busy with what waits for this task, and would never come to the
        # request.
        if self.children.waits_for_current_task():
            raise WouldDeadlock(self.path)
        call = Call(answer, self.endpoint, float("inf"))
        self._requests.append(partial(answer, call))
        self._news.set()
        return await call.wait()

    async def _answer(self, work: Callable[[], Awaitable[object]], call: Call) -> None:
        # Its caller was cancelled meanwhile: what it asked for must not be done any more.
        if call.settled:
            return
        try:
            call.reply(await work())
        except SupervisionError as error:
            self._refuse(call, error)

    def _refuse(self, call: Call, error: SupervisionError) -> None:
        if not self._ending:  # else the answer is the end of the supervisor, which is the cause
            call.fail(error)

    async def _answer_start(
        self,
        begin: Callable[[], Start],
        undo: Callable[[Start], Awaitable[None]] | None,
        call: Call,
    ) -> None:
        if call.settled:
            return
        try:
            start = begin()
        except SupervisionError as error:
            self._refuse(call, error)
        else:
            await self._await_outcome(start, partial(self._answer_started, undo, call))

    async def _answer_started(
        self, undo: Callable[[Start], Awaitable[None]] | None, call: Call, start: Start
    ) -> bool:
        try:
            incarnation = await self.finish(start)
        except SupervisionError as error:
            self._refuse(call, error)
            return False
        if call.settled and undo is not None:
            self._requests.appendleft(partial(undo, start))  # a stop, which is for the loop to do
        else:
            call.reply(incarnation)
        return True

    async def _await_outcome(self, start: Start, conclude: Callable[[Start], Awaitable[bool]]) -> bool:
        """Conclude a start, here or beside the loop; False only if it failed here."""
        if not decide.starts_beside(self.flags.strategy, start.slot.spec.start_order):
            return await conclude(start)
        # In the children's nursery: the loop goes on, and its end waits for this task as well.
        self.children.nursery.start_soon(self._conclude_beside, start, conclude)
        return True

    @trio.lowlevel.enable_ki_protection
    async def _conclude_beside(self, start: Start, conclude: Callable[[Start], Awaitable[bool]]) -> None:
        await conclude(start)
        # The outcome may have ended the supervisor: the other starts are aborted now, not when the loop comes
        # to it.
        if self._ending:
            self.children.abort_starts()
        start.over.set()
        self._news.set()  # the supervisor may have come to its end, or something may be due

    def _on_child_end(self, incarnation: Incarnation) -> None:
        self._exits.append(incarnation)
        self._news.set()

    # An interrupt inside would leave children without a supervisor.
    @trio.lowlevel.enable_ki_protection
    async def run(self, ready: Callable[[], None]) -> None:
        """Start the children, serve, stop the children. `failure` says why it could not start or gave up."""
        async with self._nursery() as self.children.nursery:
            if await self._start_first() and not self._ending:
                ready()
                self.was_ready = True
                self.system.events.emit(events.SupervisorStarted(path=self.path))
            # Returns at once where a start failed, since that has set the end.
            await self._serve()
            # Before the first stop: a start that ends well later would put up a child behind one that was
            # stopped.
            await self.children.end_starts()
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
            # Exits first, or a request would see a child that is dead. After a restart a request has its
            # turn, or a child that crashes in a circle would starve all callers.
            if self._requests and self.may_start and (self._restarted or not self._exits):
                self._restarted = False
                await self._requests.popleft()()
            elif self._exits:
                await self._on_exit(self._exits.popleft())
            else:
                # No checkpoint since the queues were looked at, so the new event can miss no news.
                self._news = trio.Event()
                await self._news.wait()

    async def _start_first(self) -> bool:
        for group in decide.start_groups(self.flags.strategy, [spec.start_order for spec in self._first]):
            if not self.may_start:
                return False
            await self._start_together([self._first[at] for at in group])
        self._first = ()
        return True

    async def _start_together(self, specs: Sequence[ChildSpec]) -> None:
        """Start children for the first time; the first failure aborts the starts that are in progress.

        Of failures at one moment the first in the list is raised, with the others as its notes.
        """
        failures: dict[str, StartError] = {}
        starts = self._begin_together(specs, failures)
        if len(starts) == 1:
            await self._finish_first(starts[0], failures)
        else:
            async with trio.open_nursery() as nursery:
                for start in starts:
                    nursery.start_soon(self._finish_first, start, failures)
        failed = [failures[spec.id] for spec in specs if spec.id in failures]
        for other in failed[1:]:
            failed[0].add_note(f"besides, {other}")
        self.failure = failed[0] if failed else None

    def _begin_together(self, specs: Sequence[ChildSpec], failures: dict[str, StartError]) -> list[Start]:
        starts: list[Start] = []
        for spec in specs:
            try:
                start = self._begin_first(spec)
            except StartError as error:
                self._fail_to_start(spec.id, error, failures)
                for begun in starts:
                    begun.incarnation.kill()  # before its first step, so that it never runs
                break
            if start is not None:
                starts.append(start)
        return starts

    def _begin_first(self, spec: ChildSpec) -> Start | None:
        self.slots[spec.id] = slot = Slot(spec)
        return self.children.begin(slot)

    @trio.lowlevel.enable_ki_protection
    async def _finish_first(self, start: Start, failures: dict[str, StartError]) -> None:
        try:
            await self.children.finish(start)
        except StartError as error:
            # An aborted start failed because of another one, and that is the failure to report.
            if not start.aborted:
                self._fail_to_start(start.slot.spec.id, error, failures)

    def _fail_to_start(self, id: str, error: StartError, failures: dict[str, StartError]) -> None:
        if failures or not self._ending:  # one that had to end before is not ending because of this
            failures[id] = error
        self._end_with(Shutdown("start failed"))
        self.children.abort_starts()

    async def _on_exit(self, incarnation: Incarnation) -> None:
        slot = self.slots.get(incarnation.spec.id)
        if slot is not None and slot.start is not None and slot.incarnation is incarnation:
            await slot.start.over.wait()  # it ended in this moment: first comes whether it was ready
        # An exit counts only for the incarnation that the slot holds: a stop phase has consumed others.
        if slot is None or slot.incarnation is not incarnation:
            return
        reason = incarnation.reason or Killed()
        action = decide.after_exit(slot.spec.restart, reason, self.system.restarts)
        # The table before the event: a subscriber may look at it.
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
        # An interrupt or a stop has come: a child started now would be stopped again at once.
        if not self.may_start:
            slot.state = "down"
            return
        limit = self._limit_exceeded(slot, reason)
        if limit is not None:
            self._give_up(slot, reason, limit)
            return
        # Counted before the delay is computed: `attempt - 1` is the k of the back-off.
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
            # Not waited for here, or the loop would serve no one else during the delay.
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
        # The flags may have been changed since the window was made.
        slot.window.intensity, slot.window.period = self.flags.intensity, self.flags.period
        return slot.window

    def _delay(self, slot: Slot) -> float:
        if slot.spec.backoff is None:
            return 0.0
        return delay(slot.spec.backoff, slot.attempt - 1, self.system.random.random())

    def resume(self, slot: Slot) -> None:
        """The time of a restart that was put off has come."""
        # As a request, not in the timer's task: only the loop changes the table.
        self._requests.append(partial(self._restart_now, slot, slot.count))
        self._news.set()

    async def _restart_now(self, slot: Slot, count: int) -> None:
        # The child may have been started, stopped or dropped between the alarm and this turn.
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
        # All are down before the first is started: children of a group depend on each other.
        await self._stop([self.slots[id] for id in plan.stop])
        # a first start that was aborted or failed meanwhile is held no more
        self.children.drop(*(id for id in plan.drop if id in self.slots))
        due = [self.slots[id] for id in plan.start if id in self.slots]
        for at, slot in enumerate(due, 1):
            if not self.may_start:
                return
            if not await self._start_again(slot):
                self._wait_for_retry(due[at:])
                return

    def _wait_for_retry(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            slot.state = "down"  # one restart is due now, that of the child that failed

    async def _start_again(self, slot: Slot) -> bool:
        try:
            start = self.children.begin(slot)
        except StartError as error:
            return self._not_started_again(slot, error.reason)
        return await self._await_outcome(start, self._finish_restart)

    async def _finish_restart(self, start: Start) -> bool:
        try:
            await self.children.finish(start)
        except StartError as error:
            return start.aborted or self._not_started_again(start.slot, error.reason)
        return True

    def _not_started_again(self, slot: Slot, reason: ExitReason) -> bool:
        """Whether the rest of its group is started now: a restart that is due does that later."""
        action = decide.after_failed_restart(slot.spec.restart, reason, self.system.restarts)
        if action == "restart":
            slot.state = "restarting"
            # As a request: exits that wait are handled first, and a child that fails at once does not hold
            # the loop.
            self._requests.append(partial(self._retry, slot, slot.count, reason))
        elif action == "terminate":
            self._end_tree(slot, reason)
        else:
            self.children.come_to_rest(slot)
            self._stays_down(slot)
        return action not in ("restart", "terminate")

    async def _retry(self, slot: Slot, count: int, reason: ExitReason) -> None:
        # A restart that fails without waiting would spin the loop and let no other task run.
        await trio.lowlevel.checkpoint()
        if self.is_restart_due(slot, count):
            await self._restart(slot, reason)

    def held(self, id: str) -> Slot:
        """The slot of a child. Raises `NotFound`."""
        if id not in self.slots:
            raise NotFound(id)
        return self.slots[id]

    def begin_child(self, spec: ChildSpec) -> Start:
        """Begin to start a child, and hold its spec; no longer if that fails."""
        check_significance(spec, self.flags.auto_shutdown)
        self._refuse_held(spec.id)
        self.slots[spec.id] = slot = Slot(spec)
        return self._begin(slot, self.children.forget)

    def _begin(self, slot: Slot, on_failure: Callable[[Slot], None]) -> Start:
        try:
            start = self.children.begin(slot)
        except StartError:
            on_failure(slot)
            raise
        start.on_failure = on_failure
        return start

    async def finish(self, start: Start) -> Incarnation:
        """Wait for the outcome of a start that was asked for. Raises `StartError`."""
        try:
            return await self.children.finish(start)
        except StartError:
            if start.on_failure is not None:
                start.on_failure(start.slot)
            raise

    def _refuse_held(self, id: str) -> None:
        slot = self.slots.get(id)
        if slot is None:
            return
        if slot.incarnation is not None:
            raise AlreadyStarted(id, slot.incarnation.ref)
        raise AlreadyPresent(id)

    async def change(self, specs: Sequence[ChildSpec], changes: Mapping[str, Any]) -> None:
        """Go on with other flags and specs."""
        # Raises before anything has changed.
        self.flags = flags = changed_flags(self.flags, changes, specs, self.slots)
        self._window.intensity, self._window.period = flags.intensity, flags.period
        slots = changed_slots(self.slots, specs)
        # In place: the dictionary is shared with `children`, and with the router of a pool.
        self.slots.clear()
        self.slots.update(slots)
        for id, slot in slots.items():
            # A temporary child is never restarted, so the restart that was due is dropped.
            if slot.state == "restarting" and slot.spec.restart == "temporary":
                self.children.drop(id)
        self._rest_those_not_due()

    async def terminate_child(self, id: str) -> tuple[events.LateStop, ...]:
        """Stop a child; returns what did not end in time."""
        slot = self.held(id)
        with self.system.late.report(self.children.path_of(slot.spec)) as report:
            await self.children.stop(slot)
        if self.slots.get(id) is slot:  # else its first start was aborted, and it is held no more
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

    def begin_restart(self, id: str) -> Start:
        """Begin to start a child that is down."""
        return self._begin(self._down(id), self.children.rest)

    async def forget_restarts(self, id: str) -> None:
        """Count the restarts of a child anew; one that is due is carried out now."""
        slot = self.held(id)
        slot.attempt, slot.restarts, slot.window = 0, 0, None
        if slot.state == "restarting":
            await self._carry_out(self._plan(slot))

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
