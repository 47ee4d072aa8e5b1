"""The start of OpenCode's server: its command, its configuration, and the line with its address.

Its configuration is JSON in one variable, which beats every file of the user's and of the project's; what the owner
of the server named there beats what stands here, key by key.

Closed unless opened: only this machine reaches it, with a password; it asks before a tool changes or reaches
anything, neither updates nor shares, and fetches no list of models, which delays the first turn. A rejected tool is
told to the model, which goes on; without that setting the turn would end without an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from proctor.protocols.dialect import Command

CONFIG = "OPENCODE_CONFIG_CONTENT"
PASSWORD = "OPENCODE_SERVER_PASSWORD"
USER = "opencode"
DISPOSE = "/global/dispose"
"""What ends all that the server runs; a signal alone leaves its tools behind."""

READING = ("read", "glob", "grep", "list", "lsp", "skill", "todoread", "todowrite")
"""Tools that change and reach nothing outside of the working folder."""

DEFAULTS: Mapping[str, Any] = {
    "autoupdate": False,
    "share": "disabled",
    "experimental": {"continue_loop_on_deny": True},
    "permission": {"*": "ask", **dict.fromkeys(READING, "allow"), "external_directory": "ask"},
}

_LISTENING = re.compile(rb"listening on (http://[^\s/]+)[/\s]")


def server_command(
    executable: tuple[str, ...], named: Mapping[str, str], password: str, port: int
) -> Command:
    """The command of a server; `named` is the environment that its owner gave, `port` 0 for any that is free."""
    argv = (*executable, "serve", "--hostname=127.0.0.1", f"--port={port}")
    env = {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        PASSWORD: password,
        CONFIG: _configuration(named.get(CONFIG)),
    }
    return Command(argv=argv, env=env)


def address_in(output: bytes) -> str | None:
    """The address in what a server has said so far, None before it said so."""
    match = _LISTENING.search(output)
    return None if match is None else match[1].decode("ascii", "replace")


def _configuration(named: str | None) -> str:
    if named is None:
        return json.dumps(DEFAULTS)
    try:
        config: Any = json.loads(named)
    except ValueError:
        return named  # for the server to refuse, with its own words
    return (
        named
        if not isinstance(config, dict)
        else json.dumps(_joined(DEFAULTS, cast("dict[str, Any]", config)))
    )


def _joined(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {**base, **over}
    for key in base.keys() & over.keys():
        if isinstance(base[key], dict) and isinstance(over[key], dict):
            both[key] = _joined(base[key], over[key])
    return both
