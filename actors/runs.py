"""One request without a tree: for scripts and for the command line.

`run` waits for the answer, `stream` yields events. Both leave nothing behind on any path: the process is stopped by its
dialect's stop sequence, also on cancellation. The deadline (300 s by default, None for none) covers all attempts at a structured
answer. `open_run` starts the process before there is a prompt; `begin` gives it one, once. The CLI does not keep the
session of a run, unless `persist`, `resume` or `session_id` is given.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TypeVar, cast, overload

import attrs
import trio
from trio_util import wait_any

from proctor.actors.agent.request import Request
from proctor.actors.agent.session_lock import hold_session
from proctor.actors.delivery import Delivery
from proctor.actors.errors import AgentError, AskInterrupted, AskNotSent, NotExecuted, unsent
from proctor.actors.expense import Expense
from proctor.actors.limits.spend_limits import SpendLimits, run_limits
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan, plan_of
from proctor.actors.plan.workspaces import Workspace, workspace_of
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.process.ends import final_answer, first_cause
from proctor.actors.process.orphans import track_processes
from proctor.actors.recording.eventlog import Cursor, EventLog
from proctor.actors.recording.partial_text import partial_text
from proctor.actors.recording.recording import RunDirectory
from proctor.actors.structured.payloads import Payload, refuse_unsupported, unsupported
from proctor.actors.tracing.tracing import begin_trace
from proctor.protocols import vocabulary as v
from proctor.protocols.attachment import Attachment, UnsupportedAttachment
from proctor.runtime.processes import ProcessError
from proctor.runtime.spec import ChildSpec
from proctor.runtime.trio_only import check_in_trio

T = TypeVar("T")

DEADLINE = 300.0
LOG = "proctor"


@overload
async def ask(
    agent: ChildSpec | Plan,
    prompt: str,
    *,
    timeout: float | None = DEADLINE,
    schema: type[T],
    payloads: Sequence[Payload] = (),
) -> Answer[T]: ...


@overload
async def ask(
    agent: ChildSpec | Plan,
    prompt: str,
    *,
    timeout: float | None = DEADLINE,
    schema: object = None,
    payloads: Sequence[Payload] = (),
) -> Answer: ...


async def ask(
    agent: ChildSpec | Plan,
    prompt: str,
    *,
    timeout: float | None = DEADLINE,
    schema: object = None,
    payloads: Sequence[Payload] = (),
) -> Answer:
    """Send one prompt to one agent without a tree and return the answer, whatever its outcome. `schema` is that of the answer, as for
    `Agent.ask`.

    Raises `AskNotSent` and `AskInterrupted` (both are an `AskTimeout`) when `timeout` seconds have passed, what keeps a process from getting ready (`NotInstalled`, `StartRefused`, `GreetingTimeout`, `SpawnFailed`;
    `SessionOwned` when another agent runs the session that it is to resume), `RecordingFailed`,
    `UnsupportedPayload` for one of `payloads` that this CLI cannot take, `BadOption` for a schema that is none and for a
    budget of the plan outside of an account book, `BudgetExceeded` when no budget has room for it in its time.
    """
    async with stream(plan_of(agent), prompt, timeout=timeout, schema=schema, payloads=payloads) as live:
        return await live.finish()


@asynccontextmanager
async def stream(
    plan: Plan,
    prompt: str,
    *,
    timeout: float | None = DEADLINE,
    schema: object = None,
    payloads: Sequence[Payload] = (),
    limits: SpendLimits | None = None,
    parks: bool = True,
) -> AsyncGenerator[Run]:
    """A `Run`: `async for event in live`, then `live.answer`. Leaving early stops the process.

    `limits` are the budgets that bound it (None: those of the account book around this task); it waits for room in them,
    and not at all for a spent one where `parks` is False.
    """
    check_in_trio("proctor.ask")
    request = Request.make(prompt, timeout, schema, payloads)
    refuse_unsupported(plan, request.attachments)
    limits = run_limits(plan) if limits is None else limits
    if request.inquiry is not None:
        plan = request.inquiry.launched(plan)
    async with AsyncExitStack() as stack:
        with unsent(request.asked):
            # Room first, then the process: one that waits for money would hold memory for nothing.
            await stack.enter_async_context(limits.turn(request.ends, parks=parks))
            live = await stack.enter_async_context(open_run(plan, attachments=request.attachments))
        live.begin(request, limits)
        yield live


@asynccontextmanager
async def open_run(
    plan: Plan,
    *,
    starts: AbstractAsyncContextManager[object] | None = None,
    attachments: tuple[Attachment, ...] = (),
) -> AsyncGenerator[Run]:
    """A `Run` that waits for its prompt: its process starts now, within a block of `starts` up to its greeting.

    `attachments` go with that prompt. Leaving the block stops it. What keeps it from starting is raised to who reads it; see `Run.is_fit`.
    """
    begun = _recorded(_unkept(plan), starts or nullcontext(), attachments)
    # The ledger before the process, and the session lock before it as well: both outlive it in this order.
    async with track_processes(), hold_session(plan), begun as live:
        yield live


def _unkept(plan: Plan) -> Plan:
    launch = plan.launch
    if (launch.persist, launch.resume, launch.session_id) != (None, None, None):
        return plan
    # The session of a single run is of no more use: kept, it would fill the user's disk.
    return attrs.evolve(plan, launch=attrs.evolve(launch, persist=False))


@asynccontextmanager
async def _recorded(
    plan: Plan, starts: AbstractAsyncContextManager[object], attachments: tuple[Attachment, ...]
) -> AsyncGenerator[Run]:
    directory = RunDirectory(plan.workplace.record, plan.name, limit=plan.workplace.record_limit)
    workspace = workspace_of(plan.name, plan.workplace)
    log: EventLog | None = None
    live: Run | None = None
    raised: Exception | None = None
    try:
        log = directory.open_log()
        if workspace is not None:
            cwd, notice = await workspace.enter()
            log.append([notice] if notice is not None else [])
            plan = plan.at(cwd)
        live = Run(plan, directory, log, workspace, attachments)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(live.conduct, starts)
            try:
                yield live
            except Exception as error:  # noqa: BLE001  # the caller's own: it leaves bare, not in a group of one
                raised = error
            # Before the clean-up below: the run stops by its own sequence, then its files go.
            nursery.cancel_scope.cancel("the caller is done")
    finally:
        # A lent run is still being read by another task, whose log this is.
        if log is not None and not (live is not None and live.lent):
            log.release()
        if live is not None and not live.lent:
            live.end_trace()
        directory.close()
        if workspace is not None:
            workspace.leave()  # where it was not closed before
    # Outside the nursery, so that it is not wrapped in a group.
    if raised is not None:
        raise raised


class Run:
    """A one-shot run: events in order, then `answer`. `directory` holds its recording. `over` is set when it has ended;
    `ready` when its process is, or never will be. `lent`: another task reads it, so its log goes with that reader."""

    def __init__(
        self,
        plan: Plan,
        directory: RunDirectory,
        log: EventLog,
        workspace: Workspace | None = None,
        attachments: tuple[Attachment, ...] = (),
    ) -> None:
        self.directory: Path = directory.path
        self.incarnation = AgentProcess(
            plan,
            log,
            directory,
            resume=plan.launch.resume,
            fork=plan.launch.fork,
            total_cost_usd=plan.spent_usd,
            attachments=attachments,
            on_event=self._on_event,
        )
        # stands for the request until there is one
        self._request = Request("", "", attachments, held=self.incarnation)
        self._recordings = directory
        self._plan = plan
        self._is_corrected = False
        self._log = log
        self._workspace = workspace
        self._cursor: Cursor = log.cursor(0)
        self._turn_over = trio.Event()
        self._failure: AgentError | ProcessError | None = None
        self._ended: v.TurnEnded | None = None
        self._limits: SpendLimits | None = None
        self._expense = Expense()
        self._late = False
        self._asked_at = 0
        self._delivery: Delivery | None = None
        self._asked = trio.Event()
        self._send_known = trio.Event()
        self._left = trio.Event()
        self._starting = trio.CancelScope()
        self.ready = trio.Event()
        self.over = trio.Event()
        self.lent = False

    # -- its prompt

    @property
    def failure(self) -> Exception | None:
        """The error that kept its process from getting ready, once it is known."""
        return self._failure

    def is_fit(self) -> bool:
        """Whether its process is ready for a prompt and, as far as is known here, alive."""
        live, begun = self.incarnation, self._asked.is_set() or self._left.is_set()
        if begun or not self.ready.is_set() or self._failure is not None or self.over.is_set():
            return False
        # A process may be ending before its exit is seen.
        return live.transport.is_ready() and live.conversation.phase not in ("ending", "ended")

    def begin(self, request: Request, limits: SpendLimits | None = None) -> None:
        """Ask. The strategy of its schema is chosen already; `limits` are charged with what it costs. Raises RuntimeError the
        second time."""
        if self._asked.is_set():
            raise RuntimeError(f"the run of {self._plan.name} has its prompt; another one needs another run")
        if request.inquiry is not None:
            request.text = request.inquiry.worded(request.text)
        request.held = self.incarnation
        # here, in the task of the caller: its span is the parent
        if (trace := begin_trace(request.text)) is not None:
            trace.serve(self._plan.name, self._plan.dialect.name, self._plan.launch.model)
        request.trace = trace
        # Before `_asked` is set: the task that wakes reads all of it.
        self._request, self._limits, self._asked_at = request, limits, self._log.end
        self._starting.deadline = request.ends
        self._asked.set()

    async def taken(self) -> bool:
        """Whether the prompt was written, as soon as that is known. If not, repeating it elsewhere is safe."""
        await self._send_known.wait()
        return self._request.written == "yes"

    def leave(self) -> None:
        """Stop, by the stop sequence, and do not wait for it."""
        self._left.set()

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> v.AnyEvent:
        """The next event; the stream ends when the process is dead and all its output was read."""
        try:
            event = await anext(self._cursor)
        except StopAsyncIteration:
            await self._settled()
            raise
        if self._request.trace is not None:
            self._request.trace.take(event)
        return event

    async def batch(self) -> Sequence[v.AnyEvent]:
        """The events that have arrived, waiting for at least one; empty at the end. Raises as `run` does."""
        events = await self._cursor.batch()
        if not events:
            await self._settled()
        if (trace := self._request.trace) is not None:
            for event in events:
                trace.take(event)
        return events

    async def finish(self) -> Answer:
        """Read to the end and return the answer. Raises as `run` does."""
        while await self.batch():
            pass
        answer = self.answer
        if answer.outcome != "deadline" or answer.delivery is None:
            return answer
        name, seconds, acknowledged = self._plan.name, self._request.timeout or 0.0, self._ended is not None
        if answer.delivery.is_repeatable:
            raise AskNotSent(name, seconds, delivery=answer.delivery)
        raise AskInterrupted(name, seconds, acknowledged=acknowledged, delivery=answer.delivery)

    @property
    def delivery(self) -> Delivery:
        """The progress of the request by now, with what has streamed of its answer."""
        return self._delivery or self._delivered()

    def _delivered(self) -> Delivery:
        text, clipped = partial_text(self._log, self._asked_at, self._log.end)
        return self._request.delivery(text, clipped=clipped)

    async def _settled(self) -> None:
        await self.over.wait()
        self.end_trace()
        if self._failure is not None:
            raise self._failure from None

    @property
    def answer(self) -> Answer:
        """Its result. Raises RuntimeError before its end, and the error that kept it from starting."""
        if self._failure is not None:
            raise self._failure
        if not self.over.is_set():
            raise RuntimeError(
                f"the run of {self._plan.name} has not ended; read its events, or await finish()"
            )
        return self._answer()

    def kill(self) -> None:
        """Kill its process, without the stop sequence."""
        self.incarnation.kill()

    # -- the run's one task

    async def conduct(self, starts: AbstractAsyncContextManager[object]) -> None:
        """Start, wait for the prompt, send it, wait, stop; cancelled from outside it still runs the stop sequence."""
        try:
            async with trio.open_nursery() as outer:
                outer.start_soon(_sentinel, self._left)
                # Shielded: the stop sequence and the workspace need their time; a cancellation arrives by the
                # sentinel.
                with trio.CancelScope(shield=True):
                    await self._attempts(starts)
                    await self._vacate()
                outer.cancel_scope.cancel("the run is over")
        finally:
            if self._failure is not None or not self._judged().ok:
                self._delivery = self._delivered()  # its log may be gone when somebody asks
            if self._failure is not None:
                self._failure.delivery = self._delivery
            # Before `over`: a reader that has come to the end of the log waits for that.
            self._log.close()
            for event in (self.ready, self._send_known, self.over):
                event.set()

    async def _attempts(self, starts: AbstractAsyncContextManager[object]) -> None:
        await self._within(starts)
        while self._goes_on():
            self._new_process()
            await self._within(nullcontext())

    def _goes_on(self) -> bool:
        over = self._late or self._left.is_set() or self._failure is not None
        return self._is_corrected and not over and self._plan.launch.mode == "oneshot"

    def _new_process(self) -> None:
        last, request = self.incarnation, self._request
        forgets = request.inquiry is not None and request.inquiry.forgets
        self._starting = trio.CancelScope(deadline=request.ends)
        self.incarnation = AgentProcess(
            self._plan,
            self._log,
            self._recordings,
            number=last.number + 1,
            resume=None if forgets else last.session_id,
            total_cost_usd=last.conversation.memo.total_cost_usd,
            attachments=request.attachments,
            on_event=self._on_event,
        )
        request.held = self.incarnation

    async def _vacate(self) -> None:
        notice = None if self._workspace is None else await self._workspace.close()
        self._log.append([notice] if notice is not None else [])

    async def _within(self, starts: AbstractAsyncContextManager[object]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                await self._start(nursery, starts)
                if self.ready.is_set():
                    await self._turn()
                nursery.cancel_scope.cancel("the run is over")
        except* (AgentError, ProcessError) as group:
            # `except*`: the process runs in a nursery, whose errors come as a group.
            self._failure = cast("AgentError | ProcessError", first_cause(group))

    async def _start(self, nursery: trio.Nursery, starts: AbstractAsyncContextManager[object]) -> None:
        async with trio.open_nursery() as beside:
            # A caller that leaves during the start must not wait for the greeting.
            beside.start_soon(_cancel_when, self._left, self._starting)
            with self._starting:
                async with starts:
                    await nursery.start(self.incarnation.serve)
                self.ready.set()
            beside.cancel_scope.cancel("it has started")
        self._late = not self.ready.is_set() and not self._left.is_set()

    async def _turn(self) -> None:
        live = self.incarnation
        # A cancellation comes as `_left`, and the stop sequence runs in any case.
        with trio.CancelScope(shield=True):
            await wait_any(self._asked.wait, self._left.wait, live.over.wait)
            with trio.move_on_at(self._request.ends) as clock:
                await wait_any(self._ask, self._left.wait, live.over.wait)
            # An end that came in the tick of the deadline counts.
            self._late = clock.cancelled_caught and self._ended is None
            await live.stop("deadline" if self._late else "owner")

    async def _ask(self) -> None:
        if not self._asked.is_set():
            return
        await self._send_prompt()
        while self._plan.launch.mode == "session" and self._is_corrected:
            await self._send_prompt()
        if self._plan.launch.mode == "oneshot":
            await self.incarnation.over.wait()

    async def _send_prompt(self) -> None:
        self._ended, self._turn_over, self._is_corrected = None, trio.Event(), False
        prompt = self._request.next_prompt("fail")
        if self._request.written == "no":
            self._request.written = (
                "unknown"  # until the write has ended: a correction was preceded by a whole one
            )
        try:
            await self.incarnation.send(prompt)
        except UnsupportedAttachment as error:
            raise unsupported(error) from error
        except NotExecuted as error:
            # The process is ending: its exit says what became of it.
            self.incarnation.note("not_sent", str(error))
            self._send_known.set()
            await self.incarnation.over.wait()
        else:
            self._request.written = "yes"
            self._send_known.set()
        await self._turn_over.wait()

    def _on_event(self, event: v.AnyEvent) -> None:
        if isinstance(event, v.TurnEnded | v.Exited | v.Notice):
            self._charge(event)
        if isinstance(event, v.TurnEnded) and self._request.prompt in event.prompts:
            self._ended = event
            self._judge(event)
        # Work in the background belongs to the run: its process lives until that is done.
        if self._ended is not None and not self.incarnation.liveness.background:
            self._turn_over.set()

    def _charge(self, event: v.TurnEnded | v.Exited | v.Notice) -> None:
        self._expense.take(event)
        for alarm, text in () if self._limits is None else self._limits.take(event):
            facts = {"event": alarm, "agent": self._plan.name}
            logging.getLogger(LOG).warning("%s: %s", alarm, text, extra=facts)

    def _judge(self, end: v.TurnEnded) -> None:
        inquiry = self._request.inquiry
        if inquiry is None or self.incarnation.ended_by_stop(end) or (text := inquiry.judge(end)) is None:
            return
        if self._limits is not None and self._limits.spent("park", "escalate") is not None:
            return  # no money for another attempt: this answer is the last
        self._is_corrected = True
        self._request.correct(text)
        self.incarnation.note("unmet", text, attempt=inquiry.attempts)

    def end_trace(self) -> None:
        """End its trace, if it has one: its reader has come to the end, or has left."""
        trace = self._request.trace
        if trace is not None and self._failure is not None:
            trace.fail(type(self._failure).__name__, str(self._failure))
        elif trace is not None:
            trace.end(self._judged())

    def _judged(self) -> Answer:
        answer, inquiry = final_answer(self.incarnation, self._ended, late=self._late), self._request.inquiry
        whole = answer if inquiry is None else inquiry.settled(answer)
        return self._expense.applied_to(whole)

    def _answer(self) -> Answer:
        answer = self._judged()
        return answer if answer.ok else attrs.evolve(answer, delivery=self.delivery)


async def _sentinel(left: trio.Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        # The cancellation ends here; the run goes on to its own end.
        left.set()


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel("the other side ended")
