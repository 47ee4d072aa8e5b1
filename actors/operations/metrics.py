"""Metrics of a running tree, counted from the events of its agents and supervisors.

One task for each agent reads its log in batches. Most events are counted by kind; only the ends of turns and processes,
notices and retries are inspected. Supervisor events give the restarts, and the agents report their status on request.

Nothing here delays an agent, its log or a supervisor. A reader that falls behind the window of a log skips events instead of
reading the disk, and an agent that does not reply keeps its last status; `dropped` counts both. `prometheus` has the public names.
"""

from __future__ import annotations

import bisect
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal

import attrs
import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.agent.states import Status
from proctor.actors.errors import BadOption
from proctor.actors.expense import Expense
from proctor.actors.operations.health import statuses_of
from proctor.actors.operations.loop_watch import Hold, watch_loop
from proctor.actors.outcomes import ENDINGS
from proctor.actors.plan.account_id import kind_of
from proctor.actors.plan.plan import plan_of
from proctor.actors.process.memory import Memory, memory_of
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.specs import DynamicSupervisor, Supervisor
from proctor.protocols import vocabulary as v
from proctor.runtime.errors import ActorExited
from proctor.runtime.events import ChildRestarting, ChildStarted, Subscription, SupervisorEvent
from proctor.runtime.exits import NoProc
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision import NestedSupervisor

BUFFER = 10_000
"""Supervisor events that may wait to be counted."""

DURATION_BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper bounds of the buckets of turn durations, in seconds."""

LOOP_BOUND = 0.1
"""Seconds after which a pass of the event loop is counted and logged."""

_log = logging.getLogger("proctor.loop")

Clock = Literal["greeting", "silence", "tool_silence", "stopped", "exit", "reply", "deadline"]
Source = Literal["log", "tree", "status"]

_COUNTED: Mapping[type, str] = {
    v.Garbled: "garbled",
    v.Unrecognized: "unrecognized",
    v.Misplaced: "misplaced",
    v.ToolCall: "tool_calls",
    v.Retrying: "retries",
}
"""Kinds of events that are only counted → their name in `AgentTotals.events`."""

_INSPECTED = frozenset((v.Notice, v.TurnStarted, v.TurnEnded, v.Exited))


@attrs.frozen
class AgentLabels:
    """The labels of an agent: its name in the tree and the kind of its command line."""

    name: str
    kind: str


@attrs.define
class Durations:
    """A histogram of turn durations: the turns in each of `DURATION_BUCKETS`, then the longer ones; `sum` is in seconds."""

    buckets: list[int] = attrs.field(factory=lambda: [0] * (len(DURATION_BUCKETS) + 1))
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one turn."""
        self.buckets[bisect.bisect_left(DURATION_BUCKETS, seconds)] += 1
        self.sum += seconds


@attrs.define(eq=False)
class AgentTotals:
    """The totals of one agent over all its incarnations. `events` are counted by kind, `lines` are those that the command line
    wrote, `expense` has the tokens and the cost that it reported. `status` and `memory` are from the last update."""

    kind: str
    events: Counter[str] = attrs.field(factory=Counter[str])
    turns: Counter[str] = attrs.field(factory=Counter[str])
    timeouts: Counter[Clock] = attrs.field(factory=Counter[Clock])
    expense: Expense = attrs.field(factory=Expense)
    durations: Durations = attrs.field(factory=Durations)
    restarts: int = 0
    status: Status | None = None
    memory: Memory | None = None
    position: int = 0
    _lines: int = 0
    _line: int = 0
    _begun: float | None = None
    _unsettled: bool = False
    _stalled: bool = False

    @property
    def lines(self) -> int:
        """The lines up to the last one that caused an event."""
        return self._lines + self._line

    def take(self, events: Sequence[v.AnyEvent], now: float) -> None:
        """Count a batch that was read at `now` (seconds)."""
        kinds = Counter(map(type, events))
        for kind in _COUNTED.keys() & kinds.keys():
            self.events[_COUNTED[kind]] += kinds[kind]
        if not _INSPECTED.isdisjoint(kinds):
            for event in events:
                if event.__class__ in _INSPECTED:
                    self._inspect(event, now)
                elif event.frame >= 0:
                    self._line = event.frame + 1
        else:
            self._line = next((e.frame + 1 for e in reversed(events) if e.frame >= 0), self._line)

    def _inspect(self, event: v.AnyEvent, now: float) -> None:
        if event.frame >= 0:
            self._line = event.frame + 1
        match event:
            case v.Notice():
                self._on_notice(event, now)
            case v.TurnStarted() if self._begun is None:
                self._begun = now
            case v.TurnEnded():
                self._on_turn_ended(event, now)
            case v.Exited():
                self._on_exited(event, now)
            case _:
                pass

    def _on_notice(self, event: v.Notice, now: float) -> None:
        match event.code:
            case "sent":
                self._begun = now
            case "unmet":
                self.events["unmet"] += 1
            case "unsettled":
                self._unsettled = True
            case "stalled":
                self._stalled = True
                self.timeouts[event.data.get("clock", "silence")] += 1
            case _:
                pass

    def _on_turn_ended(self, event: v.TurnEnded, now: float) -> None:
        self.expense.take(event)
        if event.ending == "schema_unmet":
            self.events["unmet"] += 1
        if self._unsettled:  # its process is being stopped, and the end of the process decides the outcome
            self._unsettled = False
        else:
            self._count_turn(ENDINGS[event.ending], now)

    def _on_exited(self, event: v.Exited, now: float) -> None:
        self.expense.take(event)
        if event.outcome == "deadline":
            self.timeouts["deadline"] += 1
        elif event.outcome == "stalled" and not self._stalled:
            # a notice has counted a stall within a turn already; without one it came before the greeting
            self.timeouts["greeting"] += 1
        if self._begun is not None:
            self._count_turn(event.outcome, now)
        # the next process counts its lines from 0 again, and a counter must never go back
        self._lines, self._line = self.lines, 0
        self._stalled = self._unsettled = False

    def _count_turn(self, outcome: str, now: float) -> None:
        self.turns[outcome] += 1
        if self._begun is not None:
            self.durations.add(now - self._begun)
        self._begun = None


class Metrics:
    """The metrics of one tree: the totals of `agents` by path, the `restarts` of other children, the samples `dropped`, and the
    seconds in which the event loop was `held`."""

    def __init__(self, agents: Mapping[str, AgentLabels]) -> None:
        self.agents: dict[str, AgentTotals] = {}
        self.dropped: Counter[Source] = Counter()
        self.restarts: Counter[str] = Counter()
        self.held = 0.0
        self._agents: dict[str, AgentLabels] = {}
        self._reading: set[str] = set()
        self._tree: Supervisor | DynamicSupervisor | None = None
        for path, labels in agents.items():
            self.add(path, labels)

    def add(self, path: str, labels: AgentLabels) -> None:
        """Count another agent; call it before the agent is started."""
        self._agents[path] = labels
        self.agents.setdefault(path, AgentTotals(labels.kind))

    async def follow(
        self,
        tree: Supervisor | DynamicSupervisor,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Count until the tree has ended. Start it (`nursery.start`) before the agents; agents that already run are counted from
        now on."""
        self._tree = tree
        with tree.events(BUFFER) as events, watch_loop(LOOP_BOUND, self._on_hold):
            async with trio.open_nursery() as nursery:
                for path in self._agents:
                    self._start_reading(path, nursery)
                # after the readers are there: the agents start next, and their first events must be counted
                task_status.started()
                await self._on_events(events, nursery)

    async def read(self, path: str, log: EventLog) -> None:
        """Count the events of a log for the agent at `path`, until the log ends. For logs outside the tree; `follow` reads those
        of the tree."""
        totals = self.agents[path]
        cursor = log.cursor(totals.position if totals.position <= log.end else 0)
        while True:
            gone = log.statistics().window_start - cursor.position
            if gone > 0:  # reading the disk would make the reader slower still
                self.dropped["log"] += gone
                cursor = log.cursor(cursor.position + gone)
            events = await cursor.batch()
            if not events and log.closed:
                return
            totals.take(events, trio.current_time())
            totals.position = cursor.position

    async def update_status(self) -> None:
        """Ask every agent for its status. An agent that does not reply in time keeps its last one."""
        tree = self._tree
        agents = {} if tree is None else {path: tree.agent(at.name) for path, at in self._agents.items()}
        statuses = await statuses_of(agents)
        for path, status in statuses.items():
            self.agents[path].status = status
        self.dropped["status"] += len(agents) - len(statuses)

    def update_memory(self) -> None:
        """Measure the memory of each agent's processes. Reads many files, so call it in a thread."""
        for totals in list(self.agents.values()):
            pid = None if totals.status is None else totals.status.pid
            totals.memory = memory_of(pid)

    def _agent(self, path: str) -> Agent:
        if self._tree is None:
            raise NoProc(path)
        return self._tree.agent(self._agents[path].name)

    def _on_hold(self, hold: Hold) -> None:
        self.held += hold.seconds
        _log.warning("%s", hold, extra={"event": "loop_held", **attrs.asdict(hold)})

    # -- supervisor events

    async def _on_events(self, events: Subscription, nursery: trio.Nursery) -> None:
        reported = 0
        async for event in events:
            self.dropped["tree"] += events.dropped - reported
            reported = events.dropped
            self._count_restart(event)
            if isinstance(event, ChildStarted):
                self._start_reading(event.path, nursery)

    def _count_restart(self, event: SupervisorEvent) -> None:
        if not isinstance(event, ChildRestarting):
            return
        if event.path in self.agents:
            self.agents[event.path].restarts += 1
        else:
            self.restarts[event.path] += 1

    def _start_reading(self, path: str, nursery: trio.Nursery) -> None:
        if path in self._agents and path not in self._reading:
            self._reading.add(path)
            nursery.start_soon(self._read_agent, path)

    async def _read_agent(self, path: str) -> None:
        try:
            async with self._agent(path).events(since=0) as cursor:
                await self.read(path, cursor.log)
        except (NoProc, ActorExited):
            pass  # not started yet, or ended; the next `ChildStarted` starts a new reader
        finally:
            self._reading.discard(path)


def agents_in(specs: Sequence[ChildSpec], path: str) -> dict[str, AgentLabels]:
    """The agents among these specs and below them, by path; `path` is that of their supervisor."""
    agents: dict[str, AgentLabels] = {}
    for spec in specs:
        below = f"{path}/{spec.id}"
        if isinstance(spec.start, NestedSupervisor) and not callable(spec.start.children):
            agents |= agents_in(spec.start.children, below)
            continue
        with suppress(BadOption):  # not an agent
            plan = plan_of(spec)
            agents[below] = AgentLabels(plan.name, kind_of(plan))
    return agents
