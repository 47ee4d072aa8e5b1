"""The application of a gateway: the functions of the operations, under the names in their table.

Every wait for an agent has a time limit, except for a turn, which has its own. A turn is withdrawn when its client
disconnects before its end, unless it was requested with `Prefer: respond-async`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar, get_args

import msgspec
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proctor.actors.agent.approval_queue import Approval
from proctor.actors.agent.handle import Agent
from proctor.actors.errors import AgentError, SessionBusy
from proctor.actors.gateways.http import schemas as r
from proctor.actors.gateways.http.fleet_view import write_all_approvals, write_changes
from proctor.actors.gateways.http.gateway import Gateway
from proctor.actors.gateways.http.history import requests_of, run_events, run_of, run_record, runs_of
from proctor.actors.gateways.http.lifecycle import Command
from proctor.actors.gateways.http.operations import KEY, OPERATIONS, STREAM, body_schemas, openapi
from proctor.actors.gateways.http.page_files import page_routes
from proctor.actors.gateways.http.problems import NAMES, Problem, on_error, on_http, problem
from proctor.actors.gateways.http.request_body import JSON, json_response, read
from proctor.actors.gateways.http.streams import EventStream, Source, write_approvals, write_log, write_turn
from proctor.actors.gateways.http.turns import ServedTurn
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.structured.schemas import Schema, schema_of
from proctor.actors.web_server.exchange import while_connected
from proctor.runtime.errors import ActorExited, CallTimeout
from proctor.runtime.exits import DeliveryError

LISTED = 100
"""Requests or runs in a list, if no other number is asked for."""
CALL_TIMEOUT = 10.0
"""Seconds to wait for a reply of an agent."""

T = TypeVar("T", bound=r.RequestBody)
Endpoint = Callable[[Request], Awaitable[Response]]

_LOG_NAMES: Mapping[Command, str] = {
    "stop": "agent stopped",
    "start": "agent started",
    "restart": "agent restarted",
    "park": "agent parked",
    "unpark": "agent unparked",
    "kill": "agent killed",
    "reset": "agent reset",
}
"""The log events of an operator's commands."""


def application(gateway: Gateway) -> Starlette:
    """The application of a gateway, to be wrapped in an `AuthMiddleware`. Raises `BadOption` without the extra `http`."""
    endpoints = Endpoints(gateway, body_schemas())
    paths: dict[str, dict[str, Endpoint]] = {}
    for operation in OPERATIONS:
        own = hasattr(endpoints, operation.endpoint)
        endpoint = getattr(endpoints if own else gateway.probes, operation.endpoint)
        paths.setdefault(operation.path, {})[operation.method] = endpoint
    routes = [Route(path, _by_method(methods), methods=list(methods)) for path, methods in paths.items()]
    kinds: tuple[type[Exception], ...] = (Problem, *NAMES, Exception)
    handlers: dict[Any, Any] = {HTTPException: on_http, **dict.fromkeys(kinds, on_error)}
    # the page last: a program may have one of its own
    return Starlette(routes=[*routes, *gateway.hooks.routes, *page_routes()], exception_handlers=handlers)


def _by_method(endpoints_by_method: Mapping[str, Endpoint]) -> Endpoint:
    """One route for all methods of a path, so that the 405 response lists all of them."""

    async def dispatch(request: Request) -> Response:
        return await endpoints_by_method["GET" if request.method == "HEAD" else request.method](request)

    return dispatch


class Endpoints:
    """The endpoints of one gateway. `schemas` are those of the request bodies."""

    def __init__(self, gateway: Gateway, schemas: Mapping[type[r.RequestBody], Schema]) -> None:
        self._gateway = gateway
        self._schemas = schemas
        self._document: bytes | None = None

    # -- agents

    async def list_agents(self, request: Request) -> Response:
        records: dict[str, r.AgentRecord] = {}
        # All at once: agents that do not answer delay the list by one time-out together.
        async with trio.open_nursery() as nursery:
            for name, agent in self._gateway.agents.items():
                nursery.start_soon(_add_record, name, agent, records, self._gateway.hooks.absent)
        return json_response(r.AgentList(agents=tuple(records[name] for name in sorted(records))))

    async def show_agent(self, request: Request) -> Response:
        agent, records = self._agent(request), dict[str, r.AgentRecord]()
        await _add_record(agent.name, agent, records, self._gateway.hooks.absent)
        return json_response(records[agent.name])

    async def stop(self, request: Request) -> Response:
        return await self._control(request, "stop")

    async def start(self, request: Request) -> Response:
        return await self._control(request, "start")

    async def restart(self, request: Request) -> Response:
        return await self._control(request, "restart")

    async def park(self, request: Request) -> Response:
        body = await self._read_body(request, r.ParkRequest)
        return await self._control(request, "park", reason=body.reason, until=body.until)

    async def unpark(self, request: Request) -> Response:
        return await self._control(request, "unpark")

    async def kill(self, request: Request) -> Response:
        return await self._control(request, "kill")

    async def reset(self, request: Request) -> Response:
        return await self._control(request, "reset")

    async def _control(self, request: Request, command: Command, **options: Any) -> Response:
        agent = self._agent(request)
        self._gateway.hooks.log(_LOG_NAMES[command], {"agent": agent.name, **options})
        await self._gateway.control(agent, command, **options)
        return await self.show_agent(request)

    async def interrupt(self, request: Request) -> Response:
        agent = self._agent(request)
        self._gateway.hooks.log("agent interrupted", {"agent": agent.name})
        return json_response(r.receipt_record(await agent.interrupt(timeout=CALL_TIMEOUT)))

    async def steer(self, request: Request) -> Response:
        agent, body = self._agent(request), await self._read_body(request, r.SteerRequest)
        return json_response(
            r.receipt_record(await agent.steer(body.text, timeout=body.timeout or CALL_TIMEOUT))
        )

    async def queue(self, request: Request) -> Response:
        agent, body = self._agent(request), await self._read_body(request, r.QueueRequest)
        self._gateway.check_takes_work()
        with trio.fail_after(CALL_TIMEOUT):
            receipt = await agent.queue(body.prompt, key=request.headers.get(KEY.name) or _own_key(agent))
        return json_response(r.receipt_record(receipt), 202)

    # -- events

    async def follow_events(self, request: Request) -> Response:
        agent = self._agent(request)
        log = await _log(agent)
        position, until = _position(request, log), None if _follows(request) else log.end
        if log.closed and position >= log.end:
            return Response(status_code=204)  # 204 stops an EventSource from reconnecting
        encoded, closing = self._gateway.encoded_events.of(agent.name, log), self._gateway.closing
        source = partial(write_log, encoded, position, closing, until=until, pause=self._gateway.heartbeat)
        return EventStream(nullcontext(source), agent.name, self._gateway.hooks.log)

    # -- turns

    async def list_turns(self, request: Request) -> Response:
        turns = self._gateway.turns.of(self._agent(request).name)
        return json_response(r.TurnList(turns=tuple(turn.record() for turn in turns)))

    async def begin_turn(self, request: Request) -> Response:
        agent, body = self._agent(request), await self._read_body(request, r.TurnRequest)
        if body.schema is not None:
            schema_of(body.schema)  # raises `BadOption` for an invalid schema
        key = request.headers.get(KEY.name)
        if key is not None and _wants_stream(request):
            remedy = f"follow GET /agents/{agent.name}/events, or leave {KEY.name} out"
            raise problem(
                422, "no-events", "a turn with a key has no events of its own", remedy, where=KEY.name
            )
        turn = self._gateway.begin(agent, body, key)
        headers = {"location": turn.url}
        if "respond-async" in request.headers.get("prefer", ""):
            return json_response(turn.record(), 202, {**headers, "preference-applied": "respond-async"})
        if _wants_stream(request):
            # The status of the response is open until the agent has taken the turn.
            await _wait_with_client(request, turn, turn.accepted)
            return self._turn_stream(turn, headers, owned=True)
        await _wait_with_client(request, turn, turn.settled)
        if turn.problem is not None:
            raise turn.problem
        return json_response(turn.record(), headers=headers)

    async def show_turn(self, request: Request) -> Response:
        turn = self._turn_of(request)
        if not _wants_stream(request):
            return json_response(turn.record())
        seen = _parse_position(request.headers.get("last-event-id"), "Last-Event-ID")
        return self._turn_stream(turn, position=0 if seen is None else seen + 1)

    async def withdraw_turn(self, request: Request) -> Response:
        turn = self._turn_of(request)
        turn.withdraw(problem(410, "withdrawn", "the turn was withdrawn by request", "ask again if needed"))
        # The command line may take a moment to end the turn; its record is given in any case.
        with trio.move_on_after(CALL_TIMEOUT):
            await turn.settled.wait()
        return json_response(turn.record())

    def _turn_stream(
        self,
        turn: ServedTurn,
        headers: Mapping[str, str] | None = None,
        *,
        position: int = 0,
        owned: bool = False,
    ) -> EventStream:
        opened = self._turn_source(turn, position, owned)
        return EventStream(opened, turn.agent, self._gateway.hooks.log, headers, turn)

    @asynccontextmanager
    async def _turn_source(self, turn: ServedTurn, position: int, owned: bool) -> AsyncGenerator[Source]:
        try:
            if owned and turn.problem is not None and turn.log is None:
                raise turn.problem  # the agent did not accept it: respond with the problem instead of a stream
            encoded_events, pause = self._gateway.encoded_events, self._gateway.heartbeat
            yield partial(write_turn, encoded_events, turn, position, pause)
        finally:
            # Without its client this turn has no reader: it is withdrawn, not paid for to its end.
            if owned:
                turn.withdraw(_left())

    def _turn_of(self, request: Request) -> ServedTurn:
        return self._gateway.turns.find(self._agent(request).name, request.path_params["id"])

    # -- sessions

    async def list_sessions(self, request: Request) -> Response:
        agent = self._agent(request)
        return json_response(
            r.SessionList(sessions=self._gateway.session_turns_of(agent).records(agent.name))
        )

    async def remove_session(self, request: Request) -> Response:
        agent, id = self._agent(request), request.path_params["id"]
        try:
            removed = await self._gateway.session_turns_of(agent).remove(agent.name, id)
        except SessionBusy as error:
            raise problem(409, "in-use", str(error), "withdraw its turns first", where="id") from error
        if not removed:
            remedy = f"GET /agents/{agent.name}/sessions lists those that are in use"
            detail = f"agent {agent.name!r} has no session {id!r}"
            raise problem(404, "no-such-session", detail, remedy, where="id")
        return Response(status_code=204)

    # -- approvals

    async def list_approvals(self, request: Request) -> Response:
        agent = self._agent(request)
        if _wants_stream(request):
            return EventStream(self._approval_source(agent), agent.name, self._gateway.hooks.log)
        with trio.fail_after(CALL_TIMEOUT):
            async with agent.approvals() as approvals:
                records = tuple(map(r.approval_record, approvals.open()))
        return json_response(r.ApprovalList(approvals=records))

    @asynccontextmanager
    async def _approval_source(self, agent: Agent) -> AsyncGenerator[Source]:
        with trio.CancelScope() as opening:
            opening.deadline = trio.current_time() + CALL_TIMEOUT
            async with agent.approvals() as approvals:
                # Opened: from here the stream may last.
                opening.deadline = float("inf")
                yield partial(write_approvals, approvals, self._gateway.closing, self._gateway.heartbeat)
        if opening.cancelled_caught:
            raise trio.TooSlowError

    async def decide(self, request: Request) -> Response:
        agent, body = self._agent(request), await self._read_body(request, r.DecisionRequest)
        approval = await _open_approval(agent, request.path_params["id"])
        if body.decision == "deny":
            approval.deny(body.message)
        elif body.answers:
            approval.answer(*body.answers)
        else:
            approval.allow(body.input, always=body.decision == "always")
        facts = {"agent": agent.name, "id": approval.id, "tool": approval.tool, "decision": body.decision}
        self._gateway.hooks.log("approval answered", facts)
        return json_response(r.DecisionRecord(id=approval.id, settled=approval.settled or ""))

    async def extend(self, request: Request) -> Response:
        agent, body = self._agent(request), await self._read_body(request, r.DeadlineRequest)
        approval = await _open_approval(agent, request.path_params["id"])
        approval.extend(body.seconds)
        return json_response(r.approval_record(approval))

    async def list_all_approvals(self, request: Request) -> Response:
        view = self._gateway.view
        if _wants_stream(request):
            source = partial(write_all_approvals, view, self._gateway.closing, self._gateway.heartbeat)
            return EventStream(nullcontext(source), "", self._gateway.hooks.log)
        view.refresh()
        return json_response(r.ApprovalList(approvals=tuple(map(r.approval_record, view.approvals()))))

    # -- budgets

    async def show_budget(self, request: Request) -> Response:
        return self._budget(self._agent(request))

    async def show_fleet_budget(self, request: Request) -> Response:
        return self._budget(None)

    async def set_budget(self, request: Request) -> Response:
        return await self._set_budget(request, self._agent(request))

    async def set_fleet_budget(self, request: Request) -> Response:
        return await self._set_budget(request, None)

    async def remove_budget(self, request: Request) -> Response:
        return await self._remove_budget(self._agent(request))

    async def remove_fleet_budget(self, request: Request) -> Response:
        return await self._remove_budget(None)

    async def _remove_budget(self, agent: Agent | None) -> Response:
        limits, place = self._gateway.budget_place(agent)
        self._gateway.hooks.log("budget changed", {"agent": agent and agent.name, "usd": None, "per": None})
        await limits.remove_budget(place)
        return self._budget(agent)

    def _budget(self, agent: Agent | None) -> Response:
        limits, place = self._gateway.budget_place(agent)
        name = None if agent is None else agent.name
        return json_response(r.budget_record(name, limits.spending_of(place)))

    async def _set_budget(self, request: Request, agent: Agent | None) -> Response:
        body = await self._read_body(request, r.BudgetRequest)
        limits, place = self._gateway.budget_place(agent)
        self._gateway.hooks.log(
            "budget changed", {"agent": agent and agent.name, "usd": body.usd, "per": body.per}
        )
        await limits.set_budget(place, body.usd, body.per)
        return self._budget(agent)

    # -- what was asked and recorded

    async def list_requests(self, request: Request) -> Response:
        state, limit = request.query_params.get("state"), _limit(request)
        if state not in (None, *get_args(r.RequestState)):
            raise problem(
                400, "bad-parameter", f"state is {state!r}", "send waiting, running or ended", where="state"
            )
        agent = request.query_params.get("agent")
        found = await requests_of(self._gateway.agents, self._gateway.stored, agent)
        chosen = [one for one in found if state in (None, one.state)]
        return json_response(r.RequestList(requests=tuple(chosen[:limit])))

    async def list_restarts(self, request: Request) -> Response:
        chosen, limit = request.query_params.get("agent"), _limit(request)
        history, lifecycle = self._gateway.restarts, self._gateway.hooks.lifecycle
        places: Mapping[str, str] = {} if lifecycle is None else lifecycle.paths
        found = [
            r.RestartRecord(agent=name, at=restart.at, cause=restart.cause)
            for name in self._gateway.agents
            if history is not None and chosen in (None, name) and name in places
            for restart in history.of(places[name])
        ]
        newest = sorted(found, key=lambda restart: restart.at, reverse=True)
        return json_response(r.RestartList(restarts=tuple(newest[:limit])))

    async def list_runs(self, request: Request) -> Response:
        agent, limit = request.query_params.get("agent"), _limit(request)
        return json_response(r.RunList(runs=tuple(await runs_of(self._gateway.agents, agent, limit))))

    async def show_run(self, request: Request) -> Response:
        id = request.path_params["id"]
        if (run := await run_of(self._gateway.agents, id)) is None:
            raise _no_run(id)
        return json_response(run_record(run))

    async def list_run_events(self, request: Request) -> Response:
        since = _parse_position(request.query_params.get("since"), "since") or 0
        id = request.path_params["id"]
        if (events := await run_events(self._gateway.agents, id, since)) is None:
            raise _no_run(id)
        return json_response(events)

    # -- the fleet

    async def show_fleet(self, request: Request) -> Response:
        return json_response(self._gateway.view.snapshot())

    async def follow_fleet(self, request: Request) -> Response:
        known = _parse_position(request.query_params.get("since"), "since")
        seen = _parse_position(request.headers.get("last-event-id"), "Last-Event-ID")
        view, closing, pause = self._gateway.view, self._gateway.closing, self._gateway.heartbeat
        source = partial(write_changes, view, known if seen is None else seen, closing, pause)
        return EventStream(nullcontext(source), "", self._gateway.hooks.log)

    async def reload(self, request: Request) -> Response:
        body = await self._read_body(request, r.ReloadRequest)
        self._gateway.hooks.log("reload requested", {"dry_run": body.dry_run, "restart": body.restart})
        found = await self._gateway.reload(dry_run=body.dry_run, restart=body.restart)
        return json_response(msgspec.convert(found, r.ReloadRecord))

    async def shut_down(self, request: Request) -> Response:
        body = await self._read_body(request, r.ShutdownRequest)
        self._gateway.hooks.log("shutdown requested", {"grace": body.grace})
        self._gateway.shut_down(body.grace)
        return json_response(r.ShutdownRecord(pid=os.getpid()), 202)

    # -- the server itself

    async def document(self, request: Request) -> Response:
        if self._document is None:
            self._document = msgspec.json.encode(openapi(self._schemas))
        return Response(self._document, media_type=JSON)

    # -- requests

    def _agent(self, request: Request) -> Agent:
        return self._gateway.agent(request.path_params["name"])

    async def _read_body(self, request: Request, kind: type[T]) -> T:
        return await read(request, kind, self._schemas[kind], self._gateway.limit)


async def _add_record(
    name: str, agent: Agent, records: dict[str, r.AgentRecord], absent: Mapping[str, str]
) -> None:
    if name in absent:
        records[name] = r.AgentRecord(name=name, state="failed", evidence=absent[name])
        return
    try:
        records[name] = r.agent_record(await agent.status())
    except (AgentError, DeliveryError, ActorExited, CallTimeout) as error:
        # One agent that does not answer must not cost the whole list.
        state = "busy" if isinstance(error, CallTimeout) else "stopped"
        records[name] = r.AgentRecord(name=name, state=state, evidence=str(error))


async def _open_approval(agent: Agent, id: str) -> Approval:
    """The open approval of this id. Raises `Problem` when there is none."""
    with trio.fail_after(CALL_TIMEOUT):
        async with agent.approvals() as approvals:
            approval = next((one for one in approvals.open() if one.id == id), None)
    if approval is None:
        detail = f"agent {agent.name!r} has no open approval {id!r}: it is settled or never existed"
        remedy = f"GET /agents/{agent.name}/approvals lists the open ones"
        raise problem(404, "no-such-question", detail, remedy, where="id")
    return approval


def _own_key(agent: Agent) -> str | None:
    """A key for a request that came without one, where the tree of the agent keeps requests: what was accepted is to survive the host."""
    state = agent.kept_state()
    return None if state is None or state.requests is None else str(uuid.uuid4())


async def _log(agent: Agent) -> EventLog:
    with trio.fail_after(CALL_TIMEOUT):
        async with agent.events() as cursor:
            log = cursor.log
    return log


async def _wait_with_client(request: Request, turn: ServedTurn, event: trio.Event) -> None:
    """Wait for the event while the client is connected; withdraw the turn when it disconnects."""
    try:
        async with while_connected(request.receive):
            await event.wait()
    finally:
        if not event.is_set():
            turn.withdraw(_left())
    await event.wait()  # the end of a withdrawn turn


def _left() -> Problem:
    return problem(410, "left", "the client disconnected before the turn ended", "ask again")


def _wants_stream(request: Request) -> bool:
    return STREAM in request.headers.get("accept", "")


def _follows(request: Request) -> bool:
    text = request.query_params.get("follow", "true")
    if text not in ("true", "false"):
        raise problem(400, "bad-parameter", f"follow is {text!r}", "send true or false", where="follow")
    return text == "true"


def _position(request: Request, log: EventLog) -> int:
    since = _parse_position(request.query_params.get("since"), "since")
    seen = _parse_position(request.headers.get("last-event-id"), "Last-Event-ID")
    tail = _parse_position(request.query_params.get("tail"), "tail") or 0
    position = seen + 1 if seen is not None else max(0, log.end - tail) if since is None else since
    if position > log.end:
        detail = f"position {position} is behind the end of the log, {log.end}: it is from an earlier run of the server"
        raise problem(409, "ahead-of-log", detail, "start again with since=0", where="Last-Event-ID")
    return position


def _limit(request: Request) -> int:
    known = _parse_position(request.query_params.get("limit"), "limit")
    return LISTED if known is None else known


def _no_run(id: str) -> Problem:
    remedy = "GET /runs lists those that are there"
    return problem(404, "no-such-run", f"no agent of the fleet has a recorded run {id!r}", remedy, where="id")


def _parse_position(text: str | None, where: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise problem(
            400,
            "bad-position",
            f"{where} is {text!r}",
            "send a position: a whole number, 0 or more",
            where=where,
        )
    return int(text)
