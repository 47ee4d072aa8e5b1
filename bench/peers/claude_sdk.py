"""The official SDK of Claude Code for Python: its `query()`, as its users have it, on asyncio."""

from __future__ import annotations

import asyncio
from pathlib import Path

from claude_agent_sdk import ClaudeAgentOptions, query

from bench.contest import Stopwatch
from bench.ndjson import FRAMES, Source, expect


async def _count(cli: Path, lines: int) -> Stopwatch:
    options = ClaudeAgentOptions(
        cli_path=cli, include_partial_messages=True, env={"CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK": "1"}
    )
    watch, got = Stopwatch(), 0
    async for _ in query(prompt="go", options=options):
        if got == 0:
            watch.start()
        got += 1
    watch.stop()
    expect(got, lines + FRAMES)
    return watch


def stream(per_write: int, actors: int, lines: int) -> Stopwatch:
    """From the first message to the last: what it costs to start and to greet is not in it."""
    with Source(per_write, lines) as source:
        cli = Path(source.folder, "cli")
        cli.write_text(f"#!/bin/sh\nexec {' '.join(source.argv)} greeted\n")
        cli.chmod(0o700)
        return asyncio.run(_count(cli, lines))
