"""MCP servers in the shape of Codex: of an app server's thread in its greeting, of an `exec` run by its arguments.

Guarantees: no value of an environment or a header is in an argument. An `exec` run has a header's value in its own
environment, under a name of its own, and starts a server that has an environment of its own by a private
file: a variable of that server's would else be one of Codex, where it can mean something (a key).

A server's tools need an approval unless the server is approved; an `exec` run has no way to ask.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from proctor.protocols.codex.command import setting
from proctor.protocols.dialect import Launch
from proctor.protocols.errors import Misuse
from proctor.protocols.mcp import Server, Servers


def config_of(servers: Servers) -> dict[str, dict[str, Any]]:
    """The setting `mcp_servers` with all that is in it."""
    return {name: {**_plain(server), **_private(server)} for name, server in servers.items()}


def _plain(server: Server) -> dict[str, Any]:
    reached = {"url": server.url} if server.url else {"command": server.command, "args": [*server.args]}
    approval = {"default_tools_approval_mode": "approve"} if server.approved else {}
    patience = {} if server.timeout is None else {"tool_timeout_sec": server.timeout}
    return {**reached, **approval, **patience}


def _private(server: Server) -> dict[str, Any]:
    if server.url:
        return {"http_headers": dict(server.headers)} if server.headers else {}
    return {"env": dict(server.env)} if server.env else {}


def arguments(options: Launch) -> Iterator[str]:
    """The arguments of an `exec` run. Raises Misuse for a server that nothing could start privately."""
    for place, (name, server) in enumerate(options.mcp.items()):
        for key, value in _shown(options, place, server).items():
            yield from setting("mcp", f"mcp_servers.{name}.{key}", value)


def _shown(options: Launch, place: int, server: Server) -> dict[str, Any]:
    shown = _plain(server)
    if not server.url and server.env:
        if not options.starter:
            raise Misuse("an MCP server with an environment needs a program that starts it", request="launch")
        program, *words = options.starter
        shown |= {"command": program, "args": [*words, f"{options.scratch}/{_file(place)}"]}
    if server.url and server.headers:
        shown["env_http_headers"] = {header: _variable(place, header) for header in server.headers}
    return shown


def environment(options: Launch) -> dict[str, str]:
    """The headers of an `exec` run's servers."""
    return {
        _variable(place, header): value
        for place, server in enumerate(options.mcp.values())
        for header, value in server.headers.items()
        if server.url
    }


def files(options: Launch) -> dict[str, str]:
    """The files that an `exec` run's servers are started by: the command, and what is added to its environment."""
    return {
        _file(place): json.dumps({"command": [server.command, *server.args], "env": dict(server.env)})
        for place, server in enumerate(options.mcp.values())
        if server.env and not server.url
    }


def _file(place: int) -> str:
    return f"mcp-{place}.json"


def _variable(place: int, header: str) -> str:
    words = "".join(letter if letter.isalnum() else "_" for letter in header)
    return f"PROCTOR_MCP_{place}_{words.upper()}"
