"""OpenCode held as a session: the Agent Client Protocol, with OpenCode's own launch, and its log read beside it."""

from __future__ import annotations

import attrs

from proctor.protocols.acp import HONOURED, acp_dialect, ignored
from proctor.protocols.acp import OPENCODE as PROFILE
from proctor.protocols.dialect import Command, Launch
from proctor.protocols.opencode import log
from proctor.protocols.opencode.launch import configuration, environment

_PLAIN = acp_dialect(PROFILE)
_HONOURED = HONOURED | {"allowed_tools", "disallowed_tools"}


def launch(options: Launch) -> Command:
    """`opencode acp`, configured by its environment."""
    bare = len(options.executable) == 1  # a whole command of somebody's own is left as it is
    logged = log.arguments(options.extra) if bare else ()
    return attrs.evolve(
        _PLAIN.launch(attrs.evolve(options, extra=(*logged, *options.extra))),
        env=environment(options),
        joined=configuration(options, options.mcp),
        ignored=ignored(options, _HONOURED),
    )


OPENCODE = attrs.evolve(_PLAIN, launch=launch, read_log=log.read_log)
"""The dialect of `opencode acp`."""
