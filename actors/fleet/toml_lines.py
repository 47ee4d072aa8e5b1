"""The line of a TOML text at which something in its tables is written.

The parser says nothing of places, so it is asked about beginnings of the text: the shortest one that parses and holds a
key ends with the statement that wrote it. What is not written (a missing key) stands where its table begins.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, cast

_STEP = re.compile(r"[^.\[\]]+|\[\d+\]")


def line_of(text: str, place: str) -> int:
    """The line (from 1) of a place such as `agents[1].restart`; 0 when nothing of it is in the text, which must parse."""
    steps = _STEP.findall(place)
    while steps and not _holds(tomllib.loads(text), steps):
        del steps[-1]
    return _first(text.splitlines(keepends=True), steps) if steps else 0


def _first(lines: list[str], steps: list[str]) -> int:
    """By halving: a longer beginning holds whatever a shorter one did."""

    parsed_lines: dict[int, dict[str, Any] | None] = {}

    def parsed(count: int) -> dict[str, Any] | None:
        if count not in parsed_lines:
            parsed_lines[count] = _parsed("".join(lines[:count]))
        return parsed_lines[count]

    def whole(count: int) -> int:
        """The next beginning that parses: not within a statement of several lines."""
        while parsed(count) is None:
            count += 1
        return count

    low, high = 0, len(lines)
    while low < high:
        middle = (low + high) // 2
        if _holds(parsed(whole(middle)) or {}, steps):
            high = middle
        else:
            low = middle + 1
    return _start(lines, whole(low), parsed)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _start(lines: list[str], end: int, parsed: Any) -> int:
    """The first line of the statement that ends with this one."""
    start = end
    while start > 1 and parsed(start - 1) is None:
        start -= 1
    return start


def _holds(table: object, steps: list[str]) -> bool:
    for step in steps:
        try:
            table = cast("Any", table)[int(step[1:-1]) if step.startswith("[") else step]
        except (LookupError, TypeError):
            return False
    return True
