"""What a client of the chat API has been sent of a text, where parts of the text may turn out not to count.

A client joins what it is sent, and nothing can be taken from it again. So text that was taken back is owed: what is said in
its place is not sent as long as it repeats what was sent, and goes on where that ends. Text that says something else cannot
be sent any more; `parted` says so, until it is taken back as well.

The first text after a `pause` is held for `hold` seconds: most calls of a model that break do so early, and what was not
sent needs no repair. From then on text goes out as it comes.

Invariant: what was sent, less `_ahead`, and then `_waiting`, is the text that counts; `_ahead` and `_waiting` have no common
beginning.
"""

from __future__ import annotations

import math

HOLD = 1.0
"""Seconds for which the first text of a step is held."""


class Content:
    """One text on its way to a client. Times are on the caller's clock."""

    def __init__(self, hold: float = HOLD) -> None:
        self._hold = hold
        self._ahead = ""
        self._waiting: list[str] = []
        self._flows = hold <= 0
        self.due = math.inf
        """When what is held is to be sent."""

    @property
    def parted(self) -> bool:
        """Whether what was sent is not what the text begins with."""
        return bool(self._ahead and self._waiting)

    @property
    def whole(self) -> bool:
        """Whether what was sent is the text, with nothing that does not count."""
        return not self._ahead and not self._waiting

    def add(self, text: str, now: float) -> str:
        """The text goes on; what is to be sent."""
        parted = self.parted
        self._waiting.append(text)
        if parted:
            return ""
        if self._ahead:
            self._skip_repeated()
        return self._release(now)

    def take_back(self, text: str) -> None:
        """The end of the text does not count."""
        self.pause()
        waiting = "".join(self._waiting)
        kept, sent = waiting[: -len(text) or None], text[: max(0, len(text) - len(waiting))]
        self._waiting = [kept] if kept else []
        self._ahead = sent + self._ahead
        if not self._waiting:
            self.due = math.inf

    def pause(self) -> None:
        """Something else comes between this text and the next."""
        self._flows = self._hold <= 0

    def flush(self) -> str:
        """What was held, to be sent now."""
        if self._ahead or not self._waiting:
            return ""
        self._flows, self.due = True, math.inf
        text, self._waiting = "".join(self._waiting), []
        return text

    def _skip_repeated(self) -> None:
        waiting = "".join(self._waiting)
        same = _common(self._ahead, waiting)
        self._ahead, rest = self._ahead[same:], waiting[same:]
        self._waiting = [rest] if rest else []
        self._flows = self._flows or not self._ahead  # the client has this text's beginning already

    def _release(self, now: float) -> str:
        if self._flows:
            return self.flush()
        if self._waiting and not self._ahead and self.due == math.inf:
            self.due = now + self._hold
        return ""


def _common(one: str, other: str) -> int:
    """The length of what both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
