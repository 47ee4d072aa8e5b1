"""Turns that were asked for over HTTP: each a task of the gateway, with an address that outlives its connection.

Guarantees: a turn settles once, with an answer or with a problem that says why there is none; whoever waits for it or
reads its events is told. One whose client waits with its connection is withdrawn when that client leaves; one that was
asked for with `Prefer: respond-async` goes on. At the end of the gateway's grace, what still runs is interrupted and
settled with the reason. Of those that ended the last `KEPT` are known; the events of turns in sessions go before that.

Not here: what is told to whom (`endpoints`), the events themselves (the agent's log).
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
from proctor.actors.gateways.http.cancel_signal import Bell
from proctor.actors.gateways.http.problems import RETRY_AFTER, Problem, problem, problem_of
from proctor.actors.gateways.http.schemas import AnswerRecord, TurnRecord, TurnRequest, answer_record
from proctor.actors.outcomes import Answer
from proctor.actors.recording.eventlog import EventLog
from proctor.runtime.errors import ActorExited, CallTimeout
from proctor.runtime.exits import DeliveryError
from proctor.runtime.messaging import until
from proctor.runtime.processes import ProcessError

KEPT = 1000
RUNNING = 1000
"""Turns that may run or wait at a time."""
LOGS = 16
"""Turns of sessions that have ended and whose events are still there: each has a log, and a file, of its own."""

Tell = Callable[[str, Mapping[str, Any]], None]
"""Is told what happens here: a stable word, and facts about it. Must not wait."""

Answered = Callable[["ServedTurn"], Awaitable[Answer]]
"""Carries out a turn: tells it of its log and its events, and returns the answer. Raises what an agent's call raises."""


@attrs.define(eq=False)
class ServedTurn:
    """One of them. `ends` is its deadline, on Trio's clock, which who carries it out holds to. `first` and `end` are positions in `log`; `over` rings when it is settled."""

    id: str
    agent: str
    began: float
    session: str | None = None
    over: Bell = attrs.field(factory=Bell)
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
        """Its address, without the server's."""
        return f"/agents/{quote(self.agent, safe='')}/turns/{self.id}"

    def record(self) -> TurnRecord:
        """It at this moment."""
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
        """What a log says of its end."""
        outcome = self.answer.outcome if self.answer is not None else self.record().state
        why = None if self.problem is None else self.problem.record.type
        return {"agent": self.agent, "turn": self.id, "seconds": self.seconds, "outcome": why or outcome}

    async def changed(self) -> None:
        """Wait until it has another event."""
        await self._readers.park()

    def withdraw(self, why: Problem) -> None:
        """Nobody wants it any more: it is forgotten, or interrupted."""
        self._why = self._why or why
        self._scope.cancel(str(why))

    async def run(self, answered: Answered, timeout: float | None) -> None:
        """Its whole life. Raises nothing of the agent's."""
        try:
            self.ends = until(timeout)
            with self._scope:
                self._settle(answer=answer_record(await answered(self)))
        except (Problem, AgentError, ProcessError, DeliveryError, ActorExited, CallTimeout) as error:
            self._settle(failure=problem_of(error))
        if self._scope.cancelled_caught and self._why is not None:
            self._settle(failure=self._why)

    def take(self, log: EventLog, position: int) -> None:
        """It was taken: its events come in `log`, from `position` on. The second time it begins anew."""
        self.log, self.first, self.end = log, None, position
        self.accepted.set()

    def reach(self, position: int, count: int = 1) -> None:
        """`count` of its events more are there, and end before `position`."""
        self.end = position
        if self.first is None:
            self.first = position - count
        if self._readers:
            self._readers.unpark_all()

    def _settle(self, answer: AnswerRecord | None = None, failure: Problem | None = None) -> None:
        if self.settled.is_set():
            return
        self.answer, self.problem = answer, failure
        self.seconds = round(trio.current_time() - self.began, 3)
        self.settled.set()
        self.accepted.set()
        self.over.ring("the turn has ended")


async def asked(agent: Agent, request: TurnRequest, turn: ServedTurn) -> Answer:
    """Carry out a turn of an agent of the tree."""
    async with agent.stream(request.prompt, timeout=request.timeout, schema=request.schema) as live:
        turn.take(live.log, live.position)
        try:
            async for _ in live:
                turn.reach(live.position)
        finally:
            if turn.first is not None:
                turn.reach(live.position)  # what ended it without being one of its events, too
        return live.answer


class Turns:
    """Those of one gateway; `nursery` runs them."""

    def __init__(self, nursery: trio.Nursery, tell: Tell) -> None:
        self._nursery = nursery
        self._tell = tell
        self._running: dict[str, ServedTurn] = {}
        self._ended: dict[str, ServedTurn] = {}
        self._logs: deque[ServedTurn] = deque()
        self._rest = trio.Event()

    def begin(self, agent: Agent, request: TurnRequest, answered: Answered | None = None) -> ServedTurn:
        """Start one: `answered` carries it out, the agent itself if left out. Raises `Problem` when too many run."""
        if len(self._running) >= RUNNING:
            headers = {"retry-after": str(RETRY_AFTER)}
            detail = f"{RUNNING} turns run or wait already"
            raise problem(503, "no-new-work", detail, "ask again when some have ended", headers=headers)
        turn = ServedTurn(str(uuid.uuid4()), agent.name, trio.current_time(), request.session_id)
        self._running[turn.id] = turn
        self._nursery.start_soon(self._run, turn, answered or partial(asked, agent, request), request.timeout)
        return turn

    def find(self, agent: str, id: str) -> ServedTurn:
        """Raises `Problem` when it is not known, or not any more."""
        turn = self._running.get(id) or self._ended.get(id)
        if turn is None or turn.agent != agent:
            detail = f"agent {agent!r} has no turn {id!r} that is known here"
            raise problem(
                404, "no-such-turn", detail, f"GET /agents/{agent}/turns lists the last {KEPT}", where="id"
            )
        return turn

    def of(self, agent: str) -> Iterable[ServedTurn]:
        """Those of one agent, the ended ones first."""
        return (t for turns in (self._ended, self._running) for t in turns.values() if t.agent == agent)

    @property
    def running(self) -> Sequence[ServedTurn]:
        """Those that have no end yet, also where they wait for another."""
        return tuple(self._running.values())

    async def wait_settled(self) -> None:
        """Wait until none runs."""
        while self._running:
            self._rest = trio.Event()
            await self._rest.wait()

    def withdraw_all(self, why: Problem) -> None:
        """Interrupt what runs."""
        for turn in self._running.values():
            turn.withdraw(why)

    async def _run(self, turn: ServedTurn, answered: Answered, timeout: float | None) -> None:
        try:
            await turn.run(answered, timeout)
        finally:
            del self._running[turn.id]
            self._ended[turn.id] = turn
            self._keep_log(turn)
            while len(self._ended) > KEPT:
                del self._ended[next(iter(self._ended))]
            self._rest.set()
        self._tell("turn ended", turn.facts())

    def _keep_log(self, turn: ServedTurn) -> None:
        if turn.session is not None:
            self._logs.append(turn)
            while len(self._logs) > LOGS:
                self._logs.popleft().log = None  # its file goes with the last who reads it
