"""A project with memory for the agents that work in it, and which of it a model has seen."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import trio

from tests.real.homes import ClaudeHome

ROOT, HERE, PERSONAL = "ROOT-MEMORY zebra", "FOLDER-MEMORY okapi", "PERSONAL-MEMORY lion"


async def repository(home: ClaudeHome, name: str) -> Path:
    """A git repository with memory at its root and in the folder `a/b`, and hooks in the project's settings."""
    work = home.work
    await trio.run_process(["git", "init", "-q", str(work)])
    folder = work / "a" / "b"
    folder.mkdir(parents=True)
    (work / name).write_text(f"{ROOT}\n")
    (folder / name).write_text(f"{HERE}\n")
    for settings in (work / ".claude", folder / ".claude"):
        settings.mkdir()
        hook = {"type": "command", "command": f"touch {shlex.quote(str(work / 'hook-ran'))}"}
        hooks = {point: [{"hooks": [hook]}] for point in ("SessionStart", "UserPromptSubmit", "Stop")}
        (settings / "settings.json").write_text(json.dumps({"hooks": hooks}))
    return folder


def seen(body: Any) -> set[str]:
    """Which memories reached the model."""
    text = body if isinstance(body, str) else msgspec.json.encode(body).decode()
    return {memory for memory in (ROOT, HERE, PERSONAL) if memory in text}
