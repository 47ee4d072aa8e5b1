"""JSON bodies of requests and responses.

A request body has at most `limit` bytes, arrives within `BODY_TIMEOUT` seconds, and is checked by the schemas of the OpenAPI
document. All violations are reported at once, each with its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from proctor.actors.gateways.http.problems import Problem, problem
from proctor.actors.gateways.http.schemas import RequestBody, ViolationRecord
from proctor.actors.structured.schemas import Schema
from proctor.actors.web_server.exchange import body_of
from proctor.protocols.lenient import Refusal

LIMIT = 8 * 2**20
BODY_TIMEOUT = 30.0
JSON = "application/json"

Record = TypeVar("Record", bound=RequestBody)


def json_response(
    record: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Make a response of a record."""
    return Response(msgspec.json.encode(record), status, headers, JSON)


async def read(request: Request, kind: type[Record], schema: Schema, limit: int = LIMIT) -> Record:
    """Read the body as a record. Raises `Problem`."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != JSON:
        detail = (
            f"the content type of the body is {content_type!r}"
            if content_type
            else "the body has no content type"
        )
        raise problem(415, "content-type", detail, f"send {JSON}", where="Content-Type")
    value = _decoded(await _bytes(request, limit))
    if violations := schema.violations(value):
        raise problem(
            422,
            "invalid-body",
            f"the body does not match {kind.__name__}: {violations[0]}"
            + (f", and {len(violations) - 1} more" if violations[1:] else ""),
            f"see #/components/schemas/{kind.__name__} of GET /openapi.json",
            where=violations[0].path,
            violations=tuple(ViolationRecord(where=v.path, what=v.message) for v in violations[:100]),
        )
    return msgspec.convert(value, kind)


async def _bytes(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    # Before a byte is read.
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    body: bytes | None = None
    # A client that sends slowly must not hold its connection and the memory of its body.
    with trio.move_on_after(BODY_TIMEOUT) as clock:
        try:
            body = await body_of(request.stream(), limit)
        except ClientDisconnect:
            detail = "the client disconnected before the end of the body"
            raise problem(400, "cut", detail, "send all of it") from None
    if clock.cancelled_caught:
        detail = f"the body did not arrive within {BODY_TIMEOUT:g} s"
        raise problem(408, "slow-body", detail, "send it faster")
    if body is None:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> Problem:
    return problem(413, "too-large", f"the body has more than {limit} bytes", "send a smaller one")


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except Refusal as error:
        raise problem(400, "not-json", f"the body is not JSON: {error}", "send one JSON object") from None
