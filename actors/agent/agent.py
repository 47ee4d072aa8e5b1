"""The agent actor: one conversation that outlives its processes, behind a mailbox.

Requests are taken one at a time, in order; those that wait are kept in the agent's book, which the supervisor holds
over a restart, so a queued request survives a crash and one in flight meets its spec's `on_crash`. An incarnation
that ends by itself ends the actor with the same reason (S74): whether and when a new one comes is the supervisor's
to say. The new one resumes the session; refused, it forks it; refused again, it starts afresh with a `Notice` (L37).
A session is owned by one agent: under another's lock nothing is started, and nothing else tried.

A usage limit or a spent budget is neither a failure nor an exit: the agent is parked before its next prompt, keeps its
process, spends no restart, and then asks again (L38, `gate`). What no restart would heal leaves the agent in
`failed`, alive and refusing nothing: the next request tries again (L36).

What is said beside the prompts is written by tasks of its own, so that a CLI that does not read holds up nobody.
"""

from __future__ import annotations

import uuid
from functools import partial

import attrs
import trio

from proctor.actors.agent.agent_state import Book, Job, open_book
from proctor.actors.agent.control import tell
from proctor.actors.agent.messages import Accepted, Attend, Begin, Follow, Left, Look, Over, Tell, Told, Wake
from proctor.actors.agent.states import State
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
from proctor.actors.limits.admission import Gate, Hold, gate_of
from proctor.actors.limits.tree_limits import current_fellows
from proctor.actors.outcomes import ENDINGS, REACTIONS
from proctor.actors.plan.plan import Plan
from proctor.actors.process.agent_process import Incarnation
from proctor.actors.process.liveness import REPLY
from proctor.actors.structured.strategies import prepared
from proctor.protocols import vocabulary as v
from proctor.protocols.errors import Misuse
from proctor.runtime.exits import Crash, ExitReason, Normal, is_clean
from proctor.runtime.messaging.actor import NO_REPLY, Actor, Continue, Stop
from proctor.runtime.messaging.messages import Call, reply, reply_error
from proctor.runtime.processes.process_errors import ProcessError
from proctor.runtime.processes.shortage import shortage_of


class AgentActor(Actor):
    """Started with a `Plan`; understands what is in `mail`."""

    plan: Plan
    book: Book
    gate: Gate
    live: Incarnation | None = None
    _leaving: bool = False
    _fault: AgentError | None = None
    _written: trio.Event

    async def init(self, plan: Plan) -> Continue:
        opened = self._open(plan)
        self.plan = await self.book.place(opened)
        was = self.book.status.state
        if self.incarnation > 1:
            self.book.move("started", f"incarnation {self.incarnation}")
            self.gate.come_back()
        if self.plan.launch.mode == "session":
            try:
                await self._come_back(was)
            except (AgentError, ProcessError, OSError) as error:
                self.book.move("lost", str(error))  # who looks in the back-off sees why there is no process
                raise
        else:
            self.book.move("ready", "each request gets a process of its own")
        return Continue("take up")

    def _open(self, plan: Plan) -> Plan:
        if "book" not in self.kept:
            self.kept["book"] = book = open_book(plan)
            self.kept["gate"] = gate = gate_of(plan, self.ref.path, current_fellows())
            self.kept.at_rest(book.rest)
            self.kept.at_rest(gate.leave)
            self.kept.when_dropped(book.close)
        self.book, self.gate = self.kept["book"], self.kept["gate"]
        self.book.nudge = lambda job: self.send_info(Left(job))
        self.book.unrecorded = self._unrecorded
        self.book.reopen()
        if plan.conduct.permission == "ask":
            plan = attrs.evolve(plan, conduct=attrs.evolve(plan.conduct, permission=self.book.desk.ask))
        self._written = trio.Event()
        self._written.set()
        return prepared(plan, self.book.inquiry)

    async def handle_continue(self, arg: object) -> None:
        self.gate.leave()
        job = self.book.current
        if job is not None and job.outlives_a_process(self.plan.conduct.on_crash):
            job.held = None
            self._admit(job, "the incarnation that held it is gone")
        else:
            self.book.current = None  # its caller has been told by the `Exited` of the one that held it
            self._advance()

    async def terminate(self, reason: ExitReason) -> None:
        self._leaving, self.book.reason = True, reason
        if self.live is not None:
            self.book.move("stop", str(reason))
            await self.live.stop("owner")
            self.book.move("left", str(reason))
        elif self.book.status.state != "backoff":
            self.book.move("gone", str(reason))
        if is_clean(reason):
            await self.book.look()

    # -- messages

    async def handle_call(self, msg: object, from_: Call) -> object:
        match msg:
            case Begin(job) if (refusal := self.book.refusal(job, self.plan, self.live)) is not None:
                reply_error(from_, refusal)
                return NO_REPLY
            case Begin(job):
                return self._accept(job)
            case Look():
                pid = self.live.pid if self.live is not None else None
                return self.book.now(pid=pid, incarnation=self.incarnation)
            case Follow():
                return self.book.log
            case Attend() if self.plan.conduct.permission != self.book.desk.ask:
                reply_error(from_, BadOption(f"{self.plan.name} asks nobody: its permission is not 'ask'"))
                return NO_REPLY
            case Attend():
                return self.book.desk
            case Tell(request):
                self.background.start_soon(self._tell, request, from_)
                return NO_REPLY
            case _:
                return await super().handle_call(msg, from_)

    async def handle_info(self, msg: object) -> Stop | None:
        match msg:
            case Wake(job):
                self._wake(job)
            case Left(job) if job is self.book.current:
                self._end(job)
            case Over(number) if self.live is not None and number == self.live.number:
                return self._ended(self.live)
            case AgentError() if self.live is None:
                return Stop(Crash(msg))
            case _:
                pass
        return None

    # -- the process

    async def _come_back(self, was: State) -> None:
        try:
            await self._come_alive()
        except (*NOT_HEALED, RecordingFailed) as error:
            if was != "backoff":  # its owner starts it, and is told
                raise
            if isinstance(error, RecordingFailed) and not self._must_be_recorded:
                raise  # what it lacks for its process may be there again after the back-off
            self.book.move("refused", str(error))

    async def _come_alive(self) -> None:
        session = self.book.session_id
        attempts = [(session, False), (session, True), (None, False)] if session else [(None, False)]
        for resume, fork in attempts:
            try:
                return await self._start(resume, fork)
            except SessionOwned:
                raise
            except StartRefused as refusal:
                if resume is None:
                    raise
                nxt = "starting afresh" if fork else "trying a fork of it"
                self.book.note("resume_refused", f"{refusal}; {nxt}", session=resume)
        return None

    async def _start(self, resume: str | None, fork: bool) -> None:
        if not fork and (session := resume or self.plan.launch.session_id) is not None:
            self.book.ownership.take(session)
        number = self.book.directory.incarnations + 1
        live = Incarnation(
            self.book.launched(self.plan),
            self.book.log,
            self.book.directory,
            number=number,
            resume=resume,
            fork=fork,
            total_cost_usd=self.book.total_cost_usd,
            attachments=self.book.current.attachments if self.book.current is not None else (),
            listen=self._hear,
        )
        await self.background.start(self._serve, live)
        if self._must_be_recorded and (failure := self.book.directory.failure) is not None:
            await live.stop("recording")
            raise failure
        self.live = live
        if resume is None:
            self.book.total_cost_usd = 0.0  # of a conversation that has no past
        else:
            self.book.note("resumed", f"session {resume}{' forked' if fork else ''}", session=resume)
        self.book.move("ready", f"pid {live.pid}")

    @property
    def _must_be_recorded(self) -> bool:
        return self.plan.workplace.on_recording_failure == "fail"

    def _unrecorded(self, failure: RecordingFailed) -> None:
        if self.live is not None and self._must_be_recorded:
            self.background.start_soon(self.live.end_unrecorded, failure)

    async def _serve(self, live: Incarnation, task_status: trio.TaskStatus[None]) -> None:
        await live.serve(task_status=task_status)
        self.send_info(Over(live.number))

    def _ended(self, live: Incarnation) -> Stop | None:
        reason, self.live = live.exit or Normal(), None
        job = self.book.current
        if self._fault is not None:
            reason = Crash(self._fault)
        elif live.stopper == "recording":
            self.book.move("refused", self.book.status.not_recorded)
            if job is not None and not job.sent:
                self._admit(job, "it was not sent before")
            self._advance()
            return None
        elif self.plan.launch.mode == "oneshot" and live.ending is not None:
            self._advance()
            return None
        elif self.plan.launch.mode == "oneshot" and job is not None and job.withdrawn:
            self._drop(job)
            return None
        elif job is not None and job.parked and is_clean(reason):
            return None  # a new process comes with its next prompt
        elif job is not None and is_clean(reason):
            why = f"its process left ({reason})"
            reason = Crash(MaybeExecuted(self.plan.name, live.outcome, why, delivery=job.delivery()))
        elif job is None and REACTIONS[live.outcome] == "fail":
            self.book.move("refused", f"{live.outcome}: {reason}")
            self._advance()
            return None
        elif live.fault is not None and is_clean(reason):
            reason = Crash(live.fault)  # it left in time when it was stopped, but not because it was asked to
        self.book.move("left" if is_clean(reason) else "lost", f"{live.outcome}: {reason}")
        return Stop(reason)

    def _give_up(self, error: AgentError) -> None:
        """End this incarnation as a crash, after its process has been stopped."""
        if self._fault is None:
            self._fault, self._leaving = error, True
            self.book.note("given_up", str(error))
            if self.live is None:
                self.send_info(error)
            else:
                self.background.start_soon(self.live.stop, "owner")

    # -- requests

    def _accept(self, job: Job) -> Accepted:
        position = self.book.log.end
        job.taken_by(self.plan)
        self.book.enqueue(job)
        self._advance()
        repeats = self.plan.conduct.on_crash != "fail"
        book = self.book
        return Accepted(book.log, position, repeats, partial(book.withdraw, job), lambda: book.reason)

    def _advance(self) -> None:
        live = self.live
        # a process that is being stopped takes no more: its successor will
        busy = live is not None and (self.plan.launch.mode == "oneshot" or live.stopper != "nobody")
        if self.book.current is not None or self._leaving or busy:
            return
        self.book.current = job = self.book.next()
        if job is not None:
            job.admitted = True
            self._admit(job, "asked")

    def _admit(self, job: Job, why: str) -> None:
        if (overdrawn := self.gate.overdrawn()) is not None:
            self.book.put_back(job)
            self._give_up(BudgetExceeded(self.plan.name, overdrawn))
        elif (hold := self.gate.hold(nested=job.nested)) is not None:
            self._park(job, hold)
        else:
            self._send(job, why)

    def _send(self, job: Job, why: str) -> None:
        prompt = job.next_prompt(self.plan.conduct.on_crash)
        self.book.move("prompt", f"{len(prompt.text)} characters: {why}")
        self._written = written = trio.Event()
        self.background.start_soon(self._deliver, job, prompt, why, written)

    async def _deliver(self, job: Job, prompt: v.Prompt, why: str, written: trio.Event) -> None:
        try:
            if self.live is None:
                await self._come_alive()
            if self.live is not None and self.book.current is job and self.live.stopper != "nobody":
                return  # its end brings a successor, which sends it
            if self.live is not None and self.book.current is job and not self.live.over.is_set():
                job.hand_to(self.live)  # from here on its process takes it along when it dies
                asked = {"ticket": job.ticket, "prompt": prompt.id, "attempt": job.attempts}
                self.book.note("sent", why, **asked, goes_on=job.goes_on(self.plan.conduct.on_crash))
                await self.live.send(prompt)
                job.reached = "yes"
            elif self.live is not None and self.book.current is not job:
                await self.live.stop("owner")  # started for a caller who has left
        except StartKilled as error:
            self.book.move("lost", str(error))
            self.send_info(error)  # the job is asked when its supervisor has brought the agent back
        except (AgentError, ProcessError, Misuse) as error:
            if self.book.current is job and (self.live is None or not isinstance(error, NotExecuted)):
                self._settle_failed(job, error)
        finally:
            written.set()

    def _settle_failed(self, job: Job, error: Exception) -> None:
        asked = (job.ticket, job.prompt or job.ticket)
        # what the machine lacks is not for the agent's owner to set right
        ending: v.Ending = "refused_start" if shortage_of(error) is None else "error"
        self.book.log.append([v.TurnEnded(v.HOST, None, ending, error=str(error), prompts=asked)])
        self.book.current = None
        self.gate.leave()
        self.book.move("refused", str(error))
        self._advance()

    def _end(self, job: Job) -> None:
        if job.parked:
            self.book.current = None
            self.book.move("woke", "the caller left")
            self.book.move("turn_ended", "the caller left")
            self.book.evolve(until=None)
            self._advance()
        elif self.live is None:
            self.book.current = None
            self.gate.settle()
            self.book.move("turn_ended", "the caller left")
        else:
            self.background.start_soon(self._interrupt, job)

    def _drop(self, job: Job) -> None:
        self.book.current = None
        self.gate.settle()
        self.book.move("turn_ended", "the caller left")
        self._advance()

    async def _interrupt(self, job: Job) -> None:
        told = await self._tell(v.Interrupt(str(uuid.uuid4())), None)
        if told.refused is None or self.book.current is not job or self.live is None:
            return
        if self.plan.launch.mode == "oneshot":
            await self.live.stop("owner")  # the process is the turn, and nobody waits for it
        else:
            await self.live.give_up("reply", f"it cannot be interrupted: {told.refused}", by="owner")

    async def _tell(self, request: v.AnyRequest, from_: Call | None) -> Told:
        live = self.live
        if live is not None:
            with trio.move_on_after(REPLY) as clock:
                await self._written.wait()  # what is said of a prompt comes after it
            if clock.cancelled_caught and isinstance(request, v.Interrupt):
                await live.give_up("reply", f"it did not read its prompt within {REPLY:g} s of the interrupt")
        told = await tell(request, self.book, self.live)
        if from_ is not None:
            reply(from_, told)
        return told

    # -- what the CLI says, heard in the pump: nothing here waits

    def _hear(self, event: v.AnyEvent) -> None:
        match event:
            case v.Started():
                self._named(event)
            case v.TurnStarted():
                self._begun(event)
            case v.ToolCall():
                self.gate.passed()
            case v.TurnEnded():
                self._turn_ended(event)
            case v.Exited():
                self._exited(event)
            case v.Notice(code="stalled"):
                self._charge(event)
                self.book.hear(event, ())
            case _:
                self.book.hear(event, self.live.conversation.memo.approvals if self.live is not None else ())

    def _named(self, event: v.Started) -> None:
        try:
            self.book.ownership.take(event.session_id)
        except SessionOwned as error:
            self.book.note("session_owned", str(error), session=event.session_id)
            if self.plan.product is not None:  # what a script plays is nobody's conversation
                self._give_up(error)
                return
        self.book.session_id = event.session_id
        self.book.evolve(session_id=event.session_id, model=event.model)

    def _begun(self, event: v.TurnStarted) -> None:
        job = self.book.current
        if job is not None and job.prompt in event.prompts:
            job.begun = True
        elif self.book.status.state == "idle":
            self.book.move("turn_started", "a turn of the CLI's own")

    def _turn_ended(self, event: v.TurnEnded) -> None:
        self.book.count(event)
        self._charge(event)
        job = self.book.current
        if job is None or job.prompt not in event.prompts:
            if job is None and self.book.status.state in ("working", "blocked"):
                self.book.move("turn_ended", event.ending)
            return
        self.gate.settle()
        if self.live is not None and self.live.cut(event):
            stopper = self.live.stopper
            self.book.note("unsettled", f"the process is being stopped: {stopper}", ticket=job.ticket)
            return
        self._settle(job, event)

    def _exited(self, event: v.Exited) -> None:
        self.book.count(event)
        self._charge(event)
        if self.book.current is None or self.book.current.sent:
            self.gate.settle()

    def _charge(self, event: v.TurnEnded | v.Exited | v.Notice) -> None:
        for alarm, text in self.gate.take(event):
            self.book.note(alarm, text)

    def _settle(self, job: Job, event: v.TurnEnded) -> None:
        reaction = REACTIONS[ENDINGS[event.ending]]
        resets_at = self.live.resets_at if self.live is not None else None
        if reaction == "park" and resets_at is not None:
            believed = self.gate.limited(resets_at)
            if (
                believed
                and self.plan.conduct.park
                and not job.is_met
                and (hold := self.gate.hold(nested=job.nested)) is not None
            ):
                self._park(job, hold)
                return
        else:
            self.gate.passed()
        if job.inquiry is not None and (again := job.inquiry.judge(event)) is not None:
            self.book.ask_again(job, again)
        else:
            self.book.current = None
            self.book.move("refused" if reaction == "fail" else "turn_ended", event.error or event.ending)
        self._advance()

    # -- limits and budgets

    def _park(self, job: Job, hold: Hold) -> None:
        job.parked = True
        self.book.note("parked", hold.text, ticket=job.ticket, until=hold.until)
        self.book.move("limit", hold.text)
        self.book.evolve(until=hold.until)
        self.background.start_soon(self._sit_out, job, hold)

    async def _sit_out(self, job: Job, hold: Hold | None) -> None:
        while hold is not None and self.book.current is job:
            self.book.evolve(until=hold.until, evidence=hold.text)
            await self.gate.wait(hold)
            hold = self.gate.hold(nested=job.nested) if self.book.current is job else None
        if self.book.current is job:
            self.send_info(Wake(job))

    def _wake(self, job: Job) -> None:
        if self.book.current is job and job.parked:
            self.book.move("woke", "it may go on")
            self.book.evolve(until=None)
            self._send(job, "the wait is over")
        elif self.book.current is None:
            self.gate.leave()
