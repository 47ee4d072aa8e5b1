"""Makes a program that fails as small as it gets, so that what is left is what matters.

Anything is tried that leaves something out, puts a default back or makes a number smaller, as long as the program
still fails. What cannot be run at all does not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import attrs

T = TypeVar("T")


def smallest(value: T, fails: Callable[[T], bool]) -> T:
    """The smallest that still fails; `value` does."""
    while True:
        smaller = next((candidate for candidate in simpler(value) if fails(candidate)), None)
        if smaller is None:
            return value
        value = smaller


def simpler(value: object) -> Iterator[Any]:
    """What is a little simpler than `value`, the boldest first."""
    match value:
        case tuple():
            yield from _simpler_tuple(cast("tuple[object, ...]", value))
        case bool() | str() | None:
            return
        case int():
            yield from sorted({0, value // 2, value - 1} - {value, -1})
        case _:
            yield from _simpler_record(value)


def _simpler_tuple(values: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    for at in range(len(values)):
        yield values[:at] + values[at + 1 :]
    for at, value in enumerate(values):
        for other in simpler(value):
            yield (*values[:at], other, *values[at + 1 :])


def _simpler_record(value: Any) -> Iterator[Any]:
    kind = cast("type[attrs.AttrsInstance]", type(value))
    fields = [field for field in attrs.fields(kind) if getattr(value, field.name) != field.default]
    for field in fields:
        if field.default is not attrs.NOTHING:
            yield attrs.evolve(value, **{field.name: field.default})
    for field in fields:
        for other in simpler(getattr(value, field.name)):
            yield attrs.evolve(value, **{field.name: other})
