"""The fleet file: a tree of agents in TOML, checked completely before anything starts.

`load_fleet` gives a `Fleet`, whose `specs()` a supervisor takes. One reading finds every fault, each on a line with its position
(`agents[1].restart`) and what is accepted there. Paths are relative to the file. Within a supervisor the servers come first, then the agents, then
its nested supervisors, because TOML does not keep the order between two kinds of tables. Under `one_for_one` agents and nested supervisors
start in parallel, else in that order.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar, cast

import attrs

from proctor.actors.durations import Positive, Seconds, duration
from proctor.actors.errors import BadOption, FleetFaults
from proctor.actors.fleet.expansion import AGENT, expand, tables_of
from proctor.actors.fleet.parser import FieldError, Fields, TableErrors, Tables, field_errors, format_value
from proctor.actors.fleet.schema import (
    KINDS,
    MAX_REPLICAS,
    AgentTable,
    Grace,
    McpTable,
    NotifyTable,
    Permission,
    PromptFile,
    Script,
    Secrets,
    Server,
    copy_names,
    written_fields,
)
from proctor.actors.fleet.toml_lines import line_of
from proctor.actors.plan.budgets import Budget
from proctor.actors.plan.environment import parse_env
from proctor.actors.plan.mcp import McpServer
from proctor.actors.plan.option_checks import PROMPT, check, suggest_or_list
from proctor.actors.plan.options import Variables
from proctor.actors.plan.permissions import Rule
from proctor.actors.scripted import ScriptError, check_script
from proctor.runtime.errors import InvalidSpec
from proctor.runtime.spec import (
    AutoShutdown,
    Backoff,
    ChildSpec,
    Flags,
    GiveUp,
    Restart,
    StopOrder,
    Strategy,
    check_significance,
)
from proctor.runtime.supervision import supervisor_spec

GroupT = TypeVar("GroupT", bound="Group")

_AGENT = re.compile(AGENT)


@attrs.frozen(kw_only=True)
class Group:
    """A supervisor's children and flags. `intensity` restarts within `period` are allowed; `give_up` says what ends when
    there are more."""

    strategy: Strategy | None = None
    intensity: int | None = None
    period: Positive | None = None
    auto_shutdown: AutoShutdown | None = None
    stop_order: StopOrder | None = None
    give_up: GiveUp | None = None
    servers: tuple[Server, ...] = ()
    agents: tuple[AgentTable, ...] = ()
    supervisors: tuple[Nested, ...] = ()

    @property
    def children(self) -> tuple[Child, ...]:
        """The children in starting order: servers stand before the agents that use them."""
        return (*self.servers, *self.agents, *self.supervisors)

    def specs(self, record: Path | None = None) -> list[ChildSpec]:
        """The child specs, in starting order. `record` is the folder for the agents that name none."""
        return [child.spec(record) for child in self.children]

    def flags(self) -> dict[str, Any]:
        """The flags that were written, as keywords of `open_supervisor`; children that depend on none stop together."""
        flags = written_fields(
            self, ("strategy", "intensity", "period", "auto_shutdown", "stop_order", "give_up")
        )
        if (self.strategy or "one_for_one") == "one_for_one" and not self.servers:
            flags.setdefault("stop_order", "parallel")
        return flags

    def degrading(self) -> Self:
        """The same group, in which a child that is restarted too often is given up alone, unless the file sets `give_up` or
        children depend on each other."""
        nested = tuple(group.degrading() for group in self.supervisors)
        alone = self.give_up is None and (self.strategy or "one_for_one") == "one_for_one"
        return attrs.evolve(self, supervisors=nested, give_up="child" if alone else self.give_up)

    def members(self, path: str) -> Iterator[tuple[str, AgentTable]]:
        """Every agent at any depth with its path in the tree, in starting order."""
        yield from ((f"{path}/{agent.name}", agent) for agent in self.agents)
        for group in self.supervisors:
            yield from group.members(f"{path}/{group.name}")

    def names(self, path: str) -> dict[str, str]:
        """The name of every agent at any depth, by its path in the tree."""
        return {at: agent.name for at, agent in self.members(path)}

    def groups(self, path: str) -> Iterator[tuple[str, Group]]:
        """This supervisor and every one below it, with its path."""
        yield path, self
        for group in self.supervisors:
            yield from group.groups(f"{path}/{group.name}")


@attrs.frozen(kw_only=True)
class Nested(Group):
    """A table of `[[supervisors]]`."""

    name: str
    restart: Restart | None = None
    shutdown: Grace | None = None
    significant: bool | None = None
    backoff: Backoff | None = None

    def spec(self, record: Path | None = None) -> ChildSpec:
        """Its child spec. Raises `InvalidSpec`."""
        options = written_fields(self, ("restart", "shutdown", "significant", "backoff"))
        specs, flags = self.specs(record), self.flags()
        return supervisor_spec(self.name, specs, start_order="parallel", **flags, **options)


@attrs.frozen(kw_only=True)
class Fleet(Group):
    """The root. `name` is the file's own name without its ending, unless the file says another. `budget` bounds what
    all agents spend, `stagger` keeps those that come back from a restart apart, `notify` says whom to notify."""

    name: str = "fleet"
    budget: Budget | None = None
    stagger: Positive | None = None
    notify: NotifyTable | None = None

    def tree(self) -> dict[str, Any]:
        """Its flags and what the whole tree shares, as keywords of `open_supervisor`."""
        return {**self.flags(), **written_fields(self, ("stagger", "budget"))}


Child: TypeAlias = Server | AgentTable | Nested

_RECORDS: Mapping[type[Any], Fields] = {
    Rule: {},
    Backoff: {"min_delay": Positive, "max_delay": Positive, "reset_after": Positive},
    Budget: {"period": Positive},
    McpTable: {"env": Variables, "timeout": Positive},
    NotifyTable: {},
    Server: {},
    **dict.fromkeys(KINDS.values(), cast("Fields", {})),
    Nested: {},
    Fleet: {},
}
for _record in (*_RECORDS, Group):
    attrs.resolve_types(_record)


def load_fleet(path: Path) -> Fleet:
    """Read and check a fleet file. Raises `FleetFaults` with every fault, each a line."""
    text = _read(path)
    try:
        return _checked(path, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise FleetFaults(str(path), [_place_first(str(error))]) from None
    except RecursionError:
        raise FleetFaults(str(path), ["is nested too deeply"]) from None
    except TableErrors as error:
        table = tomllib.loads(text)
        places = [fault.partition(": ")[0] for fault in error.faults]
        lines = [line_of(text, place) for place in places]
        agents = [_agent_at(table, place) for place in places]
        raise FleetFaults(str(path), error.faults, lines, agents) from None


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise FleetFaults(str(path), [f"cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        raise FleetFaults(
            str(path), [f"is not UTF-8: byte {error.object[error.start]:#04x} at {error.start}"]
        ) from None


def _agent_at(table: dict[str, Any], place: str) -> str:
    """The name of the agent whose table this place is in, empty for none."""
    if (found := _AGENT.match(place)) is None:
        return ""
    names = [inner.get("name") for at, _, inner in tables_of(table) if at == found[0]]
    return names[0] if names and isinstance(names[0], str) else ""


def _place_first(text: str) -> str:
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", text, re.DOTALL)
    return f"line {found[2]}, column {found[3]}: {found[1]}" if found else text


def _checked(path: Path, table: dict[str, Any]) -> Fleet:
    tables = Tables(path.absolute().parent)
    tables.accept(Grace, _grace)
    tables.accept(Permission, lambda value: _permission(tables, value))
    tables.accept_type(Script, lambda value: _script(tables, value))
    tables.accept_type(PromptFile, lambda value: _prompt_file(tables, value))
    tables.accept_type(Variables, lambda value: parse_env(tables.array(value, tuple[str, ...]), os.environ))
    tables.accept_type(Secrets, lambda value: _secrets(tables.read_as(value, Mapping[str, str])))
    tables.accept_type(AgentTable, tables.one_of(KINDS))
    tables.accept_type(McpServer, lambda value: tables.read_as(value, McpTable))
    tables.records(_RECORDS, _faults, {"name": "unnamed"})
    expansion = expand(table, os.environ)
    # Looked for even when single tables are wrong: one reading finds every fault.
    among = [*expansion.faults, *_faults_among(expansion.table)]
    try:
        fleet = tables.read({"name": path.stem, **expansion.table}, Fleet)
    except TableErrors as error:
        # one value of the defaults may be wrong for many agents
        faults = dict.fromkeys(map(expansion.written_at, error.faults))
        raise TableErrors([*faults, *among]) from None
    if among:
        raise TableErrors(among)
    return _with_copies(fleet)


def _with_copies(group: GroupT) -> GroupT:
    agents = tuple(copy for agent in group.agents for copy in agent.copies())
    return attrs.evolve(group, agents=agents, supervisors=tuple(map(_with_copies, group.supervisors)))


def _grace(value: object) -> object:
    if value == "brutal_kill":
        return value
    try:
        return Seconds(duration(value))
    except ValueError as error:
        raise ValueError(f"{error}; or 'brutal_kill'") from None


def _script(tables: Tables, value: object) -> Script:
    path = tables.path(value)
    check_script(path)
    return Script(path)


def _prompt_file(tables: Tables, value: object) -> PromptFile:
    path = tables.path(value)
    try:
        return PromptFile(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: is not UTF-8: byte {error.object[error.start]:#04x} at {error.start}"
        ) from None


def _secrets(variables: Mapping[str, str]) -> Mapping[str, str]:
    """The value of each header by the variable that holds it."""
    for variable in variables.values():
        if variable not in os.environ:
            raise ValueError(f"names {variable!r}, which is not set here")
    return {header: os.environ[variable] for header, variable in variables.items()}


def _permission(tables: Tables, value: object) -> object:
    if value in ("deny", "allow", "ask"):
        return value
    try:
        return tables.array(value, tuple[Rule, ...])
    except TypeError:
        rules = "[{ tool = 'Read', allow = true }]"
        accepted = f"deny, allow, ask, or rules such as {rules}"
        raise ValueError(f"{format_value(value)} is not a choice; accepted: {accepted}") from None


# -- faults of tables that are well formed


def _faults(record: object) -> Iterator[FieldError]:
    """Every fault that a supervisor would refuse."""
    found = [error for check in _checks(record) for error in _errors(record, check)]
    yield from {(fault.key, str(fault)): fault for fault in found}.values()


def _errors(record: object, check: Callable[[], object]) -> Iterator[FieldError]:
    try:
        check()
    except (InvalidSpec, ScriptError, FieldError, BadOption) as error:
        yield from field_errors(error, type(record))


def _checks(record: object) -> Iterator[Callable[[], object]]:
    if isinstance(record, NotifyTable):
        yield record.check
    if isinstance(record, AgentTable | Server | Nested):
        yield record.spec
    if isinstance(record, AgentTable):
        yield record.child  # also where its agent's options are refused first
        yield record.check_copies
        for key in ("prompt", "prompt_file"):
            yield partial(check, key, getattr(record, key), attrs.evolve(PROMPT, optional=True))
    if isinstance(record, Group):
        yield lambda: Flags(**record.flags())
        yield partial(_check_significance, record)
    if isinstance(record, Fleet):
        yield partial(supervisor_spec, record.name)
        yield record.tree


def _check_significance(group: Group) -> None:
    for kind in ("servers", "agents", "supervisors"):
        children: tuple[Child, ...] = getattr(group, kind)
        for number, child in enumerate(children):
            try:
                check_significance(child.spec(), group.auto_shutdown or "never")
            except InvalidSpec as error:
                [fault] = field_errors(error, type(child))
                raise FieldError(f"{kind}[{number}].{fault.key}", str(fault)) from None


def _faults_among(table: dict[str, Any]) -> Iterator[str]:
    """Faults between tables: names used twice, servers that are missing. They are found whatever else is wrong."""
    found = [(place, kind, inner) for place, kind, inner in tables_of(table)]
    if not any(kind == "agents" for _, kind, _ in found):
        yield "no agent: add a table [[agents]] with kind and name"
    first = dict[str, str]()
    for place, _, inner in found:
        for name in _names_of(inner):
            if name in first:
                yield f"{place}.name: {name!r} is used twice, in {first[name]} too"
            first.setdefault(name, place)
    servers = [str(inner.get("name")) for _, kind, inner in found if kind == "servers"]
    for place, _, inner in found:
        named = inner.get("server")
        if inner.get("mode") == "serve" and isinstance(named, str) and named and named not in servers:
            guess = (
                suggest_or_list(named, servers)
                if servers
                else f"; add a table [[servers]] with name = {named!r}"
            )
            yield f"{place}.server: no server {named!r} is in this file{guess}"


def _names_of(table: dict[str, Any]) -> Sequence[str]:
    name, count = table.get("name"), table.get("replicas")
    if not isinstance(name, str):
        return []
    # a count that cannot be is a fault of its own
    return copy_names(name, count) if type(count) is int and 0 < count <= MAX_REPLICAS else [name]
