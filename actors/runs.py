"""One request, no tree: for scripts and for the command line. One process, where its answer is not to have a shape.

`run` waits for the answer, `stream` hands out events meanwhile. Both leave nothing behind on any path: the process
is stopped by its dialect's ladder, also when the caller is cancelled, and killed when the ladder ends.

The deadline (300 s by default, None for none) ends the turn; what arrived until then stays in the events, and the
answer's outcome is `deadline` (R044, R045). Reading slowly costs the CLI nothing and does not count (Q13). It holds for
all attempts at an answer in a shape together; a CLI that ends after each prompt has a process for each of them.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from proctor.actors.errors import AgentError, NotExecuted
from proctor.actors.eventlog import Cursor, EventLog
from proctor.actors.host import noted
from proctor.actors.identity import session_key
from proctor.actors.incarnation import Incarnation
from proctor.actors.outcomes import Answer, Outcome, answer_of, exit_class, label
from proctor.actors.ownership import Ownership
from proctor.actors.plan import Plan
from proctor.actors.recording import RunDirectory
from proctor.actors.structured import Inquiry, inquiry_of
from proctor.actors.workspaces import Workspace, workspace_of
from proctor.protocols import vocabulary as v
from proctor.runtime.process_errors import ProcessError

DEADLINE = 300.0


async def run(plan: Plan, prompt: str, *, timeout: float | None = DEADLINE, schema: object = None) -> Answer:
    """Carry out `prompt` and return the answer, whatever its outcome. `schema` is what it is to be, as for `Agent.ask`.

    Raises what keeps a process from getting ready (`NotInstalled`, `StartRefused`, `GreetingTimeout`, `SpawnFailed`;
    `SessionOwned` when another agent runs the session that it is to resume), `RecordingFailed`, and `BadOption` for a
    schema that is none.
    """
    async with stream(plan, prompt, timeout=timeout, schema=schema) as live:
        return await live.finish()


@asynccontextmanager
async def stream(
    plan: Plan, prompt: str, *, timeout: float | None = DEADLINE, schema: object = None
) -> AsyncGenerator[Run]:
    """A `Run`: `async for event in live`, then `live.answer`. Leaving early stops the process (R142)."""
    if (inquiry := inquiry_of(schema)) is not None:
        inquiry.choose(plan, fresh=True)
        plan, prompt = inquiry.launched(plan), inquiry.worded(prompt)
    async with noted(), _begun(plan, prompt, timeout, inquiry) as live:
        yield live


@asynccontextmanager
async def _begun(
    plan: Plan, prompt: str, timeout: float | None, inquiry: Inquiry | None
) -> AsyncGenerator[Run]:
    ownership = Ownership(plan.name, partial(session_key, plan))
    if plan.launch.resume is not None and not plan.launch.fork:
        ownership.take(plan.launch.resume)
    try:
        async with _recorded(plan, prompt, timeout, inquiry) as live:
            yield live
    finally:
        ownership.release()


@asynccontextmanager
async def _recorded(
    plan: Plan, prompt: str, timeout: float | None, inquiry: Inquiry | None
) -> AsyncGenerator[Run]:
    directory = RunDirectory(plan.workplace.record, plan.name)
    workspace = workspace_of(plan.name, plan.workplace)
    log: EventLog | None = None
    raised: Exception | None = None
    try:
        log = EventLog(directory.path / "events.ndjson")
        if workspace is not None:
            cwd, told = await workspace.enter()
            log.append([told] if told is not None else [])
            plan = plan.at(cwd)
        live = Run(plan, directory, log, workspace, inquiry)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(live.conduct, prompt, math.inf if timeout is None else timeout)
            try:
                yield live
            except Exception as error:  # noqa: BLE001  # the caller's own: it leaves bare, not in a group of one
                raised = error
            nursery.cancel_scope.cancel("the caller is done")
    finally:
        if log is not None:
            log.release()
        directory.close()
        if workspace is not None:
            workspace.leave()  # where it was not closed: its end is owed
    if raised is not None:
        raise raised


class Run:
    """A one-shot run: events in order, then `answer`. `directory` holds its recording, `incarnation` is its newest process."""

    def __init__(
        self,
        plan: Plan,
        directory: RunDirectory,
        log: EventLog,
        workspace: Workspace | None = None,
        inquiry: Inquiry | None = None,
    ) -> None:
        self.directory: Path = directory.path
        self.incarnation = Incarnation(
            plan, log, directory, resume=plan.launch.resume, fork=plan.launch.fork, listen=self._hear
        )
        self._plan = plan
        self._recordings = directory
        self._log = log
        self._inquiry = inquiry
        self._again: str | None = None
        self._workspace = workspace
        self._cursor: Cursor = log.cursor(0)
        self._turn_over = trio.Event()
        self._failure: Exception | None = None
        self._ended: v.TurnEnded | None = None
        self._late = False
        self._prompt = str(uuid.uuid4())
        self._done = trio.Event()

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> v.AnyEvent:
        """The next event; the stream ends when the process is dead and all it said was read (R063)."""
        try:
            return await anext(self._cursor)
        except StopAsyncIteration:
            await self._settled()
            raise

    async def batch(self) -> Sequence[v.AnyEvent]:
        """The events that have arrived, waiting for at least one; empty at the end. Raises as `run` does."""
        events = await self._cursor.batch()
        if not events:
            await self._settled()
        return events

    async def finish(self) -> Answer:
        """Read to the end and return the answer. Raises as `run` does."""
        while await self.batch():
            pass
        return self.answer

    async def _settled(self) -> None:
        await self._done.wait()
        if self._failure is not None:
            raise self._failure from None

    @property
    def answer(self) -> Answer:
        """How it ended. Raises RuntimeError before its end, and what kept it from starting."""
        if self._failure is not None:
            raise self._failure
        if not self._done.is_set():
            raise RuntimeError(
                f"the run of {self._plan.name} has not ended; read its events, or await finish()"
            )
        return self._answer()

    def kill(self) -> None:
        """Do not wait for the ladder."""
        self.incarnation.kill()

    # -- the run's one task

    async def conduct(self, prompt: str, timeout: float) -> None:
        """Start, ask, wait, stop; cancelled from outside it still goes down the ladder."""
        try:
            async with trio.open_nursery() as outer:
                left = trio.Event()
                outer.start_soon(_sentinel, left)
                with trio.CancelScope(shield=True):
                    await self._attempt(prompt, trio.current_time() + timeout, left)
                    await self._vacate()
                outer.cancel_scope.cancel("the run is over")
        finally:
            self._log.close()
            self._done.set()

    async def _vacate(self) -> None:
        told = None if self._workspace is None else await self._workspace.close()
        self._log.append([told] if told is not None else [])

    async def _attempt(self, prompt: str, deadline: float, left: trio.Event) -> None:
        await self._within(prompt, deadline, left)
        while (again := self._again) is not None and not (self._late or self._failure or left.is_set()):
            last, self._again = self.incarnation, None
            resume = last.session_id if self._plan.launch.persist else None
            self.incarnation = Incarnation(
                self._plan,
                self._log,
                self._recordings,
                number=last.number + 1,
                resume=resume,
                total_cost_usd=last.conversation.memo.total_cost_usd,
                listen=self._hear,
            )
            await self._within(again, deadline, left)

    async def _within(self, prompt: str, deadline: float, left: trio.Event) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when, left, nursery.cancel_scope)
                with trio.move_on_at(deadline) as starting:
                    await nursery.start(self.incarnation.serve)
                self._late = starting.cancelled_caught
                if not self._late:
                    await self._turn(prompt, deadline, left)
                nursery.cancel_scope.cancel("the run is over")
        except* (AgentError, ProcessError) as group:
            self._failure = _leaf(group)

    async def _turn(self, prompt: str, deadline: float, left: trio.Event) -> None:
        live = self.incarnation
        with trio.CancelScope(shield=True):
            with trio.move_on_at(deadline) as clock:
                await self._until(prompt, left, live.over)
            self._late = clock.cancelled_caught and self._ended is None
            await live.stop("deadline" if self._late else "owner")

    async def _until(self, prompt: str, *ends: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            for end in ends:
                nursery.start_soon(_cancel_when, end, nursery.cancel_scope)
            await self._ask(prompt)
            nursery.cancel_scope.cancel("the turn is over")

    async def _ask(self, prompt: str) -> None:
        await self._say(prompt)
        while self._plan.launch.mode == "session" and (again := self._again) is not None:
            self._again = None
            await self._say(again)
        if self._plan.launch.mode == "oneshot":
            await self.incarnation.over.wait()

    async def _say(self, prompt: str) -> None:
        self._ended, self._turn_over, self._prompt = None, trio.Event(), str(uuid.uuid4())
        schema = None if self._inquiry is None else self._inquiry.turn_schema
        try:
            await self.incarnation.send(v.Prompt(self._prompt, prompt, schema=schema))
        except NotExecuted as error:
            self.incarnation.note("not_sent", str(error))
            await self.incarnation.over.wait()
        await self._turn_over.wait()

    def _hear(self, event: v.AnyEvent) -> None:
        if isinstance(event, v.TurnEnded) and self._prompt in event.prompts:
            self._ended = event
            self._judge(event)
        if self._ended is not None and not self.incarnation.background:
            self._turn_over.set()

    def _judge(self, end: v.TurnEnded) -> None:
        if self._inquiry is None or self.incarnation.cut(end):
            return
        self._again = self._inquiry.judge(end)
        if self._again is not None:
            self.incarnation.note("unmet", self._again, attempt=self._inquiry.attempts)

    def _answer(self) -> Answer:
        answer = self._last_answer()
        return answer if self._inquiry is None else self._inquiry.settled(answer)

    def _last_answer(self) -> Answer:
        live = self.incarnation
        if self._ended is None or live.cut(self._ended):
            outcome: Outcome = "deadline" if self._late else label(None, live.exit, live.stopper)
            said = live.stderr.strip()[-500:]
            return Answer(
                agent=self._plan.name,
                outcome=outcome,
                error=said or f"no answer before its process ended ({live.exit or 'never started'})",
                session_id=live.session_id,
                exit=live.exit,
                stderr=live.stderr,
            )
        answer = answer_of(self._plan.name, self._ended, live.resets_at)
        if live.stopper == "deadline":  # the CLI's word about the turn is its reply to our interrupt
            answer = attrs.evolve(answer, outcome="deadline")
        return attrs.evolve(answer, exit=live.exit, stderr=live.stderr, notes=_disagreement(answer, live))


def _disagreement(answer: Answer, live: Incarnation) -> tuple[str, ...]:
    bad_exit = live.stopper == "nobody" and exit_class(live.exit) != "clean"
    return (
        (f"the CLI said {answer.ending}, its process ended with {live.exit}",)
        if answer.ok and bad_exit
        else ()
    )


def _leaf(group: ExceptionGroup[AgentError | ProcessError]) -> Exception:
    found: Exception = group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found


async def _sentinel(left: trio.Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        left.set()


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel("the other side ended")
