"""What an agent keeps over its restarts: its conversation's id, its requests, its log, what it has cost.

The supervisor's slot holds the book, not the incarnation that writes in it: it is opened at the first start, handed to
each successor, and closed when the spec is dropped.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from proctor.actors.agent.approval_queue import ApprovalQueue
from proctor.actors.agent.session_lock import SessionLock
from proctor.actors.agent.states import Status, Trigger, transition
from proctor.actors.delivery import Delivery, Sent, Stage
from proctor.actors.errors import AgentError, NotExecuted, RecordingFailed, UnsupportedPayload
from proctor.actors.expense import Expense
from proctor.actors.limits.spend_limits import INSIDE_TURN
from proctor.actors.plan.account_id import session_key
from proctor.actors.plan.plan import OnCrash, Plan
from proctor.actors.plan.workspaces import Workspace, workspace_of
from proctor.actors.process.agent_log import AgentLogger
from proctor.actors.process.agent_process import AgentProcess, delivery_of
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.actors.structured.payloads import refuse_unsupported
from proctor.actors.structured.structured import Inquiry
from proctor.protocols.attachment import Attachment
from proctor.protocols.vocabulary import (
    HOST,
    AnyEvent,
    ApprovalRequested,
    ApprovalWithdrawn,
    Exited,
    Notice,
    Prompt,
    TurnEnded,
)
from proctor.runtime.exits import ExitReason

CONTINUE_PROMPT = "Continue where you stopped."
"""What a resumed conversation is told when its turn was cut."""

MAX_QUEUED = 1000
"""Requests that may wait behind the one being served."""


@attrs.define(eq=False)
class PendingRequest:
    """A request on its way. `prompt` is the id it was last sent under, None while it waits; once a turn was `begun`
    for it, the prompt stands in the session and is not told again, but continued. `sent`: it may have reached the CLI under
    that id. `attempts`: how often it was to be sent.
    `inquiry` is what its answer is held against. `admitted`: it is its turn, and not those before it. `held` is the process
    that has it, or had it last; `reached` says whether any attempt was written. `asked` is when it was made. `nested`: a
    turn waits for it, whose tool has asked."""

    ticket: str
    text: str
    attachments: tuple[Attachment, ...] = ()
    prompt: str | None = None
    sent: bool = False
    started: bool = False
    parked: bool = False
    withdrawn: bool = False
    attempts: int = 0
    inquiry: Inquiry | None = None
    admitted: bool = False
    held: AgentProcess | None = None
    written: Sent = "no"
    asked: float = attrs.field(factory=trio.current_time)
    nested: bool = attrs.field(factory=INSIDE_TURN.get)

    @property
    def is_answered(self) -> bool:
        """Was an answer handed in that fits? Nothing that comes after it matters."""
        return self.inquiry is not None and self.inquiry.met

    def assign_to(self, live: AgentProcess) -> None:
        """This process is about to be sent it."""
        self.sent, self.held = True, live
        self.written = "yes" if self.written == "yes" else "unknown"

    def delivery(self, text: str = "", *, clipped: bool = False) -> Delivery:
        """How far it has come. `text` is what has streamed of its answer, `clipped` when that is not all."""
        elapsed = trio.current_time() - self.asked
        if self.held is not None:
            found = delivery_of(self.held, elapsed=elapsed, text=text, clipped=clipped)
            return attrs.evolve(found, sent=self.written, stage="parked" if self.parked else found.stage)
        waits: Stage = "parked" if self.parked else "starting" if self.admitted else "queued"
        return Delivery(sent=self.written, stage=waits, elapsed=elapsed, text=text)

    def survives_exit(self, on_crash: OnCrash) -> bool:
        """Is it to be sent once more when the process that had it is gone?"""
        return not (self.withdrawn or self.is_answered) and (
            self.parked or not self.sent or on_crash != "fail"
        )

    def prepare_for(self, plan: Plan) -> None:
        """An agent of this plan is to answer it."""
        if self.inquiry is not None:
            self.inquiry.choose(plan, fresh=plan.launch.mode == "oneshot")
            self.text = self.inquiry.worded(self.text)

    def is_continued(self, on_crash: OnCrash) -> bool:
        """Is it to be continued, and not asked from the start, when it is sent now?"""
        return self.started and on_crash == "resume"

    def next_prompt(self, on_crash: OnCrash) -> Prompt:
        """What it is sent as now, each time under an id of its own."""
        self.prompt = self.ticket if self.prompt is None else str(uuid.uuid4())
        self.sent = self.parked = False
        self.attempts += 1
        schema = None if self.inquiry is None else self.inquiry.turn_schema
        if self.is_continued(on_crash):
            return Prompt(self.prompt, CONTINUE_PROMPT, schema=schema)  # the session has the rest already
        return Prompt(self.prompt, self.text, attachments=self.attachments, schema=schema)


def _ignore(news: object) -> None:
    """Nobody writes in the book."""


@attrs.define
class AgentState:
    """What an agent keeps over its restarts; the supervisor's slot holds it. `reason` is why the last incarnation ended,
    `nudge` reaches who writes in it now."""

    directory: RunDirectory
    log: EventLog
    status: Status
    approvals: ApprovalQueue
    session_lock: SessionLock
    logger: AgentLogger
    session_id: str | None = None
    current: PendingRequest | None = None
    waiting: deque[PendingRequest] = attrs.field(factory=deque[PendingRequest])
    expense: Expense = attrs.field(factory=Expense)
    total_cost_usd: float | None = None
    workspace: Workspace | None = None
    program: Path | None = None
    reason: ExitReason | None = None
    on_withdrawn: Callable[[PendingRequest], None] = attrs.field(default=_ignore, repr=False)
    on_unrecorded: Callable[[RecordingFailed], None] = attrs.field(default=_ignore, repr=False)

    def enqueue(self, pending: PendingRequest) -> None:
        """Add a request to the queue, unless its caller left while it was on its way here."""
        if not pending.withdrawn:
            self.waiting.append(pending)

    def next(self) -> PendingRequest | None:
        """Take the first request out of the queue, None when it is empty."""
        return self.waiting.popleft() if self.waiting else None

    def put_back(self, pending: PendingRequest) -> None:
        """Queue a request that was not sent before all others, unless its caller has left."""
        self.current, pending.admitted = None, False
        if not pending.withdrawn:
            self.waiting.appendleft(pending)

    def ask_again(self, pending: PendingRequest, text: str) -> None:
        """Its answer was not what was asked for: what is wrong is asked next, before all others."""
        pending.text, pending.started = text, False
        if pending.inquiry is None or not pending.inquiry.forgets:
            pending.attachments = ()
        self.note("unmet", text, ticket=pending.ticket, attempt=pending.attempts)
        self.transition("turn_ended", "its answer does not fit")
        self.put_back(pending)

    def inquiry(self) -> Inquiry | None:
        """What the answer to the request that is served now is held against, None for nothing."""
        return None if self.current is None else self.current.inquiry

    def launched(self, plan: Plan) -> Plan:
        """The plan of the process that starts now: of the request, where it has a process of its own.

        Raises `BadOption` when a tool of the plan's own has a name of one that the request needs."""
        inquiry = self.inquiry()
        return plan if inquiry is None or plan.launch.mode == "session" else inquiry.launched(plan)

    def withdraw(self, pending: PendingRequest) -> None:
        """Its caller has left: take it out of the queue. Never waits; the agent that holds the book now, or later, is
        told."""
        pending.withdrawn = True
        with suppress(ValueError):  # it is being served, or still in the mailbox
            self.waiting.remove(pending)
        self.on_withdrawn(pending)

    # -- what it is doing

    def transition(self, happening: Trigger, evidence: str) -> None:
        """What the agent is doing after this; a pair that cannot be is a notice, and changes nothing."""
        try:
            state = transition(self.status.state, happening)
        except KeyError:
            self.note("odd_state", f"{happening} while {self.status.state}")
            return
        found = "" if happening in ("ready", "turn_ended") else self.status.unresponsive
        if state == "failed":
            self.logger.failed(evidence)
        self.evolve(state=state, evidence=evidence, unresponsive=found, since=trio.current_time())

    def evolve(self, **changes: Any) -> None:
        """Change fields of the status."""
        self.status = attrs.evolve(self.status, **changes)

    def note(self, code: str, text: str, **data: object) -> None:
        """A `Notice` of the host's own in the log."""
        self.logger.note(code, text)
        self.log.append([Notice(HOST, None, code, text, data)])

    def now(self, *, pid: int | None, incarnation: int) -> Status:
        """The status, with what only its incarnation knows."""
        return attrs.evolve(self.status, pid=pid, queued=len(self.waiting), incarnation=incarnation)

    def backoff_status(self) -> Status:
        """The status while no incarnation runs and a restart is owed: the evidence is what the last one ended of."""
        return attrs.evolve(self.status, state="backoff", queued=len(self.waiting))

    def on_recording(self, failure: RecordingFailed | None) -> None:
        """Nothing is recorded any more, or it is again."""
        if failure is None:
            place = str(self.directory.path) if self.directory.kept else None
            self.evolve(not_recorded="", recording=place)
            self.note("recording_resumed", f"it is recorded again{'' if place is None else f', in {place}'}")
        else:
            self.evolve(not_recorded=str(failure))
            self.note("recording_failed", str(failure))
            self.on_unrecorded(failure)

    def on_event(self, event: AnyEvent, questions: Collection[str]) -> None:
        """What an event says of the agent's state; `questions` are those still open."""
        match event:
            case ApprovalRequested():
                self.transition("question", f"{event.tool} wants to run")
            case ApprovalWithdrawn():
                self.approvals.withdraw(event.id)
                self._answered(questions)
            case Notice(code="approval"):
                self._answered(questions)
            case Notice(code="stalled" | "unresponsive" | "responsive" as code):
                self.evolve(unresponsive="" if code == "responsive" else event.text)
                if code == "stalled" and not (self.current is not None and self.current.parked):
                    self.transition("stalled", event.text)
            case _:
                pass

    def _answered(self, questions: Collection[str]) -> None:
        if questions:
            self.transition("question", f"{len(questions)} more wait for an answer")
        else:
            self.transition("answered", "the question is settled")

    def count(self, event: TurnEnded | Exited) -> None:
        """What a turn cost as far as the CLI reports it: one that ended, or one whose process died."""
        self.expense.take(event)
        if isinstance(event, TurnEnded):
            if event.total_cost_usd is not None:
                self.total_cost_usd = event.total_cost_usd
            self.evolve(turns=self.status.turns + 1)
        self.evolve(cost_usd=self.expense.cost_usd)

    # -- who waits

    def refusal(self, pending: PendingRequest, plan: Plan, live: AgentProcess | None) -> AgentError | None:
        """Why a request is not taken: no room for another, or a payload that this command line cannot be sent. `live` is
        the one that runs."""
        if len(self.waiting) >= MAX_QUEUED:
            return NotExecuted(plan.name, f"{MAX_QUEUED} requests wait already")
        try:
            refuse_unsupported(plan, pending.attachments, None if live is None else live.conversation.memo)
        except UnsupportedPayload as error:
            return error
        return None

    def settle(self) -> None:
        """Nobody runs and no restart is owed. Who waits is told so by the log's end, and is not served later."""
        self.current = None
        self.waiting.clear()
        self.approvals.close()
        self.session_lock.release()
        self.log.close()

    def reopen(self) -> None:
        """There is a new incarnation."""
        self.approvals.reopen()
        self.log.reopen()

    def close(self) -> None:
        """No incarnation will come any more."""
        self.settle()
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


def open_state(plan: Plan) -> AgentState:
    """A fresh book with its run directory. Raises `RecordingFailed`."""
    place = plan.workplace

    def on_recording(failure: RecordingFailed | None) -> None:
        book.on_recording(failure)

    directory = RunDirectory(
        place.record,
        plan.name,
        limit=place.record_limit,
        listen=on_recording,
        required=place.on_recording_failure == "fail",
    )
    log = directory.open_log()
    book = AgentState(
        directory,
        log,
        Status(name=plan.name, state="starting", recording=str(directory.path) if directory.kept else None),
        ApprovalQueue(plan.name, plan.conduct.approval_deadline),
        SessionLock(plan.name, partial(session_key, plan)),
        AgentLogger(plan.name, plan.dialect.name),
        plan.launch.resume,
        workspace=workspace_of(plan.name, plan.workplace),
    )
    if directory.failure is not None:
        book.on_recording(directory.failure)
    return book
