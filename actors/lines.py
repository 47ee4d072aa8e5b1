"""The line of a run directory that an event came from."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from proctor.protocols.vocabulary import HOST, AnyEvent


def frame_of(log: Path | None, event: AnyEvent) -> bytes:
    """The line of the event's incarnation, without its end; `log` is the agent's event log. Reads the disk.

    Raises LookupError when no line caused it, when it belongs to no turn (the turn's id begins with the number of the
    incarnation), or when there is no such line any more.
    """
    if event.frame == HOST:
        raise LookupError(f"no line caused this event: {event!r}")
    number = (event.turn or "").partition(".")[0]
    if log is None or not number.isdecimal():
        raise LookupError(f"nothing tells which process said this: {event!r}")
    try:
        with open(log.parent / number / "stdout.ndjson", "rb") as lines:
            line = next(islice(lines, event.frame, None), None)
    except OSError as error:
        raise LookupError(f"the recording of process {number} cannot be read: {error.strerror}") from error
    if line is None:
        raise LookupError(f"the recording of process {number} has no line {event.frame}")
    return line.rstrip(b"\n")
