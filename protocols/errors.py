"""What can go wrong on this floor: only our own misuse. What a CLI says is never an exception, but an event."""

from __future__ import annotations


class Misuse(Exception):
    """The host asked for something that makes no sense now. Nothing was sent and nothing was changed.

    `request` names what was asked, `phase` the phase it was asked in (empty where no phase was reached yet).
    """

    def __init__(self, text: str, *, request: str, phase: str = "") -> None:
        super().__init__(text)
        self.request = request
        self.phase = phase


class UnknownApproval(Misuse):
    """A decision for a question that is not open: never asked, answered before, or withdrawn by the CLI."""


class ArgumentTooLong(Misuse):
    """A value does not fit in one argument of a process (C06). `size` and `limit` are in bytes."""

    def __init__(self, field: str, size: int, limit: int) -> None:
        text = f"{field!r} takes {size} bytes, one argument holds {limit}: shorten it or pass it by a file"
        super().__init__(text, request="launch")
        self.field = field
        self.size = size
        self.limit = limit
