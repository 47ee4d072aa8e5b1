"""The end of a usage limit, as CLIs write it."""

from __future__ import annotations

_LATEST = 4_102_444_800.0
"""The year 2100, in Unix seconds: what says later than that is no time at all."""


def reset_time(written: float | None) -> float | None:
    """In Unix seconds, where milliseconds were written too; None for what is not there, or cannot be a time."""
    if written is None or not written > 0:  # also NaN
        return None
    for seconds in (written, written / 1000):
        if seconds < _LATEST:
            return seconds if seconds >= 1 else None
    return None
