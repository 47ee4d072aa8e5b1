"""The text that was sent to a client of a stream, when parts of it may be retracted.

A client joins the parts, and sent text cannot be unsent. After a retraction, new text is not sent as long as it repeats
what was sent, and continues where the repetition ends. New text that differs cannot be sent: `diverged` is then true.
The first text after a `pause` is held for `hold` seconds, because most model calls that break do so early.

Invariant: the sent text without `_surplus`, plus `_pending`, is the valid text; `_surplus` and `_pending` have no common prefix.
"""

from __future__ import annotations

import math

HOLD = 1.0
"""Seconds for which the first text of a step is held."""


class Content:
    """The text of one stream. Times are on the caller's clock."""

    def __init__(self, hold: float = HOLD) -> None:
        self._hold = hold
        self._surplus = ""
        self._pending: list[str] = []
        self._flowing = hold <= 0
        self.due = math.inf
        """The time at which held text must be sent."""

    @property
    def diverged(self) -> bool:
        """Whether the sent text is not a prefix of the valid text."""
        return bool(self._surplus and self._pending)

    @property
    def complete(self) -> bool:
        """Whether the sent text is exactly the valid text."""
        return not self._surplus and not self._pending

    def add(self, text: str, now: float) -> str:
        """Append text, and return what to send now."""
        diverged = self.diverged
        self._pending.append(text)
        if diverged:
            return ""
        if self._surplus:
            self._skip_repeated()
        return self._release(now)

    def retract(self, text: str) -> None:
        """Retract this text, which is the end of the valid text."""
        self.pause()
        pending = "".join(self._pending)
        kept, sent = pending[: -len(text) or None], text[: max(0, len(text) - len(pending))]
        self._pending = [kept] if kept else []
        self._surplus = sent + self._surplus
        if not self._pending:
            self.due = math.inf

    def pause(self) -> None:
        """Mark that something else comes before the next text."""
        self._flowing = self._hold <= 0

    def flush(self) -> str:
        """Return the held text, to be sent now."""
        if self._surplus or not self._pending:
            return ""
        self._flowing, self.due = True, math.inf
        text, self._pending = "".join(self._pending), []
        return text

    def _skip_repeated(self) -> None:
        pending = "".join(self._pending)
        same = _common_prefix(self._surplus, pending)
        self._surplus, rest = self._surplus[same:], pending[same:]
        self._pending = [rest] if rest else []
        self._flowing = (
            self._flowing or not self._surplus
        )  # the client already has the beginning of this text

    def _release(self, now: float) -> str:
        if self._flowing:
            return self.flush()
        if self._pending and not self._surplus and self.due == math.inf:
            self.due = now + self._hold
        return ""


def _common_prefix(one: str, other: str) -> int:
    """The length of the common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
