"""Bodies, taken and given. One that is taken is bounded, of the one content type, and checked by the document's own schemas.

Guarantees: at most `limit` bytes are held; a body that does not come within `PATIENCE` is given up; all that is wrong
with one is told at once, each with its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from proctor.actors.gateways.http.problems import Problem, problem
from proctor.actors.gateways.http.schemas import Taken, ViolationRecord
from proctor.actors.structured.schemas import Schema
from proctor.protocols.lenient import Refusal

LIMIT = 8 * 2**20
PATIENCE = 30.0
JSON = "application/json"

Record = TypeVar("Record", bound=Taken)


def given(record: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A record as a response."""
    return Response(msgspec.json.encode(record), status, headers, JSON)


async def read(request: Request, kind: type[Record], schema: Schema, limit: int = LIMIT) -> Record:
    """The body as a record. Raises `Problem`."""
    said = request.headers.get("content-type", "")
    if said.partition(";")[0].strip().lower() != JSON:
        detail = f"the body is {said!r}" if said else "the body has no content type"
        raise problem(415, "content-type", detail, f"send {JSON}", where="Content-Type")
    value = _decoded(await _bytes(request, limit))
    if wrong := schema.violations(value):
        raise problem(
            422,
            "invalid-body",
            f"the body is no {kind.__name__}: {wrong[0]}"
            + (f", and {len(wrong) - 1} more" if wrong[1:] else ""),
            f"send what #/components/schemas/{kind.__name__} of GET /openapi.json says",
            where=wrong[0].path,
            violations=tuple(ViolationRecord(where=v.path, what=v.message) for v in wrong[:100]),
        )
    return msgspec.convert(value, kind)


async def _bytes(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    with trio.move_on_after(PATIENCE):
        try:
            return await _collected(request, limit)
        except ClientDisconnect:
            raise problem(400, "cut", "the client left in the body", "send all of it") from None
    raise problem(408, "slow-body", f"the body did not come within {PATIENCE:g} s", "send it faster")


async def _collected(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> Problem:
    return problem(413, "too-large", f"the body has more than {limit} bytes", "send a smaller one")


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except Refusal as error:
        raise problem(400, "not-json", f"the body is not JSON: {error}", "send one JSON object") from None
