"""The agent actor: one conversation that survives the processes that serve it.

Requests are served one at a time, in order. A queued request survives a crash; one in flight follows the option
`on_crash`. A process that exits by itself ends the actor with the same reason, and the supervisor decides about a restart.
A usage limit or a spent budget parks the agent: it keeps its process and uses up no restart. An error that a restart
would not cure leaves the agent alive in the state `failed`: the next request tries again.
"""

from __future__ import annotations

import time
import uuid
from functools import partial

import trio

from proctor.actors.agent.agent_state import AgentState, restore_state
from proctor.actors.agent.messages import (
    CallerGone,
    Control,
    ControlResult,
    Deliver,
    GetApprovals,
    GetLog,
    GetRequests,
    GetStatus,
    NotWritten,
    ProcessEnded,
    Resume,
    Submit,
)
from proctor.actors.agent.receipts import send_control
from proctor.actors.agent.request import Request
from proctor.actors.agent.states import State
from proctor.actors.agent.turn import Turn
from proctor.actors.errors import (
    NOT_HEALED,
    AgentError,
    BadOption,
    BudgetExceeded,
    MaybeExecuted,
    NotExecuted,
    RecordingFailed,
    SessionOwned,
    StartKilled,
    StartRefused,
)
from proctor.actors.limits.admission import Admission, Delay, current_tree_limits
from proctor.actors.outcomes import ENDINGS, OUTCOMES
from proctor.actors.plan.plan import Plan
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.process.liveness import REPLY_TIMEOUT
from proctor.actors.process.start_slots import opening_turn
from proctor.actors.store.backend import StoreError
from proctor.actors.structured.strategies import prepared
from proctor.protocols import vocabulary as v
from proctor.protocols.errors import Misuse
from proctor.runtime.exits import Crash, ExitReason, Normal, is_clean
from proctor.runtime.messaging import (
    IGNORE,
    NO_REPLY,
    Actor,
    Call,
    Continue,
    Ignore,
    Stop,
    reply,
    reply_error,
)
from proctor.runtime.processes import ProcessError, shortage_of


class AgentActor(Actor):
    """An agent of a `Plan`. Its messages are in `messages`."""

    plan: Plan
    state: AgentState
    admission: Admission
    process: AgentProcess | None = None
    _is_stopping: bool = False
    _failure: AgentError | None = None
    _written: trio.Event

    async def init(self, plan: Plan) -> Continue | Ignore:
        if current_tree_limits().overrides.is_stopped(self.ref.path.partition("/")[2]):
            return IGNORE
        async with opening_turn():
            opened = self._restore_state(plan)
        self.plan = await self.state.place(opened)
        was = self.state.status.state
        if self.incarnation > 1:
            self.state.transition("started", f"incarnation {self.incarnation}")
            self.admission.on_restart()
        if self.plan.launch.mode == "session":
            try:
                await self._restore_process(was)
            except (AgentError, ProcessError, OSError) as error:
                # who looks in the back-off sees why there is no process
                self.state.transition("lost", str(error))
                raise
        else:
            self.state.transition("ready", "each request gets a process of its own")
        return Continue("take up")

    def _restore_state(self, plan: Plan) -> Plan:
        self.state, self.admission = restore_state(self.kept, plan, self.ref.path)
        # By a message: the caller's task must not change the state between two steps of this one.
        self.state.on_withdrawn = lambda pending: self.send_info(CallerGone(pending))
        self.state.on_unrecorded = self._on_unrecorded
        # The log was closed if the agent has come to rest since its last incarnation.
        self.state.reopen()
        plan = self.state.asking(plan)
        self._written = trio.Event()
        # Nothing is being written yet, so a control request need not wait.
        self._written.set()
        return prepared(plan, self.state.inquiry)

    async def handle_continue(self, arg: object) -> None:
        self.admission.leave()
        pending = self.state.current
        if pending is not None and pending.survives_exit(self.plan.conduct.on_crash):
            pending.held = None
            self._admit(pending, "the process that had it has ended")
        else:
            self.state.current = None  # its caller has read the `Exited` event of the process that served it
            self._start_next()

    async def terminate(self, reason: ExitReason) -> None:
        self._is_stopping, self.state.reason = True, reason
        if self.process is not None:
            self.state.transition("stop", str(reason))
            await self.process.stop("owner")
            self.state.transition("left", str(reason))
        elif self.state.status.state != "backoff":
            self.state.transition("gone", str(reason))
        if is_clean(reason):
            await self.state.look()

    # -- messages

    async def handle_call(self, msg: object, from_: Call) -> object:
        match msg:
            case Submit(pending):
                return self._accept(pending, from_)
            case GetStatus():
                return self.state.now(incarnation=self.incarnation)
            case GetLog():
                return self.state.log
            case GetRequests():
                return self.state.requests
            case GetApprovals() if self.plan.conduct.permission != self.state.approvals.ask:
                reply_error(
                    from_, BadOption(f"{self.plan.name} has no approvals: its permission is not 'ask'")
                )
                return NO_REPLY
            case GetApprovals():
                return self.state.approvals
            case Control(request):
                # In a task: a CLI may take seconds to answer, and the mailbox must go on.
                self.background.start_soon(self._control, request, from_)
                return NO_REPLY
            case _:
                return await super().handle_call(msg, from_)

    async def handle_info(self, msg: object) -> Stop | None:
        match msg:
            case Resume(pending):
                self._resume(pending)
            case Deliver(pending, prompt, why):
                if self.process is None:
                    self.background.start_soon(self._start_for, pending, prompt, why)
                elif self.state.current is pending:
                    self._post(self.process, pending, prompt, why)
            case NotWritten(pending, written, error):
                self._on_written(pending, written, error)
            case CallerGone(pending) if pending is self.state.current:
                self._on_caller_gone(pending)
            case ProcessEnded(number) if self.process is not None and number == self.process.number:
                # By its number: the end of an earlier process must not be taken for that of its successor.
                return self._on_process_ended(self.process)
            case AgentError() if self.process is None:
                return Stop(Crash(msg))
            case _:
                pass
        return None

    # -- the process

    async def _restore_process(self, was: State) -> None:
        try:
            await self._start_process()
        except (*NOT_HEALED, RecordingFailed) as error:
            if was != "backoff":  # the first start: its owner gets the error
                raise
            if isinstance(error, RecordingFailed) and not self._must_be_recorded:
                raise  # the machine may have the missing resource again after the back-off
            self.state.transition("refused", str(error))

    async def _start_process(self) -> None:
        session = self.state.session_id
        # A session that cannot be resumed must not keep the agent down: a fork is tried, then a new session.
        attempts = [(session, False), (session, True), (None, False)] if session else [(None, False)]
        for resume, fork in attempts:
            try:
                return await self._start_attempt(resume, fork)
            except SessionOwned:
                # Another agent has the session: trying further would only hide that.
                raise
            except StartRefused as refusal:
                if resume is None:
                    raise
                nxt = "starting a new session" if fork else "trying a fork of the session"
                self.state.note("resume_refused", f"{refusal}; {nxt}", session=resume)
        return None

    async def _start_attempt(self, resume: str | None, fork: bool) -> None:
        # Before the process starts. A fork gets an id of its own, so it needs no lock of the old one.
        if not fork and (session := resume or self.plan.launch.session_id) is not None:
            self.state.session_lock.acquire(session)
        number = self.state.directory.incarnations + 1
        process = AgentProcess(
            self.state.launched(self.plan),
            self.state.log,
            self.state.directory,
            number=number,
            resume=resume,
            fork=fork,
            total_cost_usd=self.state.total_cost_usd,
            attachments=self.state.current.attachments if self.state.current is not None else (),
            on_event=self._on_event,
        )
        # In `background`: `terminate` still talks to the process, and tasks of `nursery` are cancelled before
        # it runs.
        await self.background.start(self._serve, process)
        # Only now: the recording of the new process was opened by its start.
        if self._must_be_recorded and (failure := self.state.directory.failure) is not None:
            await process.stop("recording")
            raise failure
        # Only a ready process is the agent's; until here messages find none.
        self.process = self.state.process = process
        if resume is None:
            self.state.total_cost_usd = 0.0  # a new conversation
        else:
            self.state.note("resumed", f"session {resume}{' forked' if fork else ''}", session=resume)
        self.state.transition("ready", f"pid {process.pid}")

    @property
    def _must_be_recorded(self) -> bool:
        return self.plan.workplace.on_recording_failure == "fail"

    def _on_unrecorded(self, failure: RecordingFailed) -> None:
        if self.process is not None and self._must_be_recorded:
            self.background.start_soon(self.process.end_unrecorded, failure)

    async def _serve(self, process: AgentProcess, task_status: trio.TaskStatus[None]) -> None:
        await process.serve(task_status=task_status)
        # By a message: the actor may be in the midst of a request.
        self.send_info(ProcessEnded(process.number))

    def _on_process_ended(self, process: AgentProcess) -> Stop | None:
        reason, self.process, self.state.process = process.exit or Normal(), None, None
        # A control request that waits for the prompt to be written must not wait for a dead process.
        self._written.set()
        pending = self.state.current
        # The order matters: a failure of our own explains the exit, whatever the process did then.
        if self._failure is not None:
            reason = Crash(self._failure)
        elif process.stopper == "recording":
            self.state.transition("refused", self.state.status.not_recorded)
            if pending is not None and not pending.sent:
                self._admit(pending, "it had not been sent")
            self._start_next()
            return None
        elif self.plan.launch.mode == "oneshot" and process.liveness.ending is not None:
            self._start_next()
            return None
        elif self.plan.launch.mode == "oneshot" and pending is not None and pending.withdrawn:
            self._forget(pending)
            return None
        elif pending is not None and pending.parked and is_clean(reason):
            return None  # its next prompt starts a new process
        elif pending is not None and is_clean(reason):
            # A clean exit in the midst of a request is no success: its caller has to know that it may have
            # been executed.
            why = f"its process exited ({reason})"
            reason = Crash(MaybeExecuted(self.plan.name, process.outcome, why, delivery=pending.delivery()))
        elif pending is None and OUTCOMES[process.outcome].reaction == "fail":
            self.state.transition("refused", f"{process.outcome}: {reason}")
            self._start_next()
            return None
        elif process.fault is not None and is_clean(reason):
            reason = Crash(
                process.fault
            )  # it left in time when it was stopped, but not because it was asked to
        self.state.transition("left" if is_clean(reason) else "lost", f"{process.outcome}: {reason}")
        return Stop(reason)

    def _give_up(self, error: AgentError) -> None:
        """Stop the process, then end this incarnation as a crash."""
        if self._failure is None:
            self._failure, self._is_stopping = error, True
            self.state.note("given_up", str(error))
            # Without a process no `ProcessEnded` comes that would end the incarnation.
            if self.process is None:
                self.send_info(error)
            else:
                self.background.start_soon(self.process.stop, "owner")

    # -- requests

    def _accept(self, pending: Request, from_: Call) -> object:
        # Before anything is sent: the `Turn` must miss no event of its request.
        position, state = self.state.log.end, self.state
        refusal = state.enqueue(pending, self.plan, self.process)
        if refusal is not None:
            reply_error(from_, refusal)
            return NO_REPLY
        self._start_next()
        return Turn(
            self.plan.name,
            pending,
            state.log,
            position,
            repeats=self.plan.conduct.on_crash != "fail",
            withdraw=partial(state.withdraw, pending),
            reason=lambda: state.reason,
        )

    def _start_next(self, *, later: bool = False) -> None:
        process = self.process
        # a process that is being stopped takes no more prompts: its successor does
        busy = process is not None and (self.plan.launch.mode == "oneshot" or process.stopper != "nobody")
        if self.state.current is not None or self._is_stopping or busy:
            return
        if self.state.waiting:
            self.state.current = pending = self.state.waiting.popleft()
            pending.admitted = True
            self._admit(pending, "asked", later=later)

    def _admit(self, pending: Request, why: str, *, later: bool = False) -> None:
        delay = self.admission.admit(nested=pending.nested)
        if delay is None:
            self._send(pending, why, later=later)
        elif delay.ends_agent:
            self.state.put_back(pending)
            self._give_up(BudgetExceeded(self.plan.name, delay.why))
        else:
            self._park(pending, delay)

    def _send(self, pending: Request, why: str, *, later: bool) -> None:
        prompt = pending.next_prompt(self.plan.conduct.on_crash)
        self.state.transition("prompt", f"{len(prompt.text)} characters: {why}")
        # A new event for this prompt: control requests wait until it is written.
        self._written = trio.Event()
        if later:  # events of the same read are still to come: they go into the log before the prompt
            self.send_info(Deliver(pending, prompt, why))
        elif self.process is None:
            self.background.start_soon(self._start_for, pending, prompt, why)
        else:
            self._post(self.process, pending, prompt, why)

    async def _start_for(self, pending: Request, prompt: v.Prompt, why: str) -> None:
        # Kept here: another request may put its own event in the place while the process starts.
        written = self._written
        try:
            await self._start_process()
        except StartKilled as error:
            written.set()
            self.state.transition("lost", str(error))
            self.send_info(error)  # the request is sent after the restart
        except (AgentError, ProcessError) as error:
            written.set()
            if self.state.current is pending:
                self._settle_failed(pending, error)
        else:
            if self.process is not None and self.state.current is pending:
                self._post(self.process, pending, prompt, why)
            elif self.process is not None:
                written.set()
                await self.process.stop("owner")  # started for a request that was cancelled meanwhile

    def _post(self, process: AgentProcess, pending: Request, prompt: v.Prompt, why: str) -> None:
        if process.stopper != "nobody" or process.over.is_set():
            self._written.set()  # the next process sends the request
            return
        if pending.journal is not None and pending.journal.needs_mark:
            self.background.start_soon(self._mark, process, pending, prompt, why)
            return
        # from here on the end of this process ends the request
        pending.sent, pending.held = True, process
        # Before the write: from here a crash leaves it open whether the CLI has read the prompt.
        pending.written = "yes" if pending.written == "yes" else "unknown"
        asked = {"ticket": pending.ticket, "prompt": prompt.id, "attempt": pending.attempts}
        # In the log before the CLI can answer: the `Turn` knows its prompt by this notice.
        self.state.note("sent", why, **asked, goes_on=pending.continues, at=time.time())
        try:
            process.post(prompt, partial(self._on_written, pending, self._written))
        except (AgentError, Misuse) as error:
            # by a message: it starts the next request, which may fail alike, and so on through the queue
            self.send_info(NotWritten(pending, self._written, error))

    async def _mark(self, process: AgentProcess, pending: Request, prompt: v.Prompt, why: str) -> None:
        """Have the store know that a request may have been sent, and send it."""
        written = self._written
        try:
            await self.state.mark_sending(pending, self.plan.conduct.on_crash)
        except StoreError as error:
            self.send_info(NotWritten(pending, written, error))
        else:
            if self.state.current is pending and self.process is process:
                return self._post(process, pending, prompt, why)
            written.set()

    def _on_written(self, pending: Request, written: trio.Event, error: Exception | None) -> None:
        written.set()
        if error is None:
            pending.written = "yes"
        elif self.state.current is pending and not isinstance(error, NotExecuted):
            # `NotExecuted` says that the process is ending: its end decides about the request.
            self._settle_failed(pending, error)

    def _settle_failed(self, pending: Request, error: Exception) -> None:
        asked = (pending.ticket, pending.prompt or pending.ticket)
        # a shortage of the machine is no fault of the agent's options
        ending: v.Ending = "refused_start" if shortage_of(error) is None else "error"
        # A caller reads the end of its request from the log, so a request that never ran gets its end there,
        # too.
        self.state.log.append([v.TurnEnded(v.HOST, None, ending, error=str(error), prompts=asked)])
        self.state.current = None
        self.admission.leave()
        self.state.transition("refused", str(error))
        self._start_next()

    def _on_caller_gone(self, pending: Request) -> None:
        if pending.parked:
            self.state.current = None
            self.state.transition("woke", "the caller cancelled")
            self.state.transition("turn_ended", "the caller cancelled")
            self.state.evolve(until=None)
            self._start_next()
        elif self.process is None:
            self.state.current = None
            self.admission.settle()
            self.state.transition("turn_ended", "the caller cancelled")
        else:
            self.background.start_soon(self._interrupt, pending)

    def _forget(self, pending: Request) -> None:
        self.state.current = None
        self.admission.settle()
        self.state.transition("turn_ended", "the caller cancelled")
        self._start_next()

    async def _interrupt(self, pending: Request) -> None:
        result = await self._control(v.Interrupt(str(uuid.uuid4())), None)
        if result.refused is None or self.state.current is not pending or self.process is None:
            return
        if self.plan.launch.mode == "oneshot":
            await self.process.stop("owner")  # in this mode the process is the turn
        else:
            await self.process.give_up("reply", f"it cannot be interrupted: {result.refused}", by="owner")

    async def _control(self, request: v.AnyRequest, from_: Call | None) -> ControlResult:
        process = self.process
        if process is not None:
            with trio.move_on_after(REPLY_TIMEOUT) as clock:
                await self._written.wait()  # a control request is written after the prompt that it is about
            if clock.cancelled_caught and isinstance(request, v.Interrupt):
                await process.give_up(
                    "reply", f"it did not read its prompt within {REPLY_TIMEOUT:g} s of the interrupt"
                )
        result = await send_control(request, self.state, self.process)
        if from_ is not None:
            reply(from_, result)
        return result

    # -- events of the process, handled where its output is read: nothing here may wait

    def _on_event(self, event: v.AnyEvent) -> None:
        match event:
            case v.Started():
                self._on_started(event)
            case v.TurnStarted():
                self._on_turn_started(event)
            case v.ToolCall():
                self.admission.passed()
            case v.TurnEnded():
                self._on_turn_ended(event)
            case v.Exited():
                self._on_exited(event)
            case v.Notice(code="stalled"):
                self._charge(event)
                self.state.on_event(event, ())
            case _:
                self.state.on_event(
                    event, self.process.conversation.memo.approvals if self.process is not None else ()
                )

    def _on_started(self, event: v.Started) -> None:
        try:
            # A new or forked session has its id only now, and another agent may have it already.
            self.state.session_lock.acquire(event.session_id)
        except SessionOwned as error:
            self.state.note("session_owned", str(error), session=event.session_id)
            if self.plan.product is not None:  # a scripted agent has no conversation of its own to protect
                self._give_up(error)
                return
        self.state.in_conversation(event.session_id)
        self.state.evolve(session_id=event.session_id, model=event.model)

    def _on_turn_started(self, event: v.TurnStarted) -> None:
        pending = self.state.current
        # A CLI may begin a turn by itself: only one with the prompt's id is that of the request.
        if pending is not None and pending.prompt in event.prompts:
            pending.started = True
            if pending.journal is not None:
                self.background.start_soon(self.state.mark_started, pending)
        elif self.state.status.state == "idle":
            self.state.transition("turn_started", "the CLI began a turn by itself")

    def _on_turn_ended(self, event: v.TurnEnded) -> None:
        self.state.count(event)
        self._charge(event)
        pending = self.state.current
        if pending is None or pending.prompt not in event.prompts:
            if pending is None and self.state.status.state in ("working", "blocked"):
                self.state.transition("turn_ended", event.ending)
            return
        self.admission.settle()
        # This is the CLI's reply to our own interrupt: the end of the process will say what became of the
        # request.
        process = self.process if event.ending == "interrupted" else None
        if process is not None and process.ended_by_stop(event, may_go_on=pending.may_go_on):
            text = f"the process is being stopped: {process.stopper}"
            self.state.note("unsettled", text, ticket=pending.ticket)
            return
        self._settle(pending, event)

    def _on_exited(self, event: v.Exited) -> None:
        self.state.count(event)
        self._charge(event)
        # A request that was not sent keeps its reserve: it goes on in the next process.
        if self.state.current is None or self.state.current.sent:
            self.admission.settle()

    def _charge(self, event: v.TurnEnded | v.Exited | v.Notice) -> None:
        for alarm, text in self.admission.take(event):
            self.state.note(alarm, text)

    def _settle(self, pending: Request, event: v.TurnEnded) -> None:
        reaction = OUTCOMES[ENDINGS[event.ending]].reaction
        resets_at = self.process.liveness.resets_at if self.process is not None else None
        if reaction == "park" and resets_at is not None:
            believed = self.admission.limited(resets_at)
            parks = believed and self.plan.conduct.park and not pending.is_answered
            if parks and (delay := self.admission.admit(nested=pending.nested, again=True)) is not None:
                self._park(pending, delay)
                return
        else:
            self.admission.passed()
        if pending.inquiry is not None and (again := pending.inquiry.judge(event)) is not None:
            self.state.ask_again(pending, again)
        else:
            self.state.current = None
            self.state.transition(
                "refused" if reaction == "fail" else "turn_ended", event.error or event.ending
            )
        self._start_next(later=True)

    # -- limits and budgets

    def _park(self, pending: Request, delay: Delay) -> None:
        self.state.park(pending, delay)
        self.background.start_soon(self.state.mark_parked, pending)
        self.background.start_soon(self._wait_for_admission, pending, delay)

    async def _wait_for_admission(self, pending: Request, delay: Delay | None) -> None:
        while delay is not None and self.state.current is pending:
            self.state.evolve(until=delay.until, evidence=delay.text)
            await self.admission.wait(delay)
            # Asked again after each wait: another agent may have taken the room first.
            delay = (
                self.admission.admit(nested=pending.nested, again=True)
                if self.state.current is pending
                else None
            )
        if self.state.current is pending:
            # By a message, so that a withdrawal that is queued already comes first.
            self.send_info(Resume(pending))

    def _resume(self, pending: Request) -> None:
        if self.state.current is pending and pending.parked:
            self.state.transition("woke", "it may go on")
            self.state.evolve(until=None)
            self._send(pending, "the wait is over", later=False)
        elif self.state.current is None:
            # Withdrawn while it waited: what it was admitted with is given back.
            self.admission.leave()
