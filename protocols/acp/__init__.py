"""The Agent Client Protocol, version 1: one dialect, and a profile for each agent that was measured."""

from proctor.protocols.acp.delta_batch import void, voided
from proctor.protocols.acp.dialect import HONOURED, acp_dialect, ignored
from proctor.protocols.acp.profile import (
    CLAUDE_ACP,
    CODEX_ACP,
    GEMINI,
    GENERIC,
    OPENCODE,
    PROFILES,
    Profile,
)
from proctor.protocols.acp.turns import begin

__all__ = [
    "CLAUDE_ACP",
    "CODEX_ACP",
    "GEMINI",
    "GENERIC",
    "HONOURED",
    "OPENCODE",
    "PROFILES",
    "Profile",
    "acp_dialect",
    "begin",
    "ignored",
    "void",
    "voided",
]
