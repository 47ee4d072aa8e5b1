"""The allowed values of each option of an agent: one table, used wherever an agent is made.

`option_faults` names everything that is wrong with some options, not the first of it. What a record of options holds is
checked by the same table (`validate_option`). A command line can narrow an option to its own words (`Family.accepts`).

Values that may be secret (`env`, `mcp`) are never shown.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import attrs
import msgspec

from proctor.actors.errors import BadOption, OptionFault
from proctor.actors.plan.budgets import Budget
from proctor.actors.plan.environment import Home
from proctor.actors.plan.permissions import Rule
from proctor.actors.plan.workspaces import WorkspaceKind
from proctor.actors.recording.recording import MIN_LIMIT
from proctor.protocols.dialect import Mode
from proctor.protocols.lenient import Refusal

T = TypeVar("T")

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_SURE = 0.9
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""What no name holds; a lone surrogate cannot be written as UTF-8."""


@attrs.frozen(kw_only=True)
class OptionRule:
    """What one option takes: `what` says it to people, `takes` decides. `optional`: None is taken, too."""

    what: str
    takes: Callable[[Any], bool]
    choices: tuple[str, ...] = ()
    optional: bool = False
    shown: bool = True

    def fault(self, value: object) -> str | None:
        """What is wrong with this value, to be read behind the option's name; None when nothing is."""
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


def one_of(*choices: str, optional: bool = False, what: str = "") -> OptionRule:
    """One of these words."""
    text = what or ", ".join(choices)
    return OptionRule(what=text, takes=lambda value: value in choices, choices=choices, optional=optional)


def is_text(value: object) -> bool:
    """Is it a text that a command line can be given? One cannot hold a NUL, nor half of a character."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not _CONTROL.search(value)


def _is_word(value: object) -> bool:
    return _is_name(value) and not str(value).startswith("-")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_zero(value: object) -> bool:
    return not isinstance(value, bool) and value == 0


def _is_size(value: object) -> bool:
    return _is_zero(value) or _is_count(value)


def _is_span(value: object) -> bool:
    return _is_zero(value) or _is_positive(value)


def _is_amount(value: object) -> bool:
    return _is_positive(value) and cast(float, value) < math.inf


def _are_texts(value: object) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(is_text(one) for one in cast("Sequence[object]", value))


def _is_path(value: object) -> bool:
    return isinstance(value, Path) or (isinstance(value, str) and bool(value) and is_text(value))


def _is_folder(value: object) -> bool:
    return _is_path(value) and Path(os.path.expanduser(cast("str | Path", value))).is_dir()


def _are_folders(value: object) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(_is_folder(one) for one in cast("Sequence[object]", value))


def _is_environment(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    pairs = cast("Mapping[object, object]", value).items()
    return all(_is_name(k) and "=" not in str(k) and is_text(v) for k, v in pairs)


def _are_functions(value: object) -> bool:
    return isinstance(value, Sequence) and all(map(callable, cast("Sequence[object]", value)))


def _is_schema(value: object) -> bool:
    try:
        return isinstance(value, str) and isinstance(msgspec.json.decode(value), dict)
    except Refusal:
        return False


def _is_policy(value: object) -> bool:
    if value in ("deny", "allow", "ask") or callable(value):
        return True
    return isinstance(value, tuple | list) and all(
        isinstance(one, Rule) for one in cast("Sequence[object]", value)
    )


_TEXT = OptionRule(what="a text without a NUL", takes=is_text, optional=True)
_NAME = OptionRule(what="a name, not empty", takes=_is_name, optional=True)
_WORD = OptionRule(what="a name that does not begin with '-'", takes=_is_word, optional=True)
_TEXTS = OptionRule(what="a tuple of texts", takes=_are_texts)
_FLAG = OptionRule(what="True or False", takes=lambda value: isinstance(value, bool))
_PATH = OptionRule(what="a path, not empty", takes=_is_path, optional=True)
_COUNT = OptionRule(what="an integer from 1 on", takes=_is_count, optional=True)
SECONDS = OptionRule(what="a number of seconds above 0", takes=_is_positive)
ENVIRONMENT = OptionRule(
    what="a mapping of names without '=' to texts without a NUL", takes=_is_environment, shown=False
)
FOLDER = OptionRule(what="the path of a directory", takes=_is_folder, optional=True)
HOME = one_of(*get_args(Home))
SESSION = OptionRule(
    what="a session's UUID",
    takes=lambda value: isinstance(value, str) and bool(_UUID.fullmatch(value)),
    optional=True,
)
"""Where a CLI names its sessions so."""

PROMPT = OptionRule(
    what="a text that is not blank", takes=lambda value: is_text(value) and bool(value.strip())
)
OPTIONAL_PROMPT = OptionRule(what="a text", takes=is_text)
"""A prompt that something goes with."""
TIMEOUT = OptionRule(
    what="a number of seconds from 0 on",
    takes=_is_span,
    optional=True,
)

OPTIONS: Mapping[str, OptionRule] = {
    "cwd": FOLDER,
    "env": ENVIRONMENT,
    "home": HOME,
    "record": _PATH,
    "record_limit": OptionRule(
        what=f"a number of bytes from {MIN_LIMIT} on, or None",
        takes=lambda v: _is_count(v) and v >= MIN_LIMIT,
        optional=True,
    ),
    "workspace": one_of(*get_args(WorkspaceKind)),
    "worktrees": _PATH,
    "reach": OptionRule(what="a sequence of words, or a function", takes=lambda value: True),
    "executable": _PATH,
    "model": _WORD,
    "mode": one_of(*get_args(Mode)),
    "resume": _WORD,
    "session_id": _WORD,
    "partial": _FLAG,
    "permission_mode": _WORD,
    "system_prompt": _TEXT,
    "append_system_prompt": _TEXT,
    "tools": attrs.evolve(_TEXTS, optional=True),
    "allowed_tools": _TEXTS,
    "disallowed_tools": _TEXTS,
    "add_dirs": OptionRule(what="a tuple of paths of directories", takes=_are_folders),
    "mcp": OptionRule(
        what="a mapping of names to records of McpServer",
        takes=lambda value: isinstance(value, Mapping),
        optional=True,
        shown=False,
    ),
    "mcp_config": _PATH,
    "context": OptionRule(what="a mapping of names to texts", takes=lambda value: isinstance(value, Mapping)),
    "json_schema": OptionRule(
        what="a JSON schema as a text that holds an object", takes=_is_schema, optional=True
    ),
    "max_turns": _COUNT,
    "max_budget_usd": OptionRule(what="a number of US dollars above 0", takes=_is_amount, optional=True),
    "persist": attrs.evolve(_FLAG, optional=True),
    "user_settings": attrs.evolve(_FLAG, optional=True),
    "project_memory": _FLAG,
    "retries": OptionRule(
        what="an integer from 0 on",
        takes=_is_size,
        optional=True,
    ),
    "sandbox": one_of("read-only", "workspace-write", "danger-full-access", optional=True),
    "effort": _WORD,
    "extra": _TEXTS,
    "greeting": SECONDS,
    "silence": SECONDS,
    "tool_silence": SECONDS,
    "final": SECONDS,
    "permission": OptionRule(
        what="deny, allow, ask, rules, or a function", takes=_is_policy, choices=("deny", "allow", "ask")
    ),
    "approval_deadline": SECONDS,
    "on_recording_failure": one_of("continue", "fail"),
    "on_crash": one_of("fail", "resume", "retry"),
    "park": _FLAG,
    "budget": OptionRule(what="a Budget", takes=lambda value: isinstance(value, Budget), optional=True),
    "account": _NAME,
    "host_tools": OptionRule(what="a sequence of tools", takes=lambda value: isinstance(value, Sequence)),
    "hooks": OptionRule(what="a sequence of Hook", takes=lambda value: isinstance(value, Sequence)),
    "schemas": _FLAG,
    "error_budget": attrs.evolve(_COUNT, what="a whole number from 1 on, or None"),
    "validators": OptionRule(what="a sequence of validators", takes=_are_functions),
}
"""Every option of an agent. `mcp`, `host_tools`, `hooks`, `context` and `reach` are looked into by their own modules."""

REMOTE_OPTIONS: Mapping[str, OptionRule] = {"cwd": _PATH}
"""Where a process runs on another machine: what is here says nothing about there."""


def option_faults(options: Mapping[str, object], words: Mapping[str, OptionRule]) -> Iterator[OptionFault]:
    """Everything that is wrong with these options, each by itself. `words` narrow some of them to those of one CLI."""
    for name, value in options.items():
        if (accepted := words.get(name) or OPTIONS.get(name)) is None:
            yield OptionFault("", f"unknown option {name!r}{suggest_or_list(name, sorted(OPTIONS))}")
        elif (fault := accepted.fault(value)) is not None:
            yield OptionFault(name, fault)


def collect_faults(faults: list[OptionFault], make: Callable[[], T], instead: T) -> T:
    """What was made, or `instead` where an option does not allow it, which `faults` gets."""
    try:
        return make()
    except BadOption as error:
        faults.extend(error.faults)
        return instead


def validate_option(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """The validator of a record whose field has the name of an option. Raises `BadOption`."""
    check(attribute.name, value, OPTIONS[attribute.name])


def check(name: str, value: object, accepted: OptionRule) -> None:
    """Raises `BadOption` for a value that is not accepted."""
    if (fault := accepted.fault(value)) is not None:
        raise BadOption(f"{name} {fault}", [OptionFault(name, fault)])


def check_request(prompt: object, *, timeout: object = None, payloads: Sequence[object] = ()) -> None:
    """Refuse what cannot be asked, before anything is started or sent. Raises `BadOption`."""
    check("prompt", prompt, OPTIONAL_PROMPT if payloads else PROMPT)
    check("timeout", timeout, TIMEOUT)
