"""Supervisors as a program starts them: the root's `async with`, nested ones as child specs.

A root that ends cleanly by itself (`stop`, automatic shutdown) leaves the body running: `wait_stopped` waits for that. One
that gives up cancels the body and raises; one that is stopped before it was ready raises instead of running the body. What stands between a root and the program around it is in `root`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

import attrs
import trio

from proctor.runtime.errors import InvalidSpec, StartError
from proctor.runtime.exits import Exit, TreeShutdown
from proctor.runtime.messaging import Ignore
from proctor.runtime.spec import (
    AutoShutdown,
    ChildSpec,
    Flags,
    GiveUp,
    OrphanPolicy,
    Orphans,
    StopOrder,
    Strategy,
    as_children,
    check_childspecs,
)
from proctor.runtime.supervision.adoption import AdoptingLoop, open_home
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.decide import RESTARTS, RestartTable
from proctor.runtime.supervision.handles import AnySupervisor, Supervisor
from proctor.runtime.supervision.loop import SupervisorLoop
from proctor.runtime.supervision.root import open_root

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Handle = TypeVar("Handle", bound=AnySupervisor, default=Supervisor)
else:  # the default of a type variable is for checkers, and of Python 3.13
    from typing import TypeVar

    Handle = TypeVar("Handle")

SetUp: TypeAlias = Callable[[], Awaitable[Sequence[ChildSpec] | Ignore]]


async def run_nested(loop: SupervisorLoop, incarnation: Incarnation) -> NoReturn:
    """Run a supervisor in the task of the child `incarnation`. For the `start` of nested supervisors."""
    # a stop may have come in the tick in which a set-up returned: a child started in a cancelled scope would run to
    # its first checkpoint, and keep its name
    await trio.lowlevel.checkpoint_if_cancelled()
    # Before the first child: from here a stop goes to the loop, which stops in order, and not to the scope of
    # this task.
    incarnation.delegate = loop
    await loop.run(incarnation.started)
    # Ended before it was ready: the parent gets the cause of the failed start, not the shutdown that
    # followed.
    if not incarnation.has_started and loop.failure is not None:
        raise _as_start_failure(loop.failure)
    raise Exit(loop.reason)


def _as_start_failure(failure: Exception) -> Exception:
    """A child that ended its tree while it started ended it from here upward too."""
    if isinstance(failure, StartError) and isinstance(failure.reason, TreeShutdown):
        return Exit(failure.reason)
    return failure


def nested_spec(id: str, start: Callable[..., Any], fields: Mapping[str, Any]) -> ChildSpec:
    """A supervisor of any kind as a child, with further `ChildSpec` fields. Raises `InvalidSpec`."""
    spec = ChildSpec(id, start, type="supervisor", **fields)
    if spec.watchdog is not None:
        raise InvalidSpec("watchdog", spec.watchdog, "None for a supervisor", of=id)
    return spec


def following(incarnation: Incarnation, kind: Callable[[Any], Handle]) -> Callable[[SupervisorLoop], Handle]:
    """A factory of the handle of a nested supervisor: the one that its path has had, or a new one of `kind`."""
    handles, path = incarnation.system.handles, incarnation.endpoint.path

    def handle(loop: SupervisorLoop) -> Handle:
        old = handles.get(path)
        # another type: a changed spec made another kind of supervisor of it
        if isinstance(old, AnySupervisor) and type(old) is kind:
            old.follow(loop)
            return cast("Handle", old)
        handles[path] = new = kind(loop)
        return new

    return handle


@attrs.frozen
class NestedSupervisor:
    """The `start` of a supervisor that is a child."""

    children: tuple[ChildSpec, ...] | SetUp
    flags: Flags
    orphan_timeout: float | None = None

    async def __call__(self, *, task_status: Incarnation) -> Ignore:
        """Run it in the child's task. Returns only to ignore its start."""
        children = await self._set_up()
        if isinstance(children, Ignore):
            return children
        handle = following(task_status, Supervisor)
        if self.orphan_timeout is None:
            loop = SupervisorLoop(children, self.flags, task_status.ref, task_status.system, handle)
        else:
            parent = task_status.context.supervisor
            assert isinstance(parent, AnySupervisor)
            home = await open_home(task_status, parent, self.orphan_timeout)
            loop = AdoptingLoop(home, parent, children, self.flags, task_status, handle)
        return await run_nested(loop, task_status)

    async def _set_up(self) -> Sequence[ChildSpec] | Ignore:
        if not callable(self.children):
            return self.children
        children = await self.children()
        if not isinstance(children, Ignore):
            check_childspecs(children, self.flags.auto_shutdown)
        return children


def supervisor_spec(
    id: str,
    children: Sequence[ChildSpec] | SetUp = (),
    *,
    strategy: Strategy = "one_for_one",
    intensity: int = 1,
    period: float = 5.0,
    auto_shutdown: AutoShutdown = "never",
    orphans: Orphans = "stop",
    orphan_timeout: float = 30.0,
    stop_order: StopOrder = "reverse",
    give_up: GiveUp = "supervisor",
    **spec: Any,
) -> ChildSpec:
    """A supervisor as a child: its own flags, and the `ChildSpec` fields `spec`. Raises `InvalidSpec`.

    `children` may be an async function without arguments, called at each start, before anything of it is started: it
    returns the specs, or `IGNORE`, or raises, which is a failed start.
    With `orphans="keep"` its children outlive its giving up or being killed, for at most `orphan_timeout` seconds: its
    next incarnation adopts those whose spec is the same, with `Ref` and names, and stops the others.
    `stop_order="parallel"` stops children that do not depend on each other all together; `give_up="child"` leaves one
    of them down that is restarted too often, instead of giving up itself.
    Its `shutdown` is infinite unless given; when a finite one expires, its whole subtree is killed. It has no
    `watchdog`: nothing in it could beat.
    """
    flags = Flags(
        strategy=strategy,
        intensity=intensity,
        period=period,
        auto_shutdown=auto_shutdown,
        stop_order=stop_order,
        give_up=give_up,
    )
    if not callable(children):
        children = as_children(children)
        check_childspecs(children, auto_shutdown)
    policy = OrphanPolicy(orphans=orphans, orphan_timeout=orphan_timeout)
    if orphans == "keep" and spec.get("restart") == "temporary":
        raise InvalidSpec(
            "orphans",
            orphans,
            "'stop' for a temporary supervisor, which has no next incarnation to adopt them",
            of=id,
        )
    timeout = policy.orphan_timeout if orphans == "keep" else None
    return nested_spec(id, NestedSupervisor(children, flags, timeout), spec)


def open_supervisor(
    children: Sequence[ChildSpec] = (),
    *,
    strategy: Strategy = "one_for_one",
    intensity: int = 1,
    period: float = 5.0,
    auto_shutdown: AutoShutdown = "never",
    stop_order: StopOrder = "reverse",
    give_up: GiveUp = "supervisor",
    name: str | None = None,
    handle: Callable[[SupervisorLoop], Handle] = Supervisor,  # type: ignore[assignment]  # the default of `Handle`
    restarts: RestartTable = RESTARTS,
    seed: int | None = None,
) -> AbstractAsyncContextManager[Handle]:
    """A root supervisor for the length of an `async with`; `name` is the first part of every path in its tree.

    `period` is in seconds. `stop_order="parallel"` stops children that do not depend on each other all together, each with
    its own `shutdown`. `give_up="child"` leaves a child down that is restarted too often, and its siblings go on. `handle` builds what the `with` gives. `restarts` is the restart table, for tests of
    the table itself. The same `seed` gives the same random delays of back-off. Raises `InvalidSpec` before anything starts; entering raises `StartError`, of the
    root itself if one of its children stopped it before it was ready; leaving raises `MaxRestartsExceeded`.
    """
    flags = Flags(
        strategy=strategy,
        intensity=intensity,
        period=period,
        auto_shutdown=auto_shutdown,
        stop_order=stop_order,
        give_up=give_up,
    )
    specs = as_children(children)
    check_childspecs(specs, auto_shutdown)
    made = partial(SupervisorLoop, specs, flags, handle=handle)
    opened = open_root(made, name or "root", restarts, seed)
    return cast("AbstractAsyncContextManager[Handle]", opened)
