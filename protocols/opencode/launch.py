"""The configuration with which OpenCode is started, in each of its modes.

Its configuration is JSON in one variable, which beats every file of the user's and of the project's. What the owner
of an agent named there beats what stands here, key by key.

Closed unless opened: it asks before it uses a tool that changes or reaches anything, its server has a password, it
neither updates nor shares. It fetches no list of models, which delays the first turn. The model learns of a rejected
tool and goes on; without that setting the turn would end without an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from proctor.protocols.dialect import Launch
from proctor.protocols.lenient import value
from proctor.protocols.mcp import Server, Servers

CONFIG = "OPENCODE_CONFIG_CONTENT"
PASSWORD = "OPENCODE_SERVER_PASSWORD"
"""The server's user is `opencode`."""

READING = ("read", "glob", "grep", "list", "lsp", "skill", "todoread", "todowrite")
"""Tools that change and reach nothing outside of the working folder."""

PERMISSION: Mapping[str, str] = {
    **dict.fromkeys(READING, "allow"),
    "external_directory": "ask",
}

DEFAULTS: Mapping[str, Any] = {
    "autoupdate": False,
    "share": "disabled",
    # Without it a rejected tool ends the turn without an answer.
    "experimental": {"continue_loop_on_deny": True},
}


def environment(options: Launch) -> dict[str, str]:
    """Variables that the owner's own beat."""
    secret = {PASSWORD: options.secret} if options.secret else {}
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", **secret}


def configuration(options: Launch, servers: Servers | None = None) -> dict[str, str]:
    """The variable with the whole configuration, and in it these MCP servers. What the owner named that is no object of
    JSON is left as it is, for OpenCode to refuse."""
    permission = {  # the last that fits holds: no server's name opens what has a rule of its own
        "*": "ask",
        **{f"{name}_*": "allow" for name, server in options.mcp.items() if server.approved},
        **PERMISSION,
        "question": "allow",
        **dict.fromkeys(options.allowed_tools, "allow"),
        **dict.fromkeys(options.disallowed_tools, "deny"),
    }
    config: dict[str, Any] = {**DEFAULTS, "permission": permission}
    if options.model is not None:
        config["model"] = options.model
    if servers:
        config["mcp"] = {name: server_entry(server) for name, server in servers.items()}
    whole = with_owners(config, options.env.get(CONFIG))
    return {} if whole is None else {CONFIG: json.dumps(whole)}


def with_owners(config: Mapping[str, Any], named: str | None) -> Mapping[str, Any] | None:
    """The configuration with the owner's over it; None where what the owner `named` is no object of JSON."""
    if named is None:
        return config
    own = value(msgspec.Raw(named.encode("utf-8", "replace")))
    return joined(config, cast("dict[str, Any]", own)) if isinstance(own, dict) else None


def server_entry(server: Server) -> dict[str, Any]:
    """An MCP server in OpenCode's shape; its seconds are thousandths here."""
    how: dict[str, Any] = {"type": "local", "command": [server.command, *server.args]}
    if server.url:
        how = {"type": "remote", "url": server.url, "headers": dict(server.headers), "oauth": False}
    elif server.env:
        how["environment"] = dict(server.env)
    return how if server.timeout is None else {**how, "timeout": round(server.timeout * 1000)}


def joined(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two configurations; what `over` says wins, key by key and at every depth."""
    both = {**base, **over}
    for key in base.keys() & over.keys():
        if isinstance(base[key], dict) and isinstance(over[key], dict):
            both[key] = joined(base[key], over[key])
    return both
