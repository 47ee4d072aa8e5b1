"""The verbs: clients of the control sockets of running fleets."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proctor.actors.durations import format_duration
from proctor.cli.control_client import Client, ControlError, Host, running_hosts
from proctor.cli.exit_status import OK
from proctor.cli.ui.text import money, one_line
from proctor.cli.usage_errors import complain

Row = tuple[str, ...]
Record = Mapping[str, Any]
Column = str | Callable[[Record], str]
"""A field of a record, or a function that makes the text of a cell."""
NEED = (
    "blocked", "stalled", "failed", "backoff", "parked", "busy", "working", "starting", "stopping", "idle", "done", "stopped",
)  # fmt: skip
"""The states in the order in which they need somebody."""


def control_command(name: str, options: Namespace) -> int:
    """Run a verb and return the exit status. An error is one line on stderr."""
    try:
        return COMMANDS[name](options)
    except ControlError as error:
        complain(str(error))
        return error.status


def fleet_of(name: str | None) -> Host:
    """The running host of this fleet; without a name the only one. Raises `ControlError`."""
    hosts = running_hosts()
    named = [host for host in hosts if name in (None, host.fleet)]
    names = ", ".join(host.fleet for host in hosts)
    if not hosts:
        raise ControlError("no fleet runs under this user; start one with proctor up FLEET.toml")
    if not named:
        raise ControlError(f"no fleet {name!r} runs under this user; these do: {names}")
    if len(named) > 1:
        raise ControlError(f"{len(named)} fleets run: {names}; name one")
    return named[0]


# -- lists


def _ls(options: Namespace) -> int:
    records = [{"fleet": host.fleet, "pid": host.pid} for host in running_hosts()]
    return _show(options.output, records, {"FLEET": "fleet", "PID": "pid"})


def _ps(options: Namespace) -> int:
    agents = sorted(Client(fleet_of(options.fleet)).get("/agents")["agents"], key=_need)
    columns: Mapping[str, Column] = {
        "AGENT": "name",
        "STATE": "state",
        "QUEUED": "queued",
        "TURNS": "turns",
        "COST": lambda agent: money(agent["cost_usd"]),
        "SINCE": lambda agent: "" if agent["seconds"] is None else format_duration(agent["seconds"]),
        "WHY": lambda agent: one_line(agent["evidence"]),
    }
    return _show(options.output, agents, columns)


def _need(agent: Record) -> tuple[int, str]:
    return NEED.index(agent["state"]), agent["name"]


def _show(output: str, records: Sequence[Record], columns: Mapping[str, Column]) -> int:
    """Write records in an output format. `columns` has the field of each title of the table, or a function of the record."""
    if output == "table":
        rows = [tuple(_cell(record, column) for column in columns.values()) for record in records]
        _write("".join(f"{line}\n" for line in table([tuple(columns), *rows])))
    else:
        indent = 2 if output == "json" else None
        whole: Sequence[Any] = [records] if output == "json" else records
        _write("".join(f"{json.dumps(one, indent=indent)}\n" for one in whole))
    return OK


def _cell(record: Record, column: Column) -> str:
    return one_line(str(record[column])) if isinstance(column, str) else column(record)


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as lines, in columns as wide as needed."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


COMMANDS: Mapping[str, Callable[[Namespace], int]] = {"ls": _ls, "ps": _ps}
"""The function of each verb."""
