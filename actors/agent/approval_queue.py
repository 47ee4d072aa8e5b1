"""The queue of one agent's open approvals, for the policy `"ask"`.

Each question has one answer, the first; a later one gets the way in which it was settled. A question is settled on every path: by an
answer, by its deadline (denied), by the CLI that withdraws it, or by the end of its process. Followers see each question
that is open when they reach it. The deadline is enforced in `permissions`; the reply is sent by the process.
"""

from __future__ import annotations

from typing import Any

import attrs
import trio

from proctor.actors.plan.permissions import Verdict
from proctor.protocols.vocabulary import ApprovalRequested


@attrs.define(eq=False)
class Approval:
    """A tool that wants to run, until somebody decides. `deadline` is on Trio's clock (seconds): then it is denied.

    `settled` is None as long as it is open, then a word for a person: `allowed`, `denied`, or why there was no decision.
    """

    agent: str
    id: str
    tool: str
    input: dict[str, Any]
    description: str | None
    tool_call: str | None
    deadline: float
    settled: str | None = None
    verdict: Verdict | None = attrs.field(default=None, repr=False)
    _over: trio.Event = attrs.field(factory=trio.Event, repr=False)

    def allow(self, input: dict[str, Any] | None = None) -> bool:  # noqa: A002  # the word of `Decision`
        """Let the tool run, with another `input` if one is given. False when the question was settled before."""
        return self._decide(Verdict(True, input=input), "allowed")

    def deny(self, message: str = "") -> bool:
        """Keep the tool from running; the model gets `message`. False when the question was settled before."""
        return self._decide(Verdict(False, message), "denied")

    async def wait(self) -> str:
        """Wait until it is settled; returns `settled`."""
        await self._over.wait()
        return self.settled or ""

    def settle(self, verdict_text: str) -> None:
        """It needs no answer any more. Nothing happens the second time."""
        self.settled = self.settled or verdict_text
        self._over.set()

    def _decide(self, verdict: Verdict, verdict_text: str) -> bool:
        if self.settled is not None:
            return False
        self.verdict = verdict
        self.settle(verdict_text)
        return True


class ApprovalQueue:
    """The questions of one agent, over its restarts. `timeout`: seconds that each is given."""

    def __init__(self, agent: str, timeout: float) -> None:
        self.closed = False
        self.asked = 0
        """How many questions there were."""
        self._agent = agent
        self._timeout = timeout
        self._open: dict[int, Approval] = {}
        self._waiters = trio.lowlevel.ParkingLot()

    async def ask(self, question: ApprovalRequested) -> Verdict:
        """Lay a question out and wait for its answer. A caller that gives up waiting takes it back."""
        approval = self._add(question)
        number = self.asked
        try:
            await approval.wait()
            return approval.verdict or Verdict(False, f"{approval.settled}")
        finally:
            # On every path, a cancelled one too: followers must not be shown a question without an asker.
            late = trio.current_time() >= approval.deadline
            approval.settle(f"no answer within {self._timeout:g} s" if late else "its process is gone")
            del self._open[number]

    def _add(self, question: ApprovalRequested) -> Approval:
        self.asked += 1
        self._open[self.asked] = approval = Approval(
            self._agent,
            question.id,
            question.tool,
            question.input,
            question.description,
            question.tool_call,
            trio.current_time() + self._timeout,
        )
        self._waiters.unpark_all()
        return approval

    def withdraw(self, id: str) -> None:
        """The CLI needs no answer to this any more."""
        for approval in self._open.values():
            if approval.id == id:
                approval.settle("the CLI withdrew the question")

    def close(self) -> None:
        """No question comes until it is opened again: followers end."""
        self.closed = True
        self._waiters.unpark_all()

    def reopen(self) -> None:
        """The agent has a new incarnation after all."""
        self.closed = False

    def after(self, number: int) -> tuple[int, Approval] | None:
        """The first open question behind that number, with its own."""
        later = ((n, one) for n, one in self._open.items() if n > number and one.settled is None)
        return next(later, None)

    def __len__(self) -> int:
        """The number of questions without an answer."""
        return sum(one.settled is None for one in self._open.values())

    def open(self) -> tuple[Approval, ...]:
        """The questions without an answer, oldest first."""
        return tuple(one for one in self._open.values() if one.settled is None)

    async def changed(self) -> None:
        """Wait for the next question, or the end."""
        await self._waiters.park()


class Approvals:
    """The open questions of an agent, and those to come, in order; ends when the agent is at rest. For one task."""

    def __init__(self, queue: ApprovalQueue) -> None:
        self._queue = queue
        self._number = 0

    def open(self) -> tuple[Approval, ...]:
        """Those without an answer, oldest first, handed out before or not. Does not wait."""
        return self._queue.open()

    def __aiter__(self) -> Approvals:
        return self

    async def __anext__(self) -> Approval:
        # Questions at hand must not keep other tasks from running.
        await trio.lowlevel.checkpoint()
        while (following := self._queue.after(self._number)) is None:
            if self._queue.closed:
                raise StopAsyncIteration
            # No checkpoint between the look and this wait, so no question is missed.
            await self._queue.changed()
        self._number, approval = following
        return approval
