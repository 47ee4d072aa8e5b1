"""The configuration of an MCP server for a CLI.

Each dialect writes it in its CLI's format. Values of `env` and `headers` may be secrets: they travel in a private file, an
environment variable or a pipe, never in an argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import attrs

HOST = "host"
"""The name of the server that is the host itself; no other server has it."""


def _names(values: Mapping[str, str]) -> str:
    return repr(sorted(values))


@attrs.frozen(kw_only=True)
class Server:
    """Either a `command` with `args`, whose stdin and stdout are spoken to, or a `url`.

    `env` is added to what the CLI gives such a process, `headers` go with every request. The tools of an `approved`
    server need no approval. `timeout` is how long one call may take, in seconds (None: as the CLI has it).
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=_names)
    url: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=_names)
    approved: bool = False
    timeout: float | None = None


Servers = Mapping[str, Server]
"""Servers by the names that their tools are called under."""


def entry(server: Server) -> dict[str, Any]:
    """The shape that most configuration files have: `type` and what belongs to it."""
    if server.url:
        return _filled({"type": "http", "url": server.url, "headers": server.headers})
    return _filled({"type": "stdio", "command": server.command, "args": [*server.args], "env": server.env})


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


_BESIDE: Mapping[str, str] = {
    "structuredContent": "structuredContent",
    "structured_content": "structuredContent",
    "_meta": "_meta",
}


def side_data(result: object) -> dict[str, Any]:
    """The data beside the text of a tool's result, under its names in MCP; {} where there is none."""
    if not isinstance(result, dict):
        return {}
    fields = cast("dict[str, Any]", result)
    return {name: fields[key] for key, name in _BESIDE.items() if fields.get(key) is not None}


def is_approved(servers: Servers, tool: str) -> bool:
    """Is this a tool of an approved server, by the names that CLIs make of both, and of no other server?"""
    owners = [server for name, server in servers.items() if _belongs(tool, name)]
    return bool(owners) and all(server.approved for server in owners)


def _belongs(tool: str, server: str) -> bool:
    return re.fullmatch(f"mcp_(?:_{server}__|{server}_)[A-Za-z0-9_-]+", tool, re.ASCII) is not None


def secrets(servers: Servers) -> tuple[str, ...]:
    """All values that may be secrets, the longest first."""
    values = {
        value
        for server in servers.values()
        for mapping in (server.env, server.headers)
        for value in mapping.values()
    }
    return tuple(sorted(values - {""}, key=len, reverse=True))
