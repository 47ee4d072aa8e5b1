"""The JSON schema of an answer, as the model's API takes it from Codex, which always asks for its strict form.

That form has closed objects whose members are all required, and few keywords. What is narrower here is also
right by the schema that was given; what is left out here is for the host to check. A schema with something which
only a keyword outside of the form can say (a mapping with any keys, a list by places) has no such form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from proctor.protocols.dialect import COMBINING

KEPT = frozenset(
    {
        *("type", "enum", "description", "pattern", "format", "multipleOf"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
    }
)
"""Keywords that stay as they are."""

FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"},
)

NEVER = frozenset({"allOf", "prefixItems", "patternProperties", "$dynamicRef"})
"""Keywords without which the rest would mean something else."""

TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}

Schema = Mapping[str, Any]


class _NoFormError(Exception):
    pass


def strict_schema(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The strict form, None where there is none."""
    if schema.get("type") != "object" or any(word in schema for word in COMBINING):
        return None
    try:
        return _strict(schema)
    except _NoFormError:
        return None


def _strict(schema: object) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise _NoFormError
    keywords = cast("Schema", schema)
    if any(word in keywords for word in NEVER):
        raise _NoFormError
    parts = {
        key: {name: _strict(part) for name, part in keywords[key].items()}
        for key in ("$defs", "definitions")
        if keywords.get(key)
    }
    if "$ref" in keywords:
        return {"$ref": keywords["$ref"], **parts}
    made = {key: value for key, value in keywords.items() if key in KEPT}
    if made.get("format") not in FORMATS:
        made.pop("format", None)
    return {**made, **_typed(keywords), **parts}


def _typed(keywords: Schema) -> dict[str, Any]:
    if "const" in keywords:
        return {"type": _type_of([keywords["const"]]), "enum": [keywords["const"]]}
    if "enum" in keywords:
        return {"type": keywords.get("type") or _type_of(keywords["enum"])}
    for word in ("anyOf", "oneOf"):
        if word in keywords:
            return {"anyOf": [_strict(branch) for branch in keywords[word]]}
    match keywords.get("type"):
        case "object":
            return _object(keywords)
        case "array":
            return {"items": _strict(keywords.get("items"))}
        case str():
            return {}
        case [*kinds] if not {"object", "array"} & {*kinds}:
            return {}
        case _:
            raise _NoFormError  # anything at all


def _type_of(values: list[Any]) -> Any:
    kinds = {TYPES.get(cast("type[object]", value.__class__)) for value in values}
    if None in kinds:
        raise _NoFormError
    return kinds.pop() if len(kinds) == 1 else sorted(map(str, kinds))


def _object(keywords: Schema) -> dict[str, Any]:
    properties: Schema = keywords.get("properties", {})
    if not properties and keywords.get("additionalProperties") is not False:
        raise _NoFormError
    if isinstance(keywords.get("additionalProperties"), Mapping):
        raise _NoFormError
    return {
        "properties": {name: _strict(part) for name, part in properties.items()},
        "required": [*properties],
        "additionalProperties": False,
    }
