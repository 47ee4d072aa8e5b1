"""What an agent keeps over its restarts: its conversation's id, its requests, its log, what it has cost.

The supervisor's slot holds the book, not the incarnation that writes in it: it is opened at the first start, handed to
each successor, and closed when the spec is dropped.
"""

from __future__ import annotations

from collections import deque

import attrs

from proctor.actors.eventlog import EventLog
from proctor.actors.plan import Plan
from proctor.actors.recording import RunDirectory
from proctor.actors.states import Status


@attrs.define
class Job:
    """A request on its way. `prompt` is the id it was last sent under, None while it waits; once a turn was `begun`
    for it, the prompt stands in the session and is not told again, but continued."""

    ticket: str
    text: str
    prompt: str | None = None
    begun: bool = False
    parked: bool = False


@attrs.define
class Book:
    """What an agent keeps over its restarts; the supervisor's slot holds it."""

    directory: RunDirectory
    log: EventLog
    status: Status
    session_id: str | None = None
    current: Job | None = None
    waiting: deque[Job] = attrs.field(factory=deque[Job])
    cost_usd: float | None = None
    total_cost_usd: float | None = None

    def close(self) -> None:
        """No incarnation will come any more."""
        self.log.close()
        self.directory.close()


def open_book(plan: Plan) -> Book:
    """A fresh book with its run directory. Raises `RecordingFailed`."""
    directory = RunDirectory(plan.workplace.record, plan.name)
    log = EventLog(directory.path / "events.ndjson")
    return Book(directory, log, Status(name=plan.name, state="starting"), plan.launch.resume)
