"""When a usage limit ends, as command lines write it."""

from __future__ import annotations

_LATEST = 4_102_444_800.0
"""The year 2100, in Unix seconds: what says later than that is no time at all."""


def reset_time(told: float | None) -> float | None:
    """In Unix seconds, where milliseconds were written too; None for what is not told, or cannot be a time."""
    if told is None or not told > 0:  # also NaN
        return None
    for seconds in (told, told / 1000):
        if seconds < _LATEST:
            return seconds if seconds >= 1 else None
    return None
