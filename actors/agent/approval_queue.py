"""The queue of one agent's open approvals, for the policy `"ask"`.

Each question has one answer, the first; a later one gets the way in which it was settled. A question is settled on every path: by an
answer, by its deadline (denied), by the CLI that withdraws it, or by the end of its process. Followers see each question
that is open when they reach it. The reply is sent by the process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import time
from typing import Any, Literal

import attrs
import trio

from proctor.actors.errors import BadOption
from proctor.actors.plan.permissions import Verdict
from proctor.actors.tools.diffs import changes, changes_shown, writes_files
from proctor.actors.tools.menus import MenuQuestion, questions_of
from proctor.protocols.vocabulary import ApprovalRequested

Choice = Literal["allow", "deny", "always"]


DIFF_LINES = 200
"""Lines of a diff that are kept."""
_DIFF_TIME = 1.0
"""Seconds to read the files of a diff: a question must not wait longer for a slow disk."""


@attrs.define(eq=False)
class Approval:
    """A tool that wants to run, until somebody decides. `deadline` is on Trio's clock (seconds): then it is denied. `asked`: when it asked (Unix seconds).

    `diff` is the unified diff of what it would change in files, None for a tool that is not known to change any; `questions` are what it asks the
    person, if that is what the tool does. `settled` is None as long as it is open, then a word for a person: `allowed`, `denied`, or why there was no
    decision.
    """

    agent: str
    id: str
    tool: str
    input: dict[str, Any]
    description: str | None
    tool_call: str | None
    deadline: float
    asked: float
    questions: tuple[MenuQuestion, ...] = ()
    diff: str | None = None
    settled: str | None = None
    verdict: Verdict | None = attrs.field(default=None, repr=False)
    _has_options: bool = attrs.field(default=False, repr=False, alias="has_options")
    _over: trio.Event = attrs.field(factory=trio.Event, repr=False)
    _clock: trio.CancelScope = attrs.field(factory=trio.CancelScope, repr=False)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What can be decided; a question to the person is answered anew each time."""
        return ("allow", "deny") if self.questions else ("allow", "deny", "always")

    def allow(self, input: dict[str, Any] | None = None, *, always: bool = False) -> bool:  # noqa: A002  # the word of `Decision`
        """Let the tool run, with another `input` if one is given. False when the question was settled before.

        With `always` it is not asked again in this session: by the rule that the command line suggests, or, where it has none, about this tool.
        Raises `BadOption` for a question to the person, which is answered anew each time.
        """
        if always and self.questions:
            raise BadOption(f"the question {self.id!r} cannot be answered for always: answer it each time")
        return self._decide(Verdict(True, input=input, always=always), "allowed")

    def deny(self, message: str = "") -> bool:
        """Keep the tool from running; the model gets `message`. False when the question was settled before."""
        return self._decide(Verdict(False, message), "denied")

    def answer(self, *answers: str) -> bool:
        """Answer its `questions`, each with one of its options or a text of your own; several answers to a single question are joined.

        False when it was settled before. Raises `BadOption` when there is not an answer for each.
        """
        asked = self.questions
        if len(asked) == 1 and asked[0].several and answers:
            answers = (", ".join(answers),)
        if not answers or len(answers) != len(asked):
            count = f"{len(answers)} answers for {len(asked)} questions"
            raise BadOption(f"{self.tool} {self.id!r}: {count}; give one for each, in order")
        if self._has_options:
            return self._decide(Verdict(True, option=answers[0]), "allowed")
        by_text = {one.question: answer for one, answer in zip(asked, answers, strict=True)}
        return self._decide(Verdict(True, input={**self.input, "answers": by_text}), "allowed")

    def extend(self, seconds: float) -> bool:
        """Give it `seconds` from now in place of its deadline. False when it was settled before."""
        if self.settled is None:
            self.deadline = self._clock.deadline = trio.current_time() + seconds
        return self.settled is None

    async def wait(self) -> str:
        """Wait until it is settled; returns `settled`."""
        await self._over.wait()
        return self.settled or ""

    async def wait_in_time(self) -> None:
        """Wait until it is settled or its deadline has passed, which may be put off meanwhile."""
        self._clock.deadline = self.deadline
        with self._clock:
            await self._over.wait()

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
    """The questions of one agent, over its restarts. `timeout`: seconds that each is given; `folder` is where the agent works, `wall` gives Unix seconds."""

    def __init__(self, agent: str, timeout: float, wall: Callable[[], float] = time) -> None:
        self.closed = False
        self.asked = 0
        """How many questions there were."""
        self.folder = Path()
        self._agent = agent
        self._timeout = timeout
        self._wall = wall
        self._always = set[str]()
        self._open: dict[int, Approval] = {}
        self._waiters = trio.lowlevel.ParkingLot()

    async def ask(self, question: ApprovalRequested) -> Verdict:
        """Lay a question out and wait for its answer. A caller that gives up waiting takes it back."""
        if question.tool in self._always:
            return Verdict(True)
        approval = self._add(question, await self._diff_of(question))
        number, began = self.asked, trio.current_time()
        try:
            await approval.wait_in_time()
        finally:
            # On every path, a cancelled one too: followers must not be shown a question without an asker.
            seconds = approval.deadline - began
            late = trio.current_time() >= approval.deadline
            approval.settle(f"no answer within {seconds:g} s" if late else "its process is gone")
            del self._open[number]
        verdict = approval.verdict or Verdict(False, f"{approval.settled}")
        if verdict.always and not question.lasting:
            self._always.add(question.tool)
        return verdict

    async def _diff_of(self, question: ApprovalRequested) -> str | None:
        lines = changes_shown(question.changes)
        if lines is None and writes_files(question.tool, question.input):
            show = partial(changes, question.tool, question.input, self.folder)
            with trio.move_on_after(_DIFF_TIME):  # in a thread: a file may be on a disk that hangs
                lines = await trio.to_thread.run_sync(show, abandon_on_cancel=True)
        if lines is None:
            return None
        more = len(lines) - DIFF_LINES
        return "\n".join((*lines[:DIFF_LINES], *([f"… and {more} more lines"] if more > 0 else [])))

    def _add(self, question: ApprovalRequested, diff: str | None) -> Approval:
        self.asked += 1
        offered = [
            MenuQuestion(
                question.description or question.tool, options=tuple((name, "") for name in question.options)
            )
        ]
        self._open[self.asked] = approval = Approval(
            self._agent,
            question.id,
            question.tool,
            question.input,
            question.description,
            question.tool_call,
            trio.current_time() + self._timeout,
            self._wall(),
            tuple(offered if question.options else questions_of(question)),
            diff,
            has_options=bool(question.options),
        )
        self._waiters.unpark_all()
        return approval

    def forget(self) -> None:
        """The agent has a new session: what was allowed for always was so for the last one."""
        self._always.clear()

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
