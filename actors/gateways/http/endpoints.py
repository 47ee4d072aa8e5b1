"""What is done for each operation of the table; the names are those in it.

Guarantees: nothing waits for an agent without a limit but a turn, which has its own. A client that leaves before its
turn has ended withdraws it, unless it asked for it with `Prefer: respond-async`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from proctor.actors.agent.handle import Agent
from proctor.actors.errors import AgentError, SessionBusy
from proctor.actors.gateways.http import schemas as r
from proctor.actors.gateways.http.document import openapi
from proctor.actors.gateways.http.gateway import Gateway, Word
from proctor.actors.gateways.http.operations import STREAM
from proctor.actors.gateways.http.problems import problem
from proctor.actors.gateways.http.request_body import JSON, given, read
from proctor.actors.gateways.http.streams import (
    ApprovalReading,
    EventStream,
    LogReading,
    Reading,
    TurnReading,
    left_before,
)
from proctor.actors.gateways.http.turns import ServedTurn
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.structured.schemas import Schema, schema_of
from proctor.runtime.errors import ActorExited, CallTimeout
from proctor.runtime.exits import DeliveryError

PATIENCE = 10.0
"""Seconds that an agent has to take a word, when that is all that is waited for."""

T = TypeVar("T", bound=r.Taken)


_DONE: Mapping[Word, str] = {"stop": "agent stopped", "start": "agent started", "restart": "agent restarted"}
"""What is logged of an operator's word."""


class Endpoints:
    """Those of one gateway. `schemas` are those of the bodies."""

    def __init__(self, gateway: Gateway, schemas: Mapping[type[r.Taken], Schema]) -> None:
        self._gateway = gateway
        self._schemas = schemas
        self._document: bytes | None = None

    # -- agents

    async def list_agents(self, request: Request) -> Response:
        found: dict[str, r.AgentRecord] = {}
        async with trio.open_nursery() as nursery:
            for name, agent in self._gateway.agents.items():
                nursery.start_soon(_look, name, agent, found, self._gateway.hooks.absent)
        return given(r.AgentList(agents=tuple(found[name] for name in sorted(found))))

    async def show_agent(self, request: Request) -> Response:
        agent, found = self._agent(request), dict[str, r.AgentRecord]()
        await _look(agent.name, agent, found, self._gateway.hooks.absent)
        return given(found[agent.name])

    async def stop(self, request: Request) -> Response:
        return await self._steered(request, "stop")

    async def start(self, request: Request) -> Response:
        return await self._steered(request, "start")

    async def restart(self, request: Request) -> Response:
        return await self._steered(request, "restart")

    async def _steered(self, request: Request, word: Word) -> Response:
        agent = self._agent(request)
        self._gateway.hooks.tell(_DONE[word], {"agent": agent.name})
        await self._gateway.steer(agent, word)
        return await self.show_agent(request)

    async def interrupt(self, request: Request) -> Response:
        agent = self._agent(request)
        self._gateway.hooks.tell("agent interrupted", {"agent": agent.name})
        return given(r.receipt_record(await agent.interrupt(timeout=PATIENCE)))

    async def steer(self, request: Request) -> Response:
        agent, body = self._agent(request), await self._body(request, r.SteerRequest)
        return given(r.receipt_record(await agent.steer(body.text, timeout=body.timeout or PATIENCE)))

    async def queue(self, request: Request) -> Response:
        agent, body = self._agent(request), await self._body(request, r.QueueRequest)
        self._gateway.take_work()
        with trio.fail_after(PATIENCE):
            receipt = await agent.queue(body.prompt)
        return given(r.receipt_record(receipt), 202)

    # -- events

    async def follow_events(self, request: Request) -> Response:
        agent = self._agent(request)
        log = await _log(agent)
        position, until = _place(request, log), None if _follows(request) else log.end
        if log.closed and position >= log.end:
            return Response(status_code=204)  # the word that ends the reconnecting of an EventSource
        return EventStream(
            self._reading(agent.name, log, position, until), agent.name, self._gateway.hooks.tell
        )

    @asynccontextmanager
    async def _reading(
        self, name: str, log: EventLog, position: int, until: int | None
    ) -> AsyncGenerator[Reading]:
        gateway = self._gateway
        yield LogReading(
            gateway.shelf.frames(name, log), position, gateway.closing, until=until, pause=gateway.heartbeat
        )

    # -- turns

    async def list_turns(self, request: Request) -> Response:
        turns = self._gateway.turns.of(self._agent(request).name)
        return given(r.TurnList(turns=tuple(turn.record() for turn in turns)))

    async def begin_turn(self, request: Request) -> Response:
        agent, body = self._agent(request), await self._body(request, r.TurnRequest)
        if body.schema is not None:
            schema_of(body.schema)  # its faults are the client's
        turn = self._gateway.begin(agent, body)
        headers = {"location": turn.url}
        if "respond-async" in request.headers.get("prefer", ""):
            return given(turn.record(), 202, {**headers, "preference-applied": "respond-async"})
        if _wants_stream(request):
            await _held(request, turn, turn.accepted)
            return EventStream(self._turn(turn, owned=True), agent.name, self._gateway.hooks.tell, headers)
        await _held(request, turn, turn.settled)
        if turn.problem is not None:
            raise turn.problem
        return given(turn.record(), headers=headers)

    async def show_turn(self, request: Request) -> Response:
        turn = self._found(request)
        if not _wants_stream(request):
            return given(turn.record())
        seen = _number(request.headers.get("last-event-id"), "Last-Event-ID")
        reading = self._turn(turn, 0 if seen is None else seen + 1)
        return EventStream(reading, turn.agent, self._gateway.hooks.tell)

    async def withdraw_turn(self, request: Request) -> Response:
        turn = self._found(request)
        turn.withdraw(
            problem(410, "withdrawn", "the turn was withdrawn by request", "ask again if it is wanted")
        )
        with trio.move_on_after(PATIENCE):
            await turn.settled.wait()
        return given(turn.record())

    @asynccontextmanager
    async def _turn(
        self, turn: ServedTurn, position: int = 0, *, owned: bool = False
    ) -> AsyncGenerator[Reading]:
        try:
            if owned and turn.problem is not None and turn.log is None:
                raise turn.problem  # it was never taken: an answer of another kind than a stream
            yield TurnReading(self._gateway.shelf, turn, position, self._gateway.heartbeat)
        finally:
            if owned:
                turn.withdraw(problem(410, "left", "the client left before the turn ended", "ask again"))

    def _found(self, request: Request) -> ServedTurn:
        return self._gateway.turns.find(self._agent(request).name, request.path_params["id"])

    # -- sessions

    async def list_sessions(self, request: Request) -> Response:
        agent = self._agent(request)
        return given(r.SessionList(sessions=self._gateway.rooms_of(agent).records(agent.name)))

    async def remove_session(self, request: Request) -> Response:
        agent, id = self._agent(request), request.path_params["id"]
        try:
            found = await self._gateway.rooms_of(agent).remove(agent.name, id)
        except SessionBusy as error:
            raise problem(409, "in-use", str(error), "withdraw its turns first", where="id") from error
        if not found:
            remedy = f"GET /agents/{agent.name}/sessions lists those that are in use"
            detail = f"agent {agent.name!r} has no session {id!r}"
            raise problem(404, "no-such-session", detail, remedy, where="id")
        return Response(status_code=204)

    # -- questions

    async def list_approvals(self, request: Request) -> Response:
        agent = self._agent(request)
        if _wants_stream(request):
            return EventStream(self._questions(agent), agent.name, self._gateway.hooks.tell)
        with trio.fail_after(PATIENCE):
            async with agent.approvals() as approvals:
                found = tuple(map(r.approval_record, approvals.open()))
        return given(r.ApprovalList(approvals=found))

    @asynccontextmanager
    async def _questions(self, agent: Agent) -> AsyncGenerator[Reading]:
        with trio.CancelScope() as opening:
            opening.deadline = trio.current_time() + PATIENCE
            async with agent.approvals() as approvals:
                opening.deadline = float("inf")
                yield ApprovalReading(approvals, self._gateway.closing, self._gateway.heartbeat)
        if opening.cancelled_caught:
            raise trio.TooSlowError

    async def decide(self, request: Request) -> Response:
        agent, body = self._agent(request), await self._body(request, r.DecisionRequest)
        id = request.path_params["id"]
        with trio.fail_after(PATIENCE):
            async with agent.approvals() as approvals:
                found = next((one for one in approvals.open() if one.id == id), None)
        if found is None:
            detail = f"agent {agent.name!r} has no open question {id!r}: it is settled, or never was"
            remedy = f"GET /agents/{agent.name}/approvals lists the open ones"
            raise problem(404, "no-such-question", detail, remedy, where="id")
        if body.decision == "allow":
            found.allow(body.input)
        else:
            found.deny(body.message)
        facts = {"agent": agent.name, "id": id, "tool": found.tool, "decision": body.decision}
        self._gateway.hooks.tell("approval answered", facts)
        return given(r.DecisionRecord(id=id, settled=found.settled or ""))

    # -- the server itself

    async def document(self, request: Request) -> Response:
        if self._document is None:
            self._document = msgspec.json.encode(openapi(self._schemas))
        return Response(self._document, media_type=JSON)

    async def alive(self, request: Request) -> Response:
        return await self._gateway.probes.alive(request)

    async def ready(self, request: Request) -> Response:
        return await self._gateway.probes.ready(request)

    async def metrics(self, request: Request) -> Response:
        return await self._gateway.probes.metrics(request)

    # -- requests

    def _agent(self, request: Request) -> Agent:
        return self._gateway.agent(request.path_params["name"])

    async def _body(self, request: Request, kind: type[T]) -> T:
        return await read(request, kind, self._schemas[kind], self._gateway.limit)


async def _look(name: str, agent: Agent, found: dict[str, r.AgentRecord], absent: Mapping[str, str]) -> None:
    if name in absent:
        found[name] = r.AgentRecord(name=name, state="failed", evidence=absent[name])
        return
    try:
        found[name] = r.agent_record(await agent.status())
    except (AgentError, DeliveryError, ActorExited, CallTimeout) as error:
        state = "busy" if isinstance(error, CallTimeout) else "stopped"
        found[name] = r.AgentRecord(name=name, state=state, evidence=str(error))


async def _log(agent: Agent) -> EventLog:
    with trio.fail_after(PATIENCE):
        async with agent.events() as cursor:
            log = cursor.log
    return log


async def _held(request: Request, turn: ServedTurn, event: trio.Event) -> None:
    """Wait for it as long as the client does."""
    left = True
    try:
        left = await left_before(request.receive, event.wait)
    finally:
        if left:
            turn.withdraw(problem(410, "left", "the client left before the turn ended", "ask again"))
    if left:
        await turn.settled.wait()


def _wants_stream(request: Request) -> bool:
    return STREAM in request.headers.get("accept", "")


def _follows(request: Request) -> bool:
    said = request.query_params.get("follow", "true")
    if said not in ("true", "false"):
        raise problem(400, "bad-parameter", f"follow is {said!r}", "say true or false", where="follow")
    return said == "true"


def _place(request: Request, log: EventLog) -> int:
    since = _number(request.query_params.get("since"), "since")
    seen = _number(request.headers.get("last-event-id"), "Last-Event-ID")
    position = seen + 1 if seen is not None else log.end if since is None else since
    if position > log.end:
        detail = f"the log ends before position {log.end}, and {position} is wanted: that was another run's"
        raise problem(409, "ahead-of-log", detail, "start again with since=0", where="Last-Event-ID")
    return position


def _number(said: str | None, where: str) -> int | None:
    if not said:
        return None
    if not (said.isascii() and said.isdecimal() and len(said) < 16):
        raise problem(
            400, "bad-position", f"{where} is {said!r}", "send a position: a number from 0 on", where=where
        )
    return int(said)
