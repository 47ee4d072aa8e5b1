"""What can be asked, as a table: the routes and the OpenAPI document are both made of it, so that neither says what
the other does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from proctor.actors.gateways.http import schemas as r

Method = Literal["GET", "POST", "DELETE"]
STREAM = "text/event-stream"
TEXT = "text/plain"
Given = type[Any] | str | None
"""A record, another content type, or nothing."""

AGENT_FAULTS = (404, 421, 401, 403, 503)
BODY_FAULTS = (400, 408, 413, 415, 422)


@attrs.frozen
class Parameter:
    """In a path, a query or a header; `schema` is JSON schema."""

    name: str
    place: Literal["path", "query", "header"]
    says: str
    schema: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Operation:
    """One thing to ask. `endpoint` names the function that does it; `gives` is by status, several content types each."""

    method: Method
    path: str
    endpoint: str
    says: str
    takes: type[r.Taken] | None = None
    gives: Mapping[int, tuple[Given, ...]]
    parameters: tuple[Parameter, ...] = ()
    faults: tuple[int, ...] = ()

    @property
    def refusals(self) -> tuple[int, ...]:
        """The statuses of its problems."""
        common = AGENT_FAULTS if "{name}" in self.path else (421, 401, 403)
        body = BODY_FAULTS if self.takes is not None else ()
        return tuple(sorted({*common, *body, *self.faults}))


NUMBER: Mapping[str, Any] = {"type": "integer", "minimum": 0}
WORD: Mapping[str, Any] = {"type": "string", "minLength": 1}
NAME = Parameter("name", "path", "The agent's name.", WORD)
TURN = Parameter("id", "path", "The turn's id.", WORD)
SESSION = Parameter("id", "path", "The session's name.", {"type": "string", "pattern": r.SESSION})
QUESTION = Parameter("id", "path", "The question's id.", WORD)
SINCE = Parameter(
    "since", "query", "The position of the first event wanted; without it, from now on.", NUMBER
)
LAST = Parameter("Last-Event-ID", "header", "The last position that was seen; goes before `since`.", NUMBER)
FOLLOW = Parameter(
    "follow",
    "query",
    "`false` ends the stream where the events end now.",
    {"type": "boolean", "default": True},
)
PREFER = Parameter(
    "Prefer", "header", "`respond-async`: 202 at once; the turn goes on without its client.", WORD
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(method="GET", path="/agents", endpoint="list_agents", says="All agents and what they do.",
              gives={200: (r.AgentList,)}),
    Operation(method="GET", path="/agents/{name}", endpoint="show_agent", says="What one agent does.",
              gives={200: (r.AgentRecord,)}, parameters=(NAME,)),
    Operation(method="GET", path="/agents/{name}/events", endpoint="follow_events", parameters=(NAME, SINCE, LAST, FOLLOW),
              says="The agent's events, from its log; 204 when it is at rest and there is nothing more to come.",
              gives={200: (STREAM,), 204: (None,)}, faults=(400, 409)),
    Operation(method="GET", path="/agents/{name}/turns", endpoint="list_turns", says="Its turns that were asked for here.",
              gives={200: (r.TurnList,)}, parameters=(NAME,)),
    Operation(method="POST", path="/agents/{name}/turns", endpoint="begin_turn", takes=r.TurnRequest, parameters=(NAME, PREFER),
              says="Ask; `Accept: text/event-stream` gives the turn's events, else its answer when it has ended.",
              gives={200: (r.TurnRecord, STREAM), 202: (r.TurnRecord,)}, faults=(429, 502, 504)),
    Operation(method="GET", path="/agents/{name}/turns/{id}", endpoint="show_turn", parameters=(NAME, TURN, LAST),
              says="A turn; `Accept: text/event-stream` gives its events, also when it has ended.",
              gives={200: (r.TurnRecord, STREAM)}, faults=(400,)),
    Operation(method="DELETE", path="/agents/{name}/turns/{id}", endpoint="withdraw_turn", parameters=(NAME, TURN),
              says="Withdraw a turn that waits, or interrupt it.", gives={200: (r.TurnRecord,)}),
    Operation(method="GET", path="/agents/{name}/sessions", endpoint="list_sessions", parameters=(NAME,),
              says="The sessions that turns were asked for in.", gives={200: (r.SessionList,)}, faults=(422,)),
    Operation(method="DELETE", path="/agents/{name}/sessions/{id}", endpoint="remove_session", parameters=(NAME, SESSION),
              says="Remove a session, with its folder and its conversation.", gives={204: (None,)}, faults=(409, 422)),
    Operation(method="POST", path="/agents/{name}/stop", endpoint="stop", parameters=(NAME,), faults=(422,),
              says="Stop the agent, down its ladder; it stays down until it is started.", gives={200: (r.AgentRecord,)}),
    Operation(method="POST", path="/agents/{name}/start", endpoint="start", parameters=(NAME,), faults=(409, 422, 502),
              says="Start an agent that is down.", gives={200: (r.AgentRecord,)}),
    Operation(method="POST", path="/agents/{name}/restart", endpoint="restart", parameters=(NAME,), faults=(409, 422, 502),
              says="Stop the agent and start it again, in its session.", gives={200: (r.AgentRecord,)}),
    Operation(method="POST", path="/agents/{name}/interrupt", endpoint="interrupt", parameters=(NAME,),
              says="End the turn that runs, whoever asked for it; the session lives on.", gives={200: (r.ReceiptRecord,)}),
    Operation(method="POST", path="/agents/{name}/steer", endpoint="steer", takes=r.SteerRequest, parameters=(NAME,),
              says="Say something into the turn that runs.", gives={200: (r.ReceiptRecord,)}),
    Operation(method="POST", path="/agents/{name}/queue", endpoint="queue", takes=r.QueueRequest, parameters=(NAME,),
              says="Have something asked in a turn of its own, without waiting for it.", gives={202: (r.ReceiptRecord,)}),
    Operation(method="GET", path="/agents/{name}/approvals", endpoint="list_approvals", parameters=(NAME,),
              says="The tools that wait for a decision; `Accept: text/event-stream` gives those to come as well.",
              gives={200: (r.ApprovalList, STREAM)}, faults=(422,)),
    Operation(method="POST", path="/agents/{name}/approvals/{id}", endpoint="decide", takes=r.DecisionRequest,
              says="Let a tool run, or not.", gives={200: (r.DecisionRecord,)}, parameters=(NAME, QUESTION), faults=(409,)),
    Operation(method="GET", path="/openapi.json", endpoint="document", says="This document.", gives={200: ("application/json",)}),
    Operation(method="GET", path="/healthz", endpoint="alive", says="The server answers, at once, with what the last look at the checks found. Needs no token.",
              gives={200: (r.HealthRecord,)}),
    Operation(method="GET", path="/readyz", endpoint="ready", says="Work is taken, and every check is good.",
              gives={200: (r.HealthRecord,), 503: (r.HealthRecord,)}),
    Operation(method="GET", path="/metrics", endpoint="metrics", says="Metrics in the Prometheus text format, where there are any.",
              gives={200: (TEXT,)}, faults=(404,)),
)  # fmt: skip
"""Everything there is."""
