"""Formats texts for a terminal: one line, bounded width, control characters made visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from proctor.actors.durations import format_duration, format_moment
from proctor.actors.tool_summary import describe_tool

WIDTH = 160
WHOLE = 1000
"""Width for errors: what to do stands at their end."""
_CONTROLS: Mapping[int, str] = MappingProxyType(
    {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
)
# bidirectional controls can make a command look like another one
_REORDERING: Mapping[int, str] = MappingProxyType(
    {code: f"\\u{code:04x}" for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
)

# encoders escape those below 0x20 already
_JSON_CONTROLS: Mapping[int, str] = MappingProxyType(
    {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_REORDERING)}
)


def printable(text: str) -> str:
    """Replace every control character with its code; newlines and tabs stay."""
    return text.translate(_CONTROLS).translate(_REORDERING)


def json_printable(text: str) -> str:
    """Replace the same characters in JSON text with JSON escapes; the value stays the same."""
    return text.translate(_JSON_CONTROLS)


def one_line(text: str, width: int = WIDTH) -> str:
    """Put `text` on one line of at most `width` characters, without control characters."""
    flat = printable(" ".join(text.split()))
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table without lines: each column as wide as its widest cell, the last as wide as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return [
        "  ".join((*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1])).rstrip()
        for row in rows
    ]


def last_line(text: str) -> str:
    """The last line that is not blank."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def tool_use(name: str, tool_input: Mapping[str, Any], width: int = WIDTH) -> str:
    """Summarize a tool call on one line, as `Bash: ls -l`."""
    return one_line(describe_tool(name, tool_input), width)


def until(resets_at: float | None, now: float) -> str:
    """Format a time as `until 14:05:09 (in 3 min 2 s)`; both times in Unix seconds."""
    if resets_at is None:
        return "until an unknown time"
    return f"until {format_moment(resets_at, now)} (in {format_duration(max(0.0, resets_at - now))})"


def money(cost: float | None) -> str:
    """Format a cost as `$0.1234`; empty where the CLI reports none."""
    return "" if cost is None else f"${cost:.4f}"
