"""proctor for asyncio programs: supervisors, and the actors below them.

Written by `python -m tests.faces` from the names of `proctor`; see docs/reference/faces.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from proctor.actors.agent.handle import Agent as _Agent
from proctor.actors.plan.budgets import Budget
from proctor.actors.specs import DynamicSupervisor as _DynamicSupervisor
from proctor.actors.specs import Supervisor as _Supervisor
from proctor.actors.specs import open_dynamic_supervisor as _open_dynamic_supervisor
from proctor.actors.specs import open_supervisor as _open_supervisor
from proctor.actors.store.backend import StoreBackend
from proctor.aio.agents import Agent
from proctor.bridge.adapters import entered
from proctor.bridge.asyncio_face import Block, Stream, call, call_plain
from proctor.bridge.proxies import Proxy
from proctor.runtime.addresses import AnyRef
from proctor.runtime.events import EventKind, LateStop, SupervisorEvent
from proctor.runtime.exits import ExitReason
from proctor.runtime.messaging import ChildCounts, ChildInfo, Down, TreeNode
from proctor.runtime.messaging import Monitor as _Monitor
from proctor.runtime.messaging import Name as _Name
from proctor.runtime.messaging import Ref as _Ref
from proctor.runtime.messaging import Request as _Request
from proctor.runtime.spec import AutoShutdown, ChildSpec, GiveUp, StopOrder, Strategy
from proctor.runtime.supervision import DynamicSupervisor as AnyDynamic


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
    seed: int | None = None,
    budget: Budget | None = None,
    stagger: float = 0.0,
    store: StoreBackend | None = None,
) -> Block[Supervisor]:
    """Start `children`, agents beside each other and others in order, supervise them until the block is left, then stop them in reverse order, or all together where `stop_order` is "parallel"."""
    return Block(
        None,
        Supervisor.around,
        _open_supervisor,
        children,
        strategy=strategy,
        intensity=intensity,
        period=period,
        auto_shutdown=auto_shutdown,
        stop_order=stop_order,
        give_up=give_up,
        name=name,
        seed=seed,
        budget=budget,
        stagger=stagger,
        store=store,
    )


def open_dynamic_supervisor(
    *,
    max_children: int | None = None,
    extra_arguments: Iterable[Any] = (),
    intensity: int = 1,
    period: float = 5.0,
    name: str | None = None,
    seed: int | None = None,
    budget: Budget | None = None,
    stagger: float = 0.0,
    store: StoreBackend | None = None,
) -> Block[DynamicSupervisor]:
    """A supervisor of children that come and go; they are stopped together when the block is left."""
    return Block(
        None,
        DynamicSupervisor.around,
        _open_dynamic_supervisor,
        max_children=max_children,
        extra_arguments=extra_arguments,
        intensity=intensity,
        period=period,
        name=name,
        seed=seed,
        budget=budget,
        stagger=stagger,
        store=store,
    )


class Ref(Proxy[_Ref]):
    """The address of one incarnation; a restart makes another `Ref`."""

    @property
    def path(self) -> str:
        """Its place in the tree, as in `fleet/fixers/fixer`."""
        value: str = self._target.path
        return value

    @property
    def exit_reason(self) -> ExitReason | None:
        """Why it ended; `None` as long as it lives."""
        value: ExitReason | None = self._target.exit_reason
        return value

    @property
    def info(self) -> object:
        """The value that its start gave to `task_status.started(info)`."""
        value: object = self._target.info
        return value

    async def is_alive(self) -> bool:
        """Whether an actor is there now."""
        result: bool = await call_plain(self._thread, self._target.is_alive)
        return result

    async def call(self, msg: object, timeout: float | None = 5.0, *, wait_for: float | None = None) -> Any:
        """Send `msg` and wait for the answer, at most `timeout` seconds; `None` waits without limit."""
        result: Any = await call(self._thread, self._target.call, msg, timeout, wait_for=wait_for)
        return result

    async def until_found(self) -> None:
        """Wait until there is one that takes messages; an incarnation that stopped doing so never does again."""
        await call(self._thread, self._target.until_found)

    async def send_request(self, msg: object, timeout: float | None = None) -> Request:
        """Send `msg` and return at once; the `Request` waits for the answer."""
        return Request.around(
            await call_plain(self._thread, self._target.send_request, msg, timeout), self._thread
        )

    async def cast(self, msg: object) -> None:
        """Queue `msg` and return."""
        await call(self._thread, self._target.cast, msg)

    async def cast_nowait(self, msg: object) -> None:
        """`cast` that never waits: raises `MailboxFull` where that would wait for room."""
        await call_plain(self._thread, self._target.cast_nowait, msg)

    async def exit(self, reason: ExitReason) -> None:
        """Ask the incarnation to end with `reason`; `Normal` does nothing, `Killed` kills."""
        await call_plain(self._thread, self._target.exit, reason)

    async def kill(self) -> None:
        """End the incarnation by force, without its `terminate`."""
        await call_plain(self._thread, self._target.kill)

    def stream(self, msg: object, demand: int = 64) -> Block[Stream[Any]]:
        """Ask for a stream: a block that gives its items."""
        return Block(self._thread, Stream[Any].around, self._target.stream, msg, demand)

    def monitor(self) -> Block[Monitor]:
        """Watch the incarnation that stands here now, for the length of a block."""
        return Block(self._thread, Monitor.around, entered, self._target.monitor)


class Name(Proxy[_Name]):
    """The actor that holds a name, or that stands at a place of the tree (`/` and its path); looked up at each use."""

    async def wait(self, timeout: float | None = None) -> Ref:
        """Wait, at most `timeout` seconds, for one that takes messages, due or not."""
        return Ref.around(await call(self._thread, self._target.wait, timeout), self._thread)

    async def until_found(self) -> None:
        """Wait until one that takes messages stands there."""
        await call(self._thread, self._target.until_found)

    async def is_alive(self) -> bool:
        """Whether an actor is there now."""
        result: bool = await call_plain(self._thread, self._target.is_alive)
        return result

    async def call(self, msg: object, timeout: float | None = 5.0, *, wait_for: float | None = None) -> Any:
        """Send `msg` and wait for the answer, at most `timeout` seconds; `None` waits without limit."""
        result: Any = await call(self._thread, self._target.call, msg, timeout, wait_for=wait_for)
        return result

    async def send_request(self, msg: object, timeout: float | None = None) -> Request:
        """Send `msg` and return at once; the `Request` waits for the answer."""
        return Request.around(
            await call_plain(self._thread, self._target.send_request, msg, timeout), self._thread
        )

    async def cast(self, msg: object) -> None:
        """Queue `msg` and return."""
        await call(self._thread, self._target.cast, msg)

    async def cast_nowait(self, msg: object) -> None:
        """`cast` that never waits: raises `MailboxFull` where that would wait for room."""
        await call_plain(self._thread, self._target.cast_nowait, msg)

    async def exit(self, reason: ExitReason) -> None:
        """Ask the incarnation to end with `reason`; `Normal` does nothing, `Killed` kills."""
        await call_plain(self._thread, self._target.exit, reason)

    async def kill(self) -> None:
        """End the incarnation by force, without its `terminate`."""
        await call_plain(self._thread, self._target.kill)

    def stream(self, msg: object, demand: int = 64) -> Block[Stream[Any]]:
        """Ask for a stream: a block that gives its items."""
        return Block(self._thread, Stream[Any].around, self._target.stream, msg, demand)

    def monitor(self) -> Block[Monitor]:
        """Watch the incarnation that stands here now, for the length of a block."""
        return Block(self._thread, Monitor.around, entered, self._target.monitor)


class Monitor(Proxy[_Monitor]):
    """Waits for the end of one incarnation: `down = await monitor`, any number of times, by any task."""

    @property
    def down(self) -> Down | None:
        """See `Monitor`."""
        value: Down | None = self._target.down
        return value

    async def wait(self) -> Down:
        """Wait for the end; returns at once if it has come."""
        result: Down = await call(self._thread, self._target.wait)
        return result


class Request(Proxy[_Request]):
    """A question under way, made by `send_request`."""

    async def wait(self, timeout: float | None = None) -> Any:
        """The answer, waited for at most `timeout` seconds, any number of times."""
        result: Any = await call(self._thread, self._target.wait, timeout)
        return result

    async def receive(self, timeout: float | None = None) -> Any:
        """`wait`, for the last time: without an answer the request is abandoned."""
        result: Any = await call(self._thread, self._target.receive, timeout)
        return result

    async def result(self) -> Any:
        """Its result, returned or raised."""
        result: Any = await call_plain(self._thread, self._target.result)
        return result

    async def abandon(self) -> None:
        """Stop waiting for the answer; nothing happens if there is one."""
        await call_plain(self._thread, self._target.abandon)


class Supervisor(Proxy[_Supervisor]):
    """A supervisor whose children can be agents, at any depth below it."""

    async def start_child(self, spec: ChildSpec) -> Ref:
        """Start a child and hold its spec; of a start that ignores, the `Ref` has ended already."""
        return Ref.around(await call(self._thread, self._target.start_child, spec), self._thread)

    async def terminate_child(self, id: str) -> tuple[LateStop, ...]:
        """Stop a child and keep its spec, a temporary one's excepted."""
        result: tuple[LateStop, ...] = await call(self._thread, self._target.terminate_child, id)
        return result

    async def restart_child(self, id: str) -> Ref:
        """Start a child that is down."""
        return Ref.around(await call(self._thread, self._target.restart_child, id), self._thread)

    async def forget_restarts(self, id: str) -> None:
        """Count the restarts of a child anew, and carry out one that waits for its time now."""
        await call(self._thread, self._target.forget_restarts, id)

    async def delete_child(self, id: str) -> None:
        """Forget a child that is down."""
        await call(self._thread, self._target.delete_child, id)

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
        """Go on with other values of the flags that are passed, and other specs of `children`, known by their ids."""
        await call(
            self._thread,
            self._target.change,
            children,
            strategy=strategy,
            intensity=intensity,
            period=period,
            auto_shutdown=auto_shutdown,
            stop_order=stop_order,
            give_up=give_up,
        )

    async def get_childspec(self, id: str) -> ChildSpec:
        """The spec as held, with defaults filled in."""
        result: ChildSpec = await call(self._thread, self._target.get_childspec, id)
        return result

    @property
    def ref(self) -> Ref:
        """The supervisor as an actor: to monitor, to end."""
        value: Ref = Ref.around(self._target.ref, self._thread)
        return value

    @property
    def path(self) -> str:
        """Its path in the tree."""
        value: str = self._target.path
        return value

    async def which_children(self) -> tuple[ChildInfo, ...]:
        """`(id, ref | None | "restarting", type)` of each held spec, in start order."""
        result: tuple[ChildInfo, ...] = await call(self._thread, self._target.which_children)
        return result

    async def count_children(self) -> ChildCounts:
        """Count the specs that are held and the children that live."""
        result: ChildCounts = await call(self._thread, self._target.count_children)
        return result

    def name(self, name: str) -> Name:
        """The holder of `name` in this tree, looked up at each use."""
        return Name.around(self._target.name(name), self._thread)

    def child(self, path: str) -> Name:
        """The child at `path` below this supervisor, as in `fixers/fixer`; looked up at each use."""
        return Name.around(self._target.child(path), self._thread)

    async def tree(self) -> TreeNode:
        """This supervisor and all below it, as they are now."""
        result: TreeNode = await call_plain(self._thread, self._target.tree)
        return result

    async def stop(self, reason: ExitReason | None = None) -> tuple[LateStop, ...]:
        """Stop this supervisor and all below it, in order, and wait for that: what did not end in time."""
        result: tuple[LateStop, ...] = await call(self._thread, self._target.stop, reason)
        return result

    async def wait_stopped(self) -> ExitReason:
        """Wait until it and all below it have ended: why."""
        result: ExitReason = await call(self._thread, self._target.wait_stopped)
        return result

    async def wait_ready(self) -> None:
        """Wait until it serves: at once, when it is ready, or after its restart."""
        await call(self._thread, self._target.wait_ready)

    def agent(self, name: str) -> Agent:
        """The agent of this name; follows its restarts. Looking up does not check that it is there: a call does."""
        return Agent.around(_Agent(name, self._target.name(name)), self._thread)

    async def supervisor(self, path: str) -> Supervisor:
        """The handle on a supervisor below this one, which follows its restarts. Raises `NoProc` where none runs now."""
        found: Any = await call_plain(self._thread, self._target.supervisor, path)
        return Supervisor.around(found, self._thread)

    async def dynamic_supervisor(self, path: str) -> DynamicSupervisor:
        """The same for one that is dynamic."""
        found: Any = await call_plain(self._thread, self._target.supervisor, path, AnyDynamic)
        return DynamicSupervisor.around(found, self._thread)

    def events(
        self, buffer: int = 1000, kinds: Iterable[EventKind] | None = None
    ) -> Block[Stream[SupervisorEvent]]:
        """The events of the whole tree for the length of a block; holds at most `buffer`, then drops the oldest."""
        return Block(
            self._thread, Stream[SupervisorEvent].around, entered, self._target.events, buffer, kinds
        )

    @property
    def late(self) -> tuple[LateStop, ...]:
        """Children that did not end in time when this supervisor stopped."""
        return self._target.late


class DynamicSupervisor(Proxy[_DynamicSupervisor]):
    """A supervisor of children that come and go, agents among them."""

    async def start_child(self, spec: ChildSpec) -> Ref:
        """Start a child, of any id; of a start that ignores, the `Ref` has ended already."""
        return Ref.around(await call(self._thread, self._target.start_child, spec), self._thread)

    async def terminate_child(self, ref: AnyRef) -> tuple[LateStop, ...]:
        """Stop the child whose last incarnation is `ref`, also while it is restarting, and forget it."""
        result: tuple[LateStop, ...] = await call(self._thread, self._target.terminate_child, ref)
        return result

    async def change(
        self,
        *,
        max_children: int | Literal["as it is"] | None = "as it is",
        intensity: int | None = None,
        period: float | None = None,
    ) -> None:
        """Go on with other values of the flags that are passed; `max_children=None` sets no limit any more."""
        await call(
            self._thread, self._target.change, max_children=max_children, intensity=intensity, period=period
        )

    @property
    def ref(self) -> Ref:
        """The supervisor as an actor: to monitor, to end."""
        value: Ref = Ref.around(self._target.ref, self._thread)
        return value

    @property
    def path(self) -> str:
        """Its path in the tree."""
        value: str = self._target.path
        return value

    async def which_children(self) -> tuple[ChildInfo, ...]:
        """`(id, ref | None | "restarting", type)` of each held spec, in start order."""
        result: tuple[ChildInfo, ...] = await call(self._thread, self._target.which_children)
        return result

    async def count_children(self) -> ChildCounts:
        """Count the specs that are held and the children that live."""
        result: ChildCounts = await call(self._thread, self._target.count_children)
        return result

    def name(self, name: str) -> Name:
        """The holder of `name` in this tree, looked up at each use."""
        return Name.around(self._target.name(name), self._thread)

    def child(self, path: str) -> Name:
        """The child at `path` below this supervisor, as in `fixers/fixer`; looked up at each use."""
        return Name.around(self._target.child(path), self._thread)

    async def tree(self) -> TreeNode:
        """This supervisor and all below it, as they are now."""
        result: TreeNode = await call_plain(self._thread, self._target.tree)
        return result

    async def stop(self, reason: ExitReason | None = None) -> tuple[LateStop, ...]:
        """Stop this supervisor and all below it, in order, and wait for that: what did not end in time."""
        result: tuple[LateStop, ...] = await call(self._thread, self._target.stop, reason)
        return result

    async def wait_stopped(self) -> ExitReason:
        """Wait until it and all below it have ended: why."""
        result: ExitReason = await call(self._thread, self._target.wait_stopped)
        return result

    async def wait_ready(self) -> None:
        """Wait until it serves: at once, when it is ready, or after its restart."""
        await call(self._thread, self._target.wait_ready)

    def agent(self, name: str) -> Agent:
        """The agent of this name; follows its restarts. Looking up does not check that it is there: a call does."""
        return Agent.around(_Agent(name, self._target.name(name)), self._thread)

    async def supervisor(self, path: str) -> Supervisor:
        """The handle on a supervisor below this one, which follows its restarts. Raises `NoProc` where none runs now."""
        found: Any = await call_plain(self._thread, self._target.supervisor, path)
        return Supervisor.around(found, self._thread)

    async def dynamic_supervisor(self, path: str) -> DynamicSupervisor:
        """The same for one that is dynamic."""
        found: Any = await call_plain(self._thread, self._target.supervisor, path, AnyDynamic)
        return DynamicSupervisor.around(found, self._thread)

    def events(
        self, buffer: int = 1000, kinds: Iterable[EventKind] | None = None
    ) -> Block[Stream[SupervisorEvent]]:
        """The events of the whole tree for the length of a block; holds at most `buffer`, then drops the oldest."""
        return Block(
            self._thread, Stream[SupervisorEvent].around, entered, self._target.events, buffer, kinds
        )

    @property
    def late(self) -> tuple[LateStop, ...]:
        """Children that did not end in time when this supervisor stopped."""
        return self._target.late
