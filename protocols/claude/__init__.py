"""Claude Code's wire: its launch, its requests and its frames."""

from proctor.protocols.claude.dialect import CLAUDE

__all__ = ["CLAUDE"]
