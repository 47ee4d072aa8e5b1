"""Pools: a limit on concurrent runs of one command line, and warm processes that wait for a request.

    run ─► a warm process? ─► it has a slot already
               └─ none ─► a free slot? ─► a new process starts        no ─► the queue, and an idle warm process makes room

Warm processes count against `limit`. A slot is released on every path, after its process is gone. At most as many processes start at
once as there are cores. `serve` keeps processes warm; when it ends, the queue is refused and running turns are stopped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar, overload

import attrs
import trio

from proctor.actors.agent.request import Request
from proctor.actors.errors import BadOption, PoolClosed, unsent
from proctor.actors.limits.account_book import AccountBook
from proctor.actors.limits.spend_limits import SpendLimits, run_limits
from proctor.actors.outcomes import Answer
from proctor.actors.plan.account_id import KINDS, kind_of
from proctor.actors.plan.option_checks import suggest_or_list
from proctor.actors.plan.options import SHUTDOWN
from proctor.actors.plan.plan import Plan, plan_of
from proctor.actors.process.memory import Memory, memory_of
from proctor.actors.process.orphans import track_processes
from proctor.actors.process.start_slots import usable_cores
from proctor.actors.runs import DEADLINE, Run, open_run
from proctor.actors.serving.capacity import default_limit
from proctor.actors.serving.slots import Slots
from proctor.actors.serving.warm_pool import WarmPool, WarmProcess
from proctor.actors.structured.payloads import Payload, refuse_unsupported
from proctor.runtime.messaging import left, until
from proctor.runtime.spec import ChildSpec
from proctor.runtime.trio_only import check_in_trio

T = TypeVar("T")

QUEUE = 1000
"""Default limit of requests that wait for a slot."""


@attrs.frozen
class Warm:
    """`count` warm processes of `agent`, each for one request that names an equal agent. The CLI must wait for its prompt:
    Claude Code does so in mode `session` only."""

    agent: ChildSpec | Plan
    count: int = 1


@attrs.frozen
class PoolStatistics:
    """A pool at one moment: `limit` slots, `used` of them (warm processes included), requests `waiting` for one, and `warm`
    processes."""

    name: str
    limit: int
    used: int
    waiting: int
    warm: int
    closed: bool


class _Runner(ABC):
    """The method `run` of a pool and of several."""

    @abstractmethod
    def stream(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = DEADLINE,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> AbstractAsyncContextManager[Run]:
        """As `proctor.stream`, in a slot of the pool, which is given back when the block is left."""

    @overload
    async def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = DEADLINE,
        schema: type[T],
        payloads: Sequence[Payload] = (),
    ) -> Answer[T]: ...

    @overload
    async def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = DEADLINE,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Answer: ...

    async def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = DEADLINE,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Answer:
        """As `proctor.ask`, in a slot of the pool. `timeout` counts from now on, the waiting included, also for room in a
        budget. Raises also `ResourceUnavailable` (`PoolFull`, `PoolTimeout`, `PoolClosed`), and `BudgetExceeded` where no budget has
        room in that time."""
        async with self.stream(agent, prompt, timeout=timeout, schema=schema, payloads=payloads) as live:
            return await live.finish()


class Pool(_Runner):
    """A pool for one command line. `limit` defaults to the size of the machine, at most 10 (see `default_limit`); `queue` is the
    number of requests that may wait (1000). `book` counts its runs if no account book and no tree is around them.

    Raises `BadOption`.
    """

    def __init__(
        self,
        name: str,
        *,
        limit: int | None = None,
        queue: int = QUEUE,
        warm: Sequence[Warm] = (),
        starts: trio.CapacityLimiter | None = None,
        book: AccountBook | None = None,
    ) -> None:
        limit = default_limit() if limit is None else limit
        _check("limit", limit, 1)
        _check("queue", queue, 0)
        _check_warm(warm)
        self.name = name
        self.book = AccountBook() if book is None else book
        self._slots = Slots(f"pool {name!r}", limit, queue)
        self._starts = trio.CapacityLimiter(usable_cores()) if starts is None else starts
        self._warm_pools = tuple(
            WarmPool(plan_of(kept.agent), kept.count, self._slots, self._starts) for kept in warm
        )
        if sum(warm_pool.count for warm_pool in self._warm_pools) > limit:
            raise BadOption(f"warm keeps more processes than the {limit} slots of pool {name!r}")
        self._running: set[Run] = set()
        self._served = False

    def statistics(self) -> PoolStatistics:
        """Its numbers now."""
        slots, warm = self._slots, sum(len(warm_pool.idle) for warm_pool in self._warm_pools)
        return PoolStatistics(self.name, slots.limit, slots.used, slots.waiting, warm, slots.closed)

    def memory(self) -> Memory | None:
        """The memory of its processes now, as `Agent.memory`."""
        ready = {kept.live for warm_pool in self._warm_pools for kept in warm_pool.idle}
        return memory_of(*(live.incarnation.pid for live in self._running | ready))

    # -- what runs in it

    @asynccontextmanager
    async def slot(self, *, timeout: float | None = None) -> AsyncGenerator[float | None]:
        """Hold a slot for a block, for work that the pool does not run. The block gets the rest of `timeout` in seconds, None
        without one. Raises `PoolTimeout` after `timeout` seconds in the queue, `PoolFull` when the queue is full, and
        `PoolClosed`."""
        check_in_trio("proctor.Pool")
        ends = until(timeout)
        async with AsyncExitStack() as stack:
            await self._take_slot(stack, ends - trio.current_time())
            yield left(ends)

    @asynccontextmanager
    async def stream(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = DEADLINE,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> AsyncGenerator[Run]:
        """As `proctor.stream`, in a slot of the pool, which is given back when the block is left."""
        check_in_trio("proctor.Pool")
        request, plan = Request.make(prompt, timeout, schema, payloads), plan_of(agent)
        refuse_unsupported(plan, request.attachments)
        limits = run_limits(plan, self.book)
        entered = set[Run]()
        async with AsyncExitStack() as stack:
            # First, so that it is called last: the end of the pool waits also for a process that is being stopped.
            stack.callback(self._running.difference_update, entered)
            with unsent(request.asked):
                # Before a warm process is taken: a closed pool hands out none.
                self._slots.must_be_open()
                live = await self._kept_ready(stack, plan, request, limits)
                if live is None:
                    live = await self._started(stack, plan, request, limits)
            entered.add(live)
            self._running.add(live)
            yield live

    async def _kept_ready(
        self, stack: AsyncExitStack, plan: Plan, request: Request, limits: SpendLimits
    ) -> Run | None:
        warm_pools = [
            warm_pool for warm_pool in self._warm_pools if warm_pool.plan is plan or warm_pool.plan == plan
        ]
        if not warm_pools or not _suits(request, plan):
            return None
        # `own` holds the room in the budgets, and then the process, until a prompt is taken; a return without
        # one gives back both.
        async with AsyncExitStack() as own:
            await own.enter_async_context(limits.turn(request.ends))
            # A warm process may have died unseen: then the next one is tried.
            while (
                ready := next(filter(None, (warm_pool.take() for warm_pool in warm_pools)), None)
            ) is not None:
                if await self._takes(own, ready, plan, request, limits):
                    # Now the caller's block owns the room and the process, as one: they go in reverse order
                    # when it ends.
                    stack.push_async_callback(own.pop_all().aclose)
                    return ready.live
        return None

    async def _takes(
        self,
        stack: AsyncExitStack,
        ready: WarmProcess,
        plan: Plan,
        request: Request,
        limits: SpendLimits,
    ) -> bool:
        """Whether it accepts the prompt; a dead one releases its slot before the request waits for another."""
        async with AsyncExitStack() as own:
            # The way back first: whatever fails below, the process is stopped and its slot free before the
            # request waits for another.
            own.push_async_callback(ready.give_back)
            if request.inquiry is not None:
                request.inquiry.choose(plan, fresh=False)
            ready.live.begin(request, limits)
            # Taken: the stack of the caller gives it back. Otherwise `own` does, at the end of this block.
            if taken := await ready.live.taken():
                stack.push_async_callback(own.pop_all().aclose)
        return taken

    async def _started(self, stack: AsyncExitStack, plan: Plan, request: Request, limits: SpendLimits) -> Run:
        if request.inquiry is not None:
            plan = request.inquiry.launched(plan)
        # Slot and room before the start: at the end the process goes first, and its slot is free after that.
        await self._admitted(stack, request, limits)
        begun = open_run(plan, starts=self._starts, attachments=request.attachments)
        live = await stack.enter_async_context(begun)
        # The pool may have been closed while the process started.
        self._slots.must_be_open()
        live.begin(request, limits)
        return live

    async def _admitted(self, stack: AsyncExitStack, request: Request, limits: SpendLimits) -> None:
        """Take a slot, and room in its budgets, which others may have spent while it was in the queue. It waits for one without
        holding the other: a request whose budget is spent needs no slot, and one without a slot needs no reserve."""
        while True:
            await limits.wait_for_room(request.ends)
            # `own` holds the slot while the budgets are looked at; without room it goes back before the next
            # wait.
            async with AsyncExitStack() as own:
                await self._take_slot(own, request.ends - trio.current_time())
                if limits.has_room():
                    own.enter_context(limits.holding())
                    # Slot and room change their owner together: no path keeps one of them alone.
                    stack.push_async_callback(own.pop_all().aclose)
                    return

    async def _take_slot(self, stack: AsyncExitStack, timeout: float) -> None:
        # An idle warm process holds a slot, and makes room before a request has to wait.
        if self._slots.full:
            any(warm_pool.make_room() for warm_pool in self._warm_pools)
        with unsent():
            slot = await self._slots.take(timeout)
        # No checkpoint since it was taken, so a cancellation cannot lose it.
        stack.callback(slot.release)

    # -- its life

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep processes warm until cancelled; then close the pool and stop its runs. Only one task may serve it."""
        check_in_trio("proctor.Pool")
        if self._served:
            raise RuntimeError(f"pool {self.name!r} is served already")
        self._served = True
        self._slots.reopen()
        try:
            async with track_processes(), trio.open_nursery() as nursery:
                for warm_pool in self._warm_pools:
                    nursery.start_soon(warm_pool.serve)
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._close()
        finally:
            self._served = False
            await self._emptied()

    def _close(self) -> None:
        # The queue first: a slot that a run below gives back must not start another.
        self._slots.close()
        for live in self._running:
            live.leave()

    async def _emptied(self) -> None:
        self._close()
        # Cancelled or not, the pool has ended only when no process of it runs; each run bounds its own stop.
        with trio.CancelScope(shield=True):
            for live in [*self._running]:
                await live.over.wait()


class Pools(_Runner):
    """A pool for each kind of command line, made at its first use, so that a full one delays no other.

    `limits` gives kinds a size that is not `limit`, by name: `claude`, `codex`, `opencode`, `gemini`, `acp`, `scripted`.
    Starts are limited for all; `book` as for `Pool`, one for all. Raises `BadOption`.
    """

    def __init__(
        self,
        *,
        limit: int | None = None,
        limits: Mapping[str, int] | None = None,
        queue: int = QUEUE,
        warm: Sequence[Warm] = (),
        book: AccountBook | None = None,
    ) -> None:
        self.book = AccountBook() if book is None else book
        _check_limits(limit, {} if limits is None else limits, queue)
        _check_warm(warm)
        self._limit = limit
        self._limits = dict(limits or {})
        self._queue = queue
        self._starts = trio.CapacityLimiter(usable_cores())
        self._pools: dict[str, Pool] = {}
        self._warm = tuple(warm)
        self._life: trio.Nursery | None = None
        self._closed = False
        for kept in warm:
            self.of(kept.agent)

    def of(self, agent: ChildSpec | Plan) -> Pool:
        """The pool of this agent's command line. Raises `PoolClosed` after the end of `serve`."""
        name = kind_of(plan_of(agent))
        if name not in self._pools:
            if self._closed:
                raise PoolClosed(f"pool {name!r}")
            self._pools[name] = pool = self._made(name)
            if self._life is not None:
                self._life.start_soon(pool.serve)
        return self._pools[name]

    def _made(self, name: str) -> Pool:
        warm = [kept for kept in self._warm if kind_of(plan_of(kept.agent)) == name]
        limit = self._limits.get(name, self._limit)
        return Pool(name, limit=limit, queue=self._queue, warm=warm, starts=self._starts, book=self.book)

    @asynccontextmanager
    async def stream(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = DEADLINE,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> AsyncGenerator[Run]:
        """As `Pool.stream`, in the agent's pool."""
        with unsent():
            pool = self.of(agent)
        asked = pool.stream(agent, prompt, timeout=timeout, schema=schema, payloads=payloads)
        async with asked as live:
            yield live

    def statistics(self) -> tuple[PoolStatistics, ...]:
        """The numbers of each pool."""
        return tuple(pool.statistics() for pool in self._pools.values())

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """As `Pool.serve`, for all."""
        check_in_trio("proctor.Pools")
        self._closed = False
        try:
            async with trio.open_nursery() as self._life:
                for pool in self._pools.values():
                    await self._life.start(pool.serve)
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._life, self._closed = None, True


def pool_spec(id: str, pool: Pool | Pools, *, shutdown: float = SHUTDOWN, **spec: Any) -> ChildSpec:
    """Child spec of a pool. Put it before the children that use it: the tree stops it with all that runs in it. `spec` are further
    fields of `ChildSpec`. Raises `BadOption`."""
    if not isinstance(pool, Pool | Pools):  # pyright: ignore[reportUnnecessaryIsInstance]
        hint = "; agents are named when the pool runs them" if isinstance(pool, ChildSpec) else ""
        raise BadOption(f"pool of {id!r} must be a Pool or Pools, got {_shown(pool)}{hint}")
    return ChildSpec(id, pool.serve, shutdown=shutdown, **spec)


def _check_limits(limit: int | None, limits: Mapping[str, int], queue: int) -> None:
    if limit is not None:
        _check("limit", limit, 1)
    _check("queue", queue, 0)
    if not isinstance(limits, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadOption(f"limits must be a mapping of kinds to numbers, got {limits!r}")
    for kind, its in limits.items():
        if kind not in KINDS:
            raise BadOption(f"limits names the kind {kind!r}{suggest_or_list(kind, KINDS)}")
        _check(f"limit of {kind!r}", its, 1)


def _suits(request: Request, plan: Plan) -> bool:
    """Whether a warm process can run the request as well as a process that is started for it."""
    carried = not request.attachments or plan.launch.mode == "session"
    return carried and (request.inquiry is None or request.inquiry.suits(plan))


def _check_warm(warm: Sequence[Warm]) -> None:
    if not isinstance(warm, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadOption(f"warm must be a sequence of Warm, got {_shown(warm)}")
    for kept in warm:
        if not isinstance(kept, Warm):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadOption(f"warm must be a sequence of Warm, got {_shown(kept)} in it")


def _shown(value: object) -> str:
    return f"the spec of {value.id!r}" if isinstance(value, ChildSpec) else repr(value)


def _check(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadOption(f"{name} must be a number of {least} or more, got {value!r}")
