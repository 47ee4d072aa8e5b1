"""What the recording of a host that died shows of one of its requests: how far its turn had come, and its end if it had one."""

from __future__ import annotations

from pathlib import Path

import attrs

from proctor.actors.recording.partial_text import clipped_text
from proctor.actors.recording.run_summary import recorded_events
from proctor.protocols import vocabulary as v

_CONTINUED = frozenset(("parked", "unsettled", "unmet"))
"""Notices before the end of an attempt that is not the end of its request."""


@attrs.frozen
class RecordedTurn:
    """The answer's `text` as far as it had streamed, `clipped` when that is not all of it; `session_id` is the conversation; `end` is
    the end of the turn, None when it had none."""

    text: str
    clipped: bool
    session_id: str | None
    end: v.TurnEnded | None


def read_turn(folder: Path, ticket: str) -> RecordedTurn | None:
    """Read the recording in `folder` for the request of the id `ticket`; None when it has nothing of it. Blocks; raises OSError."""
    events = list[v.AnyEvent]()
    prompt, end, is_continued = "", None, False
    session_id: str | None = None
    for event in recorded_events(folder):
        match event:
            case v.Notice(code="sent", data={"ticket": of, "prompt": str(sent)}) if of == ticket:
                prompt, end, is_continued = sent, None, False
            case v.Notice(code=code, data={"ticket": of}) if of == ticket and code in _CONTINUED:
                is_continued = True
            case v.Started():
                session_id = event.session_id
            case v.TurnEnded() if {prompt, ticket} & {*event.prompts}:
                end, is_continued = (None if is_continued else event), False
            case _:
                pass
        if prompt:
            events.append(event)
    return RecordedTurn(*clipped_text(events), session_id, end) if prompt else None
