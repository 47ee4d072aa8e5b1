"""The summary of a tool call for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIELDS = (
    "command",
    "file_path",
    "notebook_path",
    "path",
    "pattern",
    "url",
    "query",
    "description",
    "prompt",
)


def describe_tool(name: str, tool_input: Mapping[str, Any]) -> str:
    """A tool call as `Bash: ls -l`: the most telling field of the input, else all of it."""
    summary = next((text for field in _FIELDS if isinstance(text := tool_input.get(field), str)), None)
    if summary is None:
        import msgspec  # the rest of this module is for commands that start at once, too

        summary = msgspec.json.encode(tool_input).decode() if tool_input else ""
    return f"{name}: {summary}" if summary else name
