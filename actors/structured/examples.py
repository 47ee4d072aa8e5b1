"""Examples of what a JSON schema asks for, as far as they can be made by looking at it.

A candidate may still be wrong, where keywords that are looked at one by one hold together only by luck; so whoever
shows one checks it first. Candidates come from the fullest (every property) to the barest (what is required).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, cast

import attrs

from proctor.actors.structured.patterns import matching

_MANY = 100
"""Items that an example of a list has at most."""
_LONGEST = 10_000
"""Characters that are added to a text to make it long enough, at most."""
_PARTS = 5000
"""Values that are made for one candidate, at most: a small schema can ask for more than there is room for."""

FORMATS: Mapping[str, str] = {
    "date": "2024-05-17",
    "date-time": "2024-05-17T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "idn-email": "someone@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "iri": "https://example.com/",
    "uri-reference": "/a",
    "iri-reference": "/a",
    "uri-template": "/a/{b}",
    "json-pointer": "/a",
    "relative-json-pointer": "0",
    "regex": "a",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "decimal": "1.5",
}


class _NoExampleError(Exception):
    pass


Parts = Mapping[str, Any]


@attrs.frozen
class _Making:
    """`whole` is where references lead into, `open` those that are being followed: what is made of itself has no end.
    `full` says whether optional properties are made, `place` which of several it is in a list. `made` counts the values of
    the candidate."""

    whole: Parts
    full: bool
    made: Iterator[int] = attrs.field(factory=count)
    place: int = 0
    open: frozenset[str] = frozenset()

    def at(self, place: int = 0) -> _Making:
        return attrs.evolve(self, place=place)


def examples_of(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Candidates, the best first; none where not even one could be thought of."""
    for full in (True, False):
        try:
            yield _example(schema, _Making(schema, full))
        except (_NoExampleError, ArithmeticError):  # bounds beyond what a number can be
            continue


def _example(schema: Any, making: _Making) -> Any:
    if next(making.made) >= _PARTS:
        raise _NoExampleError
    if not isinstance(schema, Mapping):
        if schema is False:
            raise _NoExampleError
        return "text"
    flat, making = _followed(cast("Parts", schema), making)
    if "const" in flat:
        return flat["const"]
    for keyword in ("examples", "enum"):
        if given := flat.get(keyword):
            return given[making.place % len(given)]
    for keyword in ("anyOf", "oneOf"):
        if keyword in flat:
            return _of_a_branch(keyword, flat, making)
    return _MAKERS[_type_of(flat)](flat, making)


def _followed(schema: Parts, making: _Making) -> tuple[Parts, _Making]:
    """The schema joined with what it refers to and with what it has to be besides."""
    flat = dict(schema)
    if (reference := flat.pop("$ref", None)) is not None:
        if reference in making.open:
            raise _NoExampleError
        making = attrs.evolve(making, open=making.open | {reference})
        named, making = _followed(_found(str(reference), making.whole), making)
        flat = _joined(named, flat)
    for part in flat.pop("allOf", ()):
        other, making = _followed(part, making)
        flat = _joined(flat, other)
    return flat, making


def _of_a_branch(keyword: str, flat: Parts, making: _Making) -> Any:
    """Of the first branch that an example can be made of."""
    rest = {key: value for key, value in flat.items() if key != keyword}
    for branch in flat[keyword]:
        try:
            joined = _joined(rest, cast("Parts", branch)) if isinstance(branch, Mapping) else rest
            return _example(joined, making)
        except _NoExampleError:
            continue
    raise _NoExampleError


def _joined(one: Parts, other: Parts) -> dict[str, Any]:
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = [*one["required"], *other["required"]]
    return both


def _found(reference: str, whole: Parts) -> Parts:
    found: Any = whole
    for step in reference.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or key not in found:
            raise _NoExampleError
        found = cast("Parts", found)[key]
    if not isinstance(found, Mapping) or not reference.startswith("#"):
        raise _NoExampleError
    return cast("Parts", found)


_TELLING: Mapping[str, str] = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "minimum": "number",
    "exclusiveMinimum": "number",
    "maximum": "number",
    "multipleOf": "number",
}
"""What a schema without a type is likely to be about."""


def _type_of(schema: Parts) -> str:
    match schema.get("type"):
        case str() as named:
            return named
        case [first, *_]:
            return str(first)
        case _:
            return next((kind for word, kind in _TELLING.items() if word in schema), "string")


# -- one maker for each type


def _object(schema: Parts, making: _Making) -> Any:
    made: dict[str, Any] = {}
    required: list[str] = schema.get("required", [])
    properties: dict[str, Any] = {**dict.fromkeys(required, True), **schema.get("properties", {})}
    for name, part in properties.items():
        try:
            if name in required or making.full:
                made[name] = _example(part, making.at())
        except _NoExampleError:
            if name in required:
                raise
    for number in range(len(made), schema.get("minProperties", 0)):
        made[f"key{number + 1}"] = _example(schema.get("additionalProperties", True), making.at(number))
    return made


def _array(schema: Parts, making: _Making) -> Any:
    first = [_example(part, making.at()) for part in schema.get("prefixItems", ())]
    item = schema.get("items", True)
    if item is not False and making.full and schema.get("maxItems", 1):
        least = max(1, schema.get("minItems", 0))
    else:
        least = schema.get("minItems", 0)
    if least > _MANY:
        raise _NoExampleError
    try:
        return [*first, *(_example(item, making.at(n)) for n in range(least - len(first)))]
    except _NoExampleError:
        if schema.get("minItems", 0) > len(first):
            raise
        return first


def _string(schema: Parts, making: _Making) -> Any:
    if "pattern" in schema:
        text = matching(schema["pattern"], schema.get("minLength", 0))
        if text is None:
            raise _NoExampleError
        return text
    if (text := FORMATS.get(schema.get("format", ""))) is not None:
        return text
    text = f"text{making.place + 1}" if making.place else "text"
    least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    if least > _LONGEST:
        raise _NoExampleError
    return text.ljust(least, ".") if len(text) <= most else text[-int(most) :] if most else ""


def _integer(schema: Parts, making: _Making) -> Any:
    return int(_steps(schema, making, schema.get("multipleOf", 1)))


def _number(schema: Parts, making: _Making) -> Any:
    found = _steps(schema, making, schema.get("multipleOf", 1))
    if "multipleOf" not in schema and _beyond(schema, found):
        low, high = _bounds(schema)
        found = (low + high) / 2
    return int(found) if found == int(found) else found


def _bounds(schema: Parts) -> tuple[float, float]:
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    return low, high


def _beyond(schema: Parts, found: float) -> bool:
    low, high = _bounds(schema)
    return not low <= found <= high or found in (
        schema.get("exclusiveMinimum"),
        schema.get("exclusiveMaximum"),
    )


def _steps(schema: Parts, making: _Making, step: float) -> float:
    """A multiple of `step` within the bounds, another one for each place in a list."""
    low, high = _bounds(schema)
    if math.isfinite(low):
        start = math.ceil(low / step) + (math.ceil(low / step) * step == schema.get("exclusiveMinimum"))
        return (start + making.place) * step
    if math.isfinite(high):
        start = math.floor(high / step) - (math.floor(high / step) * step == schema.get("exclusiveMaximum"))
        return (start - making.place) * step
    return (1 + making.place) * step


def _boolean(schema: Parts, making: _Making) -> Any:
    return making.place % 2 == 0


def _null(schema: Parts, making: _Making) -> Any:
    return None


_MAKERS: Mapping[str, Callable[[Parts, _Making], Any]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "null": _null,
}
