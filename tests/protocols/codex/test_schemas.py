from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor.protocols.codex.schemas import strict_schema
from tests.tables import each_row

TEXT = {"type": "string"}


def of(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": part}}


def closed(part: Mapping[str, Any]) -> dict[str, Any]:
    return {**of(part), "required": ["a"], "additionalProperties": False}


@each_row(
    ("part", "strict"),
    [
        (TEXT, TEXT),
        ({"type": "string", "default": "", "title": "A", "maxLength": 3}, TEXT),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"type": "string", "format": "uri"}, TEXT),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"enum": ["x", "y"]}, {"enum": ["x", "y"], "type": "string"}),
        ({"enum": ["x", None]}, {"enum": ["x", None], "type": ["null", "string"]}),
        ({"const": 1}, {"type": "integer", "enum": [1]}),
        ({"oneOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT, {"type": "null"}]}),
        ({"$ref": "#/$defs/b", "description": "it"}, {"$ref": "#/$defs/b"}),
        ({"type": "array", "items": of(TEXT), "uniqueItems": True}, {"type": "array", "items": closed(TEXT)}),
        ({"type": "object", "additionalProperties": False},
         {"type": "object", "properties": {}, "required": [], "additionalProperties": False}),
    ],
)  # fmt: skip
def test_objects_are_closed_all_is_required_and_few_words_stay(
    part: Mapping[str, Any], strict: Mapping[str, Any]
) -> None:
    assert strict_schema(of(part)) == closed(strict)


@each_row(
    "part",
    [
        {},
        True,
        {"type": "object"},
        {"type": "object", "additionalProperties": TEXT},
        {"type": "array"},
        {"type": "array", "prefixItems": [TEXT]},
        {"type": ["object", "null"]},
        {"allOf": [TEXT]},
        {"const": {"b": 1}},
    ],
)
def test_what_the_form_cannot_say_has_none(part: Any) -> None:
    assert strict_schema(of(part)) is None


def test_parts_are_as_strict_and_a_root_is_an_object() -> None:
    assert strict_schema({**of(TEXT), "$defs": {"b": of(TEXT)}}) == {
        **closed(TEXT),
        "$defs": {"b": closed(TEXT)},
    }
    assert strict_schema({"type": "array", "items": TEXT}) is None
    assert strict_schema({**of(TEXT), "anyOf": [TEXT]}) is None
