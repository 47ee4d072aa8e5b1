"""How OpenCode is configured by whoever starts it, in each of its modes.

Its configuration is JSON in one variable, which beats every file of the user's and of the project's. What the owner
of an agent named there beats what stands here, key by key.

Closed unless opened: it asks before it uses a tool that changes or reaches anything, its server has a password, it
neither updates nor shares. It fetches no list of models, which delays the first turn. A rejected tool is told to the
model, which goes on; without that setting the turn would end without an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from proctor.protocols.dialect import Launch

CONFIG = "OPENCODE_CONFIG_CONTENT"
PASSWORD = "OPENCODE_SERVER_PASSWORD"
"""The server's user is `opencode`."""

READING = ("read", "glob", "grep", "list", "lsp", "skill", "todoread", "todowrite", "question")
"""Tools that change and reach nothing outside of the working folder."""

PERMISSION: Mapping[str, str] = {
    "*": "ask",
    **dict.fromkeys(READING, "allow"),
    "external_directory": "ask",
}

DEFAULTS: Mapping[str, Any] = {
    "autoupdate": False,
    "share": "disabled",
    "experimental": {"continue_loop_on_deny": True},
}


def environment(wanted: Launch) -> dict[str, str]:
    """Variables that the owner's own beat."""
    secret = {PASSWORD: wanted.secret} if wanted.secret else {}
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", **secret}


def configuration(wanted: Launch) -> dict[str, str]:
    """The variable with the whole configuration. What the owner named that is no object of JSON is left as it is, for
    OpenCode to refuse."""
    permission = {
        **PERMISSION,
        **dict.fromkeys(wanted.allowed_tools, "allow"),
        **dict.fromkeys(wanted.disallowed_tools, "deny"),
    }
    config = {**DEFAULTS, "permission": permission}
    if wanted.model is not None:
        config["model"] = wanted.model
    named = wanted.env.get(CONFIG)
    if named is not None:
        try:
            given = json.loads(named)
        except ValueError:
            return {}
        if not isinstance(given, dict):
            return {}
        config = joined(config, cast("dict[str, Any]", given))
    return {CONFIG: json.dumps(config)}


def joined(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two configurations; what `over` says wins, key by key and at every depth."""
    both = {**base, **over}
    for key in base.keys() & over.keys():
        if isinstance(base[key], dict) and isinstance(over[key], dict):
            both[key] = joined(base[key], over[key])
    return both
