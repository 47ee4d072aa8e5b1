"""The text of an unfinished answer, read back from the event log for an error report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proctor.actors.delivery import CLIPPED
from proctor.actors.errors import RecordingFailed
from proctor.actors.recording.eventlog import EventLog
from proctor.protocols import vocabulary as v

EVENTS = 20_000
"""Events that are read back: the last."""
_BETWEEN = "\n\n"


def partial_text(log: EventLog, since: int, until: int) -> tuple[str, bool]:
    """The text that the agent wrote in its own voice between two positions, and whether some of it is missing: only the
    last is kept, and what the log has dropped is gone."""
    begin = max(since, until - EVENTS)
    events = [*_events(log, begin, until)]
    is_whole = begin == since and not any(
        isinstance(event, v.Notice) and event.code == "events_dropped" for event in events
    )
    text, clipped = clipped_text(events)
    return text, clipped or not is_whole


def clipped_text(events: Iterable[v.AnyEvent]) -> tuple[str, bool]:
    """The last of the text that the agent wrote in these events in its own voice, and whether some of it is left out."""
    text = _BETWEEN.join(_blocks(events))
    return text[-CLIPPED:], len(text) > CLIPPED


def _events(log: EventLog, position: int, until: int) -> Iterator[v.AnyEvent]:
    hint = (-1, 0)
    while position < until:
        if (gap := log.missing(position)) is not None:
            yield gap
            position = gap.data["next"]
            continue
        try:
            events, hint = log.read(position, hint)
        except RecordingFailed:  # the failure that is being reported may be the disk's
            return
        if not events:
            return
        yield from events[: until - position]
        position += len(events)


def _blocks(events: Iterable[v.AnyEvent]) -> Iterator[str]:
    """Blocks of text: whole where the CLI has given the whole, else what had come of it. Pieces of an attempt that was void
    count as long as no new ones have come: they are what a person has seen."""
    pieces, is_void = list[str](), False
    for event in events:
        match event:
            case v.TextDelta(parent=None):
                if is_void:
                    pieces.clear()
                is_void = False
                pieces.append(event.text)
            case v.Text(parent=None):
                pieces.clear()
                yield event.text
            case v.Retrying() | v.Notice(code="attempt_void"):
                is_void = True
            case _:
                pass
    if pieces:
        yield "".join(pieces)
