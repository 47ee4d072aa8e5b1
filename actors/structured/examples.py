"""An example of what a JSON schema describes: its own examples and defaults, else a minimal value of each type.

A candidate may still break the schema (patterns are not looked at), so the caller checks it first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, cast

import attrs

_PARTS = 5000
"""Values in one candidate: a small schema can ask for more than memory holds."""
_CHARACTERS = 10_000
"""Characters in one text."""

FORMATS: Mapping[str, str] = {
    "date": "2024-05-17",
    "date-time": "2024-05-17T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "decimal": "1.5",
}


class _NoExampleError(Exception):
    pass


@attrs.frozen
class _Context:
    """The schema that references lead into, whether optional properties are filled in, and the values made so far."""

    whole: Mapping[str, Any]
    optional: bool
    made: Iterator[int] = attrs.field(factory=count)
    open: frozenset[str] = frozenset()
    """References that are being followed: a value inside itself has no end."""


def examples_of(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Candidates: with every property, then with only the required ones. None where none can be made."""
    for optional in (True, False):
        try:
            yield _example(schema, _Context(schema, optional))
        except (_NoExampleError, ArithmeticError):  # bounds beyond what a number can be
            continue


def _example(schema: Any, context: _Context) -> Any:
    if next(context.made) >= _PARTS or schema is False:
        raise _NoExampleError
    if not isinstance(schema, Mapping):
        return "text"
    flat, context = _merged(cast("Mapping[str, Any]", schema), context)
    for keyword in ("examples", "enum"):
        if flat.get(keyword):
            return flat[keyword][0]
    for keyword in ("const", "default"):
        if keyword in flat:
            return flat[keyword]
    for keyword in ("anyOf", "oneOf"):
        if keyword in flat:
            return _first_branch(flat, flat.pop(keyword), context)
    return _MAKERS.get(_type_of(flat), _string)(flat, context)


def _merged(schema: Mapping[str, Any], context: _Context) -> tuple[dict[str, Any], _Context]:
    """The keywords of a schema together with those of its reference and of its `allOf`."""
    flat: dict[str, Any] = {}
    rest = dict(schema)
    parts = rest.pop("allOf", [])
    if (reference := rest.pop("$ref", None)) is not None:
        if reference in context.open:
            raise _NoExampleError
        context = attrs.evolve(context, open=context.open | {reference})
        parts = [_target(str(reference), context.whole), *parts]
    for part in parts:
        other, context = _merged(part, context)
        flat = _joined(flat, other)
    return _joined(flat, rest), context


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = [*one["required"], *other["required"]]
    return both


def _target(reference: str, whole: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = whole
    for step in reference.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        found = cast("Mapping[str, Any]", found).get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not reference.startswith("#"):
        raise _NoExampleError
    return cast("Mapping[str, Any]", found)


def _first_branch(flat: Mapping[str, Any], branches: list[Any], context: _Context) -> Any:
    for branch in branches:
        try:
            return _example(_branch_of(flat, branch), context)
        except _NoExampleError:
            # a branch that refers to itself has no finite example; another one may
            continue
    raise _NoExampleError


def _branch_of(flat: Mapping[str, Any], branch: Any) -> Any:
    return _joined(flat, cast("Mapping[str, Any]", branch)) if isinstance(branch, Mapping) else branch


_IMPLIED: Mapping[str, str] = {
    "properties": "object", "required": "object", "items": "array", "prefixItems": "array", "minItems": "array",
    "minimum": "number", "exclusiveMinimum": "number", "maximum": "number", "multipleOf": "number",
}  # fmt: skip
"""The type that a schema without one is likely to describe, by its keywords."""


def _type_of(schema: Mapping[str, Any]) -> str:
    declared = schema.get("type") or next(
        (kind for word, kind in _IMPLIED.items() if word in schema), "string"
    )
    return str(declared if isinstance(declared, str) else declared[0])


# -- one maker for each type


def _object(schema: Mapping[str, Any], context: _Context) -> Any:
    required: list[str] = schema.get("required", [])
    made: dict[str, Any] = {}
    for name, part in {**dict.fromkeys(required, True), **schema.get("properties", {})}.items():
        try:
            if name in required or context.optional:
                made[name] = _example(part, context)
        except _NoExampleError:
            if name in required:
                raise
    for number in range(len(made), schema.get("minProperties", 0)):
        made[f"key{number + 1}"] = _example(schema.get("additionalProperties", True), context)
    return made


def _array(schema: Mapping[str, Any], context: _Context) -> Any:
    first = [_example(part, context) for part in schema.get("prefixItems", ())]
    least = schema.get("minItems", 0)
    try:
        length = max(least, int(context.optional and schema.get("maxItems") != 0))
        return [*first, *(_example(schema.get("items", True), context) for _ in range(length - len(first)))]
    except _NoExampleError:
        if least > len(first):
            raise
        return first


def _string(schema: Mapping[str, Any], context: _Context) -> Any:
    if (text := FORMATS.get(schema.get("format", ""))) is not None:
        return text
    least, most = schema.get("minLength", 0), schema.get("maxLength", 4)
    if least > _CHARACTERS:
        raise _NoExampleError
    return "text"[: int(most)].ljust(least, ".")


def _number(schema: Mapping[str, Any], context: _Context) -> Any:
    """The multiple of `multipleOf` that is nearest to a bound."""
    step = schema.get("multipleOf", 1)
    if (low := max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))) > -math.inf:
        steps = math.ceil(low / step)
        return (steps + (steps * step == schema.get("exclusiveMinimum"))) * step
    if (high := min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))) < math.inf:
        steps = math.floor(high / step)
        return (steps - (steps * step == schema.get("exclusiveMaximum"))) * step
    return step


_MAKERS: Mapping[str, Callable[[Mapping[str, Any], _Context], Any]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _number,
    "number": _number,
    "boolean": lambda schema, context: True,
    "null": lambda schema, context: None,
}
