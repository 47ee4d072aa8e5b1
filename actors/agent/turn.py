"""One turn of an agent, as its caller reads it.

It follows the agent through its restarts; leaving it early cancels the request or interrupts the turn.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import length_hint
from typing import cast

import attrs
import trio

from proctor.actors.agent.request import Request
from proctor.actors.delivery import Delivery
from proctor.actors.errors import AskInterrupted, AskNotSent, MaybeExecuted, NotExecuted
from proctor.actors.expense import Expense
from proctor.actors.outcomes import Answer, Outcome, answer_of, end_of
from proctor.actors.process.ends import first_cause
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.recording.partial_text import partial_text
from proctor.protocols import vocabulary as v
from proctor.runtime.exits import Crash, ExitReason, Killed, is_clean

ACKNOWLEDGED = 2.0
"""Seconds after a deadline in which the CLI may still report that it has ended the turn."""
_MAX_PARTIAL = 1000
_SIGNALS = frozenset((v.Notice, v.LimitReached, v.TurnEnded, v.Exited))


class Turn:
    """One request's events, in order, up to the end of its turn. `answer` is there after the end.

    Made by the agent that accepts the request: it reads the agent's `log` from `position` on, so it misses no event and never
    slows the agent. `repeats`: a crash does not end the request. `withdraw` cancels it, and never waits; `reason` is why the
    last incarnation ended, for a request whose log has ended without an answer.
    """

    def __init__(
        self,
        agent: str,
        pending: Request,
        log: EventLog,
        position: int,
        *,
        repeats: bool,
        withdraw: Callable[[], None],
        reason: Callable[[], ExitReason | None],
    ) -> None:
        self.agent = agent
        self.over = False
        self._withdraw = withdraw
        self._reason = reason
        self._pending = pending
        self._trace = pending.trace
        self._ticket = pending.ticket
        self._inquiry = pending.inquiry
        self._since: int | None = None
        self._has_left = False
        self._ends = pending.ends
        self._repeats = repeats
        self._position = position
        self._cursor = log.cursor(position)
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
        """The turn's result. Raises RuntimeError before its end."""
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
        """The progress of the request by now, with the text that was read of its answer."""
        text, clipped = (
            ("", False) if self._since is None else partial_text(self.log, self._since, self.position)
        )
        return self._pending.delivery(text, clipped=clipped)

    def leave(self) -> None:
        """Stop waiting: a request that has not ended is withdrawn, or its turn interrupted."""
        if not self.over and not self._has_left:
            self._has_left = True
            self._withdraw()
        if not self.over and self._trace is not None:
            self._trace.fail("left", "its caller has left")

    async def _expire(self) -> None:
        """Withdraw the request or interrupt the turn, and wait a little for the CLI's acknowledgement.

        Raises `AskNotSent` where nothing was written, else `AskInterrupted`; an answer that was handed in by then counts.
        """
        # No deadline from here, or reading on below would run into it again; and what the interrupt does says
        # nothing about the request.
        self._ends, before = math.inf, self.delivery
        self.leave()
        acknowledged = (
            before.stage == "parked" or before.exit is not None
        )  # then there is nothing to interrupt
        if not acknowledged and before.sent != "no":
            # The agent may go down on the interrupt: the deadline still is the reason.
            with trio.move_on_after(ACKNOWLEDGED), suppress(MaybeExecuted, NotExecuted):
                await self.finish()
                acknowledged = True
        if self._inquiry is not None and self._inquiry.met:
            return self._settle(self._inquiry.settled(Answer(agent=self.agent, outcome="deadline")))
        self.over = True
        if self._trace is not None:
            self._trace.fail("deadline", "its time is up")
        if self._pending.written == "no":
            raise AskNotSent(self.agent, self._pending.timeout or 0.0, delivery=before)
        found = attrs.evolve(self.delivery, stage=before.stage, elapsed=before.elapsed)
        raise AskInterrupted(
            self.agent, self._pending.timeout or 0.0, acknowledged=acknowledged, delivery=found
        )

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

    async def finish_anew(self) -> Answer:
        """Read from the beginning to the end, whatever was read before, and return the answer. Raises what iterating raises."""
        anew = Turn(
            self.agent,
            self._pending,
            self.log,
            self._position,
            repeats=self._repeats,
            withdraw=self._withdraw,
            reason=self._reason,
        )
        return await anew.finish()

    def __aiter__(self) -> Turn:
        return self

    async def __anext__(self) -> v.AnyEvent:
        """The next event of this turn, or a notice around it. Raises `MaybeExecuted` or `NotExecuted` when the agent
        is gone and the request with it, `AskNotSent` or `AskInterrupted` when its time is up."""
        while not self.over:
            for event in self._unread:
                ours = event.__class__ in _SIGNALS and self._on_event(event)
                if ours or self._prompt is not None:
                    return self._give(event)
            if batch := await self._batch():
                self._unread = iter(batch)
            elif batch is not None:
                self._fail(*_stop_cause(self._reason()))
        raise StopAsyncIteration

    def _give(self, event: v.AnyEvent) -> v.AnyEvent:
        self._partial.append(event)
        if self._trace is not None:
            self._trace.take(event)
        return event

    def _on_event(self, event: v.AnyEvent) -> bool:
        """Follow the request by an event. True for one about it although no prompt was sent for it yet."""
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
                # By the ticket, too: a request that failed before it was sent has no id of a prompt.
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
        # The end of an attempt that is repeated, or was parked: the request goes on.
        if self._is_continued:
            self._is_continued = False
            return
        answer = answer_of(self.agent, event, self._resets_at)
        if not answer.ok:
            answer = attrs.evolve(answer, delivery=self.delivery)
        self._settle(answer if self._inquiry is None else self._inquiry.settled(answer))

    def _settle(self, answer: Answer) -> None:
        self.over, self._answer = True, self._expense.applied_to(answer)
        if self._trace is not None:
            self._trace.end(self._answer)

    @property
    def _is_met(self) -> bool:
        return self._inquiry is not None and self._inquiry.met

    @property
    def _waits(self) -> bool:
        """Whether the request is sent again, or for the first time, after the end of a process."""
        return self._repeats or self._parked

    def _fail(self, why: str, outcome: str) -> None:
        """The agent is gone: the end of the request, which is answered if a valid answer was handed in before."""
        self.over = True
        if self._inquiry is not None and self._inquiry.met:
            lost = Answer(
                agent=self.agent, outcome=cast("Outcome", outcome), error=why, delivery=self.delivery
            )
            return self._settle(self._inquiry.settled(lost))
        if self._trace is not None:
            self._trace.fail(outcome, why)
        if self._prompt is None:
            raise NotExecuted(self.agent, why, delivery=self.delivery)
        raise MaybeExecuted(self.agent, outcome, why, self._partial, delivery=self.delivery)


def _stop_cause(reason: ExitReason | None) -> tuple[str, str]:
    """Why a request came to nothing whose agent has stopped without a word in its log, and the label of that."""
    if reason is None or is_clean(reason) or isinstance(reason, Killed):
        return "the agent has stopped", "stopped"
    cause = first_cause(reason.error) if isinstance(reason, Crash) else reason
    return f"the agent has stopped: {cause}", "crashed"
