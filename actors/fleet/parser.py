"""A strict parser from TOML tables to records, which finds every fault of a file in one pass.

cattrs would convert `3` to `"3"`, `"no"` to `True` and a text to a list of letters; every hook here refuses instead and says what is
accepted: `agents[1].restart: 'on' is not a choice; accepted: permanent, transient, temporary`.
"""

from __future__ import annotations

import os
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

import attrs
from cattrs import Converter
from cattrs.errors import (
    BaseValidationError,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
)
from cattrs.gen import make_dict_structure_fn, override

from proctor.actors.durations import ACCEPTED, Limit, Positive, Seconds, duration, limit
from proctor.actors.errors import BadOption
from proctor.actors.plan.option_checks import suggest_or_list
from proctor.actors.plan.options import Folder
from proctor.actors.scripted import ScriptError
from proctor.runtime.errors import InvalidSpec

T = TypeVar("T")

Fields: TypeAlias = Mapping[str, Any]
"""Field of a record → its type in a file, where that is another than in the record."""


class FieldError(ValueError):
    """A fault of one key of a table that is well formed in itself."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


class TableErrors(ValueError):
    """`faults` holds every fault, a line each."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


class Tables:
    """Converter for one file: first call `accept`, then `records`, then `read`.

    Relative paths in the file are relative to `folder`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fillers: dict[type[Any], Callable[[Any, Any], Any]] = {}
        self._converter = made = Converter(forbid_extra_keys=True)
        for kind in (str, int, bool, float):
            made.register_structure_hook(kind, _exactly(kind))
        made.register_structure_hook(Seconds, lambda value, _: Seconds(duration(value)))
        made.register_structure_hook(Positive, _positive)
        made.register_structure_hook(Limit, lambda value, _: Limit(limit(value)))
        made.register_structure_hook(Path, lambda value, _: self.path(value))
        made.register_structure_hook(Folder, lambda value, _: _folder(self.path(value)))
        made.register_structure_hook_func(lambda field_type: _origin(field_type) is Literal, _choice)
        made.register_structure_hook_func(lambda field_type: _origin(field_type) is tuple, self.array)
        made.register_structure_hook_factory(
            lambda field_type: _origin(field_type) is abc.Mapping, self._mapping
        )

    def accept(self, union: object, read: Callable[[object], object]) -> None:
        """Use `read` for fields of this union type, with None in the union or without."""
        members = {*get_args(union)} - {type(None)}

        def matches(field_type: object) -> bool:
            types = {*get_args(field_type)} - {type(None)}
            return get_origin(field_type) in (Union, UnionType) and types == members

        self._converter.register_structure_hook_func(matches, lambda value, _: read(value))

    def accept_type(self, field_type: Any, read: Callable[[object], object]) -> None:
        """Use `read` for fields of this type."""
        self._converter.register_structure_hook(field_type, lambda value, _: read(value))

    def read_as(self, value: object, kind: Any) -> Any:
        """Read a value as this type."""
        return self._converter.structure(value, kind)

    def path(self, value: object) -> Path:
        """Read a path, relative to the file's folder."""
        if isinstance(value, str) and value:
            return self._folder / Path(os.path.expanduser(value))
        raise TypeError(f"expected a path, got {format_value(value)}")

    def one_of(self, kinds: Mapping[str, type[Any]]) -> Callable[[object], object]:
        """A reader of a table whose key `kind` says which record it is."""

        def read(value: object) -> object:
            table = as_table(value)
            accepted = ", ".join(kinds)
            if "kind" not in table:
                raise FieldError("kind", f"this key is missing; accepted: {accepted}")
            kind = table["kind"]
            if not isinstance(kind, str) or kind not in kinds:
                raise FieldError("kind", f"{kind!r} is not a kind; accepted: {accepted}")
            rest = {key: inner for key, inner in table.items() if key != "kind"}
            return self._converter.structure(rest, kinds[kind])

        return read

    def array(self, value: object, field_type: Any) -> tuple[Any, ...]:
        """Read an array as the tuple type `field_type`."""
        if not isinstance(value, list):
            raise TypeError(f"expected an array, got {format_value(value)}")
        items: type[list[Any]] = list[get_args(field_type)[0]]  # type: ignore[misc,assignment]
        return tuple(self._converter.structure(value, items))

    def _mapping(self, field_type: Any) -> Callable[[object, Any], dict[str, Any]]:
        """A reader of a table whose keys are names."""
        fill: Callable[[Any, Any], Any] = self._converter.gen_structure_mapping(field_type)
        return lambda value, kind: fill(as_table(value), kind)

    def records(
        self,
        records: Mapping[type[Any], Fields],
        faults: Callable[[Any], Iterable[FieldError]],
        stand_ins: Mapping[str, object],
    ) -> None:
        """Make these records from tables only; `faults` gives the faults of a well-formed one.

        A malformed one is made of its well-formed fields, with `stand_ins` for missing keys, so that its other faults are found, too.
        """
        for record, fields in records.items():
            self._converter.register_structure_hook(record, self._hook(record, fields, faults, stand_ins))

    def read(self, table: Mapping[str, Any], record: type[T]) -> T:
        """Read the record of a table. Raises `TableErrors`."""
        try:
            return self._converter.structure(table, record)
        except BaseValidationError as error:
            raise TableErrors(_faults(error, "")) from None
        except FieldError as error:
            raise TableErrors(_fault_lines(error, "")) from None

    def _hook(
        self,
        record: type[Any],
        fields: Fields,
        faults: Callable[[Any], Iterable[FieldError]],
        stand_ins: Mapping[str, object],
    ) -> Callable[[object, Any], Any]:
        def reader(kind: Any) -> Callable[[Any, Any], Any]:
            return lambda value, _: self.read_as(value, kind)

        overrides: Any = {name: override(struct_hook=reader(kind)) for name, kind in fields.items()}

        def hook(value: object, field_type: Any) -> Any:
            table = as_table(value)
            fill = self._fillers.get(record)
            if (
                fill is None
            ):  # compiled at its first table: it takes milliseconds, and a file holds few kinds of tables
                fill = self._fillers[record] = make_dict_structure_fn(record, self._converter, **overrides)
            found = list[Exception]()
            try:
                made = fill(table, field_type)
            except ClassValidationError as error:
                found.append(error)
                made = _filled(fill, _well_formed(table, error, record, stand_ins), field_type)
            found += [] if made is None else faults(made)
            if found:
                raise ClassValidationError("what is wrong", found, record)  # pyright: ignore[reportCallIssue]  # as cattrs makes it
            return made

        return hook


def field_errors(error: Exception, record: type[Any]) -> Iterator[FieldError]:
    """The faults in an error of what checks the values of this record."""
    names = attrs.fields_dict(record)
    match error:
        case InvalidSpec():
            text = f"{format_value(error.value)} is not accepted; expected {error.accepted}"
            yield FieldError("name" if error.field == "id" else error.field, text)
        case ScriptError():
            key = {"--fault": "faults"}.get(error.file, error.file)
            yield FieldError(key, error.text) if key in names else FieldError("script", str(error))
        case BadOption():
            for fault in error.faults:
                option, _, text = (
                    (fault.option, "", fault.text) if fault.option else str(fault).partition(" ")
                )
                yield FieldError(option, text) if option in names else FieldError("", str(fault))
        case FieldError():
            yield error
        case _:
            raise error


def _well_formed(
    table: Mapping[str, Any], error: ClassValidationError, record: type[Any], stand_ins: Mapping[str, object]
) -> dict[str, Any]:
    """Keep the fields of a table that no error names, and add stand-ins for required keys."""
    named, _ = error.group_exceptions()
    fields = attrs.fields_dict(record)
    bad = {note.name for _, note in named}
    good = {key: value for key, value in table.items() if key in fields and key not in bad}
    return {**{key: value for key, value in stand_ins.items() if key in fields}, **good}


def _filled(fill: Callable[[Any, Any], Any], table: Mapping[str, Any], field_type: Any) -> Any:
    try:
        return fill(table, field_type)
    except ClassValidationError:  # a key is missing that nothing stands in for
        return None


_TYPES: Mapping[type, str] = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    float: "a number",
    dict: "a table",
    list: "an array",
}


def format_value(value: object) -> str:
    """Format a wrong value as the file has it."""
    if isinstance(value, dict | list):
        return _TYPES[dict if isinstance(value, dict) else list]
    return str(value).lower() if isinstance(value, bool) else repr(value)


def as_table(value: object) -> dict[str, Any]:
    """A table, or TypeError."""
    if not isinstance(value, dict):
        raise TypeError(f"expected a table, got {format_value(value)}")
    return {**value}


def _origin(field_type: Any) -> Any:
    return get_origin(field_type)


def _exactly(kind: type[Any]) -> Callable[[Any, Any], Any]:
    def hook(value: Any, _: Any) -> Any:
        if type(value) is kind or (kind is float and type(value) is int):
            return kind(value)
        raise TypeError(f"expected {_TYPES[kind]}, got {format_value(value)}")

    return hook


def _positive(value: object, _: object) -> Positive:
    seconds = duration(value)
    if not seconds:
        raise ValueError(f"expected {ACCEPTED} above 0, got {value!r}")
    return Positive(seconds)


def _folder(path: Path) -> Folder:
    if not path.is_dir():
        raise ValueError(f"expected a directory, got {str(path)!r}")
    return Folder(str(path))


def _choice(value: object, field_type: Any) -> Any:
    choices = get_args(field_type)
    if isinstance(value, str) and value in choices:
        return value
    raise ValueError(f"{format_value(value)} is not a choice; accepted: {', '.join(choices)}")


def _faults(error: Exception, at: str) -> Iterator[str]:
    match error:
        case IterableValidationError():
            noted, others = error.group_exceptions()
            places = [(inner, _inside(at, note.index)) for inner, note in noted]
        case ClassValidationError():
            named, unnamed = error.group_exceptions()
            places = [(inner, f"{at}.{note.name}") for inner, note in named]
            others = [one for inner in unnamed for one in _split(inner, error.cl)]
        case _:
            yield from _fault_lines(error, at)
            return
    for inner, place in (*places, *((other, at) for other in others)):
        yield from _faults(inner, place)


def _split(error: Exception, record: type[Any]) -> Iterable[Exception]:
    """The faults in an error that the record itself raised when it was made."""
    return field_errors(error, record) if isinstance(error, BadOption | InvalidSpec) else [error]


def _inside(at: str, index: object) -> str:
    return f"{at}.{index}" if isinstance(index, str) else f"{at}[{index}]"


def _fault_lines(error: Exception, at: str) -> Iterator[str]:
    match error:
        case ForbiddenExtraKeysError():
            names = [field.name for field in attrs.fields(error.cl)]
            for key in sorted(error.extra_fields):
                yield _line(f"{at}.{key}", f"unknown key{suggest_or_list(key, names)}")
        case KeyError():
            key = f".{error.args[0]}"
            yield _line(at if at.endswith(key) else at + key, "this key is missing")
        case FieldError():
            yield _line(f"{at}.{error.key}" if error.key else at, str(error))
        case BadOption():
            yield from (_line(at, fault.text) for fault in error.faults)
        case _:
            yield _line(at, str(error))


def _line(at: str, text: str) -> str:
    place, flat = at.removeprefix("."), " ".join(text.split())
    return f"{place}: {flat}" if place else flat
