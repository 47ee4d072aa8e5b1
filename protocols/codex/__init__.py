"""Codex's wire: what its CLI is started with, told, and says."""

from __future__ import annotations

from proctor.protocols.codex.dialect import CODEX
from proctor.protocols.codex.exec import CODEX_EXEC

__all__ = ["CODEX", "CODEX_EXEC"]
