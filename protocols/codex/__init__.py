"""Codex's wire: its launch, its requests and its frames."""

from __future__ import annotations

from proctor.protocols.codex.dialect import CODEX
from proctor.protocols.codex.exec import CODEX_EXEC

__all__ = ["CODEX", "CODEX_EXEC"]
