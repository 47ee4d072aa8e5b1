"""The numbers of a tree that runs: what its agents said, did, took and cost, counted from what is there anyway.

Each agent's log is read by a task of its own, a batch at a time: most events are counted by kind, only ends, notices and
retries are looked at. The supervisors' events give the restarts, the agents themselves, when somebody asks, what they
are doing just now.

Guarantees: nothing here makes an agent, its log or a supervisor wait. A reader that has fallen behind the window of a
log does not read the disk: it leaves out what is gone, an agent that does not answer keeps its last state, and all that
was left out is counted in `dropped`. So a sample may be lost, an event never is.

The numbers are plain ones, written by the tree's own thread; `exposition` gives them their public names.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import attrs
import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.agent.states import Status
from proctor.actors.errors import BadOption
from proctor.actors.outcomes import ENDINGS
from proctor.actors.plan.account_id import kind_of
from proctor.actors.process.memory import Memory, memory_of
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.specs import DynamicSupervisor, Supervisor, plan_of
from proctor.protocols import vocabulary as v
from proctor.runtime.errors import ActorExited, CallTimeout
from proctor.runtime.events import ChildRestarting, ChildStarted, Subscription, SupervisorEvent
from proctor.runtime.exits import NoProc
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision import NestedSupervisor

BUFFER = 10_000
"""Supervisors' events that may wait to be counted."""

PATIENCE = 1.0
"""Seconds that all agents together have to say what they are doing."""

BOUNDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper bounds of the turns' durations, in seconds."""

Clock = Literal["greeting", "silence", "tool_silence", "stopped", "exit", "reply", "deadline"]
Source = Literal["log", "tree", "status"]

_PLAIN: Mapping[type, str] = {
    v.Garbled: "garbled",
    v.Unrecognized: "unrecognized",
    v.Misplaced: "misplaced",
    v.ToolCall: "tool_calls",
    v.Retrying: "retries",
}
"""Kinds of events that are only counted → under which word."""

_TELLING = frozenset((v.Notice, v.TurnStarted, v.TurnEnded, v.Exited))


@attrs.frozen
class Watched:
    """An agent to be counted: its name in the tree, and the kind of its command line."""

    name: str
    kind: str


@attrs.define
class Durations:
    """How many turns took at most each of `BOUNDS` and no less than the one before, and longer; `sum` in seconds."""

    buckets: list[int] = attrs.field(factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.buckets[bisect.bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


@attrs.define(eq=False)
class Numbers:
    """Those of one agent, over all its incarnations. `counts` has what is counted by kind of event, `lines` the lines
    its command line has written; `cost_usd` is what it told of. `status` and `memory` are as of the last look."""

    kind: str
    counts: Counter[str] = attrs.field(factory=Counter[str])
    turns: Counter[str] = attrs.field(factory=Counter[str])
    timeouts: Counter[Clock] = attrs.field(factory=Counter[Clock])
    tokens: Counter[str] = attrs.field(factory=Counter[str])
    durations: Durations = attrs.field(factory=Durations)
    restarts: int = 0
    cost_usd: float = 0.0
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
        """Up to the newest that was worth an event."""
        return self._lines + self._line

    def take(self, events: Sequence[v.AnyEvent], now: float) -> None:
        """Count a batch that was read at `now` (seconds)."""
        kinds = Counter(map(type, events))
        for kind in _PLAIN.keys() & kinds.keys():
            self.counts[_PLAIN[kind]] += kinds[kind]
        if not _TELLING.isdisjoint(kinds):
            for event in events:
                if event.__class__ in _TELLING:
                    self._tell(event, now)
                elif event.frame >= 0:
                    self._line = event.frame + 1
        else:
            self._line = next((e.frame + 1 for e in reversed(events) if e.frame >= 0), self._line)

    def _tell(self, event: v.AnyEvent, now: float) -> None:
        if event.frame >= 0:
            self._line = event.frame + 1
        match event:
            case v.Notice():
                self._note(event, now)
            case v.TurnStarted() if self._begun is None:
                self._begun = now
            case v.TurnEnded():
                self._end(event, now)
            case v.Exited():
                self._exit(event, now)
            case _:
                pass

    def _note(self, event: v.Notice, now: float) -> None:
        match event.code:
            case "sent":
                self._begun = now
            case "unmet":
                self.counts["unmet"] += 1
            case "unsettled":
                self._unsettled = True
            case "stalled":
                self._stalled = True
                self.timeouts[event.data.get("clock", "silence")] += 1
            case _:
                pass

    def _spend(self, event: v.TurnEnded | v.Exited) -> None:
        for name in ("input", "output", "cache_read", "cache_write"):
            self.tokens[name] += getattr(event.usage, f"{name}_tokens", None) or 0
        self.cost_usd += event.cost_usd or 0.0

    def _end(self, event: v.TurnEnded, now: float) -> None:
        self._spend(event)
        if event.ending == "schema_unmet":
            self.counts["unmet"] += 1
        if self._unsettled:  # its process is being stopped: how that ends is how the turn ends
            self._unsettled = False
        else:
            self._close(ENDINGS[event.ending], now)

    def _exit(self, event: v.Exited, now: float) -> None:
        self._spend(event)
        if event.outcome == "deadline":
            self.timeouts["deadline"] += 1
        elif event.outcome == "stalled" and not self._stalled:
            self.timeouts["greeting"] += 1
        if self._begun is not None:
            self._close(event.outcome, now)
        self._lines, self._line = self.lines, 0
        self._stalled = self._unsettled = False

    def _close(self, outcome: str, now: float) -> None:
        self.turns[outcome] += 1
        if self._begun is not None:
            self.durations.add(now - self._begun)
        self._begun = None


class Metrics:
    """Those of one tree. `agents` has what is to be counted, by path; `add` puts another there before it is started.

    `numbers` are by path; `dropped` counts the samples that were left out, by where they come from.
    """

    def __init__(self, agents: Mapping[str, Watched]) -> None:
        self.numbers: dict[str, Numbers] = {}
        self.dropped: Counter[Source] = Counter()
        self.restarts: Counter[str] = Counter()
        self._agents: dict[str, Watched] = {}
        self._read: set[str] = set()
        self._tree: Supervisor | DynamicSupervisor | None = None
        for path, watched in agents.items():
            self.add(path, watched)

    def add(self, path: str, watched: Watched) -> None:
        """Count this one too."""
        self._agents[path] = watched
        self.numbers.setdefault(path, Numbers(watched.kind))

    async def follow(
        self,
        tree: Supervisor | DynamicSupervisor,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Count until the tree has ended. To be begun (`nursery.start`) before the agents are; those of them that run
        already are counted from now on."""
        self._tree = tree
        with tree.events(BUFFER) as events:
            async with trio.open_nursery() as nursery:
                for path in self._agents:
                    self._begin(path, nursery)
                task_status.started()
                await self._hear(events, nursery)

    async def read(self, path: str, log: EventLog) -> None:
        """Count what is in a log, for the agent at `path`, until the log ends. For a log that is of no agent's in the
        tree; theirs are read by `follow`."""
        numbers = self.numbers[path]
        cursor = log.cursor(numbers.position if numbers.position <= log.end else 0)
        while True:
            gone = log.statistics().window_start - cursor.position
            if gone > 0:
                self.dropped["log"] += gone
                cursor = log.cursor(cursor.position + gone)
            events = await cursor.batch()
            if not events and log.closed:
                return
            numbers.take(events, trio.current_time())
            numbers.position = cursor.position

    async def look(self) -> None:
        """Ask every agent what it is doing. One that does not answer in time keeps what it said last."""
        waiting = set(self._agents)
        with trio.move_on_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                for path in self._agents:
                    nursery.start_soon(self._ask, path, waiting)
        self.dropped["status"] += len(waiting)

    def weigh(self) -> None:
        """Look how much memory each agent's processes hold. Reads many files: for a thread."""
        for numbers in list(self.numbers.values()):
            pid = None if numbers.status is None else numbers.status.pid
            numbers.memory = memory_of(pid)

    async def _ask(self, path: str, waiting: set[str]) -> None:
        numbers = self.numbers[path]
        try:
            numbers.status = await self._agent(path).status()
        except CallTimeout:
            return
        except (NoProc, ActorExited):
            numbers.status = None
        waiting.discard(path)

    def _agent(self, path: str) -> Agent:
        if self._tree is None:
            raise NoProc(path)
        return self._tree.agent(self._agents[path].name)

    # -- what is told

    async def _hear(self, events: Subscription, nursery: trio.Nursery) -> None:
        told = 0
        async for event in events:
            self.dropped["tree"] += events.dropped - told
            told = events.dropped
            self._count(event)
            if isinstance(event, ChildStarted):
                self._begin(event.path, nursery)

    def _count(self, event: SupervisorEvent) -> None:
        if not isinstance(event, ChildRestarting):
            return
        if event.path in self.numbers:
            self.numbers[event.path].restarts += 1
        else:
            self.restarts[event.path] += 1

    def _begin(self, path: str, nursery: trio.Nursery) -> None:
        if path in self._agents and path not in self._read:
            self._read.add(path)
            nursery.start_soon(self._follow, path)

    async def _follow(self, path: str) -> None:
        try:
            async with self._agent(path).events(since=0) as cursor:
                await self.read(path, cursor.log)
        except (NoProc, ActorExited):
            pass  # it is not there yet, or not any more; the next `ChildStarted` begins again
        finally:
            self._read.discard(path)


def agents_in(specs: Sequence[ChildSpec], path: str) -> dict[str, Watched]:
    """The agents among these specs and below them, by path; `path` is that of their supervisor."""
    return dict(_agents_in(specs, path))


def _agents_in(specs: Sequence[ChildSpec], path: str) -> Iterator[tuple[str, Watched]]:
    for spec in specs:
        below = f"{path}/{spec.id}"
        if isinstance(spec.start, NestedSupervisor) and not callable(spec.start.children):
            yield from _agents_in(spec.start.children, below)
            continue
        try:
            plan = plan_of(spec)
        except BadOption:  # no agent
            continue
        yield below, Watched(plan.name, kind_of(plan))
