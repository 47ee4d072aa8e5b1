"""Turns requested over HTTP: each is a task of the gateway, with an address that stays valid after its connection.

A turn is settled once, with an answer or with a problem. It is withdrawn when its client disconnects, unless it was
requested with `Prefer: respond-async`. After the grace period of the gateway, running turns are interrupted and settled
with the reason. The last `KEPT` ended turns are kept; the events of turns in sessions are dropped earlier.

Not here: the responses (`endpoints`) and the events (the agent's log).
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

import attrs
import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.errors import AgentError
from proctor.actors.gateways.http.problems import Problem, no_new_work, problem, problem_of
from proctor.actors.gateways.http.schemas import AnswerRecord, TurnRecord, TurnRequest, answer_record
from proctor.actors.outcomes import Answer
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.serving.in_flight import CancelSignal
from proctor.runtime.errors import ActorExited, CallTimeout
from proctor.runtime.exits import DeliveryError
from proctor.runtime.messaging import until
from proctor.runtime.processes import ProcessError

KEPT = 1000
RUNNING = 1000
"""Turns that may run or wait at the same time."""
LOGS = 16
"""Ended turns in sessions whose events are kept: each has a log, and a file, of its own."""

LogCall = Callable[[str, Mapping[str, Any]], None]
"""Logs an event: its stable name, and its fields. Must not block."""

Work = Callable[["ServedTurn"], Awaitable[Answer]]
"""Runs a turn: reports its log and its progress to it, and returns the answer. Raises the errors of calls to agents."""


@attrs.define(eq=False)
class ServedTurn:
    """One turn. `ends` is its deadline on Trio's clock, which its work observes. `first` and `end` are positions in `log`;
    `ended` fires when it is settled."""

    id: str
    agent: str
    began: float
    session: str | None = None
    ended: CancelSignal = attrs.field(factory=CancelSignal)
    accepted: trio.Event = attrs.field(factory=trio.Event)
    settled: trio.Event = attrs.field(factory=trio.Event)
    log: EventLog | None = None
    first: int | None = None
    end: int = 0
    seconds: float | None = None
    answer: AnswerRecord | None = None
    problem: Problem | None = None
    ends: float = math.inf
    _readers: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _why: Problem | None = None

    @property
    def url(self) -> str:
        """The path of its address."""
        return f"/agents/{quote(self.agent, safe='')}/turns/{self.id}"

    def record(self) -> TurnRecord:
        """Its current record."""
        begun: Literal["waiting", "running"] = "waiting" if self.first is None else "running"
        return TurnRecord(
            id=self.id,
            agent=self.agent,
            session_id=self.session,
            url=self.url,
            state="ended" if self.settled.is_set() else begun,
            first=self.first,
            duration=self.seconds,
            answer=self.answer,
            problem=None if self.problem is None else self.problem.record,
        )

    def facts(self) -> dict[str, Any]:
        """The fields that are logged at its end."""
        outcome = self.answer.outcome if self.answer is not None else self.record().state
        why = None if self.problem is None else self.problem.record.type
        return {"agent": self.agent, "turn": self.id, "seconds": self.seconds, "outcome": why or outcome}

    async def changed(self) -> None:
        """Wait until it has another event."""
        await self._readers.park()

    def withdraw(self, why: Problem) -> None:
        """Cancel it: a waiting turn is dropped, a running one is interrupted."""
        self._why = self._why or why  # before the cancellation, which settles the turn with it
        self._scope.cancel(str(why))

    async def run(self, work: Work, timeout: float | None) -> None:
        """Run it and settle it. Errors of the agent become its problem."""
        try:
            self.ends = until(timeout)
            with self._scope:
                self._settle(answer=answer_record(await work(self)))
        except (Problem, AgentError, ProcessError, DeliveryError, ActorExited, CallTimeout) as error:
            self._settle(failure=problem_of(error))
        if self._scope.cancelled_caught and self._why is not None:
            self._settle(failure=self._why)

    def start_log(self, log: EventLog, position: int) -> None:
        """The agent accepted it, and its events are in `log` from `position` on. A second call starts it again."""
        self.log, self.first, self.end = log, None, position
        self.accepted.set()

    def advance(self, position: int, count: int = 1) -> None:
        """Record `count` new events, which end before `position`."""
        self.end = position
        if self.first is None:
            self.first = position - count
        if self._readers:
            self._readers.unpark_all()

    def _settle(self, answer: AnswerRecord | None = None, failure: Problem | None = None) -> None:
        if self.settled.is_set():
            return  # it ended while it was withdrawn: the answer counts
        self.answer, self.problem = answer, failure
        self.seconds = round(trio.current_time() - self.began, 3)
        self.settled.set()
        # Too: a client that waits for the start must not wait on behind the end.
        self.accepted.set()
        self.ended.fire("the turn has ended")


async def ask_agent(agent: Agent, request: TurnRequest, turn: ServedTurn) -> Answer:
    """Run a turn of an agent of the tree."""
    async with agent.stream(request.prompt, timeout=request.timeout, schema=request.schema) as live:
        turn.start_log(live.log, live.position)
        try:
            async for _ in live:
                turn.advance(live.position)
        finally:
            if turn.first is not None:
                turn.advance(live.position)  # includes the events that ended it without being its own
        return live.answer


async def ask_with_key(agent: Agent, request: TurnRequest, key: str, turn: ServedTurn) -> Answer:
    """Wait for the end of a request that the tree keeps. It goes on when this turn is withdrawn."""
    return await agent.ask(request.prompt, timeout=request.timeout, schema=request.schema, key=key)


class Turns:
    """The turns of one gateway; they run in `nursery`."""

    def __init__(self, nursery: trio.Nursery, log: LogCall) -> None:
        self._nursery = nursery
        self._log = log
        self._running: dict[str, ServedTurn] = {}
        self._ended: dict[str, ServedTurn] = {}
        self._logs: deque[ServedTurn] = deque()
        self._all_settled = trio.Event()

    def begin(self, agent: Agent, request: TurnRequest, work: Work | None = None) -> ServedTurn:
        """Start a turn: `work` runs it, by default the agent. Raises `Problem` when too many run."""
        if len(self._running) >= RUNNING:
            raise no_new_work(
                f"{RUNNING} turns run or wait already", "ask again when some of them have ended"
            )
        turn = ServedTurn(str(uuid.uuid4()), agent.name, trio.current_time(), request.session_id)
        self._running[turn.id] = turn
        self._nursery.start_soon(self._run, turn, work or partial(ask_agent, agent, request), request.timeout)
        return turn

    def find(self, agent: str, id: str) -> ServedTurn:
        """The turn of this id. Raises `Problem` when it does not exist, or was dropped."""
        turn = self._running.get(id) or self._ended.get(id)
        if turn is None or turn.agent != agent:
            detail = f"agent {agent!r} has no turn {id!r} on this server"
            raise problem(
                404, "no-such-turn", detail, f"GET /agents/{agent}/turns lists the last {KEPT}", where="id"
            )
        return turn

    def of(self, agent: str) -> Iterable[ServedTurn]:
        """The turns of one agent, the ended ones first."""
        return (t for turns in (self._ended, self._running) for t in turns.values() if t.agent == agent)

    @property
    def running(self) -> Sequence[ServedTurn]:
        """The turns that are waiting or running."""
        return tuple(self._running.values())

    async def wait_settled(self) -> None:
        """Wait until no turn is waiting or running."""
        while self._running:
            self._all_settled = trio.Event()
            await self._all_settled.wait()

    def withdraw_all(self, why: Problem) -> None:
        """Withdraw every turn."""
        for turn in self._running.values():
            turn.withdraw(why)

    async def _run(self, turn: ServedTurn, work: Work, timeout: float | None) -> None:
        try:
            await turn.run(work, timeout)
        finally:
            del self._running[turn.id]
            self._ended[turn.id] = turn
            self._keep_log(turn)
            while len(self._ended) > KEPT:
                del self._ended[next(iter(self._ended))]
            self._all_settled.set()
        self._log("turn ended", turn.facts())

    def _keep_log(self, turn: ServedTurn) -> None:
        if turn.session is not None:
            self._logs.append(turn)
            while len(self._logs) > LOGS:
                self._logs.popleft().log = None  # its file is deleted when its last reader ends
