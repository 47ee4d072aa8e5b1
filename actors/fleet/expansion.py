"""What a fleet file leaves out: the values of variables, and the defaults of all its agents.

Works on the tables as TOML has them, before they are read, so that a value from elsewhere is checked as one that is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import attrs

from proctor.actors.fleet.schema import KINDS, AgentTable
from proctor.actors.plan.option_checks import suggest_or_list

_VARIABLE = re.compile(r"\$?\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_PROMPTS = frozenset(("prompt", "prompt_file"))
_OWN = frozenset(("name", "replicas"))
_SHARED = {"kind", *(key for kind in KINDS.values() for key in attrs.fields_dict(kind))} - _OWN
"""The keys that `defaults` may have: those of agents, but what is one agent's alone."""
AGENT = r"(?:supervisors\[\d+\]\.)*agents\[\d+\]"
"""The place of the table of an agent."""
_STEP = re.compile(rf"^(?P<agent>{AGENT})\.(?P<key>\w+)(?P<rest>.*)$", re.DOTALL)


@attrs.frozen
class Expansion:
    """The `table` of a file with all that it leaves out; `faults` are those of what was filled in. `inherited` has the places of values that
    `defaults` has given."""

    table: dict[str, Any]
    faults: tuple[str, ...]
    inherited: frozenset[str]

    def written_at(self, fault: str) -> str:
        """The fault at the place where its value is written."""
        found = _STEP.match(fault)
        if found is None or f"{found['agent']}.{found['key']}" not in self.inherited:
            return fault
        return f"defaults.{found['key']}{found['rest']}"


def expand(table: Mapping[str, Any], environ: Mapping[str, str]) -> Expansion:
    """Fill in what a file leaves out."""
    faults = list[str]()
    whole = cast("dict[str, Any]", _substituted(dict(table), environ, "", faults))
    defaults = whole.pop("defaults", {})
    if not isinstance(defaults, dict):
        return Expansion(whole, (*faults, "defaults: expected a table"), frozenset())
    given = cast("dict[str, Any]", defaults)
    faults += [
        f"defaults.{key}: {'is of one agent alone' if key in _OWN else f'unknown key{suggest_or_list(key, sorted(_SHARED))}'}"
        for key in sorted(given.keys() - _SHARED)
    ]
    known, inherited = {key: value for key, value in given.items() if key in _SHARED}, set[str]()
    for place, agent in ((place, inner) for place, kind, inner in tables_of(whole) if kind == "agents"):
        kind = KINDS.get(str(agent.get("kind", known.get("kind"))), AgentTable)
        # an option that this kind does not have is for the others
        added = [
            key
            for key in known
            if key not in agent
            and (key == "kind" or key in attrs.fields_dict(kind))
            # of two keys for one thing its own counts
            and not (key in _PROMPTS and _PROMPTS & agent.keys())
        ]
        agent.update({key: known[key] for key in added})
        inherited |= {f"{place}.{key}" for key in added}
    return Expansion(whole, tuple(faults), frozenset(inherited))


def _substituted(value: object, environ: Mapping[str, str], at: str, faults: list[str]) -> object:
    match value:
        case str():
            return _VARIABLE.sub(_value_in(environ, at, faults), value)
        case dict():
            table = cast("dict[str, object]", value)
            return {
                key: _substituted(inner, environ, f"{at}.{key}".lstrip("."), faults)
                for key, inner in table.items()
            }
        case list():
            items = cast("list[object]", value)
            return [_substituted(inner, environ, f"{at}[{n}]", faults) for n, inner in enumerate(items)]
        case _:
            return value


def _value_in(environ: Mapping[str, str], at: str, faults: list[str]) -> Callable[[re.Match[str]], str]:
    def value(found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return found[0][1:]
        # empty counts as not set, as in a shell
        if text := environ.get(found["name"]):
            return text
        if found["default"] is None and found["name"] not in environ:
            faults.append(
                f"{at}: the variable {found['name']} is not set; ${{{found['name']}:-VALUE}} has a default, $${{...}} is the text itself"
            )
        return found["default"] or ""

    return value


def tables_of(table: dict[str, Any], at: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The tables of agents, servers and supervisors at any depth: place, kind, table."""
    for kind in ("agents", "servers", "supervisors"):
        inner: object = table.get(kind)
        for number, one in enumerate(cast("list[object]", inner) if isinstance(inner, list) else []):
            yield from _from(one, f"{at}{kind}[{number}]", kind)


def _from(one: object, place: str, kind: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if isinstance(one, dict):
        table = cast("dict[str, Any]", one)
        yield place, kind, table
        yield from tables_of(table, f"{place}.") if kind == "supervisors" else ()
