"""The owner of a root supervisor's loop: what stands between it and the program around it.

Guarantees: a cancellation from outside reaches the body and a sentinel only; the sentinel asks for a stop, the
loop stops the children in order behind a shield, and the cancellation goes on. An exception of the body comes out
as it is, after the children have stopped. Giving up cancels the body and raises `MaxRestartsExceeded`. An
interrupt inside any child stops the whole tree in order and comes out bare; a second one kills.

Invariant: `ended` is set on every path out of `serve`, so a task that waits behind the shield is released.

The shield is bounded by the children's `shutdown` times.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import trio

from proctor.runtime.errors import StartError
from proctor.runtime.exits import ExitReason, Shutdown
from proctor.runtime.messaging import Ref, SupervisorHandle, open_ref
from proctor.runtime.protected import protected_context
from proctor.runtime.supervision.decide import RESTARTS, RestartTable
from proctor.runtime.supervision.loop import SupervisorLoop
from proctor.runtime.supervision.tree import Tree
from proctor.runtime.trio_only import check_in_trio

ROOTS: trio.lowlevel.RunVar[dict[SupervisorLoop, None] | None] = trio.lowlevel.RunVar("proctor.roots", None)
"""The roots of this Trio run."""


def kill_roots() -> None:
    """Kill every tree of this Trio run."""
    for loop in tuple(ROOTS.get() or ()):
        loop.kill()


class Root:
    """The owner of a root supervisor's loop, and the scope of the body."""

    def __init__(
        self,
        make: Callable[[Ref, Tree], SupervisorLoop],
        name: str,
        system: Tree,
    ) -> None:
        self.system = system
        self.body = trio.CancelScope()
        self.settled, self.ended = trio.Event(), trio.Event()
        self.loop = make(open_ref(name, system, _ControlOfRoot(self), None), system)
        system.on_interrupt = self._interrupted
        self.error: BaseException | None = None
        self._interrupts = 0

    def _interrupted(self) -> None:
        self._interrupts += 1
        # The body, too: it may be waiting for an answer that no child will give now.
        self.body.cancel(reason="interrupted")
        if self._interrupts == 1:
            self.loop.stop(Shutdown("interrupted"))
        else:
            # A second Ctrl-C means now: no grace is waited for.
            self.loop.kill()

    @trio.lowlevel.enable_ki_protection
    async def serve(self) -> None:
        """Run the loop, behind the shield."""
        # Per Trio run: the trees of a run in another thread must not be killed from here.
        roots = ROOTS.get()
        if roots is None:
            ROOTS.set(roots := {})
        roots[self.loop] = None
        try:
            # A cancellation from outside would cut the children's own stops short; the sentinel turns it into
            # a stop. The children's graces bound the shield.
            with trio.CancelScope(shield=True):
                await self._run_with_deadlines()
        finally:
            del roots[self.loop]
            # On every path: `wait` sits behind a shield, and only `ended` releases it.
            self._close()

    async def _run_with_deadlines(self) -> None:
        async with trio.open_nursery() as nursery:
            # Around the loop, not in the children's nursery: the clocks run on while the children stop.
            self.system.timers.nursery = nursery
            nursery.start_soon(self.system.deadlines.run)
            await self.loop.run(self.settled.set)
            # Only after the loop: until here the timers judge children that end too late.
            nursery.cancel_scope.cancel(reason="the supervisor ended")

    def _close(self) -> None:
        # The endpoint first: its end is an event, and events are closed behind it.
        self.loop.endpoint.close(self.loop.reason)
        self.system.events.close()
        if self.loop.failure is not None:
            self.body.cancel(reason="the supervisor gave up")
        self.ended.set()
        self.settled.set()

    @trio.lowlevel.enable_ki_protection
    async def sentinel(self) -> None:
        """Be the one task that a cancellation from outside reaches."""
        try:
            await trio.sleep_forever()
        finally:
            # The cancellation reaches this task alone, and becomes a stop in order; the last cancel of
            # `open_root` finds it stopped already.
            self.loop.stop(Shutdown())

    async def wait(self, event: trio.Event) -> None:
        """Wait for `event` behind a shield; an interrupt meanwhile is noted, and the second kills."""
        # The children are stopped before the block is left, whatever cancels it; their `shutdown` times bound
        # the wait.
        with trio.CancelScope(shield=True):
            while not event.is_set():
                try:
                    await event.wait()
                except KeyboardInterrupt as error:
                    # Trio raises Ctrl-C in the main task, which waits here; leaving the loop would leave the
                    # children.
                    self.system.interrupt(error)

    async def wait_started(self) -> None:
        """Wait until the body may run. Raises what stands in its way."""
        await self.wait(self.settled)
        if self.loop.failure is not None:
            raise self.loop.failure from self.loop.failure.__cause__
        if self.system.interrupted is not None:
            raise self.system.interrupted
        try:
            # The wait above was shielded: a cancellation that came meanwhile is delivered here, before the
            # body runs.
            await trio.lowlevel.checkpoint_if_cancelled()
        except KeyboardInterrupt as error:
            self.system.interrupt(error)
            # The tree has to be down before the interrupt goes on.
            await self.wait(self.ended)
            raise
        if not self.loop.was_ready:  # one of its children stopped it
            self.error = StartError(self.loop.path, self.loop.reason)
            raise self.error

    @asynccontextmanager
    async def supervised(self) -> AsyncGenerator[None, None]:
        """Run the body; afterwards, whatever became of it, stop the children and wait for that."""
        try:
            with self.body:
                yield
        except trio.Cancelled:
            # Not noted as the body's error: Trio takes it out at the scope that it belongs to.
            raise
        except BaseException as error:  # noqa: BLE001  # raised by raise_outcome, outside the nursery's group
            self.note(error)
        finally:
            # On every path, the cancelled one as well: no child outlives the block.
            self.loop.stop(Shutdown())
            await self.wait(self.ended)

    def note(self, error: BaseException) -> None:
        """Keep what the body raised."""
        self.error = error
        self.system.take_interrupt(error)

    def raise_outcome(self) -> None:
        """Raise what the whole came to, bare; nothing if it ended well."""
        # Before everything else: it is what the person at the terminal did, and errors of a stopping tree
        # follow from it.
        if self.system.interrupted is not None:
            raise self.system.interrupted from None
        failure = self.loop.failure
        if failure is not None and (self.error is None or isinstance(self.error, Exception)):
            raise failure from (
                self.error or failure.__cause__
            )  # the body failed because its tree did, if it did
        if self.error is not None:
            raise self.error


class _ControlOfRoot:
    """The control of a root's endpoint: the loop is made after its endpoint."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def stop(self, reason: ExitReason) -> None:
        self._root.loop.stop(reason)

    def kill(self) -> None:
        self._root.loop.kill()

    def ending(self) -> None:
        self._root.loop.endpoint.refuse()
        self._root.system.registry.end()


@protected_context
async def open_root(
    make: Callable[[Ref, Tree], SupervisorLoop],
    name: str,
    restarts: RestartTable = RESTARTS,
    seed: int | None = None,
) -> AsyncGenerator[SupervisorHandle, None]:
    """A root supervisor, made by `make` for its `Ref` and its tree, for the length of an `async with`."""
    check_in_trio("open_supervisor")
    # a child started in a cancelled scope would run to its first checkpoint
    await trio.lowlevel.checkpoint_if_cancelled()
    root = Root(make, name, Tree(restarts, seed))
    try:
        async with trio.open_nursery() as outer:
            outer.start_soon(root.sentinel)
            outer.start_soon(root.serve)
            await root.wait_started()
            async with root.supervised():
                yield root.loop.handle
            # Ends the sentinel; the loop has ended by now.
            outer.cancel_scope.cancel(reason="the supervisor ended")
    except BaseExceptionGroup as group:
        # a SIGINT that the nursery's own wait was given, all else having ended
        root.system.take_interrupt(group)
        raise
    finally:
        # In `finally`: it replaces the group in which the nursery has wrapped the error by the bare one.
        root.raise_outcome()
