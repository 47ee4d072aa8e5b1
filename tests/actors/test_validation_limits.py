from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema_rs
import pytest

from proctor.actors.errors import BadOption
from proctor.actors.structured.limits import DEPTH, ValidationLimits, count_patterns
from proctor.actors.structured.schemas import schema_of
from proctor.actors.structured.subschemas import TooCostly
from tests.tables import each_row

STRING: Mapping[str, Any] = {"type": "string"}
NOTHING: dict[str, Any] = {}
NONE = "it is too large to list the errors"
FIRST = "only the first one is reported"


def doubled(word: str, levels: int, times: int = 2) -> dict[str, Any]:
    """Each level refers to the next, so many times."""
    parts = {str(n): {word: [{"$ref": f"#/$defs/{n + 1}"}] * times} for n in range(levels)}
    return {"$ref": "#/$defs/0", "$defs": {**parts, str(levels): STRING}}


def written_out(word: str, levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {**STRING}
    for _ in range(levels):
        schema = {word: [schema, schema]}
    return schema


def unevaluated(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(levels):
        schema = {"anyOf": [schema], "unevaluatedProperties": False}
    return schema


def within(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {**STRING}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"inner": schema}, "required": ["inner"]}
    return schema


def nested(levels: int, value: Any = None) -> list[Any]:
    deep: list[Any] = [] if value is None else [value]
    for _ in range(levels):
        deep = [deep]
    return deep


TREE: Mapping[str, Any] = {
    "$ref": "#/$defs/tree",
    "$defs": {"tree": {"properties": {"name": STRING, "of": {"items": {"$ref": "#/$defs/tree"}}}, "required": ["name"]}},
}  # fmt: skip
ROUND = {str(n): {"allOf": [{"$ref": f"#/$defs/{m}"} for m in range(9) if m != n]} for n in range(9)}
KINDS: Mapping[str, Any] = {
    "items": {
        "anyOf": [
            {"properties": {"kind": {"const": f"k{n}"}, "size": {"type": "integer"}}, "required": ["kind"]}
            for n in range(200)
        ]
    }
}
EITHER: Mapping[str, Any] = {
    "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "null"}]},
    "type": "array",
}


def bombs() -> Mapping[str, tuple[Any, str]]:
    return {
    **{f"{word} by reference": (doubled(word, 25), "5,000 checks of one value") for word in ("anyOf", "oneOf", "allOf")},
    **{f"{word} written out": (written_out(word, 25), "30,000 values") for word in ("anyOf", "oneOf", "allOf")},
    "levels of what is not evaluated": (unevaluated(20), "5,000 checks"),
    "itself": ({"$ref": "#"}, "refers to itself for the same value"),
    "each other": ({"$ref": "#/$defs/0", "$defs": ROUND}, "refers to itself for the same value"),
    "a part with an id of its own": ({"$ref": "x.json", "$defs": {"x": {"$id": "x.json", **doubled("anyOf", 25)}}}, "lies outside of the schema"),
    "a pointer through an id of its own": ({"$ref": "#/$defs/x/items", "$defs": {"x": {"$id": "x.json", "items": STRING}}},
                                           "has the $id 'x.json': refer to parts by '#/$defs/NAME' instead"),
    "by an anchor": ({**doubled("anyOf", 25), "$ref": "#a", "allOf": [{"$anchor": "a", "anyOf": [{"$ref": "#/$defs/9"}] * 2}]},
                     "5,000 checks"),
    "an old draft": ({"$schema": "http://json-schema.org/draft-07/schema#", **doubled("anyOf", 25), "$id": "x",
                      "definitions": {"0": NOTHING}}, "5,000 checks"),
    "a long way": (doubled("allOf", 3000, times=1), "more than 100 references"),
    "many texts": ({"description": "x" * 2**21}, "its texts have 2,097,163 characters"),
    "a long name": ({"properties": {"x" * 5000: NOTHING}}, "the name 'xxxxx"),
    "many patterns": ({"patternProperties": {f"a{n}": NOTHING for n in range(1001)}}, "1,001 different patterns"),
    "a pattern of many": ({"pattern": r"(?=x)(\w{90}){90}"}, "or too large a one"),
}  # fmt: skip


BOMBS = bombs()


@pytest.mark.parametrize("case", BOMBS)
def test_a_schema_that_multiplies_is_refused_with_what_to_do(case: str) -> None:
    declared, told = BOMBS[case]
    with pytest.raises(BadOption, match="schema 'answer' cannot be used: ") as caught:
        schema_of(declared)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_schema_that_holds_itself_is_refused() -> None:
    declared: dict[str, Any] = {"type": "array"}
    declared["items"] = declared
    with pytest.raises(BadOption, match="more than 30,000 values"):
        schema_of(declared)


def sane() -> Mapping[str, tuple[Any, Any, Any]]:
    return {
    "500 properties": ({"properties": {f"p{n}": {"type": "string", "pattern": f"^{n}[a-z]*$", "description": "x" * 40}
                                       for n in range(500)}, "required": [f"p{n}" for n in range(500)]},
                       {f"p{n}": f"{n}a" for n in range(500)}, NOTHING),
    "a tree": (TREE, {"name": "a", "of": [{"name": "b", "of": [{"name": "c"}] * 50}] * 50}, {"name": "a", "of": [NOTHING]}),
    "a tree of 90 levels": ({"items": {"$ref": "#"}, "type": "array"}, nested(90), nested(90, 1)),
    "a long enumeration": ({"oneOf": [{"const": n, "title": f"the {n}th"} for n in range(2000)]}, 1999, 2000),
    "200 kinds, 500 times": (KINDS, [{"kind": f"k{n % 200}", "size": n} for n in range(500)], [{"kind": "k3", "size": "x"}]),
    "three levels of alternatives": (doubled("anyOf", 3, times=8), "a", 1),
    "references that meet again": (doubled("allOf", 7), "a", 1),
    "a schema": ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"items": {"type": "string"}}, {"type": "none"}),
    "a recursive anchor": ({"$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}, "type": "array"}, [[], [[]]], [[1]]),
    "a pattern that looks around": ({"items": {"pattern": r"^(?!.*\.\.)[\w.-]{1,63}$"}}, ["a.b"] * 1000, ["a..b"]),
}  # fmt: skip


SANE = sane()


@each_row("case", SANE)
def test_a_schema_that_somebody_would_write_is_taken_and_checked(case: str) -> None:
    declared, fits, other = SANE[case]
    schema = schema_of(declared)
    assert schema.violations(fits) == ()
    wrong = schema.violations(other)
    assert wrong
    assert not any(
        word in str(violation) for violation in wrong for word in (NONE, FIRST, "cannot be checked")
    )


def test_30_levels_of_objects_are_taken_and_the_place_is_told() -> None:
    value: Any = "a"
    for _ in range(30):
        value = {"inner": value}
    schema = schema_of(within(30))
    assert schema.violations(value) == ()
    assert [v.path for v in schema.violations({"inner": {"inner": 1}})] == ["/inner/inner"]


@pytest.mark.parametrize("schema", [{"items": {"$ref": "#"}}, EITHER, TREE, STRING])
@pytest.mark.parametrize("levels", [DEPTH, 10_000, 200_000])
def test_a_value_of_too_many_levels_is_not_checked_and_crashes_nothing(schema: Any, levels: int) -> None:
    [violation] = schema_of(schema).violations(nested(levels))
    assert str(violation) == f"(the whole): it cannot be checked: it is nested more than {DEPTH} levels deep"


@each_row(
    ("schema", "value", "told"),
    [
        (EITHER, nested(25, 1), "takes too many checks"),
        (EITHER, nested(12, 1), NONE),
        ({"items": {"pattern": r"^(a|a)*\1b$"}}, ["a" * 100] * 10_000, "takes too many checks"),
        ({"anyOf": [{"type": "integer", "title": str(n)} for n in range(1000)]}, "x" * 1_000_000, NONE),
        ({"items": {"const": ["x" * 100_000]}}, [1] * 30_000, FIRST),
        ({"items": {"items": STRING}}, [[1] * 200] * 200, FIRST),
        ({"items": STRING}, [1] * 60_000, FIRST),
        ({"additionalProperties": {"items": STRING}}, {"k" * 1_000_000: [1] * 100}, FIRST),
        (KINDS, [{"kind": "k3", "size": "x"}] * 200, FIRST),
    ],
)  # fmt: skip
def test_of_a_value_that_is_too_large_less_is_told(schema: Any, value: Any, told: str) -> None:
    wrong = schema_of(schema).violations(value)
    assert told in str(wrong[-1])
    assert len(wrong) <= 2


def test_what_is_found_first_in_a_large_value_is_told_with_its_place() -> None:
    first, rest = schema_of({"items": STRING}).violations(["a"] * 50_000 + [1] + ["a"] * 50_000)
    assert str(first) == '/50000: 1 is not of type "string"'
    assert rest.path == ""


def test_a_large_value_that_fits_is_taken() -> None:
    assert schema_of({"items": STRING}).violations(["a"] * 300_000) == ()
    assert schema_of(KINDS).violations([{"kind": f"k{n % 200}", "size": n} for n in range(2000)]) == ()
    assert schema_of(EITHER).violations(nested(12)) == ()


@pytest.mark.parametrize("text", ["a" * 40, "a" * 100_000])
def test_a_pattern_takes_a_bounded_number_of_steps_back(text: str) -> None:
    [violation] = schema_of({"pattern": r"^(a|a)*\1b$"}).violations(text)
    assert "backtracking" in violation.message
    [violation] = schema_of({"pattern": "^(a+)+$"}).violations(text + "b")
    assert violation.message.endswith('does not match "^(a+)+$"')


def test_an_example_of_a_thousand_parts_in_a_row_is_not_made() -> None:
    parts = {
        str(n): {"properties": {"a": {"$ref": f"#/$defs/{n + 1}"}}, "required": ["a"]} for n in range(2000)
    }
    schema = schema_of({"$ref": "#/$defs/0", "$defs": {**parts, "2000": STRING}})
    with pytest.raises(LookupError):
        schema.example()


def test_patterns_are_counted_once_each() -> None:
    assert (
        count_patterns({"allOf": [{"pattern": "a"}, {"pattern": "a", "patternProperties": {"b": {}}}]}) == 2
    )
    with pytest.raises(TooCostly):
        count_patterns({"enum": [0] * 30_000})


# -- what is counted, and what the checker does


LEAVES: tuple[Any, ...] = (
    {"type": "string"},
    {"type": "integer", "minimum": 3},
    {"enum": [1, "a"]},
    {"required": ["x", "y", "z"]},
    {"minItems": 3, "maxProperties": 0},
    {"not": {"type": "null"}},
    {"$ref": "#/$defs/a"},
    {"$ref": "#/$defs/b"},
    {"$ref": "#"},
    True,
    False,
)
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
MAPS = ("properties", "patternProperties", "dependentSchemas")
ONES = (
    "items",
    "additionalProperties",
    "contains",
    "not",
    "propertyNames",
    "unevaluatedProperties",
    "if",
    "else",
)


def some_schema(chance: random.Random, levels: int) -> Any:
    if levels == 0:
        return chance.choice(LEAVES)
    made: dict[str, Any] = {}
    for word in chance.sample((*LISTS, *MAPS, *ONES), chance.choice((1, 1, 1, 2, 3))):
        inner = [some_schema(chance, levels - 1) for _ in range(chance.randint(1, 3))]
        made[word] = (
            inner if word in LISTS else dict(zip("xyz", inner, strict=False)) if word in MAPS else inner[0]
        )
    return made


def some_value(chance: random.Random, levels: int) -> Any:
    if levels == 0 or chance.random() < 0.15:
        return chance.choice((1, "a", None, 5.5, True))
    inner = [some_value(chance, levels - 1) for _ in range(chance.randint(1, 4))]
    return inner if chance.random() < 0.5 else dict(zip("xyzq", inner, strict=False))


def errors_in(errors: Iterable[Any]) -> int:
    return sum(1 + sum(map(errors_in, getattr(error.kind, "context", None) or ())) for error in errors)


@pytest.mark.parametrize("seed", range(4))
def test_the_checker_makes_no_more_errors_than_were_counted(seed: int) -> None:
    chance, most = random.Random(seed), 0
    for _ in range(120):
        schema = {"anyOf": [some_schema(chance, 3)], "$defs": {name: some_schema(chance, 2) for name in "ab"}}
        value = some_value(chance, 5)
        try:
            most_errors = ValidationLimits(schema).errors(value)
        except TooCostly:
            continue
        errors = errors_in(jsonschema_rs.validator_for(schema).iter_errors(value))
        assert errors <= most_errors, (schema, value)
        most = max(most, errors)
    assert most > 5
