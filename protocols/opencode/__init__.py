"""OpenCode: as a session over the Agent Client Protocol, and as a one-shot run."""

from proctor.protocols.opencode.dialect import OPENCODE
from proctor.protocols.opencode.run import OPENCODE_RUN

__all__ = ["OPENCODE", "OPENCODE_RUN"]
