"""Why a request has no result, as `application/problem+json` (RFC 9457). One table says which error is which.

Guarantees: whoever reads one learns what is wrong, where, and what to do; a `Retry-After` stands where repeating makes
sense and is safe. What the table does not name is a fault of ours: 500, and its text stays here.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import attrs
import msgspec
import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from proctor.actors.errors import (
    AgentError,
    AskNotSent,
    AskTimeout,
    BadOption,
    MaybeExecuted,
    NotExecuted,
    delivery_of,
)
from proctor.actors.gateways.http.schemas import (
    DeliveryRecord,
    ProblemRecord,
    ViolationRecord,
    delivery_record,
)
from proctor.runtime.errors import ActorExited, CallTimeout, NotFound, Restarting, Running, StartError
from proctor.runtime.exits import DeliveryError, NoProc
from proctor.runtime.processes.process_errors import ProcessError

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 2
"""Seconds after which repeating may help."""


class Problem(Exception):
    """Ends a request with `record`. `headers` are those of the response."""

    def __init__(self, record: ProblemRecord, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(record.detail)
        self.record = record
        self.headers = dict(headers or {})


@attrs.frozen
class Kind:
    """Status, stable name, and what the client can do about it."""

    status: int
    name: str
    remedy: str
    again: bool = False


ERRORS: Mapping[type[Exception], Kind] = {
    AskNotSent: Kind(504, "deadline-unsent", "ask again: the agent was never told", again=True),
    AskTimeout: Kind(504, "deadline", "ask again with a longer timeout; the turn was interrupted"),
    MaybeExecuted: Kind(502, "maybe-executed", "look at what the agent did before asking again"),
    NotExecuted: Kind(503, "not-executed", "ask again: the agent was never told", again=True),
    NoProc: Kind(503, "not-running", "wait until the agent runs: GET /agents says what it does", again=True),
    ActorExited: Kind(503, "not-running", "ask again: the agent ended before it was told", again=True),
    CallTimeout: Kind(503, "busy", "ask again: the agent did not reply in time", again=True),
    Running: Kind(409, "running", "stop it first, or restart it"),
    Restarting: Kind(409, "running", "it is being restarted already: GET /agents says what it does"),
    NotFound: Kind(404, "forgotten", "a temporary agent is forgotten when it ends"),
    StartError: Kind(502, "not-started", "see the detail; mend what is wrong and start it"),
    trio.TooSlowError: Kind(503, "busy", "ask again: the agent did not reply in time", again=True),
    BadOption: Kind(422, "not-possible", "change the request or the agent's options as the detail says"),
    DeliveryError: Kind(
        503, "not-running", "wait until the agent runs: GET /agents says what it does", again=True
    ),
    ProcessError: Kind(502, "agent-failed", "see the detail: its command line could not be run"),
    AgentError: Kind(502, "agent-failed", "see the detail, and the agent's events"),
}
"""What an agent's call raises; the first that fits."""

REMEDIES: Mapping[int, str] = {
    404: "GET /agents lists what there is, GET /openapi.json every path",
    405: "use a method that the header Allow names",
    500: "report it: this is a fault of the server",
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
    """A problem to raise. `where` is a JSON pointer, or the name of a header or a parameter."""
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


def problem_of(error: Exception) -> Problem:
    """The problem that an agent's error is."""
    if isinstance(error, Problem):
        return error
    kind = next((k for kinds, k in ERRORS.items() if isinstance(error, kinds)), None)
    if kind is None:
        return problem(500, "internal", "an internal error", REMEDIES[500])
    headers = {"retry-after": str(RETRY_AFTER)} if kind.again else None
    detail, delivery = str(error) or "no reply came in time", delivery_record(delivery_of(error))
    return problem(kind.status, kind.name, detail, kind.remedy, headers=headers, delivery=delivery)


def told(error: Problem) -> Response:
    """The response."""
    return Response(msgspec.json.encode(error.record), error.record.status, error.headers, MEDIA_TYPE)


async def on_error(request: Request, error: Exception) -> Response:
    """Starlette's handler of what a route raised."""
    return told(problem_of(error))


async def on_http(request: Request, error: Exception) -> Response:
    """Its handler of what its router refused."""
    assert isinstance(error, HTTPException)
    remedy = REMEDIES.get(error.status_code, REMEDIES[404])
    phrase = HTTPStatus(error.status_code).phrase
    name = phrase.lower().replace(" ", "-")
    detail = f"{phrase.lower()}: {request.method} {request.url.path}"
    return told(problem(error.status_code, name, detail, remedy, headers=error.headers))
