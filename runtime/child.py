"""One incarnation of a child: its scopes, its start, its one exit reason.

Guarantees: `run` never raises and never lets a child's failure out (T4): whatever happens becomes one
`ExitReason`, set together with the end of the cell, before `settled` and `ended` tell anybody. `Cancelled` is
never a crash and never swallowed (T3): exceptions are classified outside the scope that was cancelled, where
Trio has taken its own out. `KeyboardInterrupt` and `SystemExit` are no crashes: they go to the system (T5). A
child that was stopped or killed before its first step never runs (T6).

Two scopes (T8): a stop cancels *run*, a kill *kill*, which holds *run*; `terminate` runs between them. A nested
supervisor takes both requests itself (`warden`), because its children must not be reached by a cancellation.

Ready: `started` was called. Ending before is a start failure, in whatever way (T7).

Not here: waiting for the child with a time limit (`core`), restarts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio

from proctor.runtime.actor import CONTEXT, IGNORE, Actor, ActorContext, Ended, Ignore, alone, live
from proctor.runtime.calls import open_cell
from proctor.runtime.exits import Crash, Exit, ExitReason, Killed, Normal, Shutdown, normalised
from proctor.runtime.mailbox import Mailbox
from proctor.runtime.spec import ChildSpec
from proctor.runtime.system import first_leaf, interrupt_in

if TYPE_CHECKING:
    from proctor.runtime.cell import Control, Message
    from proctor.runtime.kept import Kept
    from proctor.runtime.supervisor import AnySupervisor
    from proctor.runtime.system import System

Result = TypeVar("Result")


class Incarnation:
    """One run of one child, from its start to its end."""

    _background: trio.Nursery

    def __init__(
        self,
        spec: ChildSpec,
        path: str,
        system: System,
        kept: Kept,
        number: int,
        supervisor: AnySupervisor,
        report: Callable[[Incarnation], None],
    ) -> None:
        self.spec = spec
        self.number = number
        self.mailbox: Mailbox[Message] | None = None
        if isinstance(spec.start, type) and issubclass(spec.start, Actor):
            self.mailbox = Mailbox(spec.mailbox, spec.overflow)
        self.cell = open_cell(path, system, self, self.mailbox)
        self.context = ActorContext(self.cell.ref, spec.id, number, kept, system.registry, supervisor)
        self.warden: Control | None = None
        self.actor: Actor | None = None
        self.settled, self.ended = trio.Event(), trio.Event()
        self.ready = self.ignored = False
        self._stopped: ExitReason | None = None
        self._killed = self._terminating = False
        self._run_scope, self._kill_scope = trio.CancelScope(), trio.CancelScope()
        self._report = report

    @property
    def reason(self) -> ExitReason | None:
        """Why it ended; `None` before."""
        return self.cell.exit

    def owns(self, nursery: trio.Nursery) -> bool:
        """Whether tasks of `nursery` are the actor's, but not waited for by its hooks."""
        return self.actor is not None and nursery in (self._background, getattr(self.actor, "nursery", None))

    def started(self, value: object = None) -> None:
        """Ready, with a value for whoever asked for the start (S8). Raises `RuntimeError` the second time."""
        if self.ready:
            raise RuntimeError(f"{self.cell.path} was started already")
        self.ready, self.cell.info = True, value
        self.settled.set()

    def stop(self, reason: ExitReason) -> None:
        """Ask it to end: a draining actor after what is queued (M8), another at once (M7)."""
        if self._stopped is not None:
            return
        self._stopped = reason
        if self.warden is not None:
            self.warden.stop(reason)
        elif self.mailbox is not None and self.spec.drain and self.ready:
            self.mailbox.refuse()
        else:
            self._cancel_run(reason)

    def _cancel_run(self, reason: ExitReason) -> None:
        if self.mailbox is not None:
            self.mailbox.halt()
        self._run_scope.cancel(reason=str(reason))

    def kill(self) -> None:
        """End it by force."""
        self._killed = True
        if self.warden is not None:
            self.warden.kill()
        else:
            self._kill_scope.cancel(reason="killed")

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """The whole life, for a task of its own."""
        self.cell.task = trio.lowlevel.current_task()
        CONTEXT.set(self.context)
        reason = await self._contained(self._kill_scope, self._run_and_terminate)
        self._end(Killed() if self._killed or reason is None else normalised(reason))

    def _end(self, reason: ExitReason) -> None:
        self.cell.close(reason)
        self.ended.set()
        self.settled.set()
        self._report(self)

    async def _run_and_terminate(self) -> ExitReason:
        if self.mailbox is None:
            return await self._contained(self._run_scope, self._body) or self._stopped or Normal()
        reason = await self._contained(trio.CancelScope(), self._run_before_background)
        return await self._terminated(reason or Normal())

    async def _run_before_background(self) -> ExitReason:
        try:
            async with trio.open_nursery() as self._background:
                reason = await self._contained(self._run_scope, self._body) or self._stopped or Normal()
                reason = await self._terminated(reason)
                self._background.cancel_scope.cancel(reason="the actor ended")
                return reason
        except BaseExceptionGroup as group:
            raise alone(group) from None

    async def _terminated(self, reason: ExitReason) -> ExitReason:
        if self.actor is None or not self.ready or self._killed or self._terminating:
            return reason
        self._terminating = True
        hook = partial(self._terminate, self.actor, reason)
        return _both(reason, await self._contained(trio.CancelScope(), hook) or reason)

    async def _terminate(self, actor: Actor, reason: ExitReason) -> ExitReason:
        await _unprotected(actor.terminate, normalised(reason))
        return reason

    async def _body(self) -> ExitReason | None:
        if self._stopped is not None or self._killed:
            return self._stopped or Killed()
        ended = await (self._run_actor() if self.mailbox is not None else self._run_function())
        if isinstance(ended, Ignore):
            self.ignored = not self.ready
            return Normal()
        return ended

    async def _run_actor(self) -> Ended:
        assert self.mailbox is not None
        self.actor = actor = self.spec.start()
        actor.bind(self.context, self.cell, self._background)
        return await _unprotected(live, actor, self.spec.args, self.mailbox, self.started)

    async def _run_function(self) -> Ended:
        run = partial(self.spec.start, *self.spec.args, task_status=self)
        returned = await _unprotected(run)
        return IGNORE if returned is IGNORE else Normal()

    async def _contained(
        self, scope: trio.CancelScope, body: Callable[[], Awaitable[ExitReason | None]]
    ) -> ExitReason | None:
        try:
            with scope:
                return await body()
        except Exception as error:  # noqa: BLE001  # a child's body: any error is a crash of the child (T4)
            return _reason(error)
        except (KeyboardInterrupt, SystemExit) as error:
            self.cell.system.interrupt(error)
        except BaseExceptionGroup as group:
            self._unmix(group)
        else:
            return None  # the scope was cancelled
        return Shutdown("interrupted")

    def _unmix(self, group: BaseExceptionGroup[BaseException]) -> None:
        interrupt = interrupt_in(group)
        if interrupt is None:
            raise group  # Cancelled of an outer scope beside errors: that scope takes its own out
        self.cell.system.interrupt(interrupt)
        cancelled = group.subgroup(trio.Cancelled)
        if cancelled is not None:
            raise cancelled


@trio.lowlevel.disable_ki_protection
async def _unprotected(fn: Callable[..., Awaitable[Result]], *args: Any) -> Result:
    return await fn(*args)


def _reason(error: Exception) -> ExitReason:
    if isinstance(error, Exit):
        return error.reason
    whole: object = error
    if isinstance(whole, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", whole)
        leaf = first_leaf(group)
        if isinstance(leaf, Exit) and group.split(Exit)[1] is None:
            return leaf.reason
    return Crash(error)


def _both(before: ExitReason, after: ExitReason) -> ExitReason:
    """A crash in `terminate` is the reason, with the crash that led there as its context."""
    if isinstance(before, Crash) and isinstance(after, Crash) and after.error is not before.error:
        after.error.__context__ = after.error.__context__ or before.error
    return after
