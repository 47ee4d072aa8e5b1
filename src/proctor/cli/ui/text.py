"""How things are put to a person: one line, no control characters, no more than fits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from proctor.actors.durations import format_duration, format_moment

WIDTH = 160
WHOLE = 1000
"""For what says what to do: the cure comes last."""
_TELLING = (
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
_CONTROLS: Mapping[int, str] = MappingProxyType(
    {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
)
# a text that reorders what follows it can make a command look like another one
_REORDERING: Mapping[int, str] = MappingProxyType(
    {code: f"\\u{code:04x}" for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
)

# those below 0x20 are escapes already in what encoders write
_JSON_CONTROLS: Mapping[int, str] = MappingProxyType(
    {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_REORDERING)}
)


def printable(text: str) -> str:
    """`text` with every character that a terminal would obey shown as its code; newlines and tabs stay."""
    return text.translate(_CONTROLS).translate(_REORDERING)


def json_printable(text: str) -> str:
    """JSON text with the same characters as escapes of JSON: it still means the same."""
    return text.translate(_JSON_CONTROLS)


def one_line(text: str, width: int = WIDTH) -> str:
    """`text` on one line of at most `width` characters, printable."""
    flat = printable(" ".join(text.split()))
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def last_line(text: str) -> str:
    """The last line with something in it."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def tool_use(name: str, tool_input: Mapping[str, Any], width: int = WIDTH) -> str:
    """`Bash: ls -l`: a tool and the part of its input that tells most, the whole of it where none does."""
    telling = next((v for k in _TELLING if isinstance(v := tool_input.get(k), str)), None)
    if telling is None:
        telling = msgspec.json.encode(tool_input).decode() if tool_input else ""
    return one_line(f"{name}: {telling}" if telling else name, width)


def until(resets_at: float | None, now: float) -> str:
    """`until 14:05:09 (in 3 min 2 s)` of two times in Unix seconds."""
    if resets_at is None:
        return "until a time it did not tell"
    return f"until {format_moment(resets_at, now)} (in {format_duration(max(0.0, resets_at - now))})"


def money(cost: float | None) -> str:
    """`$0.1234`, or nothing where the CLI gave no cost."""
    return "" if cost is None else f"${cost:.4f}"
