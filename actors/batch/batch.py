"""A batch: tasks times agents times repetitions, so many at a time, with results as they end.

Guarantees: at most `limit` attempts run at once; tasks are taken from their source when there is a place for them, and each result is on disk before its
caller has it. Each agent takes the tasks in their order, and the agents take places in turn; one at its usage limit begins nothing before the
reset and leaves the places to the others. Leaving the loop stops what runs, by the stop sequences, and leaves no process.

What outlives the program: the file of results is what has ended; the store beside it (`FILE.state`) has what is in progress.
Not here: what an attempt is (`attempt`).
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import tee
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self, get_args

import attrs
import trio

from proctor.actors.batch.attempt import Attempt, AttemptPlace, Keep
from proctor.actors.batch.results import BatchResult, ResultsFile
from proctor.actors.batch.tasks import BatchTask
from proctor.actors.batch.tries import TryPlace
from proctor.actors.errors import BadOption, BudgetExceeded
from proctor.actors.limits.account_book import AccountBook
from proctor.actors.limits.admission import current_tree_limits
from proctor.actors.limits.spend_limits import SpendLimits
from proctor.actors.plan.account_id import account_of, kind_of
from proctor.actors.plan.budgets import Budget, Spending
from proctor.actors.plan.option_checks import COUNT, DOLLARS, NAME, PATH, check, one_of
from proctor.actors.plan.plan import Plan, plan_of
from proctor.actors.serving.retry import RETRY
from proctor.actors.specs import DynamicSupervisor, open_dynamic_supervisor
from proctor.actors.store.backend import StoreBackend
from proctor.actors.store.memory import MemoryStore
from proctor.actors.store.sqlite import Store
from proctor.runtime.processes import make_directory
from proctor.runtime.retry import Retry
from proctor.runtime.spec import ChildSpec

LIMIT = 4
"""Attempts at a time by default."""
_EVER = 1e9
"""Seconds: the period of a budget that is that of the whole batch."""
_COMPARED = (
    *(
        "mode",
        "model",
        "effort",
        "system_prompt",
        "append_system_prompt",
        "tools",
        "allowed_tools",
        "disallowed_tools",
    ),
    *("max_turns", "max_budget_usd", "sandbox", "permission_mode", "extra"),
)
"""Options whose change makes an agent another one."""


@attrs.frozen
class BatchProgress:
    """How far a batch is: attempts that are `done` (of which `kept` by an earlier host), that are `running`, and the dollars that were spent with this host."""

    done: int
    kept: int
    running: int
    cost_usd: float


@attrs.frozen
class _Agent:
    """An agent of a batch: its name, its plan, what it may spend, and a text that changes with it."""

    name: str
    plan: Plan
    limits: SpendLimits
    digest: str


@attrs.frozen(kw_only=True)
class _Options:
    limit: int
    repeat: int
    results: Path | None
    budget: float | None
    retry: Retry
    keep: Keep
    chance: Random


class _Work:
    """What runs behind a batch, in one task; its results go into a channel."""

    def __init__(
        self, tasks: Iterable[BatchTask], agents: Sequence[ChildSpec | Plan], options: _Options
    ) -> None:
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self.error: Exception | None = None
        # no room: a result that is not taken yet holds its place, so that a slow reader slows the batch
        self._send, self.receive = trio.open_memory_channel[BatchResult](0)
        self._options = options
        self._tasks = tasks
        self._file = ResultsFile(options.results)
        self._spending = (
            None if options.budget is None else Spending(Budget(options.budget, _EVER), "the batch")
        )
        self._agents = _agents_of(agents, self._spending)
        self._places = trio.CapacityLimiter(options.limit)
        self._stopping = False
        self._supervisor: DynamicSupervisor | None = None
        self._spent: BudgetExceeded | None = None
        self.done = self.kept = self.running = 0
        self.cost_usd = 0.0

    async def run(self) -> None:
        """Conduct it to its end. Its errors are kept for the reader."""
        try:
            with self.scope:
                async with self._send:
                    await self._conduct()
        except Exception as error:  # noqa: BLE001  # the reader of the results raises it
            self.error = _bare(error)
        finally:
            self._file.close()
            self.over.set()

    def stop(self) -> None:
        """Begin no more attempts."""
        self._stopping = True

    def kill(self) -> None:
        """Kill what runs."""
        self.scope.cancel("killed")
        if self._supervisor is not None:
            self._supervisor.ref.kill()

    async def _conduct(self) -> None:
        for agent in self._agents:
            agent.plan.locate()
        async with self._place() as place, trio.open_nursery() as nursery:
            feeds = tee(_checked(self._tasks), len(self._agents))
            for agent, feed in zip(self._agents, feeds, strict=True):
                nursery.start_soon(self._lane, place, agent, feed, nursery)
        if self._spent is not None:
            raise self._spent

    @asynccontextmanager
    async def _place(self) -> AsyncGenerator[AttemptPlace]:
        """Where attempts run: the tree, the store, and the folders."""
        options = self._options
        store: StoreBackend
        async with AsyncExitStack() as stack:
            if options.results is None:
                folder = Path(tempfile.mkdtemp(prefix="proctor-batch-"))
                stack.callback(partial(shutil.rmtree, folder, ignore_errors=True))
                store, recordings = MemoryStore(), None
            else:
                folder = options.results.with_name(f"{options.results.name}.state")
                make_directory(folder, parents=True, exist_ok=True)
                store, recordings = Store(folder / "store.db"), folder / "recordings"
            supervisor = await stack.enter_async_context(open_dynamic_supervisor(store=store, name="batch"))
            self._supervisor = supervisor
            # behind the lock of the store: another host may be writing before
            self._file.open()
            self._recall()
            yield AttemptPlace(
                tries=TryPlace(supervisor, store, recordings),
                work=folder / "work",
                retry=options.retry,
                keep=options.keep,
                chance=options.chance,
            )

    def _recall(self) -> None:
        """Count what earlier hosts have spent."""
        if self._spending is None:
            return
        kinds = {agent.name: kind_of(agent.plan) for agent in self._agents}
        results = self._file.kept.values()
        costs = [result.cost_usd for result in results]
        now = trio.current_time()
        self._spending.recall([(now, cost) for cost in costs if cost], costs.count(None), {})
        for result in results:
            for one in result.tries:
                if result.agent in kinds and one.outcome == "ok":
                    self._spending.learn(kinds[result.agent], one.cost_usd)

    async def _lane(
        self, place: AttemptPlace, agent: _Agent, feed: Iterator[BatchTask], nursery: trio.Nursery
    ) -> None:
        """Begin the attempts of one agent, one after the other, as there are places."""
        account = current_tree_limits().account(account_of(agent.plan))
        for task in feed:
            for repetition in range(1, self._options.repeat + 1):
                key = (task.id, agent.name, repetition)
                digest = _digest(task.digest, agent.digest)
                attempt = Attempt(place, key, task, agent.plan, agent.limits, digest)
                if (kept := self._file.find(key, digest)) is not None:
                    await attempt.clean_up(kept)  # a host that was killed may not have come to it
                    self.done, self.kept = self.done + 1, self.kept + 1
                    await self._send.send(kept)
                    continue
                token = object()
                await self._places.acquire_on_behalf_of(token)
                while agent.plan.conduct.park and (left := account.resets_in(trio.current_time())) > 0:
                    # its place goes to another agent meanwhile
                    self._places.release_on_behalf_of(token)
                    await trio.sleep(left)
                    await self._places.acquire_on_behalf_of(token)
                if self._stopping or self._spent is not None:
                    self._places.release_on_behalf_of(token)
                    return
                nursery.start_soon(self._attempt, attempt, token)

    async def _attempt(self, attempt: Attempt, token: object) -> None:
        self.running += 1
        try:
            result = await attempt.run()
            await self._file.append(result)
            await attempt.clean_up(result)
            self.done += 1
            self.cost_usd += result.cost_usd or 0.0
            await self._send.send(result)
        except BudgetExceeded as error:
            self._spent = error
        finally:
            self.running -= 1
            self._places.release_on_behalf_of(token)


class Batch:
    """The results of a batch, as they end; made by `batch`.

    `async for result in proctor.batch(...)` is the short form. Where the loop may be left early, `async with proctor.batch(...) as results:` around it
    waits for the stop of what runs; without it that goes on in the background, and ends before the event loop does.
    """

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._token: trio.lowlevel.TrioToken | None = None
        self._stack = AsyncExitStack()

    @property
    def progress(self) -> BatchProgress:
        """How far it is."""
        work = self._work
        return BatchProgress(work.done, work.kept, work.running, work.cost_usd)

    def stop(self) -> None:
        """Begin no more attempts; those that run go on to their end, and so does the iteration."""
        self._work.stop()

    def kill(self) -> None:
        """Kill what runs at once, without the stop sequences, and end."""
        self._work.kill()

    async def __aenter__(self) -> Self:
        self._begin()
        nursery = await self._stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(self._work.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._work.scope.cancel("the caller has left")
        # without the caller's own error, which leaves bare
        await self._stack.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BatchResult:
        """The next result. Raises, after the last: `BudgetExceeded` when the budget left attempts undone, `BadOption` for what is wrong with
        tasks or the file of results, `NotInstalled`, `StoreInUse`, and OSError when the disk does not take a result."""
        if self._token is None:
            self._begin()
            # no block of the caller's can own it; it ends with the last result, or when this object goes
            trio.lowlevel.spawn_system_task(self._work.run, name="a batch")  # noqa: TID251
        try:
            return await self._work.receive.receive()
        except trio.EndOfChannel:
            await self._work.over.wait()
        if self._work.error is not None:
            raise self._work.error
        raise StopAsyncIteration

    def _begin(self) -> None:
        if self._token is not None:
            raise RuntimeError("this batch has begun already; make another one")
        self._token = trio.lowlevel.current_trio_token()

    def __del__(self) -> None:
        if self._token is not None and not self._work.over.is_set():
            # by the token: the collector may run in any thread
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._work.scope.cancel)


def batch(
    tasks: Iterable[BatchTask],
    agents: ChildSpec | Plan | Sequence[ChildSpec | Plan],
    *,
    limit: int = LIMIT,
    repeat: int = 1,
    results: str | Path | None = None,
    budget: float | None = None,
    retry: Retry = RETRY,
    keep: Keep = "none",
    seed: int | None = None,
) -> Batch:
    """Give each of `tasks` to each of `agents`, `repeat` times, and iterate over the results as they end, at most `limit` at a time.

    `agents` are what `proctor.claude` and its like make; their names are those in the results. Each try has a process, a conversation and a workspace of its
    own; `retry` says which ends are tried again (at most three tries). `results` is a file of JSON Lines, to which each result is appended: what
    it has is handed out first and not run again, and what a killed program had in progress is gone on with. Without it nothing outlives the program.
    `budget` in US dollars: once it is spent no try begins. `keep` says which workspaces stay ("none", "failed", "all"; they need `results`). The same `seed`
    gives the same pauses between tries.

    Nothing starts before the first result is asked for. Raises `BadOption`.
    """
    check("limit", limit, COUNT)
    check("repeat", repeat, COUNT)
    check("budget", budget, attrs.evolve(DOLLARS, optional=True))
    check("results", results, attrs.evolve(PATH, optional=True))
    check("keep", keep, one_of(*get_args(Keep)))
    options = _Options(
        limit=limit,
        repeat=repeat,
        results=None if results is None else Path(results).expanduser().absolute(),
        budget=None if budget is None else float(budget),
        retry=retry,
        keep="none" if results is None else keep,
        chance=Random(seed),
    )
    several = [agents] if isinstance(agents, ChildSpec | Plan) else list(agents)
    return Batch(_Work(tasks, several, options))


def _agents_of(agents: Sequence[ChildSpec | Plan], spending: Spending | None) -> list[_Agent]:
    if not agents:
        raise BadOption("agents: name at least one")
    book, made = AccountBook(), dict[str, _Agent]()
    for agent in agents:
        plan = plan_of(agent)
        if plan.name in made:
            raise BadOption(f"agents: two are named {plan.name!r}: give each a name of its own")
        check("the name of an agent", plan.name, NAME)
        if plan.workplace.workspace == "worktree":
            raise BadOption(
                f"agent {plan.name!r}: leave workspace='worktree' out: a batch makes one for each try"
            )
        conduct = attrs.evolve(
            plan.conduct,
            # by its name here, because each try has another one
            account=account_of(plan),
            on_crash=plan.conduct.on_crash if "on_crash" in plan.given else "resume",
        )
        limits = SpendLimits(
            book,
            () if spending is None else (spending,),
            plan.name,
            kind=kind_of(plan),
            priced=plan.dialect.can("cost", None),
            most=plan.launch.max_budget_usd,
        )
        compared = [plan.dialect.name, *(getattr(plan.launch, name, None) for name in _COMPARED)]
        placed = attrs.evolve(plan, conduct=conduct)
        made[plan.name] = _Agent(plan.name, placed, limits, _digest(*map(repr, compared)))
    return list(made.values())


def _checked(tasks: Iterable[BatchTask]) -> Iterator[BatchTask]:
    seen = set[str]()
    for task in tasks:
        if not isinstance(task, BatchTask):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadOption(f"a task is a BatchTask, got {task!r:.200}")
        if task.id in seen:
            raise BadOption(f"two tasks have the id {task.id!r}: give each an id of its own")
        seen.add(task.id)
        yield task


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _bare(error: Exception) -> Exception:
    """The first error of a group: a reader can catch it by its type."""
    inner: Sequence[Exception] = getattr(error, "exceptions", ())
    return _bare(inner[0]) if inner else error
