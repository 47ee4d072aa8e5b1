"""Steps and settings that several tests against the real CLIs share, each for a reason found on the real CLIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.fakes.steps import Hang, Text, Tool

# 2.1.330 refuses a bare `sleep`, and moves other long commands to the background only after their timeout (120 s).
ENDLESS_TOOL: Final = Tool("Bash", {"command": "tail -f /dev/null", "description": "Wait"})

# A turn that has begun to answer and stays there until its CLI is gone.
MID_TURN: Final = Hang(Text(size=4000, chunk=20), after=5)

# Bounds the CLI's own ten retries (175 s) to about 1.5 s; `Repeat(Status(...))` is then asked three times.
TWO_RETRIES: Final[Mapping[str, str]] = {"CLAUDE_CODE_MAX_RETRIES": "2"}
