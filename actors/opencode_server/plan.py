"""The plan of an agent whose session is on an opencode server, and the transport to it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from proctor.actors.errors import BadOption, OptionFault
from proctor.actors.plan.options import SHUTDOWN, AgentOptions
from proctor.actors.plan.plan import Plan, opencode_family, shaped
from proctor.actors.transport.memory import MemoryTransport
from proctor.actors.transport.transport import Reach, Start
from proctor.protocols.opencode.serve.dialect import OPENCODE_SERVE

OF_THE_SERVER = frozenset(("env", "home", "executable"))
"""Options of a process, which an agent on a server does not have."""
EXTRA = "an agent on a server needs more packages: pip install 'proctor[opencode]'"


def served(server: str) -> Reach:
    """The transport to a session on the server of this name, in the same tree. Raises `BadOption` without the extra `opencode`."""
    return partial(_served, server)


def served_plan(name: str, options: AgentOptions, *, server: str | None, shutdown: float = SHUTDOWN) -> Plan:
    """An OpenCode agent on `server`, an `opencode_server` that is started before it. Raises `BadOption`."""
    faults = list[OptionFault]()
    if not isinstance(server, str) or not server:
        text = f"must be the id of an opencode_server in mode 'serve', got {server!r}"
        faults.append(OptionFault("server", text))
    faults += [
        OptionFault(option, f"means nothing on a server: give it to opencode_server {server!r}")
        for option in sorted(OF_THE_SERVER & options.keys())
    ]
    base = Plan(name=name, dialect=OPENCODE_SERVE, reach=served(server or ""), shutdown=shutdown)
    return shaped(base, options, opencode_family().accepts, faults)


def _served(server: str, start: Start) -> MemoryTransport:
    try:
        from proctor.actors.opencode_server.connection import open_line
    except ImportError as error:
        raise BadOption(EXTRA) from error
    directory = start.command.cwd or str(Path.cwd())
    return MemoryTransport(partial(open_line, server, directory), f"server {server!r}", start)
