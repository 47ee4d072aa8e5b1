"""The handles that a caller holds: an agent by name, and one turn of it.

Both follow the agent through its restarts. A `Turn` reads the agent's log from the position where its request was
accepted, so it misses no event and never slows the agent; leaving it early cancels the request or interrupts the turn.
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from operator import length_hint
from typing import TypeVar, cast, overload

import attrs
import trio

from proctor.actors.agent.agent_state import PendingRequest
from proctor.actors.agent.approval_queue import ApprovalQueue, Approvals
from proctor.actors.agent.messages import (
    Accepted,
    Control,
    ControlResult,
    GetApprovals,
    GetLog,
    GetStatus,
    Submit,
)
from proctor.actors.agent.receipts import Receipt, ReceiptTracker
from proctor.actors.agent.states import Status
from proctor.actors.delivery import Delivery
from proctor.actors.errors import RECORDED, AskInterrupted, AskNotSent, MaybeExecuted, NotExecuted
from proctor.actors.expense import Expense
from proctor.actors.outcomes import Answer, Outcome, answer_of, end_of
from proctor.actors.plan.option_checks import check_request
from proctor.actors.process.ends import first_cause
from proctor.actors.process.memory import Memory, memory_of
from proctor.actors.recording.eventlog import Cursor, EventLog
from proctor.actors.recording.partial_text import partial_text
from proctor.actors.recording.raw_frame import read_raw_frame
from proctor.actors.structured.payloads import Payload, attachments_of
from proctor.actors.structured.structured import StructuredRequest, structured_request_of
from proctor.protocols import vocabulary as v
from proctor.runtime.errors import ActorExited
from proctor.runtime.exits import Crash, ExitReason, NoProc
from proctor.runtime.messaging import Name, Ref, until

T = TypeVar("T")

ACKNOWLEDGED = 2.0
"""Seconds after a deadline in which the CLI may still say that it has ended the turn."""
_MAX_PARTIAL = 1000
_CONTROL_TIMEOUT = 10.0
_SIGNALS = frozenset((v.Notice, v.LimitReached, v.TurnEnded, v.Exited))


class Agent:
    """One agent of a tree, by name; `address` is a `Name` (follows restarts) or a `Ref`."""

    def __init__(self, name: str, address: Name | Ref) -> None:
        self.name = name
        self._address = address

    @overload
    async def ask(
        self,
        prompt: str,
        *,
        timeout: float | None = None,
        schema: type[T],
        payloads: Sequence[Payload] = (),
    ) -> Answer[T]: ...

    @overload
    async def ask(
        self,
        prompt: str,
        *,
        timeout: float | None = None,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Answer: ...

    async def ask(
        self,
        prompt: str,
        *,
        timeout: float | None = None,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Answer:
        """Send `prompt` and wait for the end of its turn; `timeout` in seconds, None waits without limit.

        `schema` is what the answer is to be (a msgspec Struct, an attrs class, a TypedDict, a JSON schema as a mapping, or
        an `Expected` of one with bounds): `Answer.value` is then that, or the outcome is not ok. An answer that does not
        fit is asked for again; `BadOption` is raised for a schema that is none.

        An `Answer` comes for every turn that ended, whatever its outcome. Raises `AskNotSent` and `AskInterrupted` (both are
        an `AskTimeout`; after the deadline the CLI has `ACKNOWLEDGED` seconds to say that it has ended the turn), `MaybeExecuted`, `NotExecuted`, and `NoProc` when no such agent runs; a
        restart is waited out. The `delivery` of an error says how far the request came, with what had streamed.
        `payloads` go with the prompt, in their order; `UnsupportedPayload` is raised for one that this CLI cannot take.
        """
        check_request(prompt, timeout=timeout, payloads=payloads)
        inquiry = None if schema is None else structured_request_of(schema)
        async with self._stream(prompt, timeout, inquiry, payloads) as turn:
            return await turn.finish()

    def stream(
        self,
        prompt: str,
        *,
        timeout: float | None = None,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> AbstractAsyncContextManager[Turn]:
        """A `Turn`: `async for event in turn`, then `turn.answer`. Leaving early withdraws the request.

        `timeout`, `schema` and `payloads` as for `ask`, whose errors entering and iterating raise; the events are those of
        all attempts.
        """
        check_request(prompt, timeout=timeout, payloads=payloads)
        return self._stream(
            prompt, timeout, None if schema is None else structured_request_of(schema), payloads
        )

    @asynccontextmanager
    async def _stream(
        self,
        prompt: str,
        timeout: float | None,
        inquiry: StructuredRequest | None,
        payloads: Sequence[Payload],
    ) -> AsyncGenerator[Turn]:
        ends, turn = until(timeout), None
        attachments = attachments_of(payloads) if payloads else ()
        pending = PendingRequest(str(uuid.uuid4()), prompt, attachments, inquiry=inquiry)
        with trio.move_on_at(ends):
            turn = await self._submit(pending)
        if turn is None:
            raise AskNotSent(self.name, timeout or 0.0, delivery=pending.delivery())
        if timeout is not None:
            turn.set_deadline(timeout, ends)
        try:
            yield turn
        finally:
            turn.leave()

    async def _submit(self, pending: PendingRequest) -> Turn:
        try:
            accepted = await self._request(Submit(pending))
        except BaseException as error:
            pending.withdrawn = True  # it may still lie in the mailbox
            if isinstance(error, RECORDED):
                error.delivery = pending.delivery()
            raise
        assert isinstance(accepted, Accepted)
        return Turn(self.name, pending, accepted)

    async def _request(self, message: object) -> object:
        """The reply, from this incarnation or from the next: a message is taken and replied to in one step."""
        while True:
            try:
                return await self._address.call(message, timeout=None)
            except (NoProc, ActorExited):
                await self._wait_for_restart()

    async def _wait_for_restart(self) -> None:
        if isinstance(self._address, Ref):
            raise NoProc(self._address)
        await self._address.wait_out()

    async def steer(self, text: str, *, timeout: float | None = None) -> Receipt:
        """Say `text` into the running turn, and wait for its fate, at most `timeout` seconds.

        Delivered: that turn has taken it in. Queued: the CLI keeps it, for its next turn, or still after `timeout`.
        Refused: this CLI cannot be steered, no turn runs, or it said no. Expired: the turn ended before it was taken
        in. Raises `NoProc` when no such agent runs.
        """
        check_request(text, timeout=timeout)
        return await self._control(v.Steer(str(uuid.uuid4()), text), timeout)

    async def queue(self, text: str) -> Receipt:
        """Have `text` asked in a turn of its own, behind what waits already, whoever leaves meanwhile.

        The receipt says queued, or refused when too much waits; `await receipt.answer()` waits for the end of its
        turn. It survives restarts as `ask` does. Raises `NoProc` when no such agent runs.
        """
        check_request(text)
        pending = PendingRequest(str(uuid.uuid4()), text)
        try:
            accepted = await self._request(Submit(pending))
        except NotExecuted as error:
            return Receipt(request=pending.ticket, fate="refused", why=str(error))
        except BaseException:
            pending.withdrawn = True
            raise
        assert isinstance(accepted, Accepted)
        finish = partial(_finished, self.name, pending, accepted)
        return Receipt(request=pending.ticket, fate="queued", finish=finish)

    async def interrupt(self, *, timeout: float | None = _CONTROL_TIMEOUT) -> Receipt:
        """End the running turn; the session lives on. Waits for the CLI's word, at most `timeout` seconds (10).

        True when it was delivered; refused when no turn ran, expired when the turn or its process ended first.
        """
        return await self._control(v.Interrupt(str(uuid.uuid4())), timeout)

    async def set_model(self, model: str, *, timeout: float | None = _CONTROL_TIMEOUT) -> Receipt:
        """From the next turn on, for this process: a new one starts with its plan's model. As for `interrupt`."""
        return await self._control(v.SetModel(str(uuid.uuid4()), model), timeout)

    async def set_permission_mode(self, mode: str, *, timeout: float | None = _CONTROL_TIMEOUT) -> Receipt:
        """Go on under another permission mode, named as the CLI names it, for this process. As for `interrupt`."""
        return await self._control(v.SetPermissionMode(str(uuid.uuid4()), mode), timeout)

    async def stop_task(self, task: str, *, timeout: float | None = _CONTROL_TIMEOUT) -> Receipt:
        """End one piece of background work, by the CLI's id of it (a `Notice` has told it). As for `interrupt`."""
        return await self._control(v.StopTask(str(uuid.uuid4()), task), timeout)

    async def _control(self, request: v.AnyRequest, timeout: float | None) -> Receipt:
        limit = math.inf if timeout is None else timeout
        watch: ReceiptTracker | None = None
        with trio.move_on_after(limit):
            try:
                result = await self._address.call(Control(request), timeout=None)
            except (NoProc, ActorExited) as error:
                return self._not_running(request, error)
            assert isinstance(result, ControlResult)
            if result.refused is not None:
                return Receipt(request=request.id, fate="refused", why=result.refused)
            watch = ReceiptTracker(request, result.turn, keeps=result.keeps)
            return await _fate(watch, result)
        if watch is not None:
            return watch.timed_out(limit)
        return Receipt(request=request.id, fate="expired", why=f"it was not written within {limit:g} s")

    def _not_running(self, request: v.AnyRequest, error: NoProc | ActorExited) -> Receipt:
        if isinstance(error, ActorExited):
            return Receipt(request=request.id, fate="expired", why=f"the agent ended first: {error}")
        if isinstance(self._address, Ref) or not self._address.is_due():
            raise error
        return Receipt(
            request=request.id, fate="refused", why="no process is running: the agent is restarting"
        )

    @asynccontextmanager
    async def approvals(self) -> AsyncGenerator[Approvals]:
        """The tools that wait for a decision, and those that will: `async for approval in approvals`.

        For an agent whose permission is `"ask"`. Each has `allow()` and `deny()`; of several followers the first
        answer counts. Followed through restarts; ends when the agent is at rest. Raises `NoProc`, and `BadOption` for
        an agent whose questions its policy answers.
        """
        queue = await self._request(GetApprovals())
        assert isinstance(queue, ApprovalQueue)
        yield Approvals(queue)

    async def raw(self, event: v.AnyEvent) -> bytes:
        """The line that an event of this agent came from, without its end, as the CLI wrote it.

        Raises LookupError for an event that no line caused, or that belongs to no turn, or whose recording is gone.
        """
        log = await self._request(GetLog())
        assert isinstance(log, EventLog)
        return await trio.to_thread.run_sync(read_raw_frame, log.path, event)

    async def status(self) -> Status:
        """What it is doing; between two incarnations the state is `backoff`. Raises `NoProc` when none is owed."""
        try:
            status = await self._address.call(GetStatus())
        except (NoProc, ActorExited):
            if isinstance(self._address, Ref) or not self._address.is_due():
                raise
            state = self._address.kept().get("state")
            return Status(name=self.name, state="backoff") if state is None else state.backoff_status()
        assert isinstance(status, Status)
        return status

    async def memory(self) -> Memory | None:
        """What its processes hold of the machine's memory now; None when none runs, and where nobody tells (not Linux).

        Raises `NoProc` as `status` does.
        """
        return memory_of((await self.status()).pid)

    @asynccontextmanager
    async def events(self, since: int | None = None) -> AsyncGenerator[Cursor]:
        """Follow the agent's log, through its restarts, from position `since` (default: from now on).

        Raises `NoProc` when no such agent runs; a restart is waited out.
        """
        log = await self._request(GetLog())
        assert isinstance(log, EventLog)
        yield log.cursor(since)


class Turn:
    """One request's events, in order, up to the end of its turn. `answer` is there after the end."""

    def __init__(self, agent: str, pending: PendingRequest, accepted: Accepted) -> None:
        self.agent = agent
        self.over = False
        self.withdraw = accepted.withdraw
        self._reason = accepted.reason
        self._pending = pending
        self._ticket = pending.ticket
        self._inquiry = pending.inquiry
        self._since: int | None = None
        self._has_left = False
        self._seconds, self._ends = 0.0, math.inf
        self._repeats = accepted.repeats
        self._cursor = accepted.log.cursor(accepted.position)
        self._unread: Iterator[v.AnyEvent] = iter(())
        self._prompt: str | None = None
        self._is_continued = self._parked = False
        self._answer: Answer | None = None
        self._partial: deque[v.AnyEvent] = deque(maxlen=_MAX_PARTIAL)
        self._resets_at: float | None = None
        self._expense = Expense()
        self._evidence = ""

    @property
    def answer(self) -> Answer:
        """How the turn ended. Raises RuntimeError before its end."""
        if self._answer is None:
            raise RuntimeError(f"the turn of {self.agent} has not ended; read its events, or await finish()")
        return self._answer

    @property
    def log(self) -> EventLog:
        """The agent's log, where its events are."""
        return self._cursor.log

    @property
    def position(self) -> int:
        """The place in the log behind the event that was given last, or where the reading begins."""
        return self._cursor.position - length_hint(self._unread)

    @property
    def delivery(self) -> Delivery:
        """How far the request has come by now, with the text that was read of it."""
        text, clipped = (
            ("", False) if self._since is None else partial_text(self.log, self._since, self.position)
        )
        return self._pending.delivery(text, clipped=clipped)

    def leave(self) -> None:
        """Its caller waits no more: what has not ended is withdrawn, or interrupted."""
        if not self.over and not self._has_left:
            self._has_left = True
            self.withdraw()

    def set_deadline(self, seconds: float, ends: float) -> None:
        """Have it end at this instant (on Trio's clock), which is `seconds` after it was asked."""
        self._seconds, self._ends = seconds, ends

    async def _expire(self) -> None:
        """Withdraw the request or interrupt the turn, and wait a little for the CLI's word of that.

        Raises `AskNotSent` where nothing was written, else `AskInterrupted`; an answer that was handed in by then counts.
        """
        self._ends, stood = math.inf, self.delivery
        self.leave()
        acknowledged = stood.stage == "parked" or stood.exit is not None  # then there is nothing to interrupt
        if not acknowledged and stood.sent != "no":
            with trio.move_on_after(ACKNOWLEDGED), suppress(MaybeExecuted, NotExecuted):
                await self.finish()
                acknowledged = True
        if self._inquiry is not None and self._inquiry.met:
            return self._settle(self._inquiry.settled(Answer(agent=self.agent, outcome="deadline")))
        self.over = True
        if self._pending.written == "no":
            raise AskNotSent(self.agent, self._seconds, delivery=stood)
        found = attrs.evolve(self.delivery, stage=stood.stage, elapsed=stood.elapsed)
        raise AskInterrupted(self.agent, self._seconds, acknowledged=acknowledged, delivery=found)

    async def _batch(self) -> Sequence[v.AnyEvent] | None:
        """More events, none at the end of the log; None when the deadline has ended the turn with an answer."""
        if self._ends == math.inf:
            return await self._cursor.batch()
        with trio.move_on_at(self._ends):
            return await self._cursor.batch()
        await self._expire()
        return None

    async def finish(self) -> Answer:
        """Read to the end and return the answer. Raises what iterating raises."""
        async for _ in self:
            pass
        return self.answer

    def __aiter__(self) -> Turn:
        return self

    async def __anext__(self) -> v.AnyEvent:
        """The next event of this turn, or a notice around it. Raises `MaybeExecuted` or `NotExecuted` when the agent
        is gone and the request with it, `AskNotSent` or `AskInterrupted` when its time is up."""
        while not self.over:
            for event in self._unread:
                ours = event.__class__ in _SIGNALS and self._on_event(event)
                if ours or self._prompt is not None:
                    self._partial.append(event)
                    return event
            if batch := await self._batch():
                self._unread = iter(batch)
            elif batch is not None:
                self._fail(*_stop_cause(self._reason()))
        raise StopAsyncIteration

    def _on_event(self, event: v.AnyEvent) -> bool:
        """Whether it is about this request although no prompt was sent for it yet."""
        match event:
            case v.Notice(code="sent", data={"ticket": self._ticket, "prompt": prompt}):
                self._prompt, self._parked, self._is_continued = prompt, False, False
                self._since = self.position if self._since is None else self._since
            case v.Notice(code="parked" | "unsettled" | "unmet" as code, data={"ticket": self._ticket}):
                self._is_continued, self._parked = True, code != "unsettled"
                return True
            case v.Notice(code="events_dropped"):
                self._prompt = self._prompt or self._ticket  # its being sent may be among what was dropped
                self._fail(f"its end may be lost: {event.text}", "no_answer")
            case v.LimitReached():
                self._resets_at = event.resets_at
            case v.TurnEnded() if {self._prompt, self._ticket} & {*event.prompts}:
                self._on_turn_ended(event)
                return True
            case v.Notice(code="stalled" | "too_many_garbled"):
                self._evidence = event.text
            case v.Exited() if self._prompt is not None and (self._is_met or not self._waits):
                self._expense.take(event)
                self._fail(self._evidence or end_of(event), event.outcome)
            case v.Exited():
                if self._prompt is not None and not self._parked:
                    self._expense.take(event)
                self._evidence = ""  # of a process before the one that takes the request
            case _:
                pass
        return False

    def _on_turn_ended(self, event: v.TurnEnded) -> None:
        self._expense.take(event)
        if self._is_continued:
            self._is_continued = False
            return
        answer = answer_of(self.agent, event, self._resets_at)
        if not answer.ok:
            answer = attrs.evolve(answer, delivery=self.delivery)
        self._settle(answer if self._inquiry is None else self._inquiry.settled(answer))

    def _settle(self, answer: Answer) -> None:
        self.over, self._answer = True, self._expense.applied_to(answer)

    @property
    def _is_met(self) -> bool:
        return self._inquiry is not None and self._inquiry.met

    @property
    def _waits(self) -> bool:
        """Will the request be sent again, or for the first time, after the end of a process?"""
        return self._repeats or self._parked

    def _fail(self, why: str, outcome: str) -> None:
        """The agent is gone: the end of the request, which is answered if a valid answer was handed in before."""
        self.over = True
        if self._inquiry is not None and self._inquiry.met:
            lost = Answer(
                agent=self.agent, outcome=cast("Outcome", outcome), error=why, delivery=self.delivery
            )
            return self._settle(self._inquiry.settled(lost))
        if self._prompt is None:
            raise NotExecuted(self.agent, why, delivery=self.delivery)
        raise MaybeExecuted(self.agent, outcome, why, self._partial, delivery=self.delivery)


async def _finished(agent: str, pending: PendingRequest, accepted: Accepted) -> Answer:
    return await Turn(agent, pending, accepted).finish()


def _stop_cause(reason: ExitReason | None) -> tuple[str, str]:
    """Why a request came to nothing whose agent has stopped without a word in its log, and the label of that."""
    if not isinstance(reason, Crash):
        return "the agent has stopped", "stopped"
    return f"the agent has stopped: {first_cause(reason.error)}", "crashed"


async def _fate(watch: ReceiptTracker, result: ControlResult) -> Receipt:
    async for event in result.log.cursor(result.position):
        if (receipt := watch.read(event)) is not None:
            return receipt
    return watch.log_ended()
