"""How much there is to check: in a schema, and in a value by it. What would take all memory, or minutes, is refused.

Guarantees: a schema that was taken is compiled in seconds at most, and no value makes its check crash or take longer: one
that would is not checked, and who asks is told why. Nothing is ever expanded to find this out.

Why, as measured of the checker. It tells the errors of alternatives within the error that none of them fits, so that levels
multiply: 18 levels of two take 20 s and 2.3 GB. Checking alone multiplies too, without the memory; so do the levels of a
value by a recursive schema. 100 alternatives to a text of 1 MB take 1 s and 400 MB, as each error has the text. A part that
is a reference to itself, and a value of some 10,000 levels, are followed to the end of the stack. A pattern that looks around
takes milliseconds to compile and up to one for a text (`schemas` bounds both).

Not here: what a value takes (`tally`), and what is told of one that was not checked (`schemas`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, cast

from proctor.actors.structured.subschemas import Keywords, Part, parts_of
from proctor.actors.structured.tally import CHECKS, Here, Tally, levels_of, refuse, tally_of

VALUES = 30_000
"""JSON values in a schema."""
CHARACTERS = 2**20
"""Characters of all texts in a schema."""
NAME = 4000
"""Characters of one name in a schema: it stands in the place of each error."""
PATTERNS = 1000
"""Different patterns in a schema."""
BREADTH = 5000
"""Checks of one value in one place, its members apart."""
CHAIN = 100
"""References and alternatives from one to the next, without going down into the value."""


def patterns_of(declared: Mapping[str, Any]) -> frozenset[str]:
    """The patterns in a schema as it was declared, before anything is made of it. Raises `TooMuch` for one too large."""
    values = characters = 0
    patterns: set[str] = set()
    todo: list[Any] = [declared]
    while todo:
        one = todo.pop()
        values += 1
        if isinstance(one, Mapping):
            keywords = cast("Mapping[Any, Any]", one)  # type: ignore[redundant-cast]
            characters += sum(map(_named, keywords))
            patterns.update(_patterns(keywords))
            todo.extend(keywords.values())
        elif isinstance(one, list | tuple):
            todo.extend(cast("list[Any]", one))
        elif isinstance(one, str):
            characters += len(one)
        if values + len(todo) > VALUES:
            refuse(
                f"it has more than {VALUES:,} values: refer to a part that is there twice, or leave some out"
            )
    if characters > CHARACTERS:
        refuse(f"its texts have {characters:,} characters, at most {CHARACTERS:,} are taken")
    if len(patterns) > PATTERNS:
        refuse(f"it has {len(patterns):,} different patterns, at most {PATTERNS:,} are taken")
    return frozenset(patterns)


def _named(name: Any) -> int:
    if (length := len(str(name))) > NAME:
        refuse(f"the name {str(name)[:40]!r}... in it has {length:,} characters, at most {NAME:,} are taken")
    return length


def _patterns(keywords: Mapping[Any, Any]) -> Iterable[str]:
    if "pattern" not in keywords and "patternProperties" not in keywords:
        return ()
    many = keywords.get("patternProperties")
    found = [keywords.get("pattern"), *(cast("Iterable[Any]", many) if isinstance(many, Mapping) else ())]
    return [one for one in found if isinstance(one, str)]


class Extent:
    """Of one schema, which is plain data. Raises `TooMuch`."""

    def __init__(self, schema: Keywords) -> None:
        parts = parts_of(schema)
        self._root = parts[0]
        self._here: dict[Part, Here] = {}
        for part in parts:
            _broad(part, self._here, ())
        self._most = _most(self._root, self._here)

    def is_light(self, value: Any) -> bool:
        """Whether to check `value` takes no time, whatever is in it. Raises `TooMuch` for one that cannot be checked."""
        members = sum(len(one) for level in levels_of(value) for one in level)
        return (members + 1) * self._most <= CHECKS

    def count(self, value: Any) -> Tally:
        """What it takes to check `value`, and how much can be told of it. Raises `TooMuch` for one that cannot be checked."""
        return tally_of(value, levels_of(value), self._root, self._here)


def _broad(part: Part, known: dict[Part, Here], above: tuple[Part, ...]) -> Here:
    if (here := known.get(part)) is not None:
        return here
    if part in above:
        refuse("a part of it refers to itself without going down into the value, so that it has no end")
    if len(above) >= CHAIN:
        refuse(f"more than {CHAIN} references or alternatives follow on one another: join them")
    inner = [_broad(one, known, (*above, part)) for one in (*part.beside, *part.branches)]
    known[part] = here = Here(
        1 + part.again * sum(one.breadth for one in inner),
        part.price + part.again * sum(one.price for one in inner),
        part.faults + part.again * sum(one.faults for one in inner),
        part.faults * part.bulk + part.again * sum(one.bulk for one in inner),
        bool(part.branches) or any(one.forks for one in inner),
    )
    if here.breadth > BREADTH:
        refuse(
            f"its alternatives multiply to more than {BREADTH:,} checks of one value: "
            "have fewer of `anyOf`, `oneOf` and `allOf` within one another"
        )
    return here


def _most(root: Part, here: Mapping[Part, Here]) -> float:
    """What the checks of one place in a value take at most; infinite where the schema is recursive."""
    below: dict[Part, float] = {}
    begun: set[Part] = set()
    todo = [root]
    while todo:
        part = todo[-1]
        waiting = [one for one in _all(part) if one not in below]
        if part not in begun and waiting:
            begun.add(part)
            todo.extend(waiting)
        else:
            todo.pop()
            below[part] = math.inf if waiting else _members(part, here, below)
    return max(here[root].price, below[root])


def _all(part: Part) -> Iterable[Part]:
    yield from chain(part.beside, part.branches, part.named.values(), part.others)
    yield from chain(part.members, part.placed, part.items)


def _members(part: Part, here: Mapping[Part, Here], below: Mapping[Part, float]) -> float:
    """What the checks of one member, or of one place in it, take at most."""

    def price(one: Part) -> float:
        return max(here[one].price, below[one])

    beside = part.again * sum(below[one] for one in (*part.beside, *part.branches))
    one_of = max(map(price, (*part.named.values(), *part.placed, *part.others)), default=0.0)
    return beside + one_of + sum(map(price, (*part.members, *part.items)))
