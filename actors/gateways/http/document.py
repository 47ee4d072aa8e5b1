"""The OpenAPI document (3.1). Its schemas are those that request bodies are checked by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from proctor.actors.gateways.http import schemas as r
from proctor.actors.gateways.http.operations import OPERATIONS, Operation, Parameter, ResponseKind
from proctor.actors.gateways.http.problems import MEDIA_TYPE
from proctor.actors.structured.schemas import Schema, schema_of
from proctor.protocols.vocabulary import AnyEvent

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
        [*records, r.ProblemRecord, r.EndRecord, AnyEvent], ref_template=f"{COMPONENTS}{{name}}"
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
