"""Errors of this package: misuse by the host only. Output of a CLI never raises, it becomes events."""

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


class NotUtf8(Misuse):
    """A value whose bytes are no UTF-8, for a command line that takes it in JSON, which has no way to write it."""

    def __init__(self, field: str, value: str) -> None:
        text = f"{field} {value!r} is not UTF-8, and this command line takes it in JSON: use another name"
        super().__init__(text, request="launch")


class ArgumentTooLong(Misuse):
    """A value does not fit in one argument of a process. `size` and `limit` are in bytes."""

    def __init__(self, field: str, size: int, limit: int) -> None:
        text = f"{field!r} takes {size} bytes, one argument holds {limit}: shorten it or pass it by a file"
        super().__init__(text, request="launch")
        self.field = field
        self.size = size
        self.limit = limit


ARGUMENT_LIMIT = 131_071
"""Bytes that one argument of a process may have on Linux."""


def checked_argument(field: str, argument: str) -> str:
    """The argument for a field of a launch. Raises `ArgumentTooLong` for one that no process can be given."""
    if (size := len(argument.encode("utf-8", "replace"))) > ARGUMENT_LIMIT:
        raise ArgumentTooLong(field, size, ARGUMENT_LIMIT)
    return argument
