"""The handles on supervisors: what a program asks of a running supervisor, and how it looks at the tree below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar, overload

import trio
from trio_util import wait_any

from proctor.runtime.errors import ActorExited, WouldDeadlock
from proctor.runtime.events import EventKind, LateStop, Subscription
from proctor.runtime.exits import ExitReason, Killed, NoProc, Shutdown
from proctor.runtime.messaging import ChildCounts, ChildInfo, Endpoint, Name, Ref, Registry, TreeNode
from proctor.runtime.spec import AutoShutdown, ChildSpec, GiveUp, StopOrder, Strategy, as_children
from proctor.runtime.supervision.child_table import Slot, child_info, counts
from proctor.runtime.supervision.deadlock import waited_for
from proctor.runtime.supervision.loop import SupervisorLoop

Handle = TypeVar("Handle", bound="AnySupervisor")
T = TypeVar("T")


class AnySupervisor:
    """Handle on a supervisor: the methods that all kinds have.

    The handle on a nested supervisor follows its restarts, and those of the supervisors above it, as a name does. Between
    two incarnations it raises `NoProc`; `wait_ready` waits for the next one. Its `ref` stays with an incarnation.

    Its async methods are requests, done one at a time in order, without a time-out of their own; a child with
    `start_order="parallel"` starts beside those that follow. Each raises `NoProc` if the supervisor is gone, `ActorExited` if it ends before answering, and `WouldDeadlock` when
    asked by a child that it is waiting for.
    """

    def __init__(self, loop: SupervisorLoop) -> None:
        self._loop = loop
        self._followed = trio.Event()

    @property
    def loop(self) -> SupervisorLoop:
        """The incarnation that it stands for now. For the runtime."""
        return self._loop

    def follow(self, loop: SupervisorLoop) -> None:
        """Stand for another incarnation of the same supervisor. For the runtime."""
        self._loop = loop
        # The new event before the old one is set: a task that wakes may wait for the next change at once.
        followed, self._followed = self._followed, trio.Event()
        followed.set()

    @property
    def ref(self) -> Ref:
        """The supervisor as an actor: to monitor, to end."""
        return self._loop.ref

    @property
    def path(self) -> str:
        """Its path in the tree."""
        return self._loop.path

    @property
    def registry(self) -> Registry:
        """The names of the whole tree."""
        return self._loop.system.registry

    async def which_children(self) -> tuple[ChildInfo, ...]:
        """`(id, ref | None | "restarting", type)` of each held spec, in start order."""
        slots = self._loop.slots
        return await self._loop.ask(partial(_later, lambda: tuple(map(child_info, slots.values()))))

    async def count_children(self) -> ChildCounts:
        """Count the specs that are held and the children that live."""
        return await self._loop.ask(partial(_later, lambda: counts(list(self._loop.slots.values()))))

    def name(self, name: str) -> Name:
        """The holder of `name` in this tree, looked up at each use."""
        return Name(name, self._loop.system)

    def child(self, path: str) -> Name:
        """The child at `path` below this supervisor, as in `fixers/fixer`; looked up at each use."""
        return Name(f"/{self.path}/{path}", self._loop.system)

    @overload
    def supervisor(self, path: str) -> Supervisor: ...

    @overload
    def supervisor(self, path: str, kind: type[Handle]) -> Handle: ...

    def supervisor(self, path: str, kind: type[AnySupervisor] | None = None) -> AnySupervisor:
        """The handle on a supervisor below this one, which follows its restarts; of a `kind` left out: `Supervisor`.

        Raises `NoProc` where none runs now, and `TypeError` if it is of another kind.
        """
        loop = self._loop
        for id in path.split("/"):
            loop = _nested(loop.slots.get(id)) or _raise_no_proc(f"{self.path}/{path}")
        if not isinstance(loop.handle, kind or Supervisor):
            raise TypeError(f"supervisor {loop.path!r} is a {type(loop.handle).__name__}")
        return loop.handle

    def events(self, buffer: int = 1000, kinds: Iterable[EventKind] | None = None) -> Subscription:
        """The events of the whole tree from now on; holds at most `buffer`, then drops the oldest.

        With `kinds` only those, such as `("dead_letter",)` for a consumer that keeps what was not delivered: the others take no
        room. Raises `ValueError` for a kind that does not exist.
        """
        return self._loop.system.events.subscribe(buffer, kinds)

    def tree(self) -> TreeNode:
        """This supervisor and all below it, as they are now."""
        loop = self._loop
        state = "down" if loop.endpoint.exit is not None else "running"
        return TreeNode(
            path=loop.path,
            id=loop.path.rpartition("/")[2],
            type="supervisor",
            state="running" if state == "running" else "down",
            ready=state == "running",
            incarnation=1,
            ref=loop.ref,
            exit=loop.endpoint.exit,
            children=_below(loop),
        )

    async def stop(self, reason: ExitReason | None = None) -> tuple[LateStop, ...]:
        """Stop this supervisor and all below it, in order, and wait for that: what did not end in time.

        It ends with `reason`, whatever that is: `Normal()` too, by which `ref.exit` would do nothing. Raises `WouldDeadlock`, and stops nothing, inside a child that would have to end first: `ref.exit` asks without
        waiting.
        """
        self._refuse_inside()
        loop = self._loop  # the parent may have restarted it by the time its end is seen here
        if isinstance(reason, Killed):
            loop.endpoint.control.kill()
        else:
            loop.endpoint.control.stop(reason or Shutdown())
        await self.wait_stopped()
        return loop.late

    @property
    def late(self) -> tuple[LateStop, ...]:
        """Children that did not end in time when this supervisor stopped: a `ChildOverdue` for each child that was killed after
        its `shutdown` time, a `ChildUnresponsive` for each that did not end by a kill. Also after the `async with`.
        """
        return self._loop.late

    async def wait_stopped(self) -> ExitReason:
        """Wait until it and all below it have ended: why. Raises `WouldDeadlock` as `stop` does."""
        ref = self.ref
        if ref.exit_reason is None:
            self._refuse_inside()
            with ref.monitor() as monitor:
                await monitor
        assert ref.exit_reason is not None
        return ref.exit_reason

    async def wait_ready(self) -> None:
        """Wait until it serves: at once, when it is ready, or after its restart. Raises `NoProc` once its tree is ending.

        A supervisor that is down for good is waited for until then: `trio.move_on_after` sets a limit. Raises `WouldDeadlock` as
        other requests do.
        """
        while not await self._serves():
            ref = await self.registry.wait(f"/{self.path}")
            with ref.monitor() as monitor:  # its start may fail before this handle follows
                await wait_any(partial(self._wait_for, ref), monitor.wait)

    async def _serves(self) -> bool:
        try:
            await self._loop.ask(partial(_later, lambda: None))
        except (NoProc, ActorExited):
            return False
        return True

    async def _wait_for(self, ref: Ref) -> None:
        while self.ref is not ref:
            await self._followed.wait()

    def _refuse_inside(self) -> None:
        if any(incarnation.context.supervisor.ref is self.ref for incarnation in waited_for()):
            raise WouldDeadlock(self.path)


class Supervisor(AnySupervisor):
    """The handle on a supervisor whose children have ids: they are held, down ones too, in start order.

    What takes an id raises `TypeError` for what is none, in its caller.
    """

    async def start_child(self, spec: ChildSpec) -> Ref:
        """Start a child and hold its spec; of a start that ignores, the `Ref` has ended already.

        Cancelled while the child starts, it leaves it: the child is known by its id.
        Raises `InvalidSpec`, `AlreadyStarted`, `AlreadyPresent`, `StartError`.
        """
        return (await self._loop.ask_start(partial(self._loop.begin_child, spec))).ref

    async def terminate_child(self, id: str) -> tuple[LateStop, ...]:
        """Stop a child and keep its spec, a temporary one's excepted. Raises `NotFound`.

        Returns what did not end in time, of the child and of what is below it: see `late`.
        """
        return await self._loop.ask(partial(self._loop.terminate_child, self._checked(id)))

    async def restart_child(self, id: str) -> Ref:
        """Start a child that is down. Raises `Running`, `Restarting`, `NotFound`, `StartError`."""
        return (await self._loop.ask_start(partial(self._loop.begin_restart, self._checked(id)))).ref

    async def forget_restarts(self, id: str) -> None:
        """Count the restarts of a child anew, and carry out one that waits for its time now. Raises `NotFound`.

        Restarts that its supervisor counts for all children together stay counted.
        """
        await self._loop.ask(partial(self._loop.forget_restarts, self._checked(id)))

    async def delete_child(self, id: str) -> None:
        """Forget a child that is down. Raises `Running`, `Restarting`, `NotFound`."""
        await self._loop.ask(partial(self._loop.delete_child, self._checked(id)))

    async def change(
        self,
        children: Sequence[ChildSpec] | None = None,
        *,
        strategy: Strategy | None = None,
        intensity: int | None = None,
        period: float | None = None,
        auto_shutdown: AutoShutdown | None = None,
        stop_order: StopOrder | None = None,
        give_up: GiveUp | None = None,
    ) -> None:
        """Go on with other values of the flags that are passed, and other specs of `children`, known by their ids.

        Nothing is started or stopped. A held child gets its new spec for its next start; what the supervisor does
        about it (`restart`, `shutdown`, `significant`) holds at once. New children are added down, in their place of
        the list; held ones that the list does not name stay as they are, after it. Raises `InvalidSpec`, and then
        nothing has changed. Of a nested supervisor this holds until it is restarted, from its own spec.
        """
        flags = {
            "strategy": strategy,
            "intensity": intensity,
            "period": period,
            "auto_shutdown": auto_shutdown,
            "stop_order": stop_order,
            "give_up": give_up,
        }
        changes = {name: value for name, value in flags.items() if value is not None}
        await self._loop.ask(partial(self._loop.change, as_children(children or ()), changes))

    async def get_childspec(self, id: str) -> ChildSpec:
        """The spec as held, with defaults filled in. Raises `NotFound`."""
        held = partial(self._loop.held, self._checked(id))
        return (await self._loop.ask(partial(_later, held))).spec

    def _checked(self, id: str) -> str:
        if not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a child of {self.path!r} is known by its id, a text, got {id!r}")
        return id


async def _later(look: Callable[[], T]) -> T:
    return look()


def _nested(slot: Slot | None) -> SupervisorLoop | None:
    delegate = None if slot is None or slot.incarnation is None else slot.incarnation.delegate
    return delegate if isinstance(delegate, SupervisorLoop) and delegate.endpoint.exit is None else None


def _raise_no_proc(path: str) -> SupervisorLoop:
    raise NoProc(path)


def _below(loop: SupervisorLoop | None) -> tuple[TreeNode, ...]:
    return () if loop is None else tuple(_node(loop, slot) for slot in loop.slots.values())


def _node(loop: SupervisorLoop, slot: Slot) -> TreeNode:
    incarnation, state = slot.incarnation, slot.state
    if state == "running" and incarnation is not None and not incarnation.endpoint.accepting:
        state = "stopping"  # not by the supervisor's doing
    return TreeNode(
        path=f"{loop.path}/{slot.spec.id}",
        id=slot.spec.id,
        type=slot.spec.type,
        state=state,
        ready=state == "running" and incarnation is not None and incarnation.is_ready,
        incarnation=slot.count,
        restarts=slot.restarts,
        ref=None if incarnation is None else incarnation.ref,
        exit=slot.exit,
        exited_at=slot.exited_at,
        busy_for=None if incarnation is None else incarnation.endpoint.busy_for(),
        handling=None if incarnation is None else _handled_by(incarnation.endpoint),
        children=_below(_nested(slot)),
    )


def _handled_by(endpoint: Endpoint) -> str | None:
    return None if endpoint.handling is None else type(endpoint.handling.msg).__qualname__
