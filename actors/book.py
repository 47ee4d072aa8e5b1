"""What an agent keeps over its restarts: its conversation's id, its requests, its log, what it has cost.

The supervisor's slot holds the book, not the incarnation that writes in it: it is opened at the first start, handed to
each successor, and closed when the spec is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from proctor.actors.eventlog import EventLog
from proctor.actors.identity import session_key
from proctor.actors.ownership import Ownership
from proctor.actors.plan import Plan
from proctor.actors.questions import Desk
from proctor.actors.recording import RunDirectory
from proctor.actors.states import Happening, Status, follow
from proctor.actors.workspaces import Workspace, workspace_of
from proctor.protocols.vocabulary import (
    HOST,
    AnyEvent,
    ApprovalRequested,
    ApprovalWithdrawn,
    Notice,
    TurnEnded,
)

QUEUE = 1000
"""Requests that may wait behind the one being served."""


@attrs.define
class Job:
    """A request on its way. `prompt` is the id it was last sent under, None while it waits; once a turn was `begun`
    for it, the prompt stands in the session and is not told again, but continued. `attempts`: how often it was sent."""

    ticket: str
    text: str
    prompt: str | None = None
    begun: bool = False
    parked: bool = False
    withdrawn: bool = False
    attempts: int = 0


def _unheard(job: Job) -> None:
    """Nobody writes in the book."""


@attrs.define
class Book:
    """What an agent keeps over its restarts; the supervisor's slot holds it. `nudge` reaches who writes in it now."""

    directory: RunDirectory
    log: EventLog
    status: Status
    desk: Desk
    ownership: Ownership
    session_id: str | None = None
    current: Job | None = None
    waiting: deque[Job] = attrs.field(factory=deque[Job])
    cost_usd: float | None = None
    total_cost_usd: float | None = None
    workspace: Workspace | None = None
    program: Path | None = None
    nudge: Callable[[Job], None] = attrs.field(default=_unheard, repr=False)

    def next(self) -> Job | None:
        """The first that waits and is still wanted, taken out."""
        while self.waiting:
            job = self.waiting.popleft()
            if not job.withdrawn:
                return job
        return None

    def put_back(self, job: Job) -> None:
        """It was not sent: it waits again, before all others."""
        self.current = None
        self.waiting.appendleft(job)

    def withdraw(self, job: Job) -> None:
        """Its caller has left. Never waits and is never lost: whoever writes in the book now, or later, learns it."""
        job.withdrawn = True
        self.nudge(job)

    # -- what it is doing

    def move(self, happening: Happening, evidence: str) -> None:
        """What the agent is doing after this; a pair that cannot be is a notice, and changes nothing."""
        try:
            state = follow(self.status.state, happening)
        except KeyError:
            self.note("odd_state", f"{happening} while {self.status.state}")
            return
        self.evolve(state=state, evidence=evidence, since=trio.current_time())

    def evolve(self, **changes: Any) -> None:
        """Change fields of the status."""
        self.status = attrs.evolve(self.status, **changes)

    def note(self, code: str, text: str, **data: object) -> None:
        """A `Notice` of the host's own in the log."""
        self.log.append([Notice(HOST, None, code, text, data)])

    def now(self, *, pid: int | None, incarnation: int) -> Status:
        """The status, with what only its incarnation knows."""
        return attrs.evolve(self.status, pid=pid, queued=len(self.waiting), incarnation=incarnation)

    def hear(self, event: AnyEvent, questions: Collection[str]) -> None:
        """What an event says of the agent's state; `questions` are those still open."""
        match event:
            case ApprovalRequested():
                self.move("question", f"{event.tool} wants to run")
            case ApprovalWithdrawn():
                self.desk.withdraw(event.id)
                self._answered(questions)
            case Notice(code="approval"):
                self._answered(questions)
            case Notice(code="stalled"):
                self.move("stalled", event.text)
            case _:
                pass

    def _answered(self, questions: Collection[str]) -> None:
        if questions:
            self.move("question", f"{len(questions)} more wait for an answer")
        else:
            self.move("answered", "the question is settled")

    def count(self, event: TurnEnded) -> None:
        """A turn more, and what it cost as far as the CLI told."""
        if event.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + event.cost_usd
        if event.total_cost_usd is not None:
            self.total_cost_usd = event.total_cost_usd
        self.evolve(turns=self.status.turns + 1, cost_usd=self.cost_usd)

    # -- who waits

    @property
    def is_full(self) -> bool:
        """No room for another request."""
        return sum(not job.withdrawn for job in self.waiting) >= QUEUE

    def rest(self) -> None:
        """Nobody runs and no restart is owed. Who waits is told so by the log's end, and is not served later."""
        self.current = None
        self.waiting.clear()
        self.desk.close()
        self.ownership.release()
        self.log.close()

    def reopen(self) -> None:
        """There is a new incarnation."""
        self.desk.reopen()
        self.log.reopen()

    def close(self) -> None:
        """No incarnation will come any more."""
        self.rest()
        self.directory.close()
        if self.workspace is not None:
            self.workspace.leave()

    async def place(self, plan: Plan) -> Plan:
        """The plan with its program, found once for all its processes (R024), and the folder that it works in. Raises
        `NotInstalled` or `NotExecutable`, and `StartRefused` when the folder cannot be had."""
        self.program = self.program or plan.program()
        plan = attrs.evolve(plan, executable=self.program)
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
    return Book(
        directory,
        log,
        Status(name=plan.name, state="starting"),
        Desk(plan.name, plan.conduct.approval_deadline),
        Ownership(plan.name, partial(session_key, plan)),
        plan.launch.resume,
        workspace=workspace_of(plan.name, plan.workplace),
    )
