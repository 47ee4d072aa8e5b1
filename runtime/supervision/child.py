"""One incarnation of a child: its scopes, its start, its one exit reason.

Guarantees: `run` never lets a child's failure out: whatever leaves the child's code becomes one `ExitReason`, in
`_fault`, and the endpoint ends with it on every path, before `settled` and `ended` are set. `Cancelled` is never a
crash and never swallowed: exceptions are classified outside the scope that was cancelled, where Trio has taken
its own out. `KeyboardInterrupt` and `SystemExit` are no crashes: they go to the system. A child that was stopped
or killed before its first step never runs.

Two scopes: a stop cancels *run*, a kill *kill*, which holds *run*; `terminate` runs between them. An actor's are
those of its two nurseries, so that a sleeping one holds no more than it needs. A nested supervisor takes both requests itself (`delegate`), because its children must not be reached by a cancellation.

An actor's own coroutines are caught where they are awaited, not in `_contained`: each frame in between is one more to
pass at each of its wake-ups.

Ready: `started` was called. Ending before is a start failure, in whatever way.

Not here: waiting for the child with a time limit (`loop`), restarts.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import trio

from proctor.runtime.errors import MailboxFull
from proctor.runtime.events import ChildReady
from proctor.runtime.exits import (
    Crash,
    DeliveryError,
    Exit,
    ExitReason,
    Killed,
    NoProc,
    Normal,
    RuntimeFault,
    Shutdown,
    is_clean,
    normalised,
    without_directive,
)
from proctor.runtime.messaging import (
    CONTEXT,
    IGNORE,
    OWN,
    Actor,
    ActorContext,
    Call,
    Ended,
    ExitSignal,
    Ignore,
    Info,
    Kept,
    Mailbox,
    Message,
    OneShotEvent,
    Ref,
    Stoppable,
    SupervisorHandle,
    live,
    open_ref,
    raise_one_of,
)
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision.grace import EndClock
from proctor.runtime.supervision.tree import Tree, first_leaf
from proctor.runtime.tracebacks import drop_locals

Result = TypeVar("Result")


class Delegate(Stoppable, Protocol):
    """Receiver of stops and kills in place of the child's scopes; a supervisor leaves the names that are still due."""

    @property
    def left(self) -> Mapping[str, Kept]:
        """Each such name with the place that owns it."""
        ...


class HealthWatch(Protocol):
    """The watchdog and the liveness probe of a ready child."""

    def end_probes(self) -> None:
        """The child is asked to stop, or has ended."""


class Bridge:
    """A `start` that ends by itself when asked: it sets `delegate` before it first waits.

    So no scope has to stand between it and its task, which a child that starts and ends in a millisecond would notice.
    """

    __slots__ = ()


class Incarnation:
    """One run of one child, from its start to its end."""

    _background: trio.Nursery

    def __init__(
        self,
        spec: ChildSpec,
        path: str,
        system: Tree,
        kept: Kept,
        number: int,
        supervisor: SupervisorHandle,
        report: Callable[[Incarnation], None],
    ) -> None:
        self.spec = spec
        self.system = system
        self.number = number
        self._args = spec.args
        self.mailbox: Mailbox[Message] | None = None
        if isinstance(spec.start, type) and issubclass(spec.start, Actor):
            self.mailbox = Mailbox(spec.mailbox, spec.overflow)
        # The endpoint exists before the task: a link or a monitor that is made in between must reach this
        # incarnation.
        ref = open_ref(path, system, self, self.mailbox)
        self.endpoint = ref.endpoint
        self.endpoint.linked = self
        self._take_over(kept)
        self.context = ActorContext(ref, spec.id, number, kept, system.registry, supervisor, self)
        self.delegate: Delegate | None = None
        self.last_words = b""
        self.actor: Actor | None = None
        self.settled, self.ended = OneShotEvent(), OneShotEvent()
        self.has_started = self.is_ready = self.ignored = False
        self.started_at = self.ended_at = self.beaten_at = 0.0
        self.patience: trio.CancelScope | None = None
        self.watch: HealthWatch | None = None
        self.grace, self.own_grace = spec.grace, spec.own_grace
        self._clock: EndClock | None = None
        self._last_reply: tuple[Call, object] | None = None
        self._cause: Crash | None = None
        self._failure_reason: Crash | None = None
        self._stopped: ExitReason | None = None
        self._killed = self._terminating = False
        self._run_scope: trio.CancelScope | None = None
        self._kill_scope: trio.CancelScope | None = None
        self._report = report

    def _take_over(self, kept: Kept) -> None:
        # Taken out of the slot before the child runs, so that a second incarnation cannot find the same
        # messages.
        mail = kept.take_mail()
        error: DeliveryError = NoProc(self.endpoint.ref)
        if self.mailbox is not None and self.spec.keep_mailbox:
            self.endpoint.keeper = kept
            mail, error = self.mailbox.preload(mail), MailboxFull(self.endpoint.ref)
        for message in mail:  # the spec has changed since: there is less room, or mail is kept no more
            message.undelivered(self.endpoint, error)

    @property
    def ref(self) -> Ref:
        """Its address."""
        return self.context.ref

    @property
    def reason(self) -> ExitReason | None:
        """Why it ended; `None` before."""
        return self.endpoint.exit

    def owns(self, nursery: trio.Nursery) -> bool:
        """Whether tasks of `nursery` are the actor's, but not waited for by its hooks."""
        return self.actor is not None and nursery in (self._background, getattr(self.actor, "nursery", None))

    def opened(self, nursery: trio.Nursery) -> None:
        """The tasks of an actor run in `nursery`, its hooks beside them: a stop cancels both."""
        self._run_scope = nursery.cancel_scope

    @trio.lowlevel.enable_ki_protection
    def started(self, value: object = None) -> None:
        """Ready, with a value for the caller that asked for the start. Raises `RuntimeError` the second time."""
        if self.has_started:
            # A second call would hand a second value to a starter that has already been answered.
            raise RuntimeError(f"{self.endpoint.path} was started already")
        self.has_started, self.endpoint.info = True, value
        # All facts are set before `settled` wakes the starter, which reads them without a further check.
        self.is_ready, self.started_at = True, trio.current_time()
        self.beaten_at = self.started_at
        self.settled.set()

    def extend(self, seconds: float) -> None:
        """While starting: `start_timeout` does not end before so many seconds from now."""
        # Only forward: a program that asks for less time than it has must not shorten its own start.
        if not self.has_started and self.patience is not None:
            self.patience.deadline = max(self.patience.deadline, trio.current_time() + seconds)

    def beat(self) -> None:
        """Alive, for the next `watchdog` seconds."""
        self.beaten_at = trio.current_time()

    def ready(self, is_ready: bool = True) -> None:
        """Mark as ready or not, for who looks. Raises `RuntimeError` before `started`."""
        if not self.has_started:
            raise RuntimeError(f"{self.endpoint.path} has not started yet")
        # Not after the end: an event `ready` behind `exited` would put a dead child back on a status page.
        if is_ready != self.is_ready and self.endpoint.exit is None:
            self.is_ready = is_ready
            marked = ChildReady(path=self.endpoint.path, ref=self.ref, ready=is_ready)
            self.system.events.emit(marked)

    async def check(self, probe: Callable[[], Awaitable[object]], timeout: float) -> BaseException | None:
        """Try a liveness check once, in the child's context and at most `timeout` seconds: why it failed."""
        # The probe runs in a task of the supervisor's nursery, but `current_actor` in it is the child.
        CONTEXT.set(self.context)
        time_up = TimeUp()
        self.system.timers.judge_at(trio.current_time() + timeout, time_up)
        outcome = await self._contained(partial(_ask, probe, time_up))
        if outcome is None:
            return trio.TooSlowError(f"no answer within {timeout:g} s")
        if isinstance(outcome, Normal):
            return None
        return outcome.error if isinstance(outcome, Crash) else Exit(outcome)

    @trio.lowlevel.enable_ki_protection
    def stop(self, reason: ExitReason) -> None:
        """Ask it to end: a draining actor after what is queued if the reason is clean, another at once."""
        if self._stopped is not None:
            # The first reason wins: a second stop, from a link or a parent, must not change why it ends.
            return
        self._stopped = reason
        # Refuse first, then cancel: a message that came between the two would be accepted and never handled.
        self._begin_end()
        self._end_probes()
        if self.delegate is not None:
            self.delegate.stop(reason)
        elif self.mailbox is not None and self.spec.drain and self.has_started and is_clean(reason):
            # Only refuses: what is queued is still handled, and the end of the queue ends the actor.
            self.mailbox.refuse()
        else:
            self._cancel_run(reason)

    def ending(self) -> None:
        """It begins to end, and handles nothing more."""
        self._begin_end()
        if self.mailbox is not None:
            self.mailbox.halt()

    def _begin_end(self) -> None:
        self.endpoint.refuse()
        # not where a coroutine is closed after its event loop: no clock runs there
        if self._clock is None and self.endpoint.exit is None and trio.lowlevel.in_trio_run():
            self._clock = EndClock(self, self.own_grace, self.system.late, self.system.timers)

    def reply_at_end(self, call: Call, value: object) -> None:
        """Answer `call` in the step in which it ends, after its `terminate`; not if it is killed before."""
        self._last_reply = call, value

    def shut_down(self, reason: ExitReason) -> None:
        """Stop it by its `shutdown`: asked, with that time to end in, or killed if there is none."""
        if self.grace != "brutal_kill":
            self.stop(reason)
        if self.grace == "brutal_kill" or self.grace == 0:
            self.kill()

    def _cancel_run(self, reason: ExitReason) -> None:
        if self.mailbox is not None:
            self.mailbox.halt()
        if self._run_scope is not None:
            self._run_scope.cancel(reason=str(reason))

    def take_exit_signal(self, signal: ExitSignal) -> bool:
        """Take the end of one that it was linked to; a supervisor does not."""
        if self.spec.type == "supervisor":
            # A supervisor's children end only in their order, by its own loop, not by a signal of a linked
            # actor.
            return False
        if self.actor is not None and self.actor.trap_exits and self.mailbox is not None:
            # In the order of its other messages: what the dead peer had sent before comes first.
            self.mailbox.put_in_order(Info(signal))
        elif not isinstance(signal.reason, Normal):
            # Without directives: a linked peer's exit must not end or refuse the whole tree of this child.
            self.stop(without_directive(signal.reason))
        return True

    def mark_failed(self, failure_reason: Crash) -> bool:
        """However it ends from here, `failure_reason` is the reason; False if its end was begun already."""
        # An end that has begun has a reason already, and a watchdog that rings late must not replace it.
        if self._stopped is not None or self._killed or self._terminating or self.reason is not None:
            return False
        self._failure_reason = failure_reason
        return True

    @trio.lowlevel.enable_ki_protection
    def kill(self) -> None:
        """End it by force."""
        # Set before `ending()`: what that wakes must see a child that is killed.
        begins, self._killed = not self._killed, True
        self.ending()
        # Once: a second kill must not grant another five seconds until the report.
        if begins and self._clock is not None:
            self._clock.begin_kill()
        self._end_probes()
        if self.delegate is not None:
            self.delegate.kill()
        elif self._kill_scope is not None:
            self._kill_scope.cancel(reason="killed")

    @property
    def is_killed(self) -> bool:
        """Whether it was killed, though it may live."""
        return self._killed

    def kill_overdue(self) -> None:
        """Its time to end in is over: kill it. A child that crashed before ends with its crash, which is the better reason."""
        self._failure_reason = self._failure_reason or self._cause
        self.kill()

    # KI protection: an interrupt here would pass by the classification, and leave the endpoint open.
    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """The whole life, for a task of its own."""
        self.endpoint.task = task = trio.lowlevel.current_task()
        CONTEXT.set(self.context)
        OWN.set(self.endpoint)
        # A stop that came before the first step: its code never runs, and that stop is the reason.
        reason = self._stopped
        try:
            try:
                if reason is None and not self._killed:
                    reason = await self._life(task)
            except BaseException as error:  # noqa: BLE001  # see _fault
                reason = self._fault(error, task)
            # Outside `_life`: where its own nursery was cancelled from outside, `terminate` still has to run.
            if reason is not None and self._owes_terminate():
                reason = await self._contained(partial(self._terminated_alone, reason))
        finally:
            # also when the scope around the supervisor was cancelled; not in a coroutine that is closed after its
            # event loop, where no task waits and no clock runs
            if _runs(task):
                self._end_probes()
                self._end(self._judged(Killed() if self._killed or reason is None else normalised(reason)))

    def _end_probes(self) -> None:
        if self.watch is not None:
            self.watch.end_probes()

    def _judged(self, reason: ExitReason) -> ExitReason:
        # A failed watchdog or probe stopped the child, so its own end is only the consequence.
        if self._failure_reason is None:
            return reason
        # Kept as context: a crash on the way down may show what hung.
        if isinstance(reason, Crash) and reason.error is not self._failure_reason.error:
            self._failure_reason.error.__context__ = reason.error
        return self._failure_reason

    def _end(self, reason: ExitReason) -> None:
        self.ended_at = trio.current_time()
        self.actor = None  # refs and events lead here, and may be kept for long
        if isinstance(reason, Crash):
            # A traceback holds the locals of every frame, and so mailboxes and payloads, as long as the event
            # is kept.
            drop_locals(reason.error)
        # Stopped before the endpoint closes: an alarm in this step would report a child that has ended.
        if self._clock is not None:
            self._clock.stop()
        if self._last_reply is not None and not self._killed:
            call, value = self._last_reply
            call.reply(value)  # before the endpoint closes, which fails the calls that have no answer
        self.endpoint.close(reason)
        # After the endpoint is closed: who wakes by `ended` finds the reason and the name free. The
        # supervisor's report comes last.
        self.ended.set()
        self.settled.set()
        self._report(self)

    def _life(self, task: trio.lowlevel.Task) -> Awaitable[ExitReason | None]:
        if self.mailbox is not None:
            return self._run_before_background(task)
        return self._run_bridge() if isinstance(self.spec.start, Bridge) else self._run_until_killed()

    async def _run_bridge(self) -> ExitReason | None:
        return self._unless_ignored(await self._run_function())

    async def _run_until_killed(self) -> ExitReason | None:
        with trio.CancelScope() as self._kill_scope:
            return await self._contained(self._run_until_stopped) or self._stopped or Normal()
        return None

    async def _run_until_stopped(self) -> ExitReason | None:
        with trio.CancelScope() as self._run_scope:
            return self._unless_ignored(await self._run_function())
        return None

    async def _run_before_background(self, task: trio.lowlevel.Task) -> ExitReason | None:
        try:
            # The background tasks end with the actor, but only after `terminate`, which may still use them.
            async with trio.open_nursery() as self._background:
                self._kill_scope = self._background.cancel_scope
                try:
                    ended = self._unless_ignored(await self._live())
                except BaseException as error:  # noqa: BLE001  # see _fault
                    # Caught inside the nursery: outside it would come as a group, mixed with errors of
                    # background tasks.
                    ended = self._fault(error, task)
                reason = await self._terminated(ended or self._stopped or Normal())
                # Cancelled only now: `terminate` above has run beside living background tasks.
                self._background.cancel_scope.cancel(reason="the actor ended")
                return reason
        except BaseExceptionGroup as group:
            raise_one_of(group)
            raise
        return None

    async def _terminated_alone(self, reason: ExitReason) -> ExitReason | None:
        # The kill scope of the run has been left; without a new one no kill could reach this `terminate`.
        with trio.CancelScope() as self._kill_scope:
            return await self._terminated(reason)
        return None

    def _owes_terminate(self) -> bool:
        return self.actor is not None and self.has_started and not self._killed and not self._terminating

    async def _terminated(self, reason: ExitReason) -> ExitReason:
        if self.actor is None or not self._owes_terminate():
            return reason
        # Before the hook runs: a second way into this method must not run `terminate` twice.
        self._terminating = True
        # For `kill_overdue`: a crash stays the reason when `terminate` does not return in time.
        self._cause = reason if isinstance(reason, Crash) else None
        hook = partial(self._terminate, self.actor, reason)
        return _both(reason, await self._contained(hook) or reason)

    async def _terminate(self, actor: Actor, reason: ExitReason) -> ExitReason:
        hook = actor.terminate(normalised(reason))
        try:
            await _unprotected_wait(hook)
        except KeyboardInterrupt as error:
            if not _is_unbegun(hook):
                raise
            self.system.interrupt(
                error
            )  # it came between the hook and us, and must not cost the actor its clean-up
            await hook
        return reason

    def _unless_ignored(self, ended: Ended) -> ExitReason | None:
        if isinstance(ended, Ignore):
            # A function that became ready and then returns IGNORE has run, so it is held as one that ended.
            self.ignored = not self.has_started
            return Normal()
        return ended

    def _live(self) -> Awaitable[Ended]:
        self.actor = actor = self.spec.start()
        actor.bind(self.context, self.endpoint, self._background)
        return live(actor, self._take_args(), self.endpoint, self)

    async def _run_function(self) -> Ended:
        returned = await _unprotected(self._begin)
        return IGNORE if returned is IGNORE else Normal()

    def _begin(self) -> Awaitable[object]:
        started: Awaitable[object] = self.spec.start(*self._take_args(), task_status=self)
        return started

    def _take_args(self) -> tuple[Any, ...]:
        args, self._args = self._args, ()  # from here on they are the child's to keep or to let go
        return args

    async def _contained(self, body: Callable[[], Awaitable[Result]]) -> Result | ExitReason:
        task = trio.lowlevel.current_task()
        try:
            return await body()
        except BaseException as error:  # noqa: BLE001  # see _fault
            return self._fault(error, task)

    def _fault(self, error: BaseException, task: trio.lowlevel.Task) -> ExitReason:
        """The exit reason for an `error` that left code of the child, run in `task`: a crash, whatever its class.

        But an interrupt goes to the tree, and what is not of the child's doing is raised again: the
        cancellation of a scope around it, and whatever comes out of a coroutine that is closed after its event loop.
        """
        if not _runs(task):
            raise error
        # An ordinary error is the child's own, whatever scope is around, so it is judged before any
        # cancellation.
        if isinstance(error, Exception):
            return _reason(error)
        # Before the cancellation is judged: a group may hold both, and the interrupt must not get lost with
        # it.
        interrupted = self.system.take_interrupt(error)
        cancelled = _cancelled_in(error)
        # an effective deadline in the past is Trio's word for a scope around us that was cancelled
        if cancelled is not None and trio.current_effective_deadline() == -math.inf:
            raise cancelled if interrupted else error
        if interrupted:
            return Shutdown("interrupted")
        # `Cancelled` without a cancelled scope around was kept and raised again by the child's code; let out,
        # it would end tasks above that were not cancelled.
        return Crash(error if cancelled is None else _stray(error))


# The child's code gets KeyboardInterrupt as everywhere in Trio; only the frames of the runtime are protected.
@trio.lowlevel.disable_ki_protection
async def _unprotected(fn: Callable[..., Awaitable[Result]], *args: Any) -> Result:
    return await fn(*args)


@trio.lowlevel.disable_ki_protection
async def _unprotected_wait(hook: Awaitable[None]) -> None:
    await hook


def _is_unbegun(hook: Awaitable[None]) -> bool:
    return inspect.iscoroutine(hook) and inspect.getcoroutinestate(hook) == inspect.CORO_CREATED


class TimeUp:
    """The end of a check's time: cancels `scope`, unless it is `over`."""

    def __init__(self) -> None:
        self.scope, self.over = trio.CancelScope(), False

    def ring(self) -> None:
        """Cancel the check."""
        self.scope.cancel(reason="no answer in time")


async def _ask(probe: Callable[[], Awaitable[object]], time_up: TimeUp) -> ExitReason | None:
    try:
        with time_up.scope:
            healthy = await _unprotected(probe)
            return Crash(RuntimeFault("the check returned False")) if healthy is False else Normal()
    except Exit as error:  # ends no child from here
        return Crash(error)
    finally:
        time_up.over = True
    return None


def _runs(task: trio.lowlevel.Task) -> bool:
    """Whether `task` goes on. Python closes the coroutine of one that does not by a `GeneratorExit`, in any place."""
    # In a coroutine that is closed after its event loop even `current_task` raises, so it is asked for the
    # loop first.
    return trio.lowlevel.in_trio_task() and trio.lowlevel.current_task() is task


def _cancelled_in(error: BaseException) -> BaseException | None:
    whole: object = error
    if isinstance(whole, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", whole).subgroup(trio.Cancelled)
    return error if isinstance(error, trio.Cancelled) else None


def _stray(error: BaseException) -> RuntimeFault:
    fault = RuntimeFault("a cancellation was raised whose scope is not around the child")
    fault.__cause__ = error
    return fault


def _reason(error: Exception) -> ExitReason:
    if isinstance(error, Exit):
        return error.reason
    whole: object = error
    if isinstance(whole, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", whole)
        leaf = first_leaf(group)
        # A group of nothing but `Exit` is one from a nursery of the child; with a real error beside it the
        # whole is a crash.
        if isinstance(leaf, Exit) and group.split(Exit)[1] is None:
            return leaf.reason
    return Crash(error)


def _both(before: ExitReason, after: ExitReason) -> ExitReason:
    """A crash in `terminate` is the reason, with the crash that led there as its context."""
    # Not over a context that is there: Python has set it where the second error came from the first.
    if isinstance(before, Crash) and isinstance(after, Crash) and after.error is not before.error:
        after.error.__context__ = after.error.__context__ or before.error
    return after
