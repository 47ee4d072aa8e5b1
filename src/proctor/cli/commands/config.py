"""`proctor config`: checks a fleet file and prints what it comes to: variables, defaults, prompt files and replicas filled in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs
import msgspec

from proctor.actors.fleet.fleet import Group
from proctor.actors.fleet.schema import KINDS, AgentTable
from proctor.cli.daemon import run_report
from proctor.cli.exit_status import OK
from proctor.cli.ui.output import Output
from proctor.cli.words import read_fleet

_SECRET = frozenset(("env", "headers"))
_NAMES: Mapping[type[AgentTable], str] = {table: name for name, table in KINDS.items()}


def config_command(fleet: str) -> int:
    """Print the fleet of this file as JSON and return the exit status."""
    return run_report(partial(_print, fleet))


async def _print(file: str, out: Output) -> int:
    await out.write(
        msgspec.json.format(msgspec.json.encode(_plain(read_fleet(file)), enc_hook=str), indent=2) + b"\n"
    )
    return OK


def _plain(group: Group) -> dict[str, Any]:
    """A supervisor as plain data, without what the file leaves open."""
    agents = [{"kind": _NAMES[type(agent)], **_fields(agent)} for agent in group.agents]
    nested = [_plain(inner) for inner in group.supervisors]
    children = {"agents": agents, "supervisors": nested}
    return {**_fields(group, *children), **{name: tables for name, tables in children.items() if tables}}


def _fields(record: attrs.AttrsInstance, *without: str) -> dict[str, Any]:
    def is_written(field: attrs.Attribute[Any], value: object) -> bool:
        return field.repr and field.name not in without and value not in (None, (), {})

    return attrs.asdict(record, filter=is_written, value_serializer=_without_secrets)


def _without_secrets(_: object, field: attrs.Attribute[Any] | None, value: Any) -> Any:
    """Of what may be a secret the names alone."""
    return sorted(value) if field is not None and field.name in _SECRET else value
