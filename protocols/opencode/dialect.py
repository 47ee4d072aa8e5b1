"""OpenCode held as a session: the Agent Client Protocol, with OpenCode's own launch."""

from __future__ import annotations

import attrs

from proctor.protocols.acp import HONOURED, acp_dialect, ignored
from proctor.protocols.acp import OPENCODE as PROFILE
from proctor.protocols.dialect import Command, Launch
from proctor.protocols.opencode.launch import configuration, environment

_PLAIN = acp_dialect(PROFILE)
_HONOURED = HONOURED | {"allowed_tools", "disallowed_tools"}


def launch(wanted: Launch) -> Command:
    """`opencode acp`, configured by its environment."""
    return attrs.evolve(
        _PLAIN.launch(wanted),
        env=environment(wanted),
        joined=configuration(wanted, wanted.mcp),
        ignored=ignored(wanted, _HONOURED),
    )


OPENCODE = attrs.evolve(_PLAIN, launch=launch)
"""The dialect of `opencode acp`."""
