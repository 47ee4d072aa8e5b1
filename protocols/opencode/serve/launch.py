"""The start of OpenCode's server: its command, its configuration, and the line with its address.

Its configuration is JSON in one variable, which beats every file of the user's and of the project's; what the owner
of the server named there beats what stands here, key by key.

Closed unless opened: only this machine reaches it, with a password; it asks before a tool changes or reaches
anything, neither updates nor shares, and fetches no list of models, which delays the first turn. The model
learns of a rejected tool and goes on; without that setting the turn would end without an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from proctor.protocols.dialect import Command
from proctor.protocols.opencode import launch
from proctor.protocols.opencode.launch import CONFIG, PASSWORD

USER = "opencode"
DISPOSE = "/global/dispose"
"""What ends all that the server runs; a signal alone leaves its tools behind."""

DEFAULTS: Mapping[str, Any] = {**launch.DEFAULTS, "permission": {"*": "ask", **launch.PERMISSION}}

_LISTENING = re.compile(rb"listening on (http://[^\s/]+)[/\s]")


def server_command(
    executable: tuple[str, ...], named: Mapping[str, str], password: str, port: int
) -> Command:
    """The command of a server; `named` is the environment that its owner gave, `port` 0 for any that is free."""
    argv = (*executable, "serve", "--hostname=127.0.0.1", f"--port={port}")
    config = launch.with_owners(DEFAULTS, named.get(CONFIG))
    env = {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        PASSWORD: password,
        CONFIG: named[CONFIG] if config is None else json.dumps(config),  # the server refuses what is no JSON
    }
    return Command(argv=argv, env=env)


def address_in(output: bytes) -> str | None:
    """The address in the output of a server, None before it was printed."""
    match = _LISTENING.search(output)
    return None if match is None else match[1].decode("ascii", "replace")
