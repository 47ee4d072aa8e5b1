"""Times as people write them: lengths such as `30`, `1.5`, `"90"`, `"30s"`, `"1h30m"`, and moments. Seconds inside."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime

UNITS: Mapping[str, float] = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
ACCEPTED = "a duration such as 90, '30s' or '1h30m'"
UNLIMITED = "none"

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


class Seconds(float):
    """A duration: `30`, `"30s"`, `"1h30m"`."""


class Positive(Seconds):
    """A duration above 0."""


class Limit(float):
    """A duration that may be 0 or `"none"`: math.inf."""


def duration(value: object) -> float:
    """Seconds, 0 or more and finite. Raises ValueError with what is accepted."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    text = value.strip() if isinstance(value, str) else ""
    if _NUMBER.fullmatch(text):
        return float(text)
    if _WHOLE.fullmatch(text):
        return sum(float(number) * UNITS[unit] for number, unit in _PART.findall(text))
    raise ValueError(f"expected {ACCEPTED}, got {value!r}")


def limit(value: object) -> float:
    """As `duration`, but 0 and `"none"` mean without limit: `math.inf`. Raises ValueError."""
    if value == UNLIMITED:
        return math.inf
    try:
        return duration(value) or math.inf
    except ValueError:
        raise ValueError(f"expected {ACCEPTED}, or 0 or {UNLIMITED!r} for no limit, got {value!r}") from None


def format_duration(seconds: float) -> str:
    """A length of time for people, two units at most: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`."""
    if not math.isfinite(seconds):
        return "no limit"
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}".removesuffix(".0") + " s"
    left, parts = round(seconds), list[str]()
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def format_moment(at: float, now: float) -> str:
    """A moment for people, both in Unix seconds: `14:05:09`, with its date (`2026-11-23 14:05:09`) where that is not today's."""
    try:
        then = datetime.fromtimestamp(at)
    except (OverflowError, ValueError, OSError):  # the window of a budget may be longer than any calendar
        return f"{at:g} s after 1970"
    day = "" if then.date() == datetime.fromtimestamp(now).date() else f"{then:%Y-%m-%d} "
    return f"{day}{then:%H:%M:%S}"
