"""The agent actor: one conversation that outlives its processes, behind a mailbox.

Requests are taken one at a time, in order; those that wait are kept in the agent's book, which the supervisor holds
over a restart, so a queued request survives a crash and one in flight meets its spec's `on_crash`. An incarnation
that ends by itself ends the actor with the same reason (S74): whether and when a new one comes is the supervisor's
to say. The new one resumes the session; refused, it forks it; refused again, it starts afresh with a `Notice` (L37).

A usage limit is neither a failure nor an exit: the agent is parked until the CLI's own reset time, keeps its process,
spends no restart, and then asks again (L38). What no restart would heal leaves the agent in `failed`, alive and
refusing nothing: the next request tries again (L36).

Not handled: two agents on one session id; the run directory's lock keeps a second incarnation of one agent away.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import trio

from proctor.actors.book import QUEUE, Book, Job, open_book
from proctor.actors.errors import AgentError, NotExecuted, StartRefused
from proctor.actors.eventlog import EventLog
from proctor.actors.incarnation import Incarnation
from proctor.actors.outcomes import ENDINGS, REACTIONS
from proctor.actors.plan import Plan
from proctor.actors.states import Happening, Status, follow
from proctor.protocols import vocabulary as v
from proctor.protocols.errors import Misuse
from proctor.runtime.actor import NO_REPLY, Actor, Continue, Stop
from proctor.runtime.exits import ExitReason, Normal, is_clean
from proctor.runtime.messages import Call, reply_error
from proctor.runtime.process_errors import ProcessError

WAKE_MARGIN = 1.0
"""Seconds after a limit's reset before the agent asks again."""
CONTINUE = "Continue where you stopped."
"""What a resumed conversation is told when its turn was cut."""


@attrs.frozen
class Begin:
    """Take a request. The reply is `Accepted`, at once; what comes of it is read from the log: a `sent` notice with
    the ticket names the prompt it travels as, each time it is sent. A caller that gives up before the reply marks
    the job as withdrawn, and it is never sent."""

    job: Job


@attrs.frozen
class Accepted:
    """`log` from `position` on tells the request's story. `repeats`: a crash does not end it. `withdraw()` says that
    the caller has left: the request is forgotten, or its turn ended; it never waits."""

    log: EventLog
    position: int
    repeats: bool
    withdraw: Callable[[], None]


@attrs.frozen
class Tell:
    """Pass a request such as `Interrupt` or `SetModel` on to the CLI, if a process is there."""

    request: v.AnyRequest


@attrs.frozen
class Look:
    """The reply is a `Status`."""


@attrs.frozen
class Follow:
    """The reply is the agent's `EventLog`."""


@attrs.frozen
class _Wake:
    ticket: str


@attrs.frozen
class _Left:
    job: Job


@attrs.frozen
class _Over:
    number: int


class AgentActor(Actor):
    """Started with a `Plan`; understands `Begin`, `Tell`, `Look`, `Follow`."""

    plan: Plan
    book: Book
    live: Incarnation | None = None
    _leaving: bool = False

    async def init(self, plan: Plan) -> Continue:
        self.plan = plan
        if "book" not in self.kept:
            self.kept["book"] = book = open_book(plan)
            self.kept.at_rest(book.rest)
            self.kept.when_dropped(book.close)
        self.book = self.kept["book"]
        self.book.nudge = self._nudged
        self.book.log.reopen()
        self.plan = await self.book.place(plan)
        if self.incarnation > 1:
            self._move("started", f"incarnation {self.incarnation}")
        if self.plan.launch.mode == "session":
            await self._come_alive()
        return Continue("take up")

    async def handle_continue(self, arg: object) -> None:
        job = self.book.current
        if job is not None and job.withdrawn:
            job = self.book.current = None
        if job is not None and job.parked:
            self._park(job, self.book.status.until or time.time())
        elif job is not None and self.plan.conduct.on_crash != "fail":
            self._repeat(job, "the incarnation that held it is gone")
        else:
            self.book.current = None  # its caller has been told by the `Exited` of the one that held it
            self._advance()

    async def terminate(self, reason: ExitReason) -> None:
        self._leaving = True
        if self.live is not None:
            self._move("stop", str(reason))
            await self.live.stop("owner")
            self._move("left", str(reason))
        elif self.book.status.state != "backoff":
            self._move("gone", str(reason))
        if is_clean(reason):
            await self.book.look()

    # -- messages

    async def handle_call(self, msg: object, from_: Call) -> object:
        match msg:
            case Begin() if self.book.is_full:
                reply_error(from_, NotExecuted(self.plan.name, f"{QUEUE} requests wait already"))
                return NO_REPLY
            case Begin(job):
                return self._accept(job)
            case Look():
                return self._status()
            case Follow():
                return self.book.log
            case Tell(request):
                return await self._tell(request)
            case _:
                return await super().handle_call(msg, from_)

    async def handle_info(self, msg: object) -> Stop | None:
        match msg:
            case _Wake(ticket):
                self._wake(ticket)
            case _Left(job) if job is self.book.current:
                await self._end(job)
            case _Over(number) if self.live is not None and number == self.live.number:
                return self._ended(self.live)
            case _:
                pass
        return None

    # -- the process

    async def _come_alive(self) -> None:
        session = self.book.session_id
        attempts = [(session, False), (session, True), (None, False)] if session else [(None, False)]
        for resume, fork in attempts:
            try:
                return await self._start(resume, fork)
            except StartRefused as refusal:
                if resume is None:
                    raise
                nxt = "starting afresh" if fork else "trying a fork of it"
                self._note("resume_refused", f"{refusal}; {nxt}", session=resume)
        return None

    async def _start(self, resume: str | None, fork: bool) -> None:
        number = self.book.directory.incarnations + 1
        live = Incarnation(
            self.plan,
            self.book.log,
            self.book.directory,
            number=number,
            resume=resume,
            fork=fork,
            total_cost_usd=self.book.total_cost_usd,
            listen=self._hear,
        )
        await self.background.start(self._serve, live)
        self.live = live
        if resume:
            self._note("resumed", f"session {resume}{' forked' if fork else ''}", session=resume)
        self._move("ready", f"pid {live.pid}")

    async def _serve(self, live: Incarnation, task_status: trio.TaskStatus[None]) -> None:
        await live.serve(task_status=task_status)
        self.send_info(_Over(live.number))

    def _ended(self, live: Incarnation) -> Stop | None:
        reason = live.exit or Normal()
        self.live = None
        if self.plan.launch.mode == "oneshot" and live.ending is not None:
            self._advance()
            return None
        self._move("left" if is_clean(reason) else "lost", f"{live.outcome}: {reason}")
        return Stop(reason)

    # -- requests

    def _accept(self, job: Job) -> Accepted:
        position = self.book.log.end
        self.book.waiting.append(job)
        self._advance()
        repeats = self.plan.conduct.on_crash != "fail"
        return Accepted(self.book.log, position, repeats, partial(self.book.withdraw, job))

    def _nudged(self, job: Job) -> None:
        self.send_info(_Left(job))

    def _advance(self) -> None:
        one_at_a_time = self.plan.launch.mode == "oneshot" and self.live is not None
        if self.book.current is not None or self._leaving or one_at_a_time:
            return
        self.book.current = job = self.book.next()
        if job is not None:
            self._send(job, job.ticket, job.text, "asked")

    def _repeat(self, job: Job, why: str) -> None:
        text = CONTINUE if job.begun and self.plan.conduct.on_crash == "resume" else job.text
        self._send(job, str(uuid.uuid4()), text, why)

    def _send(self, job: Job, prompt: str, text: str, why: str) -> None:
        job.prompt, job.parked = prompt, False
        self._note("sent", why, ticket=job.ticket, prompt=prompt)
        self._move("prompt", f"{len(text)} characters: {why}")
        self.background.start_soon(self._deliver, job, v.Prompt(prompt, text))

    async def _deliver(self, job: Job, prompt: v.Prompt) -> None:
        try:
            if self.live is None:
                await self._come_alive()
            if self.live is not None and self.book.current is job:
                await self.live.send(prompt)
            elif self.live is not None:
                await self.live.stop("owner")  # started for a caller who has left
        except (AgentError, ProcessError, Misuse) as error:
            if self.book.current is job and (self.live is None or not isinstance(error, NotExecuted)):
                self._settle_failed(job, error)

    def _settle_failed(self, job: Job, error: Exception) -> None:
        failed = v.TurnEnded(
            v.HOST, None, "refused_start", error=str(error), prompts=(job.prompt or job.ticket,)
        )
        self.book.log.append([failed])
        self.book.current = None
        self._move("refused", str(error))
        self._advance()

    async def _end(self, job: Job) -> None:
        if job.parked:
            self.book.current = None
            self._move("woke", "the caller left")
            self._move("turn_ended", "the caller left")
            self._evolve(until=None)
            self._advance()
        elif self.live is None:
            self.book.current = None
            self._move("turn_ended", "the caller left")
        else:
            await self._tell(v.Interrupt(str(uuid.uuid4())))

    async def _tell(self, request: v.AnyRequest) -> bool:
        if self.live is None or (isinstance(request, v.Interrupt) and not self.live.working):
            return False
        try:
            await self.live.send(request)
        except (Misuse, NotExecuted):
            return False
        return True

    # -- what the CLI says, heard in the pump: nothing here waits

    def _hear(self, event: v.AnyEvent) -> None:
        match event:
            case v.Started():
                self.book.session_id = event.session_id
                self._evolve(session_id=event.session_id, model=event.model)
            case v.TurnStarted():
                self._begun(event)
            case v.ApprovalRequested():
                self._move("question", f"{event.tool} wants to run")
            case v.Notice(code="approval") | v.ApprovalWithdrawn():
                self._move("answered", "the question is settled")
            case v.Notice(code="stalled"):
                self._move("stalled", event.text)
            case v.TurnEnded():
                self._turn_ended(event)
            case _:
                pass

    def _begun(self, event: v.TurnStarted) -> None:
        job = self.book.current
        if job is not None and job.prompt in event.prompts:
            job.begun = True

    def _turn_ended(self, event: v.TurnEnded) -> None:
        cost = (
            (self.book.cost_usd or 0.0) + event.cost_usd if event.cost_usd is not None else self.book.cost_usd
        )
        self.book.cost_usd = cost
        if event.total_cost_usd is not None:
            self.book.total_cost_usd = event.total_cost_usd
        self._evolve(turns=self.book.status.turns + 1, cost_usd=cost)
        job = self.book.current
        if job is None or job.prompt not in event.prompts:
            return
        if self.live is not None and self.live.cut(event):
            self._note("unsettled", f"the process is being stopped: {self.live.stopper}", ticket=job.ticket)
            return
        reaction = REACTIONS[ENDINGS[event.ending]]
        resets_at = self.live.resets_at if self.live is not None else None
        if reaction == "park" and self.plan.conduct.park and resets_at is not None:
            self._park(job, resets_at)
            return
        self.book.current = None
        self._move("refused" if reaction == "fail" else "turn_ended", event.error or event.ending)
        self._advance()

    def _park(self, job: Job, until: float) -> None:
        job.parked = True
        self._note("parked", f"usage limit; until {_clock(until)}", ticket=job.ticket, until=until)
        self._move("limit", f"usage limit until {_clock(until)}")
        self._evolve(until=until)
        self.background.start_soon(self._sleep_until, until, job.ticket)

    async def _sleep_until(self, until: float, ticket: str) -> None:
        await trio.sleep(max(0.0, until - time.time()) + WAKE_MARGIN)
        self.send_info(_Wake(ticket))

    def _wake(self, ticket: str) -> None:
        job = self.book.current
        if job is not None and job.ticket == ticket and job.parked:
            self._move("woke", "the usage limit has reset")
            self._evolve(until=None)
            self._repeat(job, "the usage limit has reset")

    # -- status

    def _move(self, happening: Happening, evidence: str) -> None:
        try:
            state = follow(self.book.status.state, happening)
        except KeyError:
            self._note("odd_state", f"{happening} while {self.book.status.state}")
            return
        self._evolve(state=state, evidence=evidence, since=trio.current_time())

    def _evolve(self, **changes: Any) -> None:
        self.book.status = attrs.evolve(self.book.status, **changes)

    def _status(self) -> Status:
        pid = self.live.pid if self.live is not None else None
        queued = len(self.book.waiting)
        return attrs.evolve(self.book.status, pid=pid, queued=queued, incarnation=self.incarnation)

    def _note(self, code: str, text: str, **data: object) -> None:
        self.book.log.append([v.Notice(v.HOST, None, code, text, data)])


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
