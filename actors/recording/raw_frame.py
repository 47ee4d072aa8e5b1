"""The recorded line that an event came from."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from proctor.actors.recording.segments import segments_of
from proctor.protocols.vocabulary import HOST, AnyEvent


def read_raw_frame(log: Path | None, event: AnyEvent) -> bytes:
    """The line of the event's incarnation, without its end; `log` is the agent's event log. Reads the disk.

    Raises LookupError when no line caused it, when it belongs to no turn (the turn's id begins with the number of the
    incarnation), or when there is no such line any more.
    """
    if event.frame == HOST:
        raise LookupError(f"no line caused this event: {event!r}")
    number = (event.turn or "").partition(".")[0]
    if log is None or not number.isdecimal():
        raise LookupError(f"no process is known for this event: {event!r}")
    try:
        line = _line(log.parent / number / "stdout.ndjson", event.frame)
    except OSError as error:
        raise LookupError(f"the recording of process {number} cannot be read: {error.strerror}") from error
    if line is None:
        raise LookupError(f"the recording of process {number} has no line {event.frame}")
    return line.rstrip(b"\n")


def _line(path: Path, number: int) -> bytes | None:
    segments = segments_of(path)
    current = segments[-1].end if segments else 0
    held = [(segment.path, segment.first) for segment in segments if segment.first <= number < segment.end]
    file, first = held[0] if held else (path, current)
    if number < first:
        return None
    with open(file, "rb") as lines:
        return next(islice(lines, number - first, None), None)
