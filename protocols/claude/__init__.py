"""Claude Code's wire: what its CLI is started with, told, and says."""

from proctor.protocols.claude.dialect import CLAUDE

__all__ = ["CLAUDE"]
