"""The OpenAPI document (3.1), and the schemas by which bodies are checked: the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from proctor.actors.gateways.http import schemas as r
from proctor.actors.gateways.http.operations import OPERATIONS, Given, Operation, Parameter
from proctor.actors.gateways.http.problems import MEDIA_TYPE
from proctor.actors.structured.schemas import Schema, schema_of
from proctor.protocols.vocabulary import AnyEvent

PLACE = "#/components/schemas/"
SECURITY: Mapping[str, str] = {
    "type": "http",
    "scheme": "bearer",
    "description": "Only where the server was given a token.",
}
EVENTS = (
    "The `data` of an event is one of `#/components/schemas/Event`; the last event, `end`, is an `EndRecord`."
)


def body_schemas() -> dict[type[r.Taken], Schema]:
    """Those that bodies are checked by. Raises `BadOption` without the extra `http`."""
    return {op.takes: schema_of(op.takes) for op in OPERATIONS if op.takes is not None}


def openapi(schemas: Mapping[type[r.Taken], Schema]) -> dict[str, Any]:
    """The document, as plain data."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "proctor", "version": _version(), "description": EVENTS},
        "paths": paths,
        "components": {
            "schemas": {**_given_schemas(), **{kind.__name__: dict(s.json) for kind, s in schemas.items()}},
            "securitySchemes": {"token": dict(SECURITY)},
        },
        "security": [{}, {"token": []}],
    }


def _version() -> str:
    try:
        return version("proctor")
    except PackageNotFoundError:  # run from its sources
        return "0"


def _given_schemas() -> dict[str, Any]:
    kinds = {given for op in OPERATIONS for several in op.gives.values() for given in several}
    records: list[Any] = sorted((k for k in kinds if isinstance(k, type)), key=lambda kind: kind.__name__)
    (*_, event), parts = msgspec.json.schema_components(
        [*records, r.ProblemRecord, r.EndRecord, AnyEvent], ref_template=f"{PLACE}{{name}}"
    )
    return {**parts, "Event": event}


def _operation(operation: Operation) -> dict[str, Any]:
    said: dict[str, Any] = {
        "operationId": operation.endpoint,
        "summary": operation.says,
        "responses": {
            **{str(status): _response(status, given) for status, given in operation.gives.items()},
            **{
                str(status): _refusal(status)
                for status in operation.refusals
                if status not in operation.gives
            },
        },
    }
    if operation.parameters:
        said["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.takes is not None:
        said["requestBody"] = {"required": True, "content": _content((operation.takes,))}
    return said


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.says,
        "required": parameter.place == "path",
        "schema": dict(parameter.schema),
    }


def _response(status: int, given: Iterable[Given]) -> dict[str, Any]:
    content = _content(given)
    return {"description": HTTPStatus(status).phrase, **({"content": content} if content else {})}


def _refusal(status: int) -> dict[str, Any]:
    problem = {MEDIA_TYPE: {"schema": {"$ref": f"{PLACE}ProblemRecord"}}}
    return {"description": HTTPStatus(status).phrase, "content": problem}


def _content(given: Iterable[Given]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for kind in given:
        if isinstance(kind, str):
            content[kind] = {"schema": {} if kind.endswith("json") else {"type": "string"}}
        elif kind is not None:
            content["application/json"] = {"schema": {"$ref": f"{PLACE}{kind.__name__}"}}
    return content
