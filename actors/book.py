"""What an agent keeps over its restarts: its conversation's id, its requests, its log, what it has cost.

The supervisor's slot holds the book, not the incarnation that writes in it: it is opened at the first start, handed to
each successor, and closed when the spec is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs

from proctor.actors.eventlog import EventLog
from proctor.actors.plan import Plan
from proctor.actors.recording import RunDirectory
from proctor.actors.states import Status
from proctor.actors.workspaces import Workspace, workspace_of

QUEUE = 1000
"""Requests that may wait behind the one being served."""


@attrs.define
class Job:
    """A request on its way. `prompt` is the id it was last sent under, None while it waits; once a turn was `begun`
    for it, the prompt stands in the session and is not told again, but continued."""

    ticket: str
    text: str
    prompt: str | None = None
    begun: bool = False
    parked: bool = False
    withdrawn: bool = False


def _unheard(job: Job) -> None:
    """Nobody writes in the book."""


@attrs.define
class Book:
    """What an agent keeps over its restarts; the supervisor's slot holds it. `nudge` reaches who writes in it now."""

    directory: RunDirectory
    log: EventLog
    status: Status
    session_id: str | None = None
    current: Job | None = None
    waiting: deque[Job] = attrs.field(factory=deque[Job])
    cost_usd: float | None = None
    total_cost_usd: float | None = None
    workspace: Workspace | None = None
    nudge: Callable[[Job], None] = attrs.field(default=_unheard, repr=False)

    def next(self) -> Job | None:
        """The first that waits and is still wanted, taken out."""
        while self.waiting:
            job = self.waiting.popleft()
            if not job.withdrawn:
                return job
        return None

    def withdraw(self, job: Job) -> None:
        """Its caller has left. Never waits and is never lost: whoever writes in the book now, or later, learns it."""
        job.withdrawn = True
        self.nudge(job)

    @property
    def is_full(self) -> bool:
        """No room for another request."""
        return sum(not job.withdrawn for job in self.waiting) >= QUEUE

    def rest(self) -> None:
        """Nobody runs and no restart is owed. Who waits is told so by the log's end, and is not served later."""
        self.current = None
        self.waiting.clear()
        self.log.close()

    def close(self) -> None:
        """No incarnation will come any more."""
        self.rest()
        self.directory.close()
        if self.workspace is not None:
            self.workspace.leave()

    async def place(self, plan: Plan) -> Plan:
        """The plan with the folder that it works in. Raises `StartRefused` when that cannot be had."""
        if self.workspace is None:
            return plan
        cwd, told = await self.workspace.enter()
        self.log.append([told] if told is not None else [])
        return plan.at(cwd)

    async def look(self) -> None:
        """Tell in the log what of the agent's work will stay behind."""
        told = None if self.workspace is None else await self.workspace.look()
        self.log.append([told] if told is not None else [])


def open_book(plan: Plan) -> Book:
    """A fresh book with its run directory. Raises `RecordingFailed`."""
    directory = RunDirectory(plan.workplace.record, plan.name)
    log = EventLog(directory.path / "events.ndjson")
    status = Status(name=plan.name, state="starting")
    return Book(directory, log, status, plan.launch.resume, workspace=workspace_of(plan.name, plan.workplace))
