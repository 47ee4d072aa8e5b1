"""A plan of `faults` carried out by the real runtime, and the laws that hold afterwards whatever was raised."""

from __future__ import annotations

import gc
import math
import sys
from collections import Counter
from typing import Any, cast

import attrs
import trio

from proctor.runtime import (
    Actor,
    AnySupervisor,
    ChildSpec,
    Continue,
    Crash,
    DeliveryError,
    Down,
    DynamicSupervisor,
    ExitReason,
    Killed,
    MaxRestartsExceeded,
    Probe,
    ProbeFailed,
    Ref,
    Shutdown,
    Sink,
    StartError,
    Stop,
    SupervisionError,
    Supervisor,
    TerminateTree,
    dynamic_supervisor_spec,
    link,
    open_supervisor,
    supervisor_spec,
)
from proctor.runtime.messaging.monitors import watch
from proctor.runtime.messaging.registry import Registry
from proctor.runtime.supervision.loop import SupervisorLoop
from proctor.testing import simulate
from tests.simulation.faults import FAULTS, REASONS, Branch, Deed, Grace, Leaf, Part, Plan

PATIENCE = 30
"""Seconds after the body is to be left: then the root is killed, because a clean-up may hang without limit."""

CAP = 1000
"""Seconds after which what goes on is said to hang."""


class Tally:
    """Counts the notices of one end."""

    def __init__(self) -> None:
        self.count = 0

    def deliver(self, down: Down) -> None:
        """One more."""
        self.count += 1


class Recording(Registry):
    """A registry that keeps every incarnation it ever saw, with a watch of its own on each."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[Ref, Tally] = {}
        self.names_used: set[str] = set()

    def register(self, name: str, ref: Ref) -> None:
        """Give `name` to a live actor."""
        self.names_used.add(name)
        self.observe(ref)
        super().register(name, ref)

    def observe(self, ref: Ref) -> None:
        """Watch its end."""
        if ref not in self.seen:
            self.seen[ref] = Tally()
            watch(self.seen[ref], ref, ref.endpoint)


@attrs.define
class Notes:
    """What happened inside the tree."""

    interrupts: list[BaseException] = attrs.field(factory=list[BaseException])
    ready: set[Ref] = attrs.field(factory=set[Ref])
    terminated: Counter[Ref] = attrs.field(factory=Counter[Ref])
    monitors: Counter[tuple[Ref, str]] = attrs.field(factory=Counter[tuple[Ref, str]])
    """How many monitors an actor has had on a place of the tree; two on one incarnation share their notice."""
    downs: Counter[tuple[Ref, Ref]] = attrs.field(factory=Counter[tuple[Ref, Ref]])
    """How many notices of each end came to an actor."""

    def fault(self, name: str) -> BaseException:
        """What is to be raised."""
        error = FAULTS[name]()
        self.interrupts += filter(is_interrupt, _leaves(error))
        return error


def is_interrupt(error: BaseException | None) -> bool:
    """Whether it asks for the end of the program."""
    return isinstance(error, KeyboardInterrupt | SystemExit)


def _leaves(error: BaseException | None) -> list[BaseException]:
    """Its exceptions that are no groups; a group that passes a scope of Trio's is another one of the same."""
    whole: object = error
    if isinstance(whole, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", whole)
        return [found for part in group.exceptions for found in _leaves(part)]
    return [] if error is None else [error]


class Faulty(Actor):
    """Lives as its `Leaf` says."""

    async def init(self, leaf: Leaf, notes: Notes) -> Continue:
        self.leaf, self.notes = leaf, notes
        self.is_faulty = self.incarnation <= leaf.faulty
        await _start(leaf, notes, self.is_faulty)
        if self.dies and leaf.end in ("nursery", "background"):
            nursery = self.nursery if leaf.end == "nursery" else self.background
            nursery.start_soon(self.fail)
        if leaf.left:
            self.kept.at_rest(self.fail_at_rest)
        notes.ready.add(self.ref)
        return Continue()

    @property
    def dies(self) -> bool:
        """Whether it ends by itself."""
        return self.is_faulty and self.leaf.lasts is not None

    async def fail(self) -> None:
        """Wait, and raise."""
        await trio.sleep(self.leaf.lasts or 0)
        raise self.notes.fault(self.leaf.fault)

    async def handle_continue(self, arg: object) -> Stop | None:
        if not self.dies or self.leaf.end in ("nursery", "background"):
            return None
        if self.leaf.end == "handler":
            await self.fail()
        await trio.sleep(self.leaf.lasts or 0)
        return Stop(Shutdown("enough")) if self.leaf.end == "stop" else Stop()

    def fail_at_rest(self) -> None:
        """Raise in the supervisor's task."""
        raise self.notes.fault(self.leaf.left)

    async def handle_call(self, msg: str, from_: object) -> None:
        raise self.notes.fault(msg)

    async def handle_stream(self, msg: str, sink: Sink) -> None:
        await sink.send(msg)
        sink.produce(self.handle_call, msg, None)

    async def handle_cast(self, msg: Any) -> None:
        if isinstance(msg, str):
            raise self.notes.fault(msg)
        self.notes.monitors[self.ref, msg.name.removeprefix("/")] += 1
        self.monitor(msg)

    async def handle_info(self, msg: Any) -> None:
        if isinstance(msg, Down) and isinstance(msg.ref, Ref):  # else there was no incarnation to end
            self.notes.downs[self.ref, msg.ref] += 1

    async def terminate(self, reason: ExitReason) -> None:
        self.notes.terminated[self.ref] += 1
        await _clean_up(self.leaf, self.notes)


async def faulty(leaf: Leaf, notes: Notes, *, task_status: Any) -> None:
    """A function that lives as its `Leaf` says."""
    is_faulty = task_status.number <= leaf.faulty
    await _start(leaf, notes, is_faulty)
    task_status.started()
    try:
        await trio.sleep(math.inf if not is_faulty or leaf.lasts is None else leaf.lasts)
    finally:
        if leaf.cleanup in ("slow", "shielded"):
            await _clean_up(attrs.evolve(leaf, cleanup="shielded"), notes)
    if leaf.end != "returns":
        raise notes.fault(leaf.fault)


async def _start(leaf: Leaf, notes: Notes, is_faulty: bool) -> None:
    if leaf.after:
        await trio.sleep(leaf.after)
    if is_faulty and leaf.start == "hangs":
        await trio.sleep_forever()
    if is_faulty and leaf.start:
        raise notes.fault(leaf.start)


async def _clean_up(leaf: Leaf, notes: Notes) -> None:
    if leaf.cleanup == "hangs":
        await trio.sleep_forever()
    with trio.CancelScope(shield=leaf.cleanup == "shielded"):
        if leaf.cleanup:
            await trio.sleep(2)
    if leaf.spoiled:
        raise notes.fault(leaf.spoiled)


def _spec(part: Part, notes: Notes) -> ChildSpec:
    fields: dict[str, Any] = {"restart": part.restart, "significant": part.is_significant}
    if part.shutdown is not None:
        fields["shutdown"] = _grace(part.shutdown)
    if isinstance(part, Leaf):
        start = faulty if part.is_function else Faulty
        fields["probe"] = _probe(part, notes)
        return ChildSpec(part.id, start, (part, notes), name=part.id if part.is_named else None, **fields)
    if part.is_dynamic:
        return dynamic_supervisor_spec(part.id, intensity=part.intensity, period=99, **fields)
    fields["start_timeout"] = part.start_timeout
    return supervisor_spec(part.id, _children(part, notes), **_flags(part), **fields)


def _probe(leaf: Leaf, notes: Notes) -> Probe | None:
    async def check() -> None:
        raise notes.fault(leaf.probe)

    return Probe(check=check, period=2, timeout=1, failures=2) if leaf.probe else None


def _grace(shutdown: Grace) -> float | str | None:
    return math.inf if shutdown == 99 else shutdown


def _children(part: Branch, notes: Notes) -> Any:
    specs = [_spec(child, notes) for child in part.children]
    if part.set_up is None:
        return specs
    wait = part.set_up

    async def set_up() -> list[ChildSpec]:
        with trio.CancelScope(shield=bool(wait)):
            await trio.sleep(wait)
        return specs

    return set_up


def _flags(part: Branch) -> dict[str, Any]:
    return {
        "strategy": part.strategy,
        "intensity": part.intensity,
        "period": 99,
        "auto_shutdown": part.auto_shutdown,
    }


def _may_be_killed(reason: ExitReason | None) -> bool:
    failed_probe = isinstance(reason, Crash) and isinstance(
        reason.error, ProbeFailed
    )  # the reason in any case (X7)
    return failed_probe or isinstance(reason, Killed | None)


class Trial:
    """One plan, carried out once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._notes = Notes()
        self._registry = Recording()
        self._root: Supervisor
        self._with, self._over = trio.CancelScope(), trio.Event()
        self._body_error: BaseException | None = None
        self._outcome: BaseException | None = None
        self._broken: list[str] = []

    @property
    def sights(self) -> set[str]:
        """What came out of the root, and how children ended."""
        came = "cancelled" if self._with.cancelled_caught else type(self._outcome).__name__
        return {f"root: {came}", *(_how(ref.exit_reason) for ref in self._registry.seen)}

    async def run(self) -> list[str]:
        """The laws that were broken."""
        before = trio.lowlevel.current_statistics().tasks_living
        async with trio.open_nursery() as guarding:
            guarding.start_soon(self._guard, guarding.cancel_scope)
            async with trio.open_nursery() as nursery:
                for deed in self._plan.deeds:
                    nursery.start_soon(self._perform, deed)
                nursery.start_soon(self._end_it)
                await self._supervise()
                nursery.cancel_scope.deadline = trio.current_time() + 1
            guarding.cancel_scope.cancel()
        left = trio.lowlevel.current_statistics().tasks_living - before
        return self._broken + ([f"{left} tasks are left"] if left else []) + self._judge()

    async def _guard(self, everything: trio.CancelScope) -> None:
        await trio.sleep(CAP)
        alive = [ref.path for ref in self._registry.seen if ref.exit_reason is None]
        self._broken.append(f"hangs, never closed: {alive}")
        everything.cancel()
        for found in gc.get_objects():  # nothing else ends what hangs behind a shield
            if isinstance(found, trio.CancelScope) and found.shield:
                found.shield = False

    async def _end_it(self) -> None:
        await trio.sleep(self._plan.leave)
        self._over.set()
        await trio.sleep(PATIENCE)
        self._root.ref.kill()

    async def _supervise(self) -> None:
        root = self._plan.root
        specs = [_spec(child, self._notes) for child in root.children]
        opened = open_supervisor(specs, handle=self._handle, **_flags(root))
        try:
            with self._with:
                async with opened:
                    await self._over.wait()
                    if self._body_error is not None:
                        raise self._body_error
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001  # judged when all is over
            self._outcome = error

    def _handle(self, loop: SupervisorLoop) -> Supervisor:
        loop.system.registry = self._registry
        self._registry.observe(loop.ref)
        self._root = Supervisor(loop)
        return self._root

    async def _perform(self, deed: Deed) -> None:
        await trio.sleep(deed.at)
        try:
            await self._do(deed)
        except (SupervisionError, DeliveryError):
            return

    async def _do(self, deed: Deed) -> None:
        name = self._root.child(deed.path) if deed.path else self._root.name("/" + self._root.path)
        target = name if deed.path else self._root.ref
        match deed.do:
            case "exit":
                target.exit(REASONS[deed.word])
            case "kill":
                target.kill()
            case "cancel":
                self._with.cancel()
            case "leave":
                self._over.set()
            case "raise":
                if not self._over.is_set():
                    self._body_error = FAULTS[deed.word]()
                    self._over.set()
            case "cast":
                await target.cast(deed.word)
            case "call":
                await target.call(deed.word)
            case "stream":
                async with target.stream(deed.word) as items:
                    async for _ in items:
                        pass
            case "link":
                link(target, self._root.child(deed.word))
            case "watch":
                await target.cast(self._root.child(deed.word))
            case "monitor":
                await target.monitor()
            case "wait_out":
                await name.wait_out()
            case _:
                await self._request(deed)

    async def _request(self, deed: Deed) -> None:
        if deed.do in ("stop", "start"):
            under = self._root.supervisor(deed.path, AnySupervisor) if deed.path else self._root
            if deed.do == "stop":
                await under.stop(REASONS[deed.word])
            elif isinstance(under, Supervisor | DynamicSupervisor) and deed.child is not None:
                await under.start_child(_spec(deed.child, self._notes))
            return
        above, _, id = deed.path.rpartition("/")
        parent = self._root.supervisor(above, AnySupervisor) if above else self._root
        if isinstance(parent, Supervisor):
            await (parent.terminate_child(id) if deed.do == "terminate" else parent.restart_child(id))

    def _judge(self) -> list[str]:
        registry = self._registry
        broken = [f"{ref.path} never closed" for ref in registry.seen if ref.exit_reason is None]
        broken += [f"{r.path}: told {t.count} times" for r, t in registry.seen.items() if t.count != 1]
        broken += [f"the name {name!r} is held" for name in registry.names_used if registry.whereis(name)]
        broken += [f"the name {name!r} is due" for name in registry.names_used if registry.is_due(name)]
        broken += [
            f"{ended}: one notice came twice"
            for (watcher, ended), count in self._notes.downs.items()
            if count > self._notes.monitors[watcher, ended.path]
        ]
        return broken + self._judge_terminate() + self._judge_outcome()

    def _judge_terminate(self) -> list[str]:
        counts = self._notes.terminated
        broken = [f"{ref.path}: terminated {n} times" for ref, n in counts.items() if n > 1]
        owed = (ref for ref in self._notes.ready if not _may_be_killed(ref.exit_reason))
        return broken + [f"{ref.path}: no terminate ({ref.exit_reason})" for ref in owed if not counts[ref]]

    def _judge_outcome(self) -> list[str]:
        outcome = self._outcome
        raised = self._notes.interrupts
        interrupts = [*raised, *(error for error in _leaves(self._body_error) if is_interrupt(error))]
        if raised or is_interrupt(outcome):
            is_allowed = any(outcome is error for error in interrupts)
        elif outcome is None or isinstance(outcome, StartError | MaxRestartsExceeded | TerminateTree):
            is_allowed = True
        else:
            is_allowed = _leaves(outcome) == _leaves(self._body_error)
        return [] if is_allowed else [f"came out: {outcome!r}"]


def _how(reason: ExitReason | None) -> str:
    return type(reason.error if isinstance(reason, Crash) else reason).__name__


def broken_laws(plan: Plan, sights: set[str] | None = None) -> list[str]:
    """What is not as it should be after a plan was carried out; complaints of the interpreter are among it."""
    trial = Trial(plan)
    complaints: list[str] = []

    def complain(found: sys.UnraisableHookArgs) -> None:
        complaints.append(repr(found.exc_value))

    before, sys.unraisablehook = sys.unraisablehook, complain
    try:
        return simulate(trial.run, seed=plan.seed) + complaints
    except Exception as error:  # noqa: BLE001  # whatever else comes out of a run
        return [f"the run raised {error!r}"]
    finally:
        sys.unraisablehook = before
        if sights is not None:
            sights |= trial.sights
