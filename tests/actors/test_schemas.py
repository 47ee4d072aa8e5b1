from __future__ import annotations

import datetime
import enum
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NotRequired, TypedDict

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.actors.errors import BadOption, SchemaUnmet
from proctor.actors.structured.schemas import Schema, schema_of
from proctor.actors.structured.submit import schema_tools, standing_tools
from proctor.actors.tools.tools import Tool, ToolResult
from tests.simulation.search import share
from tests.tables import each_row


class Line(msgspec.Struct):
    article: str
    amount: Annotated[int, msgspec.Meta(ge=1)]


class Paid(enum.Enum):
    NO = "no"
    YES = "yes"


class Invoice(msgspec.Struct, forbid_unknown_fields=True):
    number: Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{3}-\d{4}$", examples=["ABC-0001"])]
    due: datetime.date
    lines: Annotated[list[Line], msgspec.Meta(min_length=1)]
    paid: Paid = Paid.NO
    corrects: Invoice | None = None
    key: uuid.UUID | None = None

    def __post_init__(self) -> None:
        if self.number.startswith("BAD"):
            raise ValueError("that number is taken")


def shout(text: str) -> str:
    return text.upper()


@attrs.frozen
class Note:
    text: str = attrs.field(converter=shout)
    weight: int = attrs.field(default=1, validator=attrs.validators.ge(1))


class Point(TypedDict):
    x: int
    y: NotRequired[int]


GOOD: Mapping[str, Any] = {
    "number": "ABC-0001",
    "due": "2024-02-29",
    "lines": [{"article": "nut", "amount": 2}],
}
INVOICE = Invoice("ABC-0001", datetime.date(2024, 2, 29), [Line("nut", 2)])
LIST = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "uniqueItems": True}


@each_row(
    ("declared", "data", "value"),
    [
        (Invoice, GOOD, INVOICE),
        (Note, {"text": "low"}, Note("LOW")),
        (list[Note], [{"text": "low", "weight": 2}], [Note("LOW", 2)]),
        (Point, {"x": 1}, {"x": 1}),
        (LIST, [1, 2], [1, 2]),
        ({}, {"anything": None}, {"anything": None}),
    ],
)
def test_what_fits_becomes_what_was_declared(declared: object, data: Any, value: object) -> None:
    schema = schema_of(declared)
    assert schema.violations(data) == ()
    assert schema.value(data) == value


@pytest.mark.covers("R149")
@each_row(
    ("declared", "data", "places"),
    [
        (Invoice, {"due": "x", "lines": [{"article": 1}, {}]},
         ["", "/due", "/lines/0", "/lines/0/article", "/lines/1", "/lines/1"]),
        (Invoice, {**GOOD, "corrects": {**GOOD, "due": 3, "lines": []}}, ["/corrects/due", "/corrects/lines"]),
        (Invoice, {**GOOD, "number": "BAD-0001"}, [""]),
        (Invoice, {**GOOD, "due": "2024-02-30", "more": 1}, ["", "/due"]),
        (Note, {"text": "a", "weight": 0}, [""]),
        (Point, [], [""]),
        ({"properties": {"a/b": {"type": "string"}}}, {"a/b": 1}, ["/a~1b"]),
        (LIST, [1, "x", 1], ["", "/1"]),
    ],
)  # fmt: skip
def test_all_that_is_wrong_is_told_each_with_its_place(
    declared: object, data: Any, places: list[str]
) -> None:
    schema = schema_of(declared)
    assert sorted(violation.path for violation in schema.violations(data)) == places
    assert all(violation.message for violation in schema.violations(data))
    with pytest.raises(SchemaUnmet) as caught:
        schema.value(data)
    assert len(caught.value.violations) == len(places)


class Broken(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        raise KeyError("nobody")


def test_a_fault_of_the_declared_class_is_one_of_the_answer() -> None:
    [violation] = schema_of(Broken).violations({"a": 1})
    assert str(violation) == "(the whole): KeyError: 'nobody'"


def test_a_message_that_repeats_a_long_value_is_cut() -> None:
    [violation] = schema_of({"type": "integer"}).violations("x" * 100_000)
    assert len(violation.message) < 500
    assert violation.message.endswith('is not of type "integer"')


@each_row(
    ("declared", "told"),
    [
        ({"type": "objekt"}, "schema 'answer' cannot be used: \"objekt\" is not valid"),
        ({"$ref": "https://example.com/a.json"}, "lies outside of the schema, and nothing is fetched"),
        ({"$ref": "file:///etc/hostname"}, "lies outside of the schema, and nothing is fetched"),
        ({"$ref": "#/$defs/Gone"}, "Pointer '/$defs/Gone' does not exist"),
        ({"title": "Shape", "pattern": "("}, "schema 'Shape' cannot be used"),
        ({"default": object()}, "the schema is not JSON"),
        (object, "schema 'object' is no type that JSON can carry"),
        ("Invoice", "is no type that JSON can carry"),
    ],
)
def test_a_bad_declaration_says_what_is_wrong_and_where(declared: object, told: str) -> None:
    with pytest.raises(BadOption) as caught:
        schema_of(declared)
    assert told in str(caught.value)


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(BadOption, match=re.escape("pip install 'proctor[schema]'")):
        schema_of(Point)


def test_the_schema_of_a_type_stands_at_its_root_and_refers_to_its_parts() -> None:
    schema = schema_of(Invoice)
    assert (schema.name, schema.json["type"]) == ("Invoice", "object")
    assert set(schema.json["$defs"]) == {"Invoice", "Line", "Paid"}
    assert "$defs" not in schema_of(Line).json


# -- examples

ROUND: Mapping[str, Any] = {
    "a type": Invoice,
    "an attrs class": Note,
    "a typed dict": Point,
    "a list": list[Invoice],
    "a const": {"const": {"a": [1]}},
    "an enum": {"enum": [None, 2]},
    "bounds": {"type": "integer", "minimum": 7, "maximum": 8},
    "open bounds": {"type": "integer", "exclusiveMinimum": 7, "exclusiveMaximum": 9},
    "from above": {"type": "integer", "exclusiveMaximum": -3},
    "steps": {"type": "number", "multipleOf": 0.5, "minimum": 0.2},
    "a long text": {"type": "string", "minLength": 30},
    "a short text": {"type": "string", "maxLength": 2},
    "by places": {"type": "array", "prefixItems": [{"const": 1}, {"type": "null"}], "items": False},
    "any keys": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
    "the second": {"anyOf": [False, {"type": "null"}]},
    "its own example": {"type": "string", "pattern": "^(?=a)ab$", "examples": ["ab"]},
    "its default": {"type": "string", "pattern": "^[a-z]+\\d$", "default": "a1"},
    "all of": {"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "boolean"}}}]},
    "a tree": {"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"of": {"items": {"$ref": "#/$defs/t"}}}}}},
    "formats": {"properties": {word: {"type": "string", "format": word} for word in
                               ("date", "date-time", "time", "duration", "email", "ipv4", "ipv6", "uri", "uuid")}},
    "a number by its bound": {"minimum": 3},
}  # fmt: skip


@pytest.mark.covers("R150")
@each_row("case", ROUND)
def test_an_example_has_no_violations(case: str) -> None:
    schema = schema_of(ROUND[case])
    example = schema.example()
    assert schema.violations(msgspec.json.decode(msgspec.json.encode(example))) == ()


def test_an_example_shows_what_may_be_left_out() -> None:
    assert schema_of(Point).example() == {"x": 1, "y": 1}
    assert schema_of(Invoice).example().keys() == {"number", "due", "lines", "paid", "corrects", "key"}


NONE: Mapping[str, Any] = {
    "between": {"type": "number", "exclusiveMinimum": 0.1, "maximum": 0.2},
    "different items": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 4},
    "different texts": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 4},
    "a pattern": {"type": "string", "pattern": r"^(foo|ba[rz])+-[^\W\d]{2,3}\.(?:x|y)?$"},
    "looks ahead": {"type": "string", "pattern": "^(?=a)b$"},
    "of itself": {"$ref": "#/$defs/t", "$defs": {"t": {"required": ["t"], "properties": {"t": {"$ref": "#/$defs/t"}}}}},
    "nothing fits": {"not": {}},
    "too long": {"type": "array", "minItems": 10_000},
    "too long a text": {"type": "string", "minLength": 10**10},
    "too many keys": {"type": "object", "minProperties": 10**10},
    "too many parts": {"$ref": "#/$defs/0", "$defs": {
        **{str(n): {"type": "array", "items": {"$ref": f"#/$defs/{n + 1}"}, "minItems": 10} for n in range(30)},
        "30": {"type": "string"}}},
    "a step too small": {"type": "number", "minimum": 1e308, "multipleOf": 1e-10},
    "a pattern without an end": {"type": "string", "minLength": 31, "pattern": "^(a*)*$b"},
}  # fmt: skip


@each_row("case", NONE)
def test_where_no_example_can_be_made_none_is_shown(case: str) -> None:
    with pytest.raises(LookupError, match="no example could be made"):
        schema_of(NONE[case]).example()


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {"type": "string", "minLength": 2},
            {"type": "integer", "multipleOf": 3, "minimum": 4},
            {"type": "number", "maximum": 0},
            {"type": "boolean"},
            {"enum": ["a", "b"]},
            {},
        ]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner, "minItems": st.integers(0, 3)}),
        st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from("abc"), inner),
                "required": st.lists(st.sampled_from("abc"), unique=True),
            }
        ),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
    ),
    max_leaves=6,
)


@pytest.mark.covers("R150")
@settings(max_examples=share(60), deadline=None)
@given(SCHEMAS)
def test_a_schema_of_plain_parts_always_has_an_example(declared: dict[str, Any]) -> None:
    schema = schema_of(declared)
    assert schema.violations(schema.example()) == ()


# -- the tools


def by_name(tools: tuple[Tool, ...]) -> dict[str, Callable[[Any], Any]]:
    return {tool.name: tool.run for tool in tools}


@pytest.mark.covers("R148")
def test_three_tools_are_made_of_a_declared_type_and_take_what_it_is() -> None:
    schema = schema_of(Invoice)
    tools = schema_tools(schema, accept=print)
    assert [tool.name for tool in tools] == ["submit", "validate", "example"]
    submit, validate, example = (tool.declared.schema for tool in tools)
    assert submit == validate == schema.json
    assert example["properties"] == {}
    assert all(tool.declared.description for tool in tools)


@pytest.mark.covers("R148")
def test_tools_for_what_is_no_object_take_it_as_a_value() -> None:
    submit, _, _ = schema_tools(schema_of(list[Line]), accept=print)
    shape = submit.declared.schema
    assert (shape["type"], shape["required"]) == ("object", ["value"])
    assert shape["properties"]["value"] == {"type": "array", "items": {"$ref": "#/$defs/Line"}}
    assert set(shape["$defs"]) == {"Line"}


@pytest.mark.covers("R149")
async def test_both_tools_tell_each_violation_and_only_valid_data_is_accepted() -> None:
    accepted: list[object] = []
    run = by_name(schema_tools(schema_of(Invoice), accepted.append))
    bad = {**GOOD, "due": 1, "lines": [{"article": "nut", "amount": 0}]}
    checked, refused = await run["validate"](bad), await run["submit"](bad)
    assert (checked.is_error, refused.is_error, accepted) == (False, True, [])
    for result in (checked, refused):
        assert '- /due: 1 is not of type "string"' in result.text
        assert "- /lines/0/amount: 0 is less than the minimum of 1" in result.text
        assert "(2)" in result.text
    assert await run["validate"](GOOD) == ToolResult(
        "The answer matches the schema. Submit it with `submit`."
    )
    assert accepted == []
    assert (await run["submit"](GOOD)).is_error is False
    assert accepted == [INVOICE]


@pytest.mark.covers("R150")
async def test_the_example_tool_shows_what_validates_or_says_that_it_cannot() -> None:
    run = by_name(schema_tools(schema_of(Invoice), print))
    shown = await run["example"]({})
    assert (await run["validate"](msgspec.json.decode(shown.text))).text.startswith(
        "The answer matches the schema."
    )
    none = await by_name(schema_tools(schema_of(NONE["looks ahead"]), print))["example"]({})
    assert none.is_error
    assert NONE["looks ahead"]["pattern"] in none.text


async def test_many_violations_are_told_up_to_a_number() -> None:
    run = by_name(schema_tools(schema_of(list[int]), print))
    told = (await run["validate"]({"value": ["x"] * 70})).text.splitlines()
    assert (told[0], told[-1], len(told)) == ("Errors (70):", "- and 20 more", 52)


@attrs.define
class OpenSubmission:
    schema: Schema
    taken: list[Any] = attrs.field(factory=list[Any])

    def submit(self, data: Any) -> tuple[Any, ...]:
        self.taken.append(data)
        return self.schema.violations(data)


async def test_standing_tools_look_up_what_is_asked_for_now() -> None:
    submissions: list[OpenSubmission] = []
    run = by_name(standing_tools(lambda: submissions[-1] if submissions else None))
    assert all([(await run[name]({"value": 1})).is_error for name in ("submit", "validate", "example")])
    submissions.append(OpenSubmission(schema_of(Point)))
    assert (await run["submit"]({})).text.endswith("the argument `value`, the answer, is missing")
    assert not (await run["submit"]({"value": {"x": 1}})).is_error
    assert not (await run["submit"]({"value": '{"x": 2}'})).is_error
    assert (await run["submit"]({"value": "{"})).is_error
    assert submissions[0].taken == [{"x": 1}, {"x": 2}, "{"]
