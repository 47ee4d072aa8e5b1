"""MCP servers of one agent on an OpenCode server that it shares with others.

The server has them for a whole folder, for all sessions in it. So each gets a name that only its agent has, its tools are
kept from every other session by that session's own rules, and it is taken away when the agent leaves. In the
events a tool has the name that it has with every OpenCode: the server's as it was given, `_`, and the tool's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from proctor.protocols.dialect import Launch, Memo
from proctor.protocols.opencode.launch import server_entry
from proctor.protocols.opencode.serve.state import ask

_OURS = "proctor-"


def registrations(memo: Memo) -> bytes:
    """The requests that let the server have them."""
    servers = memo.launch.mcp.items()
    bodies = [
        {"name": name_of(memo.launch, name), "config": server_entry(server)} for name, server in servers
    ]
    return b"".join(ask(memo, "server", "POST", "/mcp", body) for body in bodies)


def taken_away(memo: Memo) -> bytes:
    """The requests that take them from it again."""
    names = [name_of(memo.launch, name) for name in memo.launch.mcp]
    return b"".join(ask(memo, "server", "POST", f"/mcp/{name}/disconnect") for name in names)


def session_rules(options: Launch) -> list[dict[str, str]]:
    """The rules of a session, the last of those that fit being the one that holds: of all such tools it has its own,
    approved or asked about; then those that its agent named."""
    named = (
        *((full(options, tool), "allow") for tool in options.allowed_tools),
        *((full(options, tool), "deny") for tool in options.disallowed_tools),
    )
    rules = (*_of_servers(options), *named)
    return [{"permission": tool, "pattern": "*", "action": action} for tool, action in rules]


def _of_servers(options: Launch) -> Iterator[tuple[str, str]]:
    yield f"{_OURS}*", "deny"
    for name, server in options.mcp.items():
        yield f"{name_of(options, name)}_*", "allow" if server.approved else "ask"


def full(options: Launch, tool: str) -> str:
    """The name of a tool, or a pattern of names, as the server has it."""
    ours = any(tool.startswith(f"{name}_") for name in options.mcp)
    return f"{_mark(options)}{tool}" if ours else tool


def plain(options: Launch, tool: str) -> str:
    """The name of a tool as its agent was given it."""
    return tool.removeprefix(_mark(options))


def name_of(options: Launch, server: str) -> str:
    """The name that the server has it under."""
    return f"{_mark(options)}{server}"


def _mark(options: Launch) -> str:
    return f"{_OURS}{hashlib.sha256(options.agent.encode('utf-8', 'replace')).hexdigest()[:6]}-"
