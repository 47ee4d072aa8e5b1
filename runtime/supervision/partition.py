"""One child many times over, each for its share of the keys.

Guarantees: partition k stands at the place `k` below the supervisor, and a key leads to the same place as long as
the number of partitions is the same, over restarts too. `resize` is done in the supervisor's turn: fewer partitions
are routed to before the others are stopped, more only when all of them are ready; if one cannot start, nothing has
changed.

Invariant: partitions 0 … n-1 are held as the strategy has it, those above are down and stay so, whatever group is
restarted.

Not here: what a partition does with keys that were another's before a `resize`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeAlias, cast

import attrs

from proctor.runtime.errors import InvalidSpec, NoPartitions, StartError
from proctor.runtime.exits import Shutdown
from proctor.runtime.messaging import Name, Ref
from proctor.runtime.spec import (
    ChildSpec,
    Flags,
    Routing,
    RoutingOptions,
    Shed,
    Strategy,
    check_childspecs,
)
from proctor.runtime.supervision import decide
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.child_table import Slot
from proctor.runtime.supervision.handles import AnySupervisor
from proctor.runtime.supervision.loop import SupervisorLoop
from proctor.runtime.supervision.root import open_root
from proctor.runtime.supervision.routing import PartitionStatistics, Router
from proctor.runtime.supervision.supervisor import following, nested_spec, run_nested
from proctor.runtime.supervision.tree import Tree

Arguments: TypeAlias = Callable[[int], Iterable[Any]]


class PartitionLoop(SupervisorLoop):
    """One incarnation of a partition supervisor."""

    def __init__(
        self,
        specs: tuple[ChildSpec, ...],
        flags: Flags,
        routing: RoutingOptions,
        ref: Ref,
        system: Tree,
        handle: Callable[[PartitionLoop], PartitionSupervisor],
    ) -> None:
        self.partitions = len(specs)
        super().__init__(specs, flags, ref, system, lambda _: handle(self))
        self._specs = specs
        self.router = Router(self.path, self.slots, routing)

    def _plan(self, slot: Slot) -> decide.Plan:
        plan = super()._plan(slot)
        return attrs.evolve(plan, start=tuple(id for id in plan.start if int(id) < self.partitions))

    async def resize(self, number: int) -> int:
        """Change the number of partitions; returns the old one."""
        most, before = len(self._specs), self.partitions
        if not _is_int(number) or not 0 <= number <= most:
            raise InvalidSpec("partitions", number, f"an int from 0 to {most}", of=self.path)
        if number < before:
            # Before they are stopped: no further message is routed to the partitions above.
            self.partitions = number
            await self._shrink(before, number)
        else:
            # All are ready before a key leads to one of them.
            await self._grow(before, number)
            self.partitions = number
        return before

    async def _shrink(self, before: int, number: int) -> None:
        for spec in reversed(self._specs[number:before]):
            if spec.id in self.slots:
                await self.terminate_child(spec.id)

    async def _grow(self, before: int, number: int) -> None:
        for at, spec in enumerate(self._specs[before:number], before):
            try:
                await self._start_partition(spec)
            except StartError:
                # One failed: those that were started before it are taken down, so that nothing has changed.
                await self._shrink(at, before)
                raise

    async def _start_partition(self, spec: ChildSpec) -> None:
        if not self.may_start:
            raise StartError(spec.id, Shutdown())
        held = spec.id in self.slots
        await self.finish(self.begin_restart(spec.id) if held else self.begin_child(spec))


class PartitionSupervisor(AnySupervisor):
    """The handle on a supervisor whose children are partitions of one kind."""

    def __init__(self, loop: PartitionLoop) -> None:
        super().__init__(loop)
        self._partitioned = loop

    def follow(self, loop: SupervisorLoop) -> None:
        """Stand for another incarnation of the same supervisor. For the runtime."""
        super().follow(loop)
        self._partitioned = cast("PartitionLoop", loop)

    @property
    def partitions(self) -> int:
        """The number of partitions now."""
        return self._partitioned.partitions

    def route(self, key: Hashable = None) -> Name:
        """The partition for the next message, by the pool's `routing`.

        `"key"`: for an int `abs(key) % partitions`, for others by their hash, which is stable within the run.
        `"round_robin"`: the next one, and `"least_loaded"`: the one with the shortest queue, whatever the key.
        `"sticky"`: the one that had this key before, while that incarnation lives; else the least loaded. All but
        `"key"` leave out partitions that are down while one is up.

        The choice is of now: ask again for each message. Raises `NoPartitions` if there are none, and
        `PoolOverloaded` when `max_queued` messages wait and `shed` is `"newest"`.
        """
        if not self.partitions:
            raise NoPartitions(self.path)
        return self.child(str(self._partitioned.router.route(key, self.partitions)))

    def statistics(self) -> PartitionStatistics:
        """Numbers of messages: waiting for each partition, refused, dropped. Read without a request."""
        return self._partitioned.router.statistics(self.partitions)

    async def resize(self, partitions: int) -> int:
        """Have so many partitions, at most as many as at the start; returns how many there were.

        Those above are terminated, the last first; those that were terminated are started again, in order. Raises
        `InvalidSpec`, and `StartError` if one cannot start, which changes nothing.
        """
        return await self._loop.ask(partial(self._partitioned.resize, partitions))


@attrs.frozen
class NestedPartition:
    """The `start` of a partition supervisor that is a child."""

    specs: tuple[ChildSpec, ...]
    flags: Flags
    routing: RoutingOptions

    async def __call__(self, *, task_status: Incarnation) -> None:
        """Run it in the child's task."""
        handle = following(task_status, PartitionSupervisor)
        ref, system = task_status.ref, task_status.system
        loop = PartitionLoop(self.specs, self.flags, self.routing, ref, system, handle)
        await run_nested(loop, task_status)


def partition_supervisor_spec(
    id: str,
    spec: ChildSpec,
    partitions: int | None = None,
    *,
    arguments: Arguments | None = None,
    strategy: Strategy = "one_for_one",
    intensity: int = 1,
    period: float = 5.0,
    routing: Routing = "key",
    max_queued: int | None = None,
    shed: Shed = "newest",
    max_keys: int = 10_000,
    **fields: Any,
) -> ChildSpec:
    """A partition supervisor as a child: see `open_partition_supervisor`; `fields` are those of its own `ChildSpec`.

    Its handle is `above.supervisor(path, PartitionSupervisor)`. Raises `InvalidSpec`.
    """
    flags = Flags(strategy=strategy, intensity=intensity, period=period)
    options = RoutingOptions(routing=routing, max_queued=max_queued, shed=shed, max_keys=max_keys)
    return nested_spec(id, NestedPartition(_specs(spec, partitions, arguments), flags, options), fields)


def open_partition_supervisor(
    spec: ChildSpec,
    partitions: int | None = None,
    *,
    arguments: Arguments | None = None,
    strategy: Strategy = "one_for_one",
    intensity: int = 1,
    period: float = 5.0,
    routing: Routing = "key",
    max_queued: int | None = None,
    shed: Shed = "newest",
    max_keys: int = 10_000,
    name: str | None = None,
    seed: int | None = None,
) -> AbstractAsyncContextManager[PartitionSupervisor]:
    """A root partition supervisor for the length of an `async with`: `partitions` children like `spec`.

    `partitions` left out is the number of processors. Their ids are "0", "1" …; `arguments(k)` are the args of
    partition k, left out: those of `spec`, the same for all. `period` is in seconds. The same `seed` gives the same
    random delays of back-off.

    `routing` is how `route` chooses a partition, for a sticky one with at most `max_keys` keys held. When `max_queued`
    messages wait in all partitions together, `route` refuses (`shed="newest"`) or drops the oldest message of the
    longest queue (`"oldest"`): its call fails with `PoolOverloaded`, a cast is a dead letter. Raises `InvalidSpec` before anything starts; entering raises `StartError`,
    leaving `MaxRestartsExceeded`.
    """
    flags = Flags(strategy=strategy, intensity=intensity, period=period)
    specs = _specs(spec, partitions, arguments)
    options = RoutingOptions(routing=routing, max_queued=max_queued, shed=shed, max_keys=max_keys)
    opened = open_root(
        partial(PartitionLoop, specs, flags, options, handle=PartitionSupervisor), name or "root", seed=seed
    )
    return cast("AbstractAsyncContextManager[PartitionSupervisor]", opened)


def _specs(spec: ChildSpec, partitions: int | None, arguments: Arguments | None) -> tuple[ChildSpec, ...]:
    check_childspecs([spec])
    number = os.cpu_count() or 1 if partitions is None else partitions
    if not _is_int(number) or number < 1:
        raise InvalidSpec("partitions", partitions, "an int >= 1")
    if spec.name is not None:
        raise InvalidSpec("name", spec.name, "None for a partition, which is found by its key", of=spec.id)
    given = [spec.args if arguments is None else arguments(k) for k in range(number)]
    return tuple(attrs.evolve(spec, id=str(k), args=args) for k, args in enumerate(given))


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
