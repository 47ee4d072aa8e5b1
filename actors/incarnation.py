"""One process and one conversation: the engine under every agent and every run.

`Incarnation.serve` is a task that starts the process, greets it, reads it until it is over, and leaves the facts
behind: `exit`, `stopper`, `outcome`. It guarantees that stdout is always drained, whoever reads the log or does not;
that frames are on disk before they are decoded; that reading never waits for writing; that `Exited` is the last event
of the incarnation on every path; and that the process is dead when `serve` returns.

What the CLI does is never an exception here: it becomes events, and in the end one exit reason. `serve` raises only
what its caller must act on: a start that failed (before it is ready), or a disk that refuses.

Clocks: greeting, silence in a turn, and the stop ladder's graces. Silence is not counted while a tool runs, while a
question is open, before an announced retry, or while bytes of the CLI wait for us.

Cancelling `serve` kills at once; `stop` is the polite way and goes through the dialect's ladder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from proctor.actors.errors import AgentError, GreetingTimeout, NotExecuted, StartRefused
from proctor.actors.eventlog import EventLog
from proctor.actors.ladder import ladder
from proctor.actors.opening import open_plan
from proctor.actors.outcomes import Outcome, Stopper, exit_class, exited_of, label
from proctor.actors.permissions import decide
from proctor.actors.plan import Plan
from proctor.actors.recording import RunDirectory
from proctor.actors.silence import Silence
from proctor.protocols import vocabulary as v
from proctor.protocols.conversation import Conversation
from proctor.protocols.errors import Misuse
from proctor.runtime.exits import ExitReason, Killed
from proctor.runtime.process import Process
from proctor.runtime.process_errors import ProcessGone, StdinClosed
from proctor.runtime.stopping import Step

Listener = Callable[[v.AnyEvent], None]
_OUTBOX = 1000


def _ignore(event: v.AnyEvent) -> None:
    return


class Incarnation:
    """`listen` is told the events that change what an agent is doing, after they are in the log; it must not wait."""

    def __init__(
        self,
        plan: Plan,
        log: EventLog,
        directory: RunDirectory,
        *,
        number: int = 1,
        resume: str | None = None,
        fork: bool = False,
        total_cost_usd: float | None = None,
        listen: Listener = _ignore,
    ) -> None:
        self.plan = plan
        self.log = log
        self.number = number
        self.resume = resume
        self.fork = fork
        self.conversation = Conversation(
            plan.dialect,
            launch=plan.opening(resume=resume, fork=fork),
            resumed=resume is not None,
            total_cost_usd=total_cost_usd,
            prefix=f"{number}.",
        )
        self.ending: v.TurnEnded | None = None
        self.exit: ExitReason | None = None
        self.stopper: Stopper = "nobody"
        self.stderr = ""
        self.pid: int | None = None
        self.tools: set[str] = set()
        self.background = False
        self.resets_at: float | None = None
        self.over = trio.Event()
        self._process: Process | None = None
        self._directory = directory
        self._listen = listen
        self._greeted = trio.Event()
        self._drained = trio.Event()
        self._outbox, self._owed = trio.open_memory_channel[bytes](_OUTBOX)
        clocks = plan.clocks
        self._silence = Silence(self._owes_a_sign, patience=clocks.silence, after_error=clocks.final)
        self._failure: AgentError | None = None
        self._observers = self._make_observers()

    # -- life

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the process, report readiness, and return when it is dead and its output read.

        Raises, before it is ready: `StartRefused`, `GreetingTimeout`, `NotInstalled`, `SpawnFailed`; at any time:
        `RecordingFailed`.
        """
        self._recording = recording = self._directory.open_incarnation()
        try:
            opening = open_plan(
                self.plan, self._directory, recording, number=self.number, resume=self.resume, fork=self.fork
            )
            self.log.append(opening.notices)
            async with opening.process as self._process:
                self.pid = self.process.pid
                try:
                    ready = await self._live(task_status)
                finally:
                    self.process.kill()  # a cancellation waits for no ladder; else nothing is left
            if not ready:
                raise self._refusal()
        finally:
            self._finish()

    async def _live(self, task_status: trio.TaskStatus[None]) -> bool:
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._pump)
            self._nursery.start_soon(self._pay)
            if ready := await self._greet():
                task_status.started()
                self._nursery.start_soon(self._watch_silence)
                self.exit = await self.process.wait()
                await self._drained.wait()
            self._nursery.cancel_scope.cancel("the process is over")
        return ready

    @property
    def outcome(self) -> Outcome:
        """The label of this incarnation. A turn that ended speaks for a process that then left by itself."""
        spoke = self.ending is not None and not self.working and self.stopper == "nobody"
        if spoke and (self.plan.launch.mode == "oneshot" or exit_class(self.exit) in ("clean", "status")):
            return label(self.ending.ending if self.ending else None, self.exit)
        return label(None, self.exit, self.stopper)

    def cut(self, end: v.TurnEnded) -> bool:
        """Is this end the CLI's reply to the interrupt of our own ladder, run because something was wrong?"""
        return end.ending == "interrupted" and self.stopper not in ("nobody", "owner")

    @property
    def session_id(self) -> str | None:
        """The CLI's id of the conversation, None before it told."""
        return self.conversation.memo.session_id

    @property
    def process(self) -> Process:
        """The process. Raises `NotExecuted` before it was started."""
        if self._process is None:
            raise NotExecuted(self.plan.name, "its process was never started")
        return self._process

    @property
    def working(self) -> bool:
        """True from the moment a prompt is written until the end of its turn."""
        return self.conversation.phase == "working"

    # -- what a host does with it

    async def send(self, request: v.AnyRequest) -> None:
        """Write one request whole. Raises `NotExecuted` when the process cannot take it any more, or `Misuse`."""
        if isinstance(request, v.Prompt) and self.conversation.phase in ("ending", "ended"):
            raise NotExecuted(self.plan.name, "its process is about to leave")
        data = self.conversation.send(request)
        self._silence.hear()
        self._silence.look_again()
        try:
            await self._write(data)
            if self.conversation.closes_stdin:
                self.process.close_stdin()
        except (ProcessGone, StdinClosed) as error:
            self.conversation.forget(request)
            raise NotExecuted(self.plan.name, str(error)) from error

    async def stop(self, by: Stopper) -> None:
        """Run the ladder of the dialect, fitted into the plan's shutdown time, and wait for the end."""
        if self.stopper == "nobody" and self.process.exit is None:
            self.stopper = by
        await self.process.stop(ladder=self._ladder())
        await self.over.wait()

    def kill(self) -> None:
        """SIGKILL to the whole tree, now; before the start there is nothing to kill."""
        if self._process is not None:
            self.stopper = "kill"
            self._process.kill()

    def note(self, code: str, text: str, **data: Any) -> None:
        """A `Notice` of the host's own in the log."""
        self._take([v.Notice(v.HOST, self.conversation.memo.turn, code, text, data)])

    def stderr_end(self, size: int = 4000) -> str:
        """The last of what the process wrote to stderr, at most `size` characters."""
        return "" if self._process is None else self._process.stderr.decode("utf-8", "replace")[-size:]

    def raw(self, offset: int, size: int) -> bytes:
        """Bytes of this incarnation's stdout, from the disk."""
        return self._recording.read_stdout(offset, size)

    # -- start

    async def _greet(self) -> bool:
        if hello := self.conversation.greet():
            with trio.move_on_after(self.plan.clocks.greeting) as clock:
                try:
                    await self._write(hello)
                except (ProcessGone, StdinClosed):
                    await self._drained.wait()
                else:
                    await self._greeted.wait()
            if clock.cancelled_caught:
                self.stopper = "stall"
                self._failure = GreetingTimeout(
                    self.plan.name, self.plan.clocks.greeting, self.stderr_end(300)
                )
        else:
            self._greeted.set()
        memo = self.conversation.memo
        ready = memo.refused is None and (memo.greeted or not hello)
        if not ready:
            await self.process.stop(ladder=self._ladder())
            self.exit = await self.process.wait()
            await self._drained.wait()
        return ready

    def _refusal(self) -> AgentError:
        if self._failure is not None:
            return self._failure
        stderr = self.stderr_end()
        said = self.conversation.memo.refused or (self.ending.error if self.ending else None)
        why = (
            said
            or stderr.strip()[-500:]
            or f"it ended with {self.exit} before it was ready, and said nothing"
        )
        return StartRefused(self.plan.name, why, resumed=self.resume, stderr=stderr)

    # -- reading and writing

    async def _pump(self) -> None:
        receive, conversation, recording = self.process.receive, self.conversation, self._recording
        while chunk := await receive():
            self._silence.hear()
            recording.stdout(chunk, conversation.frames)
            self._take(conversation.receive(chunk))
            if conversation.lost and self.stopper == "nobody":
                self._nursery.start_soon(self.stop, "garbled")
        self._take(conversation.receive(b""))
        self._greeted.set()
        self._drained.set()

    def _take(self, events: list[v.AnyEvent]) -> None:
        observers, start = self._observers, 0
        for place, event in enumerate(events):
            observe = observers.get(type(event))
            if observe is not None:
                self.log.append(events[start:place])  # what a listener notes comes before what it heard
                start = place
                observe(event)
                self._silence.look_again()
                self._listen(event)
        self.log.append(events[start:] if start else events)
        self._owe(self.conversation.take_owed())
        if self.conversation.memo.greeted or self.conversation.memo.refused:
            self._greeted.set()

    def _owe(self, data: bytes) -> None:
        try:
            if data:
                self._outbox.send_nowait(data)
        except trio.WouldBlock:
            self.note("not_reading", f"the CLI left {_OUTBOX} replies unread; it is stopped")
            self.kill()

    async def _pay(self) -> None:
        async for owed in self._owed:
            try:
                await self._write(owed)
            except (ProcessGone, StdinClosed):
                return

    async def _write(self, data: bytes) -> None:
        self._recording.stdin(data)
        await self.process.send(data)

    # -- what the events change

    def _make_observers(self) -> dict[type, Callable[[Any], None]]:
        return {
            v.Started: _ignore,
            v.TurnStarted: self._on_turn_started,
            v.TurnEnded: self._on_turn_ended,
            v.ToolCall: self._on_tool_call,
            v.ToolResult: self._on_tool_result,
            v.ApprovalRequested: self._on_question,
            v.ApprovalWithdrawn: _ignore,
            v.Retrying: self._on_retrying,
            v.LimitReached: self._on_limit,
            v.Notice: self._on_notice,
            v.Answered: _ignore,
        }

    def _on_turn_started(self, event: v.TurnStarted) -> None:
        self.tools.clear()
        self.ending = self._silence.error = None

    def _on_turn_ended(self, event: v.TurnEnded) -> None:
        self.tools.clear()
        self.ending, self._silence.error = event, None
        if self.plan.launch.mode == "oneshot":
            self._nursery.start_soon(self._leave_in_time, self.conversation.memo.turns)

    async def _leave_in_time(self, turns: int) -> None:
        await trio.sleep(self.plan.clocks.final)
        if self.conversation.memo.turns == turns and not self.background:
            await self.stop("owner")  # it said its last and did not leave (L29)

    def _on_tool_call(self, event: v.ToolCall) -> None:
        self.tools.add(event.id)

    def _on_tool_result(self, event: v.ToolResult) -> None:
        self.tools.discard(event.id)

    def _on_retrying(self, event: v.Retrying) -> None:
        self._silence.hold(event.delay)

    def _on_limit(self, event: v.LimitReached) -> None:
        self.resets_at = event.resets_at

    def _on_notice(self, event: v.Notice) -> None:
        if event.code == "api_failure":
            self._silence.error = event.text
        elif event.code == "background_tasks":
            self.background = bool(event.data.get("tasks"))

    def _on_question(self, event: v.ApprovalRequested) -> None:
        self._nursery.start_soon(self._answer, event)

    async def _answer(self, question: v.ApprovalRequested) -> None:
        conduct = self.plan.conduct
        decision = await decide(conduct.permission, question, deadline=conduct.approval_deadline)
        try:
            await self.send(decision)
        except (Misuse, NotExecuted):
            return  # withdrawn, or the process is gone: nobody waits for this answer
        verdict = "allowed" if decision.allow else f"denied: {decision.message}"
        self.note("approval", f"{question.tool} {verdict}", id=question.id, allow=decision.allow)

    # -- clocks and the end

    async def _watch_silence(self) -> None:
        while True:
            await self._silence.wait()
            self._give_up()
            await self.stop("stall")

    def _owes_a_sign(self) -> bool:
        excused = self.tools or self.conversation.memo.approvals or self.stopper != "nobody"
        return self.working and not excused

    def _give_up(self) -> None:
        silence = f"no sign of life for {self._silence.lasted:.0f} s"
        self.note("stalled", f"{silence}; stderr ends {self.stderr_end(300)!r}")
        if (error := self._silence.error) is not None:
            memo = self.conversation.memo
            prompts = tuple(memo.prompts)
            self._take(
                [v.TurnEnded(v.HOST, memo.turn, "api_error", error=error, detail="no_end", prompts=prompts)]
            )

    def _ladder(self) -> tuple[Step, ...]:
        def said(data: bytes) -> bytes:
            self._recording.stdin(data)
            return data

        return ladder(self.plan, self.conversation, said)

    def _finish(self) -> None:
        try:
            if self._process is not None:
                self._conclude(self._process)
            lines = self.conversation.frames
            self._recording.close(
                exit=str(self.exit), outcome=self.outcome, stopper=self.stopper, stdout_lines=lines
            )
        finally:
            self.over.set()

    def _conclude(self, process: Process) -> None:
        self.exit = self.exit or process.exit
        if isinstance(self.exit, Killed) and self.stopper == "nobody":
            self.stopper = "kill"  # by us: whoever owns this task was cancelled
        self.stderr = self.stderr_end()
        exited = exited_of(self.outcome, self.exit, self.stderr, self.number)
        self.log.append([exited])
        self._listen(exited)
