"""The state that an agent keeps over its restarts: session id, requests, event log, costs.

The supervisor keeps it for the child: it is created at the first start, handed to each incarnation, and closed when
the child's spec is dropped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from proctor.actors.agent.approval_queue import ApprovalQueue
from proctor.actors.agent.request import Request
from proctor.actors.agent.session_lock import SessionLock
from proctor.actors.agent.states import TRANSITIONS, Status, Trigger
from proctor.actors.agent.stored_requests import TODAY, StoredRequests, current_requests
from proctor.actors.errors import AgentError, NotExecuted, RecordingFailed, UnsupportedPayload
from proctor.actors.expense import DailyExpense, Expense
from proctor.actors.limits.admission import Admission, Delay, admission_for, current_tree_limits
from proctor.actors.limits.overrides import Hold, Overrides
from proctor.actors.plan.account_id import session_key
from proctor.actors.plan.options import OnCrash
from proctor.actors.plan.plan import Plan
from proctor.actors.plan.workspaces import Workspace, workspace_of
from proctor.actors.process.agent_log import NOTICES, AgentLogger
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.actors.store.backend import StoreError
from proctor.actors.structured.payloads import refuse_unsupported
from proctor.actors.structured.structured import StructuredRequest
from proctor.protocols.vocabulary import (
    HOST,
    AnyEvent,
    ApprovalRequested,
    ApprovalWithdrawn,
    Exited,
    Notice,
    TurnEnded,
)
from proctor.runtime.exits import ExitReason
from proctor.runtime.messaging import Kept

MAX_QUEUED = 1000
"""The most requests in the queue behind the current one."""


def _ignore(news: object) -> None:
    """No incarnation runs."""


def _not_held() -> None:
    return


@attrs.define
class AgentState:
    """The state of an agent over its restarts. `reason` is the exit reason of the last incarnation; `requests` are
    those that the tree keeps, `process` is the running one, `plan` its plan, `began` is when its incarnation did (Trio's clock), `kept_as` is the agent's place in their store; `hold` is the one of an operator; `on_withdrawn` and `on_unrecorded` call the incarnation that runs now."""

    directory: RunDirectory
    log: EventLog
    status: Status
    approvals: ApprovalQueue
    session_lock: SessionLock
    logger: AgentLogger
    plan: Plan
    session_id: str | None = None
    process: AgentProcess | None = None
    began: float = attrs.field(factory=trio.current_time)
    today: DailyExpense = attrs.field(factory=DailyExpense)
    current: Request | None = None
    waiting: deque[Request] = attrs.field(factory=deque[Request])
    expense: Expense = attrs.field(factory=Expense)
    total_cost_usd: float | None = None
    workspace: Workspace | None = None
    program: Path | None = None
    requests: StoredRequests | None = None
    kept_as: str = ""
    reason: ExitReason | None = None
    hold: Callable[[], Hold | None] = attrs.field(default=_not_held, repr=False)
    on_withdrawn: Callable[[Request], None] = attrs.field(default=_ignore, repr=False)
    on_unrecorded: Callable[[RecordingFailed], None] = attrs.field(default=_ignore, repr=False)

    def enqueue(self, pending: Request, plan: Plan, process: AgentProcess | None) -> AgentError | None:
        """Add a request to the queue, unless its caller has cancelled it meanwhile. `process` is the running one.

        Returns the error for a request that cannot be accepted: the queue is full, or a payload is unsupported.
        """
        if len(self.waiting) >= MAX_QUEUED:
            return NotExecuted(plan.name, f"{MAX_QUEUED} requests are already queued")
        if pending.attachments:
            try:
                memo = None if process is None else process.conversation.memo
                refuse_unsupported(plan, pending.attachments, memo)
            except UnsupportedPayload as error:
                return error
        if pending.inquiry is not None:
            pending.inquiry.choose(plan, fresh=plan.launch.mode == "oneshot")
            pending.text = pending.inquiry.worded(pending.text)
        if pending.trace is not None:
            known = None if process is None else process.conversation.memo.model
            pending.trace.serve(plan.name, plan.dialect.name, known or plan.launch.model)
        if not pending.withdrawn:
            self.waiting.append(pending)
        return None

    def put_back(self, pending: Request) -> None:
        """Put a request that was not sent back at the front of the queue, unless its caller has cancelled it."""
        self.current, pending.admitted = None, False
        if not pending.withdrawn:
            self.waiting.appendleft(pending)

    def park(self, pending: Request, delay: Delay) -> None:
        """Hold the request back until a limit or a budget admits it."""
        pending.parked = True
        self.note("parked", delay.text, ticket=pending.ticket, until=delay.until, why=delay.why)
        self.transition("limit", delay.text)
        self.evolve(until=delay.until)

    def ask_again(self, pending: Request, text: str) -> None:
        """Ask next for a correction of an answer that does not match the schema; `text` lists the errors."""
        pending.correct(text)
        self.note("unmet", text, ticket=pending.ticket, attempt=pending.attempts)
        self.transition("turn_ended", "its answer does not match the schema")
        self.put_back(pending)

    def inquiry(self) -> StructuredRequest | None:
        """The structured request that is being served, None for plain text."""
        return None if self.current is None else self.current.inquiry

    def launched(self, plan: Plan) -> Plan:
        """The plan of the next process: that of the request in a mode with a process for each request.

        Raises `BadOption` when a tool of the plan's own has a name of one that the request needs."""
        inquiry = self.inquiry()
        return plan if inquiry is None or plan.launch.mode == "session" else inquiry.launched(plan)

    def withdraw(self, pending: Request) -> None:
        """Cancel a request for its caller: remove it from the queue, or end its turn. Never waits."""
        # Set first: a request that is still in the mailbox is found withdrawn when it is taken out.
        pending.withdrawn = True
        with suppress(ValueError):  # it is being served, or still in the mailbox
            self.waiting.remove(pending)
        self.on_withdrawn(pending)

    # -- what it is doing

    def transition(self, trigger: Trigger, evidence: str) -> None:
        """Change the state by the transition table. An undefined pair becomes a notice and changes nothing."""
        state = TRANSITIONS.get((self.status.state, trigger))
        # A bug of ours or a surprise of a CLI: it must not crash an agent that works.
        if state is None:
            self.note("odd_state", f"{trigger} while {self.status.state}")
            return
        unresponsive = "" if trigger in ("ready", "turn_ended") else self.status.unresponsive
        if state == "failed":
            self.logger.failed(evidence)
        self.status = attrs.evolve(
            self.status, state=state, evidence=evidence, unresponsive=unresponsive, since=trio.current_time()
        )

    def evolve(self, **changes: Any) -> None:
        """Change fields of the status."""
        self.status = attrs.evolve(self.status, **changes)

    def note(self, code: str, text: str, **data: object) -> None:
        """Append a `Notice` of the host to the event log."""
        if code in NOTICES:
            self.logger.note(code, text)
        self.log.append([Notice(HOST, None, code, text, data)])

    @property
    def queued(self) -> int:
        """How many requests wait, with the one at their head that is held back."""
        is_held = self.current is not None and self.current.parked
        return len(self.waiting) + is_held

    def now(self, *, incarnation: int) -> Status:
        """The status, with the facts of the running incarnation."""
        pid = None if self.process is None else self.process.pid
        return attrs.evolve(self.held_status(), pid=pid, queued=self.queued, incarnation=incarnation)

    def held_status(self) -> Status:
        """The status, in which an agent that has nothing to do and is held back is parked."""
        if self.status.state not in ("idle", "done") or (hold := self.hold()) is None:
            return self.status
        since = max(self.status.since, hold.since)
        return attrs.evolve(self.status, state="parked", evidence=hold.why, until=hold.until, since=since)

    def backoff_status(self) -> Status:
        """The status before a restart. The evidence is the exit reason of the last incarnation."""
        return attrs.evolve(self.status, state="backoff", queued=self.queued)

    def on_recording(self, failure: RecordingFailed | None) -> None:
        """Note that recording has failed, or has resumed (None)."""
        if failure is None:
            place = str(self.directory.path) if self.directory.kept else None
            self.evolve(not_recorded="", recording=place)
            self.note("recording_resumed", f"recording has resumed{'' if place is None else f', in {place}'}")
        else:
            self.evolve(not_recorded=str(failure))
            self.note("recording_failed", str(failure))
            self.on_unrecorded(failure)

    def on_event(self, event: AnyEvent, questions: Collection[str]) -> None:
        """Update the state by an event; `questions` are the ids of the open ones."""
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
            self.transition("question", f"{len(questions)} more questions are open")
        else:
            self.transition("answered", "the question is settled")

    def count(self, event: TurnEnded | Exited) -> None:
        """Add the cost of a turn that ended, or whose process died, as far as the CLI reported it."""
        self.expense.take(event)
        self.today.take(event)
        if self.requests is not None and self.kept_as:
            self.requests.keep(self.kept_as, TODAY, self.today.as_text())
        if isinstance(event, TurnEnded):
            if event.total_cost_usd is not None:
                self.total_cost_usd = event.total_cost_usd
                self._keep_conversation()
            self.evolve(turns=self.status.turns + 1)
        self.evolve(cost_usd=self.expense.cost_usd)

    def asking(self, plan: Plan) -> Plan:
        """The plan, with its approvals for the policy "ask"; they have clocks of their own, which can be put off."""
        if plan.conduct.permission != "ask":
            return plan
        own: dict[str, Any] = {"permission": self.approvals.ask, "approval_deadline": math.inf}
        return attrs.evolve(plan, conduct=attrs.evolve(plan.conduct, **own))

    def in_conversation(self, session_id: str) -> None:
        """The agent is in this conversation now; its next life goes on in it, where the tree has a store."""
        if session_id != self.session_id:
            self.approvals.forget()
        self.session_id = session_id
        self._keep_conversation()

    def _keep_conversation(self) -> None:
        if self.requests is not None and self.kept_as and self.session_id is not None:
            self.requests.keep_session(self.kept_as, self.session_id, self.total_cost_usd)

    async def mark_sending(self, pending: Request, on_crash: OnCrash) -> None:
        """Mark in the store that a request is about to be sent. Raises `StoreError`."""
        if pending.journal is not None:
            recording = str(self.directory.path) if self.directory.kept else None
            await pending.journal.sending(on_crash, self.session_id, recording)

    async def mark_started(self, pending: Request) -> None:
        """Mark in the store that the conversation has the prompt of a request; without that it is not continued."""
        if pending.journal is not None:
            await self._mark(pending, pending.journal.started(self.session_id))

    async def mark_parked(self, pending: Request) -> None:
        """Mark in the store that a usage limit refused a request; without that the next host takes it as carried out, maybe."""
        if pending.journal is not None:
            await self._mark(pending, pending.journal.parked())

    async def _mark(self, pending: Request, marking: Awaitable[None]) -> None:
        try:
            await marking
        except StoreError as error:
            self.note("not_kept", str(error), ticket=pending.ticket)

    # -- its end

    def settle(self) -> None:
        """End all requests: no incarnation runs and no restart will come. Closing the log ends its readers."""
        self.current = None
        self.waiting.clear()
        self.approvals.close()
        self.session_lock.release()
        # The log last: its readers end with it, and by then nothing can follow.
        self.log.close()

    def reopen(self) -> None:
        """Accept requests again: a new incarnation has started."""
        self.began = trio.current_time()
        self.approvals.reopen()
        self.log.reopen()

    def close(self) -> None:
        """Release everything: the child's spec was dropped."""
        self.settle()
        self.directory.close()
        if self.workspace is not None:
            self.workspace.leave()

    async def place(self, plan: Plan) -> Plan:
        """The plan with its program, located once for all its processes, and its working folder. Raises
        `NotInstalled` or `NotExecutable`, and `StartRefused` when the folder cannot be had."""
        self.program = self.program or plan.program()
        self.plan = attrs.evolve(plan, executable=self.program)
        if self.workspace is not None:
            cwd, notice = await self.workspace.enter()
            self.log.append([notice] if notice is not None else [])
            self.plan = self.plan.at(cwd)
        self.approvals.folder = self.plan.workplace.cwd or Path()
        return self.plan

    async def look(self) -> None:
        """Note in the log why the agent's worktree will be kept, if it will."""
        notice = None if self.workspace is None else await self.workspace.look()
        self.log.append([notice] if notice is not None else [])


def restore_state(kept: Kept, plan: Plan, path: str) -> tuple[AgentState, Admission]:
    """What an agent keeps over its restarts, opened at its first start. Raises `RecordingFailed`."""
    # In the supervisor's hands, not the actor's: queue, log and session lock outlive a crash of the incarnation.
    if "state" not in kept:
        tree = current_tree_limits()
        kept["state"] = state = open_state(plan, path, tree.overrides)
        kept["admission"] = admission = admission_for(plan, path, tree)
        kept.at_rest(state.settle)
        kept.at_rest(admission.leave)
        kept.when_dropped(state.close)
    return kept["state"], kept["admission"]


def open_state(plan: Plan, path: str, overrides: Overrides) -> AgentState:
    """A new agent's state, with its run directory; `path` is its place in the tree, `overrides` those of the tree. Raises `RecordingFailed`."""
    place = plan.workplace
    below = path.partition("/")[2]

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
    # By its place below the root: two agents of a tree may have one id, and the root's name may change.
    # A conversation that its CLI does not keep cannot be gone on with.
    kept_as, requests = "" if plan.launch.persist is False else below, current_requests()
    session = None if requests is None else requests.session(kept_as)
    book = AgentState(
        directory,
        log,
        Status(name=plan.name, state="starting", recording=str(directory.path) if directory.kept else None),
        ApprovalQueue(plan.name, plan.conduct.approval_deadline),
        SessionLock(plan.name, partial(session_key, plan)),
        AgentLogger(plan.name, plan.dialect.name),
        plan,
        session or plan.launch.resume,
        total_cost_usd=None if requests is None else requests.total_cost(kept_as),
        today=DailyExpense.of_text(None if requests is None else requests.fact(kept_as, TODAY)),
        kept_as=kept_as,
        workspace=workspace_of(plan.name, plan.workplace),
        requests=requests,
        hold=partial(overrides.hold_of, below),
    )
    # It failed before there was a state that could note it.
    if directory.failure is not None:
        book.on_recording(directory.failure)
    return book
