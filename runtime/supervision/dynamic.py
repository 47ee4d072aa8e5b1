"""A supervisor of children that come and go: one_for_one, keyed by `Ref`.

Guarantees: a child that is not to be restarted is forgotten, whatever its kind and the cause of its end, so
that finished children cost nothing; all that it holds runs or is to be restarted, which is what `max_children`
counts. Its children are stopped all together, each by its own `shutdown`. Starting, restarting and
terminating are done one at a time, as in every supervisor.

Ids need not be unique, places in the tree must be: a child whose id is taken is held under the id and a number, as
in `worker-2`. That is its `id` from then on, over restarts too.

Invariants: `slots` holds no child that is down, but for the time in which its end is dealt with. A child is known by
the `Ref` of its last incarnation that was ready; an earlier one is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, cast

import attrs

from proctor.runtime.addresses import AnyRef
from proctor.runtime.errors import MaxChildren, NotFound
from proctor.runtime.events import LateStop
from proctor.runtime.messaging import Ref
from proctor.runtime.spec import AutoShutdown, ChildSpec, DynamicFlags, check_significance
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.child_table import Start
from proctor.runtime.supervision.handles import AnySupervisor
from proctor.runtime.supervision.loop import SupervisorLoop
from proctor.runtime.supervision.root import open_root
from proctor.runtime.supervision.supervisor import following, nested_spec, run_nested
from proctor.runtime.supervision.tree import Tree

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Handle = TypeVar("Handle", bound="DynamicSupervisor", default="DynamicSupervisor")
else:  # the default of a type variable is for checkers, and of Python 3.13
    from typing import TypeVar

    Handle = TypeVar("Handle")


class DynamicLoop(SupervisorLoop):
    """One incarnation of a dynamic supervisor."""

    def __init__(
        self,
        flags: DynamicFlags,
        handle: Callable[[DynamicLoop], AnySupervisor],
        ref: Ref,
        system: Tree,
    ) -> None:
        super().__init__((), flags, ref, system, lambda _: handle(self))
        self.children.forgetful = True
        self._limit, self._extra = flags.max_children, flags.extra_arguments
        self._numbers = count(2)

    def begin_child(self, spec: ChildSpec) -> Start:
        """Begin to start a child, in a place of its own."""
        check_significance(spec, self.flags.auto_shutdown)
        if self._limit is not None and len(self.slots) >= self._limit:
            raise MaxChildren(self.path, self._limit)
        return super().begin_child(self._placed(spec))

    async def start(self, spec: ChildSpec) -> Ref:
        """Ask for a start; a child whose starter is cancelled meanwhile is stopped, since its `Ref` reaches no caller."""
        return (await self.ask_start(partial(self.begin_child, spec), self._withdraw)).ref

    async def _withdraw(self, start: Start) -> None:
        # By slot, not by id: another child may have the id by now.
        if self.slots.get(start.slot.spec.id) is start.slot:
            await self.children.stop(start.slot)
            self.children.forget(start.slot)

    def _placed(self, spec: ChildSpec) -> ChildSpec:
        id = spec.id
        while id in self.slots:
            id = f"{spec.id}-{next(self._numbers)}"
        if id == spec.id and not self._extra:
            return spec
        return attrs.evolve(spec, id=id, args=(*self._extra, *spec.args))

    async def change(self, specs: Sequence[ChildSpec], changes: Mapping[str, Any]) -> None:
        """Go on with other flags."""
        await super().change(specs, changes)
        self._limit = changes.get("max_children", self._limit)

    async def terminate(self, ref: AnyRef) -> tuple[LateStop, ...]:
        """Stop a child and forget it."""
        slot = self.slots.get(ref.path.rpartition("/")[2])
        # An id can be given again: the Ref has to be that of the last incarnation.
        if slot is None or slot.latest is not ref:
            raise NotFound(ref.path)
        with self.system.late.report(ref.path) as report:
            await self.children.stop(slot)
        self.children.forget(slot)
        return report.events


class DynamicSupervisor(AnySupervisor):
    """The handle on a supervisor whose children come and go, each known by its `Ref`."""

    @property
    def _dynamic(self) -> DynamicLoop:
        return cast("DynamicLoop", self._loop)

    async def start_child(self, spec: ChildSpec) -> Ref:
        """Start a child, of any id; of a start that ignores, the `Ref` has ended already.

        Cancelled, it leaves no child: one that is being started is stopped when it is ready. Raises `InvalidSpec`,
        `MaxChildren`, `StartError`; `AlreadyStarted` if the spec's `name` is taken.
        """
        return await self._dynamic.start(spec)

    async def terminate_child(self, ref: AnyRef) -> tuple[LateStop, ...]:
        """Stop the child whose last incarnation is `ref`, also while it is restarting, and forget it.

        Returns what did not end in time, of the child and of what is below it: see `late`.

        Raises `NotFound` if it is gone already, or never was a child of this supervisor, and `TypeError` for what is no
        `Ref`: ids need not be unique here.
        """
        if not isinstance(ref, Ref):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a child of {self.path!r} is known by the Ref of its start, got {ref!r}")
        return await self._loop.ask(partial(self._dynamic.terminate, ref))

    async def change(
        self,
        *,
        max_children: int | Literal["as it is"] | None = "as it is",
        intensity: int | None = None,
        period: float | None = None,
    ) -> None:
        """Go on with other values of the flags that are passed; `max_children=None` sets no limit any more.

        Nothing is started or stopped: children above a lower limit stay, and no more are started until there is room.
        Raises `InvalidSpec`, and then nothing has changed. Of a nested supervisor this holds until it is restarted.
        """
        flags = {"intensity": intensity, "period": period}
        changes: dict[str, object] = {name: value for name, value in flags.items() if value is not None}
        if max_children != "as it is":
            changes["max_children"] = max_children
        await self._loop.ask(partial(self._loop.change, (), changes))


@attrs.frozen
class NestedDynamic:
    """The `start` of a dynamic supervisor that is a child."""

    flags: DynamicFlags
    handle: Callable[[DynamicLoop], AnySupervisor] = DynamicSupervisor

    async def __call__(self, *, task_status: Incarnation) -> None:
        """Run it in the child's task."""
        handle = following(task_status, self.handle)
        loop = DynamicLoop(self.flags, handle, task_status.ref, task_status.system)
        await run_nested(loop, task_status)


def dynamic_supervisor_spec(
    id: str,
    *,
    max_children: int | None = None,
    extra_arguments: Iterable[Any] = (),
    intensity: int = 1,
    period: float = 5.0,
    auto_shutdown: AutoShutdown = "never",
    **spec: Any,
) -> ChildSpec:
    """A dynamic supervisor as a child: its own flags, and the `ChildSpec` fields `spec`. Raises `InvalidSpec`.

    Its handle is `above.supervisor(path, DynamicSupervisor)`. `auto_shutdown` is `"never"`.
    """
    flags = DynamicFlags(
        intensity=intensity,
        period=period,
        auto_shutdown=auto_shutdown,
        max_children=max_children,
        extra_arguments=extra_arguments,
    )
    return nested_spec(id, NestedDynamic(flags), spec)


def open_dynamic_supervisor(
    *,
    max_children: int | None = None,
    extra_arguments: Iterable[Any] = (),
    intensity: int = 1,
    period: float = 5.0,
    auto_shutdown: AutoShutdown = "never",
    name: str | None = None,
    handle: Callable[[DynamicLoop], Handle] = DynamicSupervisor,  # type: ignore[assignment]  # the default of `Handle`
    seed: int | None = None,
) -> AbstractAsyncContextManager[Handle]:
    """A root dynamic supervisor for the length of an `async with`; `name` is the first part of every path in its tree.

    At most `max_children` run or wait for a restart at a time. `extra_arguments` come before each spec's own, at
    restarts too. `period` is in seconds; `auto_shutdown` is `"never"`. `handle` builds what the `with` gives, a
    `DynamicSupervisor` or one of its subclasses. The same `seed` gives the same random delays of back-off.
    Raises `InvalidSpec` before anything starts; leaving raises `MaxRestartsExceeded`.
    """
    flags = DynamicFlags(
        intensity=intensity,
        period=period,
        auto_shutdown=auto_shutdown,
        max_children=max_children,
        extra_arguments=extra_arguments,
    )
    opened = open_root(partial(DynamicLoop, flags, handle), name or "root", seed=seed)
    return cast("AbstractAsyncContextManager[Handle]", opened)
