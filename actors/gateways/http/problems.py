"""Errors as `application/problem+json` (RFC 9457).

Status and remedy are those of the error class; `NAMES` adds the stable name. `Retry-After` is sent where repeating helps
and is safe. An error that is not in the table is our fault: 500, without its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from proctor.actors.agent.stored_requests import KeyReused
from proctor.actors.error_kinds import facts_of, is_safe_to_repeat
from proctor.actors.errors import (
    AgentError,
    AskNotSent,
    AskTimeout,
    BadOption,
    BudgetExceeded,
    MaybeExecuted,
    NotExecuted,
    SessionBusy,
    SessionOwned,
    UnsupportedPayload,
    delivery_of,
)
from proctor.actors.gateways.http.schemas import (
    DeliveryRecord,
    ProblemRecord,
    ViolationRecord,
    delivery_record,
)
from proctor.actors.store.backend import StoreError
from proctor.runtime.errors import CallTimeout, NotFound, Restarting, Running, StartError, SupervisionError
from proctor.runtime.exits import DeliveryError, NoProc
from proctor.runtime.processes import ProcessError

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 2
"""Seconds after which repeating may help."""


class Problem(Exception):
    """An error response: its `record` and its `headers`."""

    def __init__(self, record: ProblemRecord, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(record.detail)
        self.record = record
        self.headers = dict(headers or {})


NAMES: Mapping[type[Exception], str] = {
    AskNotSent: "deadline-unsent",
    AskTimeout: "deadline",
    MaybeExecuted: "maybe-executed",
    SessionBusy: "in-use",
    SessionOwned: "in-use",
    NotExecuted: "not-executed",
    BudgetExceeded: "budget-spent",
    CallTimeout: "busy",
    Running: "running",
    Restarting: "running",
    NotFound: "forgotten",
    StartError: "not-started",
    trio.TooSlowError: "busy",
    KeyReused: "key-reused",
    StoreError: "not-kept",
    BadOption: "not-possible",
    UnsupportedPayload: "not-possible",
    SupervisionError: "refused",
    DeliveryError: "not-running",
    ProcessError: "agent-failed",
    AgentError: "agent-failed",
}
"""Errors of calls to agents → the stable name of the problem; the first entry that matches counts."""

REMEDIES: Mapping[int, str] = {
    404: "GET /agents lists the agents, GET /openapi.json every path",
    405: "use a method that the header Allow lists",
    500: "report it: this is a bug in the server",
}


def problem(
    status: int,
    name: str,
    detail: str,
    remedy: str,
    *,
    where: str = "",
    violations: tuple[ViolationRecord, ...] = (),
    delivery: DeliveryRecord | None = None,
    headers: Mapping[str, str] | None = None,
) -> Problem:
    """Make a problem to raise. `where` is a JSON pointer, or the name of a header or a parameter."""
    record = ProblemRecord(
        type=f"urn:proctor:problem:{name}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        remedy=remedy,
        where=where,
        violations=violations,
        delivery=delivery,
    )
    return Problem(record, headers)


def no_new_work(detail: str, remedy: str) -> Problem:
    """The problem of a server that accepts no turns now."""
    return problem(503, "no-new-work", detail, remedy, headers={"retry-after": str(RETRY_AFTER)})


def problem_of(error: Exception) -> Problem:
    """The problem for an error of an agent."""
    if isinstance(error, Problem):
        return error
    name = next((name for kind, name in NAMES.items() if isinstance(error, kind)), None)
    facts = facts_of(error)
    if name is None or facts.http_status == 500:
        return problem(500, "internal", "an internal error", REMEDIES[500])
    headers = {"retry-after": str(RETRY_AFTER)} if is_safe_to_repeat(error) else None
    detail, delivery = str(error) or "no reply came in time", delivery_record(delivery_of(error))
    if isinstance(error, NoProc) and isinstance(error.target, str):
        detail = f"agent {error.target!r} is not running"  # it is one of the gateway's, so it exists
    return problem(facts.http_status, name, detail, facts.remedy, headers=headers, delivery=delivery)


def to_response(error: Problem) -> Response:
    """The problem as a response."""
    return Response(msgspec.json.encode(error.record), error.record.status, error.headers, MEDIA_TYPE)


async def on_error(request: Request, error: Exception) -> Response:
    """Starlette's handler for errors of routes."""
    return to_response(problem_of(error))


async def on_http(request: Request, error: Exception) -> Response:
    """Starlette's handler for errors of its router."""
    assert isinstance(error, HTTPException)
    remedy = REMEDIES.get(error.status_code, REMEDIES[404])
    phrase = HTTPStatus(error.status_code).phrase
    name = phrase.lower().replace(" ", "-")
    detail = f"{phrase.lower()}: {request.method} {request.url.path}"
    return to_response(problem(error.status_code, name, detail, remedy, headers=error.headers))
