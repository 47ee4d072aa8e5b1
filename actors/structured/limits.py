"""Bounds on the work of validating: for a schema when it is declared, for each value before it is checked.

The checker is one native call: nothing can interrupt it, it collects all errors of alternatives in memory, and it follows
references and nested values on its stack. So what could hold the event loop for seconds, take all memory or overflow the
stack is refused before the call. The bounds are upper ones: they assume that every alternative is tried and fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import attrs

from proctor.actors.structured.subschemas import Keywords, Subschema, ordered_subschemas, refuse

VALUES = 30_000
"""JSON values in a schema."""
CHARACTERS = 2**20
"""Characters of all texts in a schema."""
NAME = 4000
"""Characters of one name in a schema: each error's path repeats it."""
PATTERNS = 1000
"""Different patterns in a schema."""
BREADTH = 5000
"""Checks of one value, its members apart."""
CHAIN = 100
"""References and alternatives in a row that stay at the same value."""

DEPTH = 200
"""Levels of a value."""
MEMBERS = 2_000_000
"""JSON values in a value."""
CHECKS = 10_000_000
"""Checks of one value and all its members: half a second."""
ERRORS = 20_000
"""Errors that are held at once: a second or two, and 250 MB."""
FORKS = 50_000
"""Values that alternatives apply to, whose errors are bounded one by one."""
STEPS = 1_000_000
"""Steps of counting by a recursive schema, over all levels: half a second."""

_MEMBERS_AN_ERROR = 75
"""Members whose copy takes as much memory as an error itself."""
_CHARACTERS_AN_ERROR = 3000

Container: TypeAlias = dict[str, Any] | Sequence[Any]
Detail: TypeAlias = Literal["all", "first", "none"]
"""How many of a value's errors can be reported: all, the first one, or none of them."""


def count_patterns(declared: Mapping[str, Any]) -> int:
    """The number of different patterns in a schema as it was declared. Raises `TooCostly` for a schema that is too large."""
    values = characters = 0
    patterns: set[str] = set()
    todo: list[Any] = [declared]
    while todo:
        one = todo.pop()
        values += 1
        if isinstance(one, Mapping):
            keywords = cast("Mapping[Any, Any]", one)  # type: ignore[redundant-cast]
            characters += sum(map(_name_length, keywords))
            patterns.update(_patterns(keywords))
            todo.extend(keywords.values())
        elif isinstance(one, list | tuple):
            todo.extend(cast("list[Any]", one))
        elif isinstance(one, str):
            characters += len(one)
        if values + len(todo) > VALUES:
            refuse(
                f"it has more than {VALUES:,} values: use references for repeated parts, or make it smaller"
            )
    if characters > CHARACTERS:
        refuse(f"its texts have {characters:,} characters, the limit is {CHARACTERS:,}")
    if len(patterns) > PATTERNS:
        refuse(f"it has {len(patterns):,} different patterns, the limit is {PATTERNS:,}")
    return len(patterns)


def _name_length(name: Any) -> int:
    if (length := len(str(name))) > NAME:
        refuse(f"the name {str(name)[:40]!r}... has {length:,} characters, the limit is {NAME:,}")
    return length


def _patterns(keywords: Mapping[Any, Any]) -> Iterable[str]:
    many = keywords.get("patternProperties")
    patterns = [keywords.get("pattern"), *(cast("Iterable[Any]", many) if isinstance(many, Mapping) else ())]
    return [one for one in patterns if isinstance(one, str)]


@attrs.frozen
class _Cost:
    """Of one subschema and all that it applies to the same value: the checks, and the errors that these can make."""

    breadth: int
    checks: int
    errors: float
    chain: int


@attrs.frozen
class _Level:
    """Upper bounds for any one value at one depth: its checks, their errors, and how often each subschema applies to it."""

    checks: int
    errors: float
    applied: Mapping[Subschema, int]

    @property
    def forks(self) -> bool:
        """Whether there are alternatives: the errors of all are held within one error."""
        return any(one.forks for one in self.applied)


@attrs.frozen
class _Row:
    """All values at one depth of a value: how many, their characters, and the longest of their names."""

    count: int
    characters: int
    name: int

    @property
    def copied(self) -> float:
        """The memory of a copy of them, in errors."""
        return self.count / _MEMBERS_AN_ERROR + self.characters / _CHARACTERS_AN_ERROR


class ValidationLimits:
    """The bounds for values that are checked by one schema, which is plain data. Raises `TooCostly` for the schema."""

    def __init__(self, schema: Keywords) -> None:
        self._inner_first = ordered_subschemas(schema)
        self._costs: dict[Subschema, _Cost] = {}
        for one in self._inner_first:
            self._costs[one] = _cost_of(one, [self._costs[inner] for inner in one.here])
        root = next(one for one in self._inner_first if one.keywords is schema)
        self._levels = [self._level(self._costs[root].checks, self._costs[root].errors, {root: 1})]
        self._deepest = STEPS // sum(one.size for one in self._inner_first)

    def refuse_costly(self, value: Any) -> None:
        """Raise `TooCostly` for a value that takes too long to check."""
        checks = 0
        for row, level in self._by_depth(_rows(value)):
            checks += row.count * level.checks
            if checks > CHECKS:
                refuse(
                    "it takes too many checks: make it smaller or nest it less, because alternatives multiply"
                )

    def detail(self, value: Any) -> Detail:
        """The detail in which errors of a value can be reported. Raises `TooCostly`."""
        if self.errors(value) <= ERRORS:
            return "all"
        # One error holds others only where there are alternatives, so it is about one value at their depth or below.
        rows = self._by_depth(_rows(value))
        fork = next((depth for depth, (_, level) in enumerate(rows) if level.forks), None)
        if fork is None:
            return "first"
        inner = next(level for depth, (level, _) in enumerate(_levels_of(value)) if depth == fork)
        few = len(inner) <= FORKS and max(self.errors(one, fork) for one in inner) <= ERRORS
        return "first" if few else "none"

    def errors(self, value: Any, depth: int = 0) -> float:
        """The errors that a value at a depth can make; one with a large value or path counts as several. Raises `TooCostly`."""
        rows = _rows(value)
        inner, path, errors = sum(row.copied for row in rows), 0.0, 0.0
        for row, level in self._by_depth(rows, depth):
            path += row.name / _CHARACTERS_AN_ERROR
            errors += level.errors * (row.count * (1 + path) + inner)
            inner -= row.copied
        return errors

    def _by_depth(self, rows: Sequence[_Row], depth: int = 0) -> Iterable[tuple[_Row, _Level]]:
        for number, row in enumerate(rows, depth):
            if number == len(self._levels):
                if number > self._deepest:
                    refuse("it is nested too deep for a schema as large as this one")
                self._levels.append(self._below(self._levels[-1].applied))
            level = self._levels[number]
            if not level.applied:
                return
            yield row, level

    def _level(self, checks: int, errors: float, applied: dict[Subschema, int]) -> _Level:
        for one in reversed(self._inner_first):
            if times := applied.get(one):
                for inner in one.here:
                    applied[inner] = applied.get(inner, 0) + times * one.repeats
        return _Level(checks, errors, applied)

    def _below(self, applied: Mapping[Subschema, int]) -> _Level:
        """The next level: of all members that an object or a list can have, the worst."""
        most: dict[Subschema, int] = {}
        checks, errors = 0, 0.0
        for kind in ("object", "array"):
            each, changes = _members(kind, applied)
            base_checks, base_errors = self._sum(each)
            checks, errors = max(checks, base_checks), max(errors, base_errors)
            for one, times in each.items():
                most[one] = max(most.get(one, 0), times)
            for change in changes:
                more_checks, more_errors = self._sum(change)
                checks, errors = (
                    max(checks, base_checks + more_checks),
                    max(errors, base_errors + more_errors),
                )
                for one, times in change.items():
                    most[one] = max(most.get(one, 0), each[one] + times)
        return self._level(checks, errors, most)

    def _sum(self, applied: Mapping[Subschema, int]) -> tuple[int, float]:
        costs = [(times, self._costs[one]) for one, times in applied.items()]
        return sum(times * cost.checks for times, cost in costs), sum(
            times * cost.errors for times, cost in costs
        )


def _members(
    kind: str, applied: Mapping[Subschema, int]
) -> tuple[Counter[Subschema], Iterable[Counter[Subschema]]]:
    """Count how often subschemas apply to a member without a declared name, and the differences for each declared name."""
    each: Counter[Subschema] = Counter()
    named: dict[str | int, Counter[Subschema]] = {}
    for one, times in applied.items():
        members = one.object if kind == "object" else one.array
        for inner in (*members.each, *members.others):
            each[inner] += times
        for name, inner in members.named.items():
            change = named.setdefault(name, Counter())
            change[inner] += times
            for other in members.others:
                change[other] -= times
    return each, named.values()


def _cost_of(one: Subschema, inner: Sequence[_Cost]) -> _Cost:
    cost = _Cost(
        breadth=1 + one.repeats * sum(cost.breadth for cost in inner),
        checks=one.checks + one.repeats * sum(cost.checks for cost in inner),
        errors=one.errors + one.repeats * sum(cost.errors for cost in inner),
        chain=1 + max((cost.chain for cost in inner), default=0),
    )
    if cost.chain > CHAIN:
        refuse(f"more than {CHAIN} references or alternatives follow each other: join them")
    if cost.breadth > BREADTH:
        refuse(
            f"its alternatives multiply to more than {BREADTH:,} checks of one value: "
            "nest fewer of `anyOf`, `oneOf` and `allOf` in each other"
        )
    return cost


# -- values


def _rows(value: Any) -> list[_Row]:
    return [row for _, row in _levels_of(value)]


def _levels_of(value: Any) -> Iterator[tuple[list[Any], _Row]]:
    """All values at each depth: the value, its members, their members and so on. Raises `TooCostly`."""
    level: list[Any] = [value]
    names: list[int] = []
    depth = count = 0
    while level:
        texts = sum(len(one) for one in level if isinstance(one, str))
        yield level, _Row(len(level), texts + sum(names), max(names, default=0))
        containers = [cast("Container", one) for one in level if isinstance(one, dict | list | tuple)]
        if containers and (depth := depth + 1) > DEPTH:
            refuse(f"it is nested more than {DEPTH} levels deep")
        names = [len(name) for one in containers if isinstance(one, dict) for name in one]
        level = [inner for one in containers for inner in (one.values() if isinstance(one, dict) else one)]
        if (count := count + len(level)) > MEMBERS:
            refuse(f"it has more than {MEMBERS:,} values")
