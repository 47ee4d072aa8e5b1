"""Rules for the values of options: `what` each takes for people, and the check. Values that may be secret are never shown."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

import attrs
import msgspec

from proctor.actors.errors import BadOption, OptionFault
from proctor.protocols.lenient import Refusal

T = TypeVar("T")

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_SURE = 0.9
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""What no name holds; a lone surrogate cannot be written as UTF-8."""


@attrs.frozen
class OptionRule:
    """The accepted values of an option: `what` describes them, `takes` decides. `optional`: or None. `shown`: a refusal may show the value."""

    what: str
    takes: Callable[[Any], bool]
    choices: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    optional: bool = attrs.field(default=False, kw_only=True)
    shown: bool = attrs.field(default=True, kw_only=True)

    def fault(self, value: object) -> str | None:
        """The fault of a value, to be read behind the option's name; None for an accepted one."""
        if (value is None and self.optional) or self.takes(value):
            return None
        if self.choices:
            return f"{value!r} is not a choice{suggest(value, self.choices)}; accepted: {self.what}"
        given = repr(value) if self.shown else f"a value of type {type(value).__name__}"
        return f"must be {self.what}, got {given}"


def suggest(value: object, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, with a second word where the first is not near enough to be sure, or nothing."""
    word = value.lstrip("-") if isinstance(value, str) else ""
    names = {name.lstrip("-"): name for name in known}
    suggest_or_list = difflib.get_close_matches(word, names, 1, _SURE) or difflib.get_close_matches(
        word, names, 2
    )
    meant = [names[match] for match in suggest_or_list]
    return f" (did you mean {' or '.join(map(repr, meant))}?)" if meant else ""


def suggest_or_list(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or the list of what is known."""
    known = list(known)
    return suggest(word, known) or f"; known: {', '.join(known)}"


def one_of(*choices: str) -> OptionRule:
    """One of these words."""
    return OptionRule(", ".join(choices), lambda value: value in choices, choices=choices)


def is_text(value: object) -> bool:
    """Is it a text that a command line can be given? One cannot hold a NUL, nor half of a character."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_number(value: object) -> bool:
    """Is it a number, and no bool?"""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    """Is it an integer, and no bool?"""
    return isinstance(value, int) and not isinstance(value, bool)


def sequence_of(takes: Callable[[Any], bool]) -> Callable[[object], bool]:
    """A check of a sequence, by that of its items."""
    return lambda value: (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(map(takes, cast("Sequence[object]", value)))
    )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not _CONTROL.search(value)


def _is_path(value: object) -> bool:
    return isinstance(value, Path) or (bool(value) and is_text(value))


def _is_folder(value: object) -> bool:
    return _is_path(value) and Path(os.path.expanduser(cast("str | Path", value))).is_dir()


def _is_environment(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    pairs = cast("Mapping[object, object]", value).items()
    return all(_is_name(k) and "=" not in str(k) and is_text(v) for k, v in pairs)


def _is_schema(value: object) -> bool:
    try:
        return isinstance(value, str) and isinstance(msgspec.json.decode(value), dict)
    except Refusal:
        return False


TEXT = OptionRule("a text without a NUL", is_text)
NAME = OptionRule("a name, not empty", _is_name)
WORD = OptionRule("a name that does not begin with '-'", lambda value: _is_name(value) and value[0] != "-")
TEXTS = OptionRule("a tuple of texts", sequence_of(is_text))
FLAG = OptionRule("True or False", lambda value: isinstance(value, bool))
PATH = OptionRule("a path, not empty", _is_path)
FOLDER = OptionRule("the path of a directory", _is_folder)
FOLDERS = OptionRule("a tuple of paths of directories", sequence_of(_is_folder))
COUNT = OptionRule("an integer from 1 on", lambda value: is_count(value) and value >= 1)
SIZE = OptionRule("an integer from 0 on", lambda value: is_count(value) and value >= 0)
DOLLARS = OptionRule(
    "a number of US dollars above 0", lambda value: is_number(value) and 0 < value < math.inf
)
SECONDS = OptionRule("a number of seconds above 0", lambda value: is_number(value) and value > 0)
DELAY = OptionRule("a number of seconds from 0 on", lambda value: is_number(value) and value >= 0)
TIMEOUT = attrs.evolve(DELAY, optional=True)
ENVIRONMENT = OptionRule(
    "a mapping of names without '=' to texts without a NUL", _is_environment, shown=False
)
SCHEMA = OptionRule("a JSON schema as a text that holds an object", _is_schema)
SESSION = OptionRule(
    "a session's UUID", lambda value: isinstance(value, str) and bool(_UUID.fullmatch(value))
)
"""For a CLI that names its sessions so."""
PROMPT = OptionRule("a text that is not blank", lambda value: is_text(value) and bool(value.strip()))
OPTIONAL_PROMPT = OptionRule("a text", is_text)
"""A prompt that something goes with."""


def rule_of(hint: Any) -> OptionRule | None:
    """The rule for the values of a type: a `Literal`, bool, a path, or a record; None for any other type."""
    if get_origin(hint) is Literal:
        return one_of(*get_args(hint))
    if hint is bool:
        return FLAG
    if Path in get_args(hint):
        return PATH
    return OptionRule(f"a {hint.__name__}", lambda v: isinstance(v, hint)) if attrs.has(hint) else None


def collect_faults(faults: list[OptionFault], make: Callable[[], T], instead: T) -> T:
    """Return what `make` gives, or `instead` where an option is refused; `faults` gets the refusals."""
    try:
        return make()
    except BadOption as error:
        faults.extend(error.faults)
        return instead


def check(name: str, value: object, accepted: OptionRule, of: str = "") -> None:
    """Raises `BadOption` for a value that is not accepted; `of` names the record whose field it is."""
    if (fault := accepted.fault(value)) is not None:
        raise BadOption(f"{name}{of and f' of {of}'} {fault}", [OptionFault(name, fault)])


def field_rule(accepted: OptionRule, of: str) -> Callable[[object, attrs.Attribute[Any], object], None]:
    """A validator of a field of the record `of`. Raises `BadOption`."""
    return lambda _, attribute, value: check(attribute.name, value, accepted, of)


def check_request(prompt: object, *, timeout: object = None, payloads: Sequence[object] = ()) -> None:
    """Refuse what cannot be asked, before anything is started or sent. Raises `BadOption`."""
    check("prompt", prompt, OPTIONAL_PROMPT if payloads else PROMPT)
    check("timeout", timeout, TIMEOUT)
