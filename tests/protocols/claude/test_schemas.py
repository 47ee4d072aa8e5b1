from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from proctor.protocols.claude.schemas import loose_schema
from tests.tables import each_row

TEXT = {"type": "string"}


def of(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": part}}


CASES: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] = [
        ({"type": "string", "format": "date"}, TEXT),
        ({"type": "string", "pattern": r"^[A-Z]\d{2}$"}, {"type": "string", "pattern": r"^[A-Z]\d{2}$"}),
        ({"type": "string", "pattern": r"^(?P<n>a)$"}, TEXT),
        ({"type": "string", "pattern": r"a\_b"}, TEXT),
        ({"type": "array", "prefixItems": [TEXT], "items": False}, {"type": "array"}),
        ({"oneOf": [TEXT, {"not": {}}]}, {"anyOf": [TEXT, {}]}),
        ({"if": TEXT, "then": TEXT, "contains": TEXT}, {}),
        ({"type": "object", "additionalProperties": {"format": "date", **TEXT}},
         {"type": "object", "additionalProperties": TEXT}),
        ({"type": "object", "patternProperties": {"x": TEXT}, "additionalProperties": False}, {"type": "object"}),
        ({"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}),
        ({"allOf": [{"minimum": 1}]}, {"allOf": [{"minimum": 1}]}),
]  # fmt: skip


@each_row(("part", "loose"), CASES)
def test_what_the_checker_may_not_know_is_left_out(part: Mapping[str, Any], loose: Mapping[str, Any]) -> None:
    assert loose_schema(of(part)) == of(loose)


def test_parts_are_said_as_loosely_and_the_words_about_the_schema_itself_are_left_out() -> None:
    whole = {
        **of(TEXT),
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"b": {"format": "date"}},
    }
    assert loose_schema(whole) == {**of(TEXT), "$defs": {"b": {}}}


FORMLESS: Sequence[dict[str, Any]] = [{"type": "array"}, {}, {"type": "object", "anyOf": [{}]}]


@pytest.mark.parametrize("whole", FORMLESS)
def test_what_is_no_plain_object_has_no_form(whole: dict[str, Any]) -> None:
    assert loose_schema(whole) is None
