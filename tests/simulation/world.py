"""The story of a program by the real runtime, on a virtual clock."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs
import trio

from proctor.runtime import (
    ActorExited,
    AlreadyPresent,
    AnyRef,
    AnySupervisor,
    Backoff,
    ChildSpec,
    DeliveryError,
    DynamicSupervisor,
    ExitReason,
    Killed,
    MaxRestartsExceeded,
    Ref,
    Shutdown,
    StartError,
    Subscription,
    SupervisionError,
    Supervisor,
    SupervisorEvent,
    TreeNode,
    dynamic_supervisor_spec,
    events,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.decide import RESTARTS, RestartTable, exit_class
from proctor.runtime.supervision.loop import SupervisorLoop
from proctor.testing import simulate
from tests.simulation.players import Boom, Played, stubborn
from tests.simulation.program import Delays, Node, Op, Pool, Program, Tree, Worker, written
from tests.simulation.story import Answer, Result, Story, Told

CAP = 2.0**13
"""Virtual seconds after which a run that goes on is said to hang."""


def _spec(program: Program, node: Node, path: str) -> ChildSpec:
    path = f"{path}/{node.id}"
    shutdown, limit = node.shutdown, node.start_timeout
    fields: dict[str, Any] = {
        "restart": node.restart,
        "shutdown": shutdown
        if not shutdown or isinstance(shutdown, str)
        else program.specified(shutdown, path, "grace"),
        "significant": node.significant,
        "name": node.name,
        "start_order": "parallel" if node.parallel else "sequential",
        "start_timeout": None if limit is None else program.specified(limit, path, "timeout"),
        "backoff": None if node.backoff is None else _backoff(program, node.backoff, path),
    }
    if isinstance(node, Worker):
        return ChildSpec(node.id, stubborn if node.stubborn else Played, (program, node), **fields)
    if isinstance(node, Pool):
        return dynamic_supervisor_spec(
            node.id, max_children=node.max_children, **_flags(program, node, path), **fields
        )
    return supervisor_spec(node.id, _specs(program, node, path), **_flags(program, node, path), **fields)


def _specs(program: Program, tree: Tree, path: str) -> list[ChildSpec]:
    return [_spec(program, child, path) for child in tree.children]


def _backoff(program: Program, delays: Delays, path: str) -> Backoff:
    reset = delays.reset_after
    return Backoff(
        min_delay=program.specified(delays.least, path, "delay"),
        max_delay=program.specified(delays.most, path, "delay"),
        factor=delays.factor,
        jitter=delays.jitter,
        reset_after=None if reset is None else program.specified(reset, path, "reset"),
        max_in_row=delays.max_in_row,
    )


def _flags(program: Program, tree: Tree | Pool, path: str) -> dict[str, Any]:
    flags: dict[str, Any] = {
        "intensity": tree.intensity,
        "period": program.specified(tree.period, path, "period"),
        "auto_shutdown": tree.auto_shutdown,
    }
    return flags if isinstance(tree, Pool) else {**flags, "strategy": tree.strategy}


class World:
    """One run of one program."""

    def __init__(self, program: Program, restarts: RestartTable) -> None:
        self._program, self._restarts = program, restarts
        self._story = Story()
        self._over, self._how = trio.Event(), ""
        self._with = trio.CancelScope()
        self._root: Supervisor
        self._events: Subscription
        self._refs: dict[str, AnyRef] = {}

    async def run(self) -> Story:
        """The whole story. Raises `InvalidSpec` for a program that makes no sense."""
        program, root = self._program, self._program.root
        opened = open_supervisor(
            _specs(program, root, "root"),
            handle=self._handle,
            restarts=self._restarts,
            seed=program.seed,
            **_flags(program, root, "root"),
        )
        with trio.move_on_after(CAP) as cap:
            await self._play(opened)
        if cap.cancelled_caught:
            self._story.outcome = self._answer("hangs")
        self._listen()
        return self._story

    async def _play(self, opened: AbstractAsyncContextManager[Supervisor]) -> None:
        async with trio.open_nursery() as nursery:
            for number, op in enumerate(self._program.script()):
                nursery.start_soon(self._perform, number, op)
            self._story.outcome = self._answer(await self._supervise(opened))

    def _answer(self, result: Result) -> Answer:
        return Answer(trio.current_time(), result)

    async def _supervise(self, opened: AbstractAsyncContextManager[Supervisor]) -> str:
        try:
            with self._with:
                async with opened:
                    await self._body()
        except (MaxRestartsExceeded, StartError, Boom) as error:
            return _raised(error)
        except KeyboardInterrupt:
            return "interrupted"
        return "cancelled" if self._with.cancelled_caught else "clean"

    def _handle(self, loop: SupervisorLoop) -> Supervisor:
        self._root = Supervisor(loop)
        self._events = self._root.events(buffer=100_000)
        return self._root

    def _listen(self) -> None:
        """Take what was told, and keep whom each path last had."""
        while True:
            try:
                event = self._events.receive_nowait()
            except trio.WouldBlock:
                return
            self._story.events.append(_told(event))
            if isinstance(event, events.ChildStarted):
                self._refs[event.path] = event.ref

    async def _body(self) -> None:
        await trio.sleep(self._program.moment(0, "settling"))
        await self._over.wait()
        if self._how == "raise":
            raise Boom("body")

    async def _perform(self, number: int, op: Op) -> None:
        await trio.sleep_until(self._program.moment(op.at, "op", number))
        try:
            result = await self._act(op)
        except (SupervisionError, DeliveryError) as error:
            result = _refusal(error)
        self._story.answers[number] = self._answer(result)

    async def _act(self, op: Op) -> Result:
        if op.do == "look":
            tree = self._root.tree()
            return (tree.state, _nodes(tree))
        if op.do in ("exit", "kill"):
            target = self._root.child(op.path) if op.path else self._root.ref
            target.exit(Killed() if op.do == "kill" else Shutdown())
        elif op.do == "cancel":
            self._with.cancel()
        elif op.do in ("leave", "raise"):
            self._how = self._how or op.do
            self._over.set()
        else:
            return await self._request(op)
        return "ok"

    async def _request(self, op: Op) -> Result:
        under = self._root.supervisor(op.supervisor, AnySupervisor) if op.supervisor else self._root
        if op.do == "which":
            return tuple((info.id, _who(info.ref), info.type) for info in await under.which_children())
        if op.do == "count":
            return attrs.astuple(await under.count_children())
        assert isinstance(under, Supervisor | DynamicSupervisor)
        if op.do == "start":
            assert op.child is not None
            await under.start_child(_spec(self._program, op.child, under.path))
        elif isinstance(under, DynamicSupervisor):
            return await self._end_dynamic(op, under)
        else:
            calls = {
                "terminate": under.terminate_child,
                "restart": under.restart_child,
                "delete": under.delete_child,
            }
            await calls[op.do](op.id)
        return "ok"

    async def _end_dynamic(self, op: Op, under: DynamicSupervisor) -> Result:
        if op.do != "terminate":
            return "no such request"  # S66
        self._listen()
        await under.terminate_child(self._refs.get(f"{under.path}/{op.id}", self._root.ref))
        return "ok"


def _who(ref: Ref | str | None) -> Result:
    if ref is None or isinstance(ref, str):
        return ref
    assert isinstance(ref.endpoint.control, Incarnation)
    return ref.endpoint.control.number


def _nodes(tree: TreeNode) -> Result:
    return tuple((n.id, n.state, n.incarnation, n.restarts, _class(n.exit), _nodes(n)) for n in tree.children)


def _class(reason: ExitReason | None) -> str:
    return "-" if reason is None else exit_class(reason)


def _raised(error: BaseException) -> str:
    if isinstance(error, MaxRestartsExceeded):
        return f"gave up {len(error.exceptions)}"
    return "raised" if isinstance(error, Boom) else _refusal(error)


def _refusal(error: BaseException) -> str:
    kind = type(error).__name__
    match error:
        case StartError():
            return f"{kind} {error.id} {_class(error.reason)}"
        case ActorExited():
            return f"{kind} {_class(error.reason)}"
        case AlreadyPresent():
            return f"{kind} {error.id}"
        case _:
            pass
    return kind


def _told(event: SupervisorEvent) -> Told:
    detail = _class(getattr(event, "reason", None)).removeprefix("-")
    match event:
        case events.ChildStarted():
            detail = str(event.incarnation)
        case events.ChildRestarting():
            detail = f"{event.attempt} {event.delay:.6f} {detail}"
        case events.MaxRestarts():
            detail = f"{event.id} {detail}"
        case _:
            pass
    return Told(event.time, event.kind, event.path, detail)


def happened(program: Program, restarts: RestartTable = RESTARTS) -> Story:
    """The story of a program by the real runtime. An error of the runtime's own says with which program."""
    try:
        return simulate(World(program, restarts).run, seed=program.seed)
    except Exception as error:
        error.add_note(written(program))
        raise
