"""What it takes to check a value: how often each part of a schema is met at each place in it, counted and not carried out.

Guarantees: what is counted is at least what the checker does, and counting ends at `CHECKS` of these, or after `STEPS`. A value that is nested deeper than `DEPTH` is not looked at.

Two things are counted. Checks take time. Errors take memory too, because each holds the value that it is about, once more as
a text; and the checker makes all of one value's errors at once, and those of all alternatives within one error. So it
matters how much one error can come to (`single`), and how much all of them (`whole`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias, cast

import attrs

from proctor.actors.structured.subschemas import Part

DEPTH = 200
"""Levels of a value."""
CONTAINERS = 1_000_000
"""Lists and objects in a value."""
CHECKS = 10_000_000
"""Checks of one value, in all its places: half a second."""
STEPS = 300_000
"""Steps of the counting: a second."""
ERRORS = 20_000
"""Errors that may have to be held at once: a second or two, and 250 MB."""

_MEMBERS = 75
"""Members of a value that take as much to tell as an error itself does."""
_CHARACTERS = 3000

Telling: TypeAlias = Literal["all", "first", "none"]
"""How much can be told of what is wrong: all of it, what is found first, or only that something is."""

Levels: TypeAlias = list[list[Any]]
"""The lists and objects of a value, level by level."""

_Bag: TypeAlias = dict[tuple[Part, int], int]
_Met: TypeAlias = tuple[Part, int, int]
"""A part, whose error it is part of (0: its own), and how often it is met."""


class TooMuch(ValueError):
    """It is not checked; the text says what there is too much of."""


def refuse(why: str) -> NoReturn:
    """Raise `TooMuch`."""
    raise TooMuch(why)


@attrs.frozen
class Here:
    """What a part has checked of one value, its members apart: how many checks, what they take, the errors that they can
    tell, their bulk, and whether there are alternatives among them."""

    breadth: int
    price: int
    faults: int
    bulk: float
    forks: bool


def levels_of(value: Any) -> Levels:
    """Raises `TooMuch` for what has too many or too much of them."""
    levels: Levels = [[value] if _is_container(value) else []]
    count = 0
    while levels[-1]:
        count += len(levels[-1])
        if count > CONTAINERS:
            refuse(f"it has more than {CONTAINERS:,} lists and objects")
        if len(levels) > DEPTH:
            refuse(f"it is nested more than {DEPTH} levels deep")
        levels.append([inner for one in levels[-1] for inner in _inner(one) if _is_container(inner)])
    return levels


def tally_of(value: Any, levels: Levels, root: Part, here: Mapping[Part, Here]) -> Tally:
    """What it takes to check `value`. Raises `TooMuch` for one that takes too long."""
    tally = Tally(here, _sizes(levels))
    tally.go_down(value, root)
    return tally


@attrs.define
class _Place:
    """A list or an object of the value. `trail` is what the way there adds to each error, `met` the parts that it is met by,
    `below` those of what is in it. Of a list, `plain` are the units of what has no members, `deep` the places of the rest."""

    value: Any
    trail: float
    met: _Bag
    plain: Sequence[float] = ()
    longest: float = 0.0
    deep: Sequence[int] = ()
    below: defaultdict[Any, _Bag] = attrs.field(factory=lambda: defaultdict[Any, _Bag](dict))

    def __attrs_post_init__(self) -> None:
        if isinstance(self.value, list | tuple):
            items = cast("list[Any]", self.value)  # pyright: ignore[reportUnknownMemberType]
            self.plain = [1 + self.trail + _length(one) for one in items if not _is_container(one)]
            self.longest = max(self.plain, default=0.0)
            self.deep = [place for place, one in enumerate(items) if _is_container(one)]


@attrs.define
class Tally:
    """What it takes to check one value: the `price` in checks, and what could be told, in units of what one error takes: the
    `whole`, and the `single` error that has the most in it."""

    _here: Mapping[Part, Here]
    _sizes: Mapping[int, float]
    price: int = 0
    whole: float = 0.0
    _steps: int = 0
    _plain: float = 0.0
    _owned: list[float] = attrs.field(factory=lambda: [0.0])

    @property
    def single(self) -> float:
        """Of the error that could have the most in it; 0 without alternatives."""
        return max(self._plain, *self._owned)

    @property
    def telling(self) -> Telling:
        """How much can be told of what is wrong."""
        if self.whole <= ERRORS:
            return "all"
        return "first" if self.single <= ERRORS else "none"

    def go_down(self, value: Any, root: Part) -> None:
        """Count all that is met in `value`."""
        if not _is_container(value):
            self._leaf(root, (root, 0, 1), 1 + _length(value))
            return
        todo = [_Place(value, 0.0, {(root, 0): 1})]
        while todo:
            place = todo.pop()
            size = 1 + place.trail + self._sizes[id(place.value)]
            enter = self._in_object if _is_object(place.value) else self._in_list
            for met in self._checked(place.met):
                part, owner, times = met
                self._tell(owner, times * part.faults * (size + part.bulk))
                enter(place, met)
            for key, bag in place.below.items():
                todo.append(_Place(place.value[key], place.trail + _length(key), bag))

    def _checked(self, bag: _Bag) -> Iterable[_Met]:
        """What is met, and what is checked of the same value with it."""
        todo: list[_Met] = [(part, owner, times) for (part, owner), times in bag.items()]
        while todo:
            part, owner, times = met = todo.pop()
            self._pay(times * part.price)
            yield met
            todo.extend((one, owner, times * part.again) for one in part.beside)
            if part.branches and not owner:
                self._owned.append(0.0)
                owner = len(self._owned) - 1
            todo.extend((one, owner, times * part.again) for one in part.branches)

    def _in_object(self, place: _Place, met: _Met) -> None:
        part, members = met[0], cast("dict[str, Any]", place.value)
        if part.named:
            fewer, more = sorted((part.named, members), key=len)
            for name in fewer:
                if name in more:
                    self._member(place, name, part.named[name], met)
        if part.others or part.members:
            for name in members:
                others = () if name in part.named else part.others
                for one in (*others, *part.members):
                    self._member(place, name, one, met)

    def _in_list(self, place: _Place, met: _Met) -> None:
        part = met[0]
        for position, one in enumerate(part.placed[: len(place.value)]):
            self._member(place, position, one, met)
        for one in part.items:
            self._pay(0, len(place.deep))
            for position in place.deep:
                _add(place.below[position], one, met)
            if place.plain:
                self._leaf(one, met, place.longest, len(place.plain), sum(place.plain))

    def _member(self, place: _Place, key: str | int, part: Part, met: _Met) -> None:
        value = place.value[key]
        if _is_container(value):
            self._pay(0)
            _add(place.below[key], part, met)
        else:
            self._leaf(part, met, 1 + place.trail + _length(key) + _length(value))

    def _leaf(
        self, part: Part, met: _Met, longest: float, count: int = 1, units: float | None = None
    ) -> None:
        """One value without members, or some, of so many `units` together."""
        _, owner, times = met
        here = self._here[part]
        self._pay(times * count * here.price)
        told = times * (here.faults * (longest if units is None else units) + here.bulk * count)
        self._tell(owner, told)
        if here.forks and not owner:
            self._plain = max(self._plain, times * (here.faults * longest + here.bulk))

    def _tell(self, owner: int, units: float) -> None:
        self.whole += units
        if owner:
            self._owned[owner] += units

    def _pay(self, price: int, steps: int = 1) -> None:
        self.price += price
        self._steps += steps
        if self.price > CHECKS or self._steps > STEPS:
            refuse("that takes too many checks: give less, or nest it less, because alternatives multiply")


def _add(bag: _Bag, part: Part, met: _Met) -> None:
    _, owner, times = met
    bag[part, owner] = bag.get((part, owner), 0) + times


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list | tuple)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _length(value: Any) -> float:
    return len(value) / _CHARACTERS if isinstance(value, str) else 0.0


def _inner(container: Any) -> Iterable[Any]:
    return cast("Iterable[Any]", container.values() if _is_object(container) else container)


def _sizes(levels: Levels) -> dict[int, float]:
    """What each list and object takes to be told, in units of what an error takes."""
    sizes: dict[int, float] = {}
    for level in reversed(levels):
        for one in level:
            sizes[id(one)] = _size(one, sizes)
    return sizes


def _size(container: Any, sizes: Mapping[int, float]) -> float:
    names = sum(map(_length, container)) if _is_object(container) else 0.0
    inner = sum(sizes[id(one)] if _is_container(one) else _length(one) for one in _inner(container))
    return len(container) / _MEMBERS + names + inner
