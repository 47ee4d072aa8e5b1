"""A JSON schema as the graph of its subschemas: which of them apply to a value, and which to its members.

References stay within the schema: to `#`, to a JSON pointer or to an anchor. A nested `$id` is refused, because it would
change where references lead to. It is built in time that is linear in the schema's size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, NoReturn, cast
from urllib.parse import unquote, urljoin

import attrs
import msgspec

_BACKTRACKS = re.compile(r"\(\?[=!<>(]|\\[1-9kGK]|[*+?}]\+")
"""What a pattern contains that the checker does not match in one pass over the text."""
_BACKTRACKING = 2000
"""The cost of a pattern that backtracks, in checks (`schemas` bounds its steps)."""
_UNEVALUATED = 3
"""How often the checker evaluates what stands beside `unevaluatedProperties` and `unevaluatedItems`."""
_BYTES_AN_ERROR = 3000
_REPEATED = ("const", "enum", "not", "pattern", "required", "dependentRequired", "dependencies")
"""Keywords whose values the checker repeats in its messages."""
_QUIET = frozenset(
    ("$schema", "$id", "id", "$ref", "$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$defs", "definitions",
     "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator",
     "properties", "items", "prefixItems", "allOf", "if", "then", "else", "required")
)  # fmt: skip
"""Keywords that make no error of their own."""

_APPLICATORS: Mapping[str, tuple[str, str, str]] = {
    "not": ("same", "here", "one"), "if": ("same", "here", "one"),
    "then": ("same", "here", "one"), "else": ("same", "here", "one"),
    "allOf": ("same", "here", "list"), "anyOf": ("same", "here", "list"), "oneOf": ("same", "here", "list"),
    "dependentSchemas": ("same", "here", "map"), "dependencies": ("same", "here", "map"),
    "additionalProperties": ("object", "others", "record"), "unevaluatedProperties": ("object", "each", "record"),
    "propertyNames": ("object", "each", "record"), "patternProperties": ("object", "each", "map"),
    "items": ("array", "others", "one"), "additionalItems": ("array", "others", "record"),
    "contains": ("array", "each", "record"), "unevaluatedItems": ("array", "each", "record"),
}  # fmt: skip
"""Keyword: to which values its subschemas apply, and the shape that it has."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

Keywords = Mapping[str, Any]


class TooCostly(ValueError):
    """A schema or a value that is not checked, because it is too large or multiplies; the text says how."""


def refuse(why: str) -> NoReturn:
    """Raise `TooCostly`."""
    raise TooCostly(why)


@attrs.define(eq=False)
class Members:
    """The subschemas for members of objects, or of lists: by name or position, for all others, and for each one."""

    named: dict[str | int, Subschema] = attrs.field(factory=dict[str | int, "Subschema"])
    others: list[Subschema] = attrs.field(factory=list["Subschema"])
    each: list[Subschema] = attrs.field(factory=list["Subschema"])


@attrs.define(eq=False)
class Subschema:
    """One subschema. Those in `here` apply to the same value, each `repeats` times.

    `checks` is the cost of its own keywords, 1 for most; `errors` is how many errors they can make at most, where one with
    a large text counts as several.
    """

    keywords: Keywords
    checks: int = 1
    errors: float = 1
    repeats: int = 1
    here: list[Subschema] = attrs.field(factory=list["Subschema"])
    object: Members = attrs.field(factory=Members)
    array: Members = attrs.field(factory=Members)

    @property
    def forks(self) -> bool:
        """Whether it has alternatives."""
        return "anyOf" in self.keywords or "oneOf" in self.keywords

    @property
    def size(self) -> int:
        """Subschemas that it applies."""
        return (
            1
            + len(self.here)
            + sum(len(m.named) + len(m.others) + len(m.each) for m in (self.object, self.array))
        )


def ordered_subschemas(schema: Keywords) -> list[Subschema]:
    """The subschemas that can be reached; those that apply to a value stand before the one that they are in. Raises `TooCostly`."""
    graph = _Graph(schema)
    graph.subschema(schema)
    for one in graph.found:  # grows meanwhile
        graph.fill(one)
    try:
        return [*TopologicalSorter({one: one.here for one in graph.found}).static_order()]
    except CycleError:
        refuse("a part of it refers to itself for the same value, so that validating does not end")


class _Graph:
    def __init__(self, schema: Keywords) -> None:
        self.found: list[Subschema] = []
        self._by_id: dict[int, Subschema] = {}
        self._whole = schema
        self._id = str(schema.get("$id", schema.get("id", "")))
        self._ids = ("$id", "id") if "draft-04" in str(schema.get("$schema")) else ("$id",)
        self._anchors = _anchors(schema)

    def subschema(self, schema: Any) -> Subschema:
        """The node of a subschema; `true` and `false` have one each."""
        key = id(cast("object", schema))
        if (one := self._by_id.get(key)) is None:
            keywords: Keywords = self._local(cast("Keywords", schema)) if isinstance(schema, dict) else {}
            one = self._by_id[key] = Subschema(keywords)
            self.found.append(one)
        return one

    def fill(self, one: Subschema) -> None:
        """Set what a subschema costs, and what it applies."""
        keywords = one.keywords
        one.checks = _BACKTRACKING * _backtracking(keywords) or 1
        one.repeats = _UNEVALUATED if any(word.startswith("unevaluated") for word in keywords) else 1
        repeated = {word: keywords[word] for word in _REPEATED if word in keywords}
        one.errors = _faults(keywords) * (1 + len(msgspec.json.encode(repeated)) / _BYTES_AN_ERROR)
        for name, inner in _map(keywords.get("properties")).items():
            one.object.named[name] = self.subschema(inner)
        for position, inner in enumerate(_list(keywords.get("prefixItems")) or _list(keywords.get("items"))):
            one.array.named[position] = self.subschema(inner)
        for word in keywords.keys() & _APPLICATORS.keys():
            target, part, shape = _APPLICATORS[word]
            into = one if target == "same" else one.object if target == "object" else one.array
            getattr(into, part).extend(map(self.subschema, _subschemas(shape, keywords[word])))
        for word in keywords.keys() & set(_REFERENCES):
            one.here.extend(map(self.subschema, self._targets(str(keywords[word]))))

    def _targets(self, reference: str) -> list[Any]:
        base, _, fragment = reference.partition("#")
        if "json-schema.org/" in base:
            return [_METASCHEMA]
        if base and urljoin(self._id, base) != self._id.rstrip("#"):
            refuse(f"{reference!r} lies outside of the schema, and nothing is fetched")
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(unquote(fragment), [])
        return self._at(unquote(fragment))

    def _at(self, pointer: str) -> list[Any]:
        node: Any = self._whole
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node = self._local(cast("dict[str, Any]", node))[key]
            elif isinstance(node, list) and key.isdecimal() and int(key) < len(cast("list[Any]", node)):  # type: ignore[redundant-cast]
                node = cast("list[Any]", node)[int(key)]  # type: ignore[redundant-cast]
            else:
                return []
        return [node]

    def _local(self, keywords: Keywords) -> Keywords:
        for word in self._ids:
            value = keywords.get(word)
            if keywords is not self._whole and isinstance(value, str) and not value.startswith("#"):
                refuse(
                    f"a part of it has the {word} {value[:80]!r}: refer to parts by '#/$defs/NAME' instead"
                )
        return keywords


def _anchors(schema: Keywords) -> dict[str, list[Any]]:
    anchors: dict[str, list[Any]] = {}
    todo: list[Any] = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            keywords = cast("dict[str, Any]", one)
            names = {
                str(keywords.get(word, "")).removeprefix("#")
                for word in ("$anchor", "$dynamicAnchor", "$id", "id")
            }
            for name in names - {""}:
                anchors.setdefault(name, []).append(keywords)
            todo.extend(keywords.values())
        elif isinstance(one, list):
            todo.extend(cast("list[Any]", one))  # type: ignore[redundant-cast]
    return anchors


def _subschemas(shape: str, value: Any) -> list[Any]:
    match shape:
        case "list":
            return _list(value)
        case "map":
            return [one for one in _map(value).values() if isinstance(one, dict | bool)]
        case "one":
            return [value] if isinstance(value, dict | bool) else []
        case _:  # the error of a `false` is one of the whole value
            return [value] if isinstance(value, dict) else []


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []  # type: ignore[redundant-cast]


def _map(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _backtracking(keywords: Keywords) -> int:
    patterns = [keywords.get("pattern"), *_map(keywords.get("patternProperties"))]
    return sum(1 for one in patterns if isinstance(one, str) and _BACKTRACKS.search(one))


def _faults(keywords: Keywords) -> int:
    lists = [keywords.get("required"), *_map(keywords.get("dependentRequired")).values()]
    lists += _map(keywords.get("dependencies")).values()
    listed = sum(len(_list(one)) for one in lists)
    return max(1, len(keywords.keys() - _QUIET) + listed)


def _broad_and_deep() -> Keywords:
    """A stand-in for the meta-schemas, which the checker brings with it: as broad and as deep as they are."""
    whole: dict[str, Any] = {"allOf": [{"type": "object"} for _ in range(60)]}
    whole["items"] = whole["additionalProperties"] = whole
    return whole


_METASCHEMA: Keywords = _broad_and_deep()
