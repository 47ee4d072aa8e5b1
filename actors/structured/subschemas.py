"""A JSON schema as a graph of its subschemas: what each has checked of the same value, and of that value's members.

Guarantees: every subschema that a value can be checked by is reached, also through references. Where a reference may lead
to several (more than one part with an id, an anchor that is found at run time, an old draft), it leads to all of them: who
counts by this graph counts too much rather than too little. It is built in time that is linear in the schema's size.

Not here: what is counted (`extent`), and what a keyword means to a value (the checker's).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

import attrs
import msgspec

BACKTRACKS = re.compile(r"\(\?[=!<>(]|\\[1-9kGK]|[*+?}]\+")
"""What a pattern has that is not matched in one pass over the text."""
_BACKTRACKING = 2000
"""What a pattern that steps back takes, in checks: so many steps are allowed (see `schemas`)."""
_UNEVALUATED = 3
_BYTES = 3000
_TOLD = ("const", "enum", "not", "pattern", "required", "dependentRequired", "dependencies")
"""Keywords whose values are repeated in what the checker tells."""

_QUIET = frozenset(
    ("$schema", "$id", "id", "$ref", "$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$defs", "definitions",
     "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator",
     "properties", "items", "prefixItems", "allOf", "if", "then", "else", "required")
)  # fmt: skip
"""Keywords that tell nothing by themselves, or one thing for each of their own."""

_WHERE: Mapping[str, tuple[str, str]] = {
    "not": ("beside", "one"), "if": ("beside", "one"), "then": ("beside", "one"), "else": ("beside", "one"),
    "allOf": ("beside", "list"), "dependentSchemas": ("beside", "map"), "dependencies": ("beside", "map"),
    "anyOf": ("branches", "list"), "oneOf": ("branches", "list"),
    "additionalProperties": ("others", "open"),
    "patternProperties": ("members", "map"), "unevaluatedProperties": ("members", "open"),
    "propertyNames": ("members", "open"),
    "prefixItems": ("placed", "list"),
    "items": ("items", "one"), "contains": ("items", "open"), "unevaluatedItems": ("items", "open"),
    "additionalItems": ("items", "open"),
}  # fmt: skip
"""Where a part has the subschemas of a keyword, and how they are there."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

Keywords = Mapping[str, Any]


@attrs.define(eq=False)
class Part:
    """A subschema. `beside` and `branches` are checked of the same value, the branches as alternatives, each `again` times;
    `named` and `others` (those without a name there) and `members` (all) of what is in an object, `placed` and `items` of
    what is in a list.

    `price` is what one check takes, 1 for most. `faults` is how many errors it can tell, `bulk` the size that each has
    besides the value's, in units of what one error takes."""

    price: int = 1
    again: int = 1
    faults: int = 1
    bulk: float = 0.0
    beside: tuple[Part, ...] = ()
    branches: tuple[Part, ...] = ()
    named: dict[str, Part] = attrs.field(factory=dict[str, "Part"])
    others: tuple[Part, ...] = ()
    members: tuple[Part, ...] = ()
    placed: tuple[Part, ...] = ()
    items: tuple[Part, ...] = ()


def parts_of(schema: Keywords) -> list[Part]:
    """All that can be reached from the whole, which is the first."""
    graph = _Graph(_Places(schema))
    graph.part(schema)
    for keywords, part in graph.order:  # it grows meanwhile
        graph.fill(keywords, part)
    return [part for _, part in graph.order]


class _Graph:
    def __init__(self, places: _Places) -> None:
        self.order: list[tuple[Keywords, Part]] = []
        self._places = places
        self._known: dict[int, Part] = {}

    def part(self, schema: Any) -> Part:
        """The part of a subschema; true and false have one each."""
        keywords: Keywords = cast("Keywords", schema) if isinstance(schema, dict) else {}
        key = id(cast("object", schema))
        if (part := self._known.get(key)) is None:
            part = self._known[key] = Part()
            self.order.append((keywords, part))
        return part

    def fill(self, keywords: Keywords, part: Part) -> None:
        part.price = _BACKTRACKING * _backtracking(keywords) or 1
        part.again = _UNEVALUATED if any(word.startswith("unevaluated") for word in keywords) else 1
        part.faults = _faults(keywords)
        told = {word: keywords[word] for word in _TOLD if word in keywords}
        part.bulk = len(msgspec.json.encode(told)) / _BYTES if told else 0.0
        part.named = {name: self.part(one) for name, one in _map(keywords.get("properties")).items()}
        for word, given in keywords.items():
            if (where := _WHERE.get(word)) is not None:
                place, kind = ("placed", "list") if word == "items" and isinstance(given, list) else where
                setattr(part, place, (*getattr(part, place), *map(self.part, _subschemas(kind, given))))
        part.beside += tuple(map(self.part, self._places.referred(keywords)))


def _subschemas(kind: str, given: Any) -> list[Any]:
    match kind:
        case "list":
            return cast("list[Any]", given) if isinstance(given, list) else []  # type: ignore[redundant-cast]
        case "map":
            return [one for one in _map(given).values() if isinstance(one, dict | bool)]
        case "one":
            return [given] if isinstance(given, dict | bool) else []
        case _:  # what false forbids here is told by the whole
            return [given] if isinstance(given, dict) else []


def _map(given: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _backtracking(keywords: Keywords) -> int:
    patterns = [keywords.get("pattern"), *_map(keywords.get("patternProperties"))]
    return sum(1 for one in patterns if isinstance(one, str) and BACKTRACKS.search(one))


def _count(given: Any) -> int:
    return len(given) if isinstance(given, list) else 0  # pyright: ignore[reportUnknownArgumentType]


def _faults(keywords: Keywords) -> int:
    lists: list[Any] = [keywords.get("required"), *_map(keywords.get("dependentRequired")).values()]
    lists += _map(keywords.get("dependencies")).values()
    listed = sum(map(_count, lists))
    return max(1, len(keywords.keys() - _QUIET) + listed)


class _Places:
    """Where references lead to, within one schema."""

    def __init__(self, whole: Keywords) -> None:
        self._whole = whole
        self._homes: dict[int, Keywords] = {}
        self._resources: list[Keywords] = [whole]
        self._anchors: dict[str, list[Keywords]] = {}
        self._old = False
        self._look()

    def _look(self) -> None:
        todo: list[tuple[Any, Keywords]] = [(self._whole, self._whole)]
        while todo:
            one, home = todo.pop()
            if isinstance(one, dict):
                keywords = cast("dict[str, Any]", one)
                home = self._enter(keywords, home)
                todo.extend((inner, home) for inner in keywords.values())
            elif isinstance(one, list):
                todo.extend((inner, home) for inner in cast("list[Any]", one))  # type: ignore[redundant-cast]

    def _enter(self, keywords: Keywords, home: Keywords) -> Keywords:
        self._old = self._old or "draft-0" in str(keywords.get("$schema", ""))
        for word in ("$anchor", "$dynamicAnchor", "$id", "id"):
            given = keywords.get(word)
            if isinstance(given, str) and (word.endswith("nchor") or given.startswith("#")):
                self._anchors.setdefault(given.removeprefix("#"), []).append(keywords)
            elif isinstance(given, str) and keywords is not self._whole:
                self._resources.append(keywords)
                home = keywords if word == "$id" else home
        self._homes[id(keywords)] = home
        return home

    def referred(self, keywords: Keywords) -> Iterator[Any]:
        """What its references may lead to, each once."""
        found: dict[int, Any] = {}
        for word in _REFERENCES:
            given = keywords.get(word)
            if isinstance(given, str):
                found.update((id(one), one) for one in self._led(given, keywords, anywhere=word != "$ref"))
        yield from found.values()

    def _led(self, reference: str, keywords: Keywords, *, anywhere: bool) -> list[Any]:
        base, _, fragment = reference.partition("#")
        if base and "json-schema.org" in base:
            return [METASCHEMA]
        if fragment and not fragment.startswith("/"):
            return [*self._anchors.get(fragment, ())]
        home = self._homes.get(id(keywords), self._whole)
        if not base and not anywhere and not self._old:
            near = _at(home, fragment)
            return near or self._everywhere(self._resources, fragment)
        named = [one for one in self._resources if _ends(one)] if base else self._resources
        meant = [one for one in named if _ends(one) == base.rstrip("/").rpartition("/")[2]] if base else named
        return self._everywhere(meant or named, fragment)

    def _everywhere(self, resources: list[Keywords], fragment: str) -> list[Any]:
        return [found for one in resources for found in _at(one, fragment)]


def _ends(resource: Keywords) -> str:
    said = resource.get("$id", resource.get("id"))
    return said.rstrip("#/").rpartition("/")[2] if isinstance(said, str) else ""


def _at(found: Any, pointer: str) -> list[Any]:
    """What a JSON pointer leads to; nothing where there is nothing."""
    for step in unquote(pointer).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = cast("Keywords", found)[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(cast("list[Any]", found)):  # type: ignore[redundant-cast]
            found = cast("list[Any]", found)[int(key)]  # type: ignore[redundant-cast]
        else:
            return []
    return [found]


def _broad_and_deep() -> Keywords:
    """As broad and as deep as one that schemas are checked by, which the checker brings itself."""
    whole: dict[str, Any] = {"allOf": [{"type": "object"} for _ in range(60)]}
    whole["items"] = whole["additionalProperties"] = whole
    return whole


METASCHEMA: Keywords = _broad_and_deep()
