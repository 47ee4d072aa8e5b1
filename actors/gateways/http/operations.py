"""The operations of the gateway as a table, from which the routes are made, and their OpenAPI document (3.1).

The schemas of the document are those that request bodies are checked by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, get_args

import attrs
import msgspec

from proctor.actors.gateways.http import schemas as r
from proctor.actors.gateways.http.problems import MEDIA_TYPE
from proctor.actors.structured.schemas import Schema, schema_of
from proctor.protocols.vocabulary import AnyEvent

Method = Literal["GET", "POST", "PUT", "DELETE"]
STREAM = "text/event-stream"
TEXT = "text/plain"
ResponseKind = type[Any] | str | None
"""The type of a record, another content type, or nothing."""

AGENT_ERRORS = (404, 421, 401, 403, 503)
BODY_ERRORS = (400, 408, 413, 415, 422)


@attrs.frozen
class Parameter:
    """A parameter in a path, a query or a header; `schema` is its JSON schema."""

    name: str
    location: Literal["path", "query", "header"]
    summary: str
    schema: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Operation:
    """One method of one path. `endpoint` names its function; `responses` has the content types of each status."""

    method: Method
    path: str
    endpoint: str
    summary: str
    body: type[r.RequestBody] | None = None
    responses: Mapping[int, tuple[ResponseKind, ...]]
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[int, ...] = ()

    @property
    def error_statuses(self) -> tuple[int, ...]:
        """The statuses of its error responses."""
        common = AGENT_ERRORS if "{name}" in self.path else (421, 401, 403)
        of_body = BODY_ERRORS if self.body is not None else ()
        return tuple(sorted({*common, *of_body, *self.errors}))


NUMBER: Mapping[str, Any] = {"type": "integer", "minimum": 0}
WORD: Mapping[str, Any] = {"type": "string", "minLength": 1}
NAME = Parameter("name", "path", "The agent's name.", WORD)
TURN = Parameter("id", "path", "The turn's id.", WORD)
SESSION = Parameter("id", "path", "The session's name.", {"type": "string", "pattern": r.SESSION})
APPROVAL = Parameter("id", "path", "The approval's id.", WORD)
SINCE = Parameter("since", "query", "The position of the first event; default: new events only.", NUMBER)
TAIL = Parameter(
    "tail", "query", "Begin with so many events before the end of the log, without `since`.", NUMBER
)
LAST = Parameter(
    "Last-Event-ID",
    "header",
    "The position of the last event that was received; takes precedence over `since`.",
    NUMBER,
)
FIRST = Parameter("since", "query", "The position of the first event; default: 0.", NUMBER)
RUN = Parameter("id", "path", "The run's id.", WORD)
OF_AGENT = Parameter("agent", "query", "Only those of this agent.", WORD)
OF_STATE = Parameter("state", "query", "Only those in this state.", {"enum": [*get_args(r.RequestState)]})
MOST = Parameter("limit", "query", "At most so many; default: 100.", {**NUMBER, "default": 100})
SEQUENCE = Parameter(
    "since", "query", "The number of the last change that is known; default: the last one.", NUMBER
)
LAST_CHANGE = Parameter("Last-Event-ID", "header", "The same; takes precedence over `since`.", NUMBER)
FOLLOW = Parameter(
    "follow",
    "query",
    "`false` ends the stream after the events that exist now.",
    {"type": "boolean", "default": True},
)
PREFER = Parameter(
    "Prefer", "header", "`respond-async`: 202 at once; the turn continues when its client disconnects.", WORD
)
KEY = Parameter(
    "Idempotency-Key",
    "header",
    "A name of the caller's own for this request: it is carried out once, survives the host, and has the same answer whenever it is asked again.",
    WORD,
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(method="GET", path="/agents", endpoint="list_agents", summary="List all agents and their states.",
              responses={200: (r.AgentList,)}),
    Operation(method="GET", path="/agents/{name}", endpoint="show_agent", summary="Show the state of one agent.",
              responses={200: (r.AgentRecord,)}, parameters=(NAME,)),
    Operation(method="GET", path="/agents/{name}/events", endpoint="follow_events", parameters=(NAME, SINCE, TAIL, LAST, FOLLOW),
              summary="Follow the agent's events; 204 when the agent is at rest and all its events were sent.",
              responses={200: (STREAM,), 204: (None,)}, errors=(400, 409)),
    Operation(method="GET", path="/agents/{name}/turns", endpoint="list_turns", summary="List the turns that were requested here.",
              responses={200: (r.TurnList,)}, parameters=(NAME,)),
    Operation(method="POST", path="/agents/{name}/turns", endpoint="begin_turn", body=r.TurnRequest, parameters=(NAME, PREFER, KEY),
              summary="Start a turn; `Accept: text/event-stream` returns its events, else the response is its answer.",
              responses={200: (r.TurnRecord, STREAM), 202: (r.TurnRecord,)}, errors=(409, 422, 429, 502, 504)),
    Operation(method="GET", path="/agents/{name}/turns/{id}", endpoint="show_turn", parameters=(NAME, TURN, LAST),
              summary="Show a turn; `Accept: text/event-stream` returns its events, also after its end.",
              responses={200: (r.TurnRecord, STREAM)}, errors=(400,)),
    Operation(method="DELETE", path="/agents/{name}/turns/{id}", endpoint="withdraw_turn", parameters=(NAME, TURN),
              summary="Withdraw a waiting turn, or interrupt a running one.", responses={200: (r.TurnRecord,)}),
    Operation(method="GET", path="/agents/{name}/sessions", endpoint="list_sessions", parameters=(NAME,),
              summary="List the sessions that turns were requested in.", responses={200: (r.SessionList,)}, errors=(422,)),
    Operation(method="DELETE", path="/agents/{name}/sessions/{id}", endpoint="remove_session", parameters=(NAME, SESSION),
              summary="Remove a session, with its folder and its conversation.", responses={204: (None,)}, errors=(409, 422)),
    Operation(method="POST", path="/agents/{name}/stop", endpoint="stop", parameters=(NAME,), errors=(422,),
              summary="Stop the agent; it stays down until it is started.", responses={200: (r.AgentRecord,)}),
    Operation(method="POST", path="/agents/{name}/start", endpoint="start", parameters=(NAME,), errors=(409, 422, 502),
              summary="Start an agent that is down.", responses={200: (r.AgentRecord,)}),
    Operation(method="POST", path="/agents/{name}/restart", endpoint="restart", parameters=(NAME,), errors=(409, 422, 502),
              summary="Stop the agent and start it again, in its session.", responses={200: (r.AgentRecord,)}),
    Operation(method="POST", path="/agents/{name}/park", endpoint="park", body=r.ParkRequest, parameters=(NAME,), errors=(422,),
              summary="Hold the agent back: its running turn goes on, no other one begins until it is let go.", responses={200: (r.AgentRecord,)}),
    Operation(method="POST", path="/agents/{name}/unpark", endpoint="unpark", parameters=(NAME,), errors=(422,),
              summary="Let an agent go that was parked by request.", responses={200: (r.AgentRecord,)}),
    Operation(method="POST", path="/agents/{name}/kill", endpoint="kill", parameters=(NAME,), errors=(422,),
              summary="Kill the agent with its processes; its supervisor restarts it as after a crash.", responses={200: (r.AgentRecord,)}),
    Operation(method="POST", path="/agents/{name}/reset", endpoint="reset", parameters=(NAME,), errors=(409, 422, 502),
              summary="Forget the agent's restarts, and start it unless it works.", responses={200: (r.AgentRecord,)}),
    Operation(method="POST", path="/agents/{name}/interrupt", endpoint="interrupt", parameters=(NAME,),
              summary="End the running turn; the session continues.", responses={200: (r.ReceiptRecord,)}),
    Operation(method="POST", path="/agents/{name}/steer", endpoint="steer", body=r.SteerRequest, parameters=(NAME,),
              summary="Send text to the running turn.", responses={200: (r.ReceiptRecord,)}),
    Operation(method="POST", path="/agents/{name}/queue", endpoint="queue", body=r.QueueRequest, parameters=(NAME, KEY), errors=(409, 422),
              summary="Queue a prompt as a turn of its own, without waiting for it.", responses={202: (r.ReceiptRecord,)}),
    Operation(method="GET", path="/agents/{name}/approvals", endpoint="list_approvals", parameters=(NAME,),
              summary="List the tools that wait for a decision; `Accept: text/event-stream` also returns new ones.",
              responses={200: (r.ApprovalList, STREAM)}, errors=(422,)),
    Operation(method="POST", path="/agents/{name}/approvals/{id}", endpoint="decide", body=r.DecisionRequest,
              summary="Allow or deny a tool, or answer its questions.", responses={200: (r.DecisionRecord,)}, parameters=(NAME, APPROVAL), errors=(409,)),
    Operation(method="POST", path="/agents/{name}/approvals/{id}/deadline", endpoint="extend", body=r.DeadlineRequest,
              summary="Give the decision about a tool more time.", responses={200: (r.ApprovalRecord,)}, parameters=(NAME, APPROVAL), errors=(409,)),
    Operation(method="GET", path="/fleet", endpoint="show_fleet", summary="Show the whole fleet at one moment.",
              responses={200: (r.FleetRecord,)}),
    Operation(method="GET", path="/fleet/changes", endpoint="follow_fleet", parameters=(SEQUENCE, LAST_CHANGE), errors=(400,),
              summary="Follow what changes in the fleet: `agent`, `tree` and `fleet` have the new record, `snapshot` says to take a new one.",
              responses={200: (STREAM,)}),
    Operation(method="GET", path="/approvals", endpoint="list_all_approvals", responses={200: (r.ApprovalList, STREAM)},
              summary="List the open approvals of all agents; `Accept: text/event-stream` follows them: `approval` for each, also when it gets more time, and `settled`."),
    Operation(method="POST", path="/reload", endpoint="reload", body=r.ReloadRequest, errors=(422, 503),
              summary="Read the fleet file again: start what is new, stop what is gone, leave what is the same.", responses={200: (r.ReloadRecord,)}),
    Operation(method="GET", path="/agents/{name}/budget", endpoint="show_budget", parameters=(NAME,), errors=(409, 422),
              summary="Show the budget of an agent.", responses={200: (r.BudgetRecord,)}),
    Operation(method="PUT", path="/agents/{name}/budget", endpoint="set_budget", body=r.BudgetRequest, parameters=(NAME,), errors=(409, 422),
              summary="Change the budget of an agent, or give it one; what is parked for it goes on if it may.", responses={200: (r.BudgetRecord,)}),
    Operation(method="GET", path="/budget", endpoint="show_fleet_budget", summary="Show the budget of the whole fleet.",
              responses={200: (r.BudgetRecord,)}, errors=(422,)),
    Operation(method="PUT", path="/budget", endpoint="set_fleet_budget", body=r.BudgetRequest, errors=(422, 503),
              summary="Change the budget of the whole fleet, or give it one.", responses={200: (r.BudgetRecord,)}),
    Operation(method="DELETE", path="/agents/{name}/budget", endpoint="remove_budget", parameters=(NAME,), errors=(409, 422),
              summary="Remove the budget of an agent; what is parked for it goes on.", responses={200: (r.BudgetRecord,)}),
    Operation(method="DELETE", path="/budget", endpoint="remove_fleet_budget", errors=(422, 503),
              summary="Remove the budget of the whole fleet.", responses={200: (r.BudgetRecord,)}),
    Operation(method="GET", path="/requests", endpoint="list_requests", parameters=(OF_AGENT, OF_STATE, MOST), errors=(400, 503),
              summary="List the requests of the fleet, of its store and of its queues, the newest first.", responses={200: (r.RequestList,)}),
    Operation(method="GET", path="/restarts", endpoint="list_restarts", parameters=(OF_AGENT, MOST), errors=(400,),
              summary="List the restarts of the agents, of earlier hosts too where the fleet has a store, the newest first.", responses={200: (r.RestartList,)}),
    Operation(method="GET", path="/runs", endpoint="list_runs", parameters=(OF_AGENT, MOST), errors=(400,),
              summary="List the recorded runs of the agents, the newest first.", responses={200: (r.RunList,)}),
    Operation(method="GET", path="/runs/{id}", endpoint="show_run", parameters=(RUN,), errors=(404,),
              summary="Show a recorded run.", responses={200: (r.RunRecord,)}),
    Operation(method="GET", path="/runs/{id}/events", endpoint="list_run_events", parameters=(RUN, FIRST), errors=(400, 404),
              summary="Return the events of a recorded run, 1000 at most.", responses={200: (r.EventList,)}),
    Operation(method="POST", path="/shutdown", endpoint="shut_down", body=r.ShutdownRequest,
              summary="Stop the host in order, as SIGTERM does, when running turns have had their grace.", responses={202: (r.ShutdownRecord,)}),
    Operation(method="GET", path="/openapi.json", endpoint="document", summary="Return this document.", responses={200: ("application/json",)}),
    Operation(method="GET", path="/healthz", endpoint="alive", summary="Liveness: 200 at once, with the results of the last health checks. Needs no token.",
              responses={200: (r.HealthRecord,)}),
    Operation(method="GET", path="/readyz", endpoint="ready", summary="Readiness: the server accepts work and every check passes.",
              responses={200: (r.HealthRecord,), 503: (r.HealthRecord,)}),
    Operation(method="GET", path="/metrics", endpoint="metrics", summary="Return metrics in the Prometheus text format, if the server has them.",
              responses={200: (TEXT,)}, errors=(404,)),
)  # fmt: skip
"""All operations."""

# -- the document

COMPONENTS = "#/components/schemas/"
SECURITY: Mapping[str, str] = {
    "type": "http",
    "scheme": "bearer",
    "description": "Only when the server has a token.",
}
EVENTS = (
    "The `data` of an event is one of `#/components/schemas/Event`; the last event, `end`, is an `EndRecord`."
)


def body_schemas() -> dict[type[r.RequestBody], Schema]:
    """The schemas that request bodies are checked by. Raises `BadOption` without the extra `http`."""
    return {op.body: schema_of(op.body) for op in OPERATIONS if op.body is not None}


def openapi(schemas: Mapping[type[r.RequestBody], Schema]) -> dict[str, Any]:
    """The document, as plain data."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "proctor", "version": _version(), "description": EVENTS},
        "paths": paths,
        "components": {
            "schemas": {
                **_response_schemas(),
                **{kind.__name__: dict(s.json) for kind, s in schemas.items()},
            },
            "securitySchemes": {"token": dict(SECURITY)},
        },
        "security": [{}, {"token": []}],
    }


def _version() -> str:
    try:
        return version("proctor")
    except PackageNotFoundError:  # run from its sources
        return "0"


def _response_schemas() -> dict[str, Any]:
    kinds = {kind for op in OPERATIONS for kinds in op.responses.values() for kind in kinds}
    records: list[Any] = sorted((k for k in kinds if isinstance(k, type)), key=lambda kind: kind.__name__)
    (*_, event), parts = msgspec.json.schema_components(
        [*records, r.FleetFacts, r.SettledRecord, r.ProblemRecord, r.EndRecord, AnyEvent],
        ref_template=f"{COMPONENTS}{{name}}",
    )
    return {**parts, "Event": event}


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.endpoint,
        "summary": operation.summary,
        "responses": {
            **{str(status): _response(status, kinds) for status, kinds in operation.responses.items()},
            **{
                str(status): _error_response(status)
                for status in operation.error_statuses
                if status not in operation.responses
            },
        },
    }
    if operation.parameters:
        described["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _content((operation.body,))}
    return described


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.location,
        "description": parameter.summary,
        "required": parameter.location == "path",
        "schema": dict(parameter.schema),
    }


def _response(status: int, kinds: Iterable[ResponseKind]) -> dict[str, Any]:
    content = _content(kinds)
    return {"description": HTTPStatus(status).phrase, **({"content": content} if content else {})}


def _error_response(status: int) -> dict[str, Any]:
    problem = {MEDIA_TYPE: {"schema": {"$ref": f"{COMPONENTS}ProblemRecord"}}}
    return {"description": HTTPStatus(status).phrase, "content": problem}


def _content(kinds: Iterable[ResponseKind]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for kind in kinds:
        if isinstance(kind, str):
            content[kind] = {"schema": {} if kind.endswith("json") else {"type": "string"}}
        elif kind is not None:
            content["application/json"] = {"schema": {"$ref": f"{COMPONENTS}{kind.__name__}"}}
    return content
