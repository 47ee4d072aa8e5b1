"""The schema of an answer: a declared type or a JSON schema, and the violations of a value.

`violations` never raises on what a model may have written; a value without any makes a value of the declared type.
Nothing is fetched: a `$ref` that leads out is a `BadOption`, and so is a schema that costs too much to check (`limits`).
A declared type is a msgspec Struct, an attrs or data class, a TypedDict, or what msgspec makes of these; its own checks
(validators, `__post_init__`) run after the schema's. A mapping is a JSON schema (draft 2020-12 unless it names another).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, cast

import attrs
import msgspec

from proctor.actors.errors import BadOption, SchemaUnmet
from proctor.actors.structured.examples import examples_of
from proctor.actors.structured.limits import ValidationLimits, count_patterns
from proctor.actors.structured.subschemas import TooCostly

if TYPE_CHECKING:
    import jsonschema_rs

EXTRA = "a schema needs one more package: pip install 'proctor[schema]'"

LONGEST = 400
"""Characters of a violation's message: the checker repeats the whole value in it."""

BACKTRACKS = 10_000
"""Steps back that a pattern may take in one text: a millisecond."""
COMPILED = 2**26
"""Bytes of all patterns of a schema when they are compiled, of one at most `PATTERN`."""
PATTERN = 10 * 2**20

_NONE = (
    "it does not match the schema, and it is too large to list the errors: make it smaller or nest it less"
)
_FIRST = "there may be more errors: for a value this large only the first one is reported"

_PARTS = "#/$defs/"


@attrs.frozen
class Violation:
    """One error: `path` is a JSON pointer (`/lines/0/price`, "" for the whole), `message` describes it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or '(the whole)'}: {self.message}"


@attrs.frozen(eq=False)
class Schema:
    """A declared type or mapping as a JSON schema. `name` is the type's, or the schema's title, or "answer"."""

    name: str
    json: Mapping[str, Any]
    _type: Any = attrs.field(repr=False)
    _validator: jsonschema_rs.Validator = attrs.field(repr=False)
    _limits: ValidationLimits = attrs.field(repr=False)

    @property
    def text(self) -> str:
        """The schema as one line of JSON."""
        return msgspec.json.encode(self.json).decode()

    def violations(self, value: Any) -> tuple[Violation, ...]:
        """The violations of `value`, which is plain data; none when it makes a value of the declared type."""
        try:
            violations = self._checked(value)
        except TooCostly as error:
            violations = (Violation("", f"it cannot be checked: {error}"),)
        except ValueError as error:  # no JSON: not of a model, but of a caller
            violations = (Violation("", _short(str(error))),)
        return violations or self._converted(value)[1]

    def _checked(self, value: Any) -> tuple[Violation, ...]:
        self._limits.refuse_costly(value)
        if self._validator.is_valid(value):
            return ()
        match self._limits.detail(value):
            case "all":
                return tuple(v for error in self._validator.iter_errors(value) for v in _violations_of(error))
            case "first":
                return (*_violations_of(self._first_error(value)), Violation("", _FIRST))
            case "none":
                return (Violation("", _NONE),)

    def _first_error(self, value: Any) -> jsonschema_rs.ValidationError:
        try:
            self._validator.validate(value)
        except ValueError as error:
            return cast("jsonschema_rs.ValidationError", error)
        raise AssertionError("a value that is not valid has an error")

    def value(self, data: Any) -> Any:
        """The declared type's value, or the data as it is where a mapping was declared. Raises `SchemaUnmet`."""
        if wrong := self.violations(data):
            raise SchemaUnmet(self.name, tuple(map(str, wrong)))
        return self._converted(data)[0]

    def example(self) -> Any:
        """Plain data that has no violations. Raises LookupError where none could be made."""
        with suppress(RecursionError):  # parts that lead from one to the next, a thousand times
            for candidate in examples_of(self.json):
                if not self.violations(candidate):
                    return candidate
        raise LookupError(f"no example could be made for {self.name}")

    def _converted(self, data: Any) -> tuple[Any, tuple[Violation, ...]]:
        if self._type is None:
            return data, ()
        try:
            return _with_converters(msgspec.convert(data, self._type)), ()
        except msgspec.ValidationError as error:
            return None, (_violation_of(str(error)),)
        except Exception as error:  # noqa: BLE001  # the declared class's own code: its fault is the answer's
            return None, (Violation("", _short(f"{type(error).__name__}: {error}")),)


def schema_of(declared: object) -> Schema:
    """The schema of a type or of a mapping that is one.

    Raises `BadOption` for what none can be made of, for a schema that is wrong or leads out, and without the extra
    `schema`.
    """
    if isinstance(declared, Schema):
        return declared
    if isinstance(declared, Mapping):
        mapping = cast("Mapping[str, Any]", declared)
        name = str(mapping.get("title") or "answer")[:LONGEST]
        patterns = _small(name, mapping)  # before it is copied: what is there twice is copied twice
        return _compiled(name, _plain(mapping), None, patterns)
    name = getattr(declared, "__name__", None) or repr(declared)
    derived = _derived(name, declared)
    return _compiled(name, derived, declared, _small(name, derived))


def _small(name: str, schema: Mapping[str, Any]) -> int:
    """The number of its patterns, which is limited."""
    try:
        return count_patterns(schema)
    except TooCostly as error:
        raise _unusable(name, error) from error


def _unusable(name: str, why: object) -> BadOption:
    return BadOption(f"schema {name!r} cannot be used: {why}")


def _plain(declared: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return msgspec.json.decode(msgspec.json.encode(declared), type=dict[str, Any])
    except (TypeError, ValueError, RecursionError) as error:
        raise BadOption(f"the schema is not JSON: {_line(error)}") from error


def _derived(name: str, declared: Any) -> dict[str, Any]:
    try:
        (whole,), parts = msgspec.json.schema_components([declared], ref_template=f"{_PARTS}{{name}}")
        derived = msgspec.json.decode(msgspec.json.encode({**whole, "$defs": parts}), type=dict[str, Any])
    except (TypeError, ValueError, NameError, RecursionError) as error:
        accepted = "a msgspec Struct, an attrs class, a TypedDict or a JSON schema"
        raise BadOption(
            f"schema {name!r} is no type that JSON can carry ({accepted}): {_line(error)}"
        ) from error
    return _inlined(derived)


def _line(error: BaseException) -> str:
    return _short(" ".join(str(error).split()))


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The root as itself and not as a reference, which models' APIs want; parts that nothing names are left out."""
    parts: dict[str, Any] = schema.pop("$defs")
    root = str(schema.get("$ref", "")).removeprefix(_PARTS)
    whole: dict[str, Any] = (
        {**parts[root], **{k: v for k, v in schema.items() if k != "$ref"}} if root else schema
    )
    others = {name: part for name, part in parts.items() if name != root}
    text = msgspec.json.encode([whole, others]).decode()
    kept = {name: part for name, part in parts.items() if name != root or f'"{_PARTS}{name}"' in text}
    return {**whole, "$defs": kept} if kept else whole


def _compiled(name: str, schema: dict[str, Any], declared: Any, patterns: int) -> Schema:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise BadOption(EXTRA) from error
    size = min(PATTERN, COMPILED // max(1, patterns))
    options = jsonschema_rs.FancyRegexOptions(
        backtrack_limit=BACKTRACKS, size_limit=size, dfa_size_limit=size
    )
    try:
        limits = ValidationLimits(schema)
        validator = jsonschema_rs.validator_for(
            schema, retriever=_refuse, validate_formats=True, pattern_options=options
        )
    except TooCostly as error:
        raise _unusable(name, error) from error
    except ValueError as error:
        raise _unusable(name, _first_lines(str(error))) from error
    return Schema(name, schema, declared, validator, limits)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri!r} lies outside of the schema, and nothing is fetched")


def _first_lines(text: str) -> str:
    text, _, where = text.replace('is not a "regex"', 'is not a "regex", or too large a one').partition(
        "\n\nFailed validating"
    )
    place = where.partition("\n\n")[0].strip()
    return _short(f"{text.strip()} ({place})" if place.startswith('"') else text.strip())


# -- violations


def _violations_of(error: jsonschema_rs.ValidationError) -> Iterator[Violation]:
    """The violation, or those of the one branch that the value can have been meant for."""
    branches: list[list[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", None) or []
    meant = [branch for branch in branches if not _is_of_another_type(branch, error)]
    if len(meant) == 1:
        for inner in meant[0]:
            yield from _violations_of(inner)
    else:
        yield Violation(_pointer(error.instance_path), _short(error.message))


def _is_of_another_type(
    branch: list[jsonschema_rs.ValidationError], error: jsonschema_rs.ValidationError
) -> bool:
    kinds = ("type", "const", "enum")
    return any(e.kind.name in kinds and e.instance_path == error.instance_path for e in branch)


def _pointer(path: list[str | int]) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def _short(message: str) -> str:
    if len(message) <= LONGEST:
        return message
    return f"{message[: LONGEST // 2]} … {message[-LONGEST // 2 :]}"


def _violation_of(text: str) -> Violation:
    """A violation as msgspec tells it: `Expected … - at `$.lines[0].n``."""
    message, _, place = text.partition(" - at `$")
    steps = place.rstrip("`").replace("[", ".").replace("]", "").split(".")[1:]
    return Violation(_pointer([*steps]), _short(message))


def _with_converters(value: Any) -> Any:
    """The value with its attrs instances made by their own `__init__`, which runs their converters."""
    match value:
        case list():
            return [*map(_with_converters, cast("list[Any]", value))]  # type: ignore[redundant-cast]
        case dict():
            fields = cast("dict[Any, Any]", value)  # type: ignore[redundant-cast]
            return {key: _with_converters(one) for key, one in fields.items()}
        case _:
            return _constructed(value)


def _constructed(value: Any) -> Any:
    fields = [field for field in getattr(value, "__attrs_attrs__", ()) if field.init]
    kind = cast("type[Any]", value.__class__)
    if not fields:
        return value
    return kind(**{field.alias: _with_converters(getattr(value, field.name)) for field in fields})
