"""One process of an agent and its conversation: the engine of every agent and every run.

`AgentProcess.serve` connects the transport, performs the handshake, reads the output to its end, and then holds `exit`,
`stopper` and `outcome`. Output is always read, whether the log has readers or not; frames are on disk before they are decoded;
reading never waits for writing; `Exited` is the last event on every path; nothing runs when `serve` returns. Failures of the CLI
become events and one exit reason; `serve` raises only a failed start or a disk that refuses. Cancelling it kills at once.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import trio

from proctor.actors.errors import AgentError, GreetingTimeout, NotExecuted, RecordingFailed, Unresponsive
from proctor.actors.limits.spend_limits import INSIDE_TURN
from proctor.actors.outcomes import Outcome, Stopper, exit_class, exited_of, label
from proctor.actors.plan.plan import Plan
from proctor.actors.process.agent_log import LOGGER, NOTICES, ProcessLogger
from proctor.actors.process.approvals import answer_question
from proctor.actors.process.launch import killed_start, prepare_launch, start_failure
from proctor.actors.process.liveness import (
    CONDITION_RULES,
    REPLY_STEPS,
    REPLY_TIMEOUT,
    Activity,
    Clock,
    Liveness,
    activity_of,
)
from proctor.actors.process.payload_files import PayloadFiles
from proctor.actors.process.start_slots import StartSlot
from proctor.actors.process.stop_sequence import stop_steps
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.actors.tools.host_calls import HostCall, HostCalls, tool_context
from proctor.actors.tools.toolsocket import ToolSocket, socket_path
from proctor.actors.transport.transport import ProcessTransport, Transport, read_messages
from proctor.protocols import vocabulary as v
from proctor.protocols.attachment import PAYLOADS, Attachment
from proctor.protocols.conversation import Conversation
from proctor.protocols.errors import Misuse
from proctor.protocols.mcp import is_approved
from proctor.runtime.exits import ExitReason, Killed
from proctor.runtime.processes import PipeFailed, Process, ProcessError, ProcessGone, StdinClosed, Step

Listener = Callable[[v.AnyEvent], None]
Written = Callable[[Exception | None], None]
"""Called when a prompt was written, with None, or could not be, with the error."""
_Post = tuple[v.Prompt, Written]
STDERR_CHARS = 4000
"""Characters of stderr that are kept of a process that has ended: the last."""
MAX_UNREAD = 1000
"""The most messages that wait to be written to a process that reads none."""


_NO_STDOUT = "its stdout has ended"


def _ignore(event: object) -> None:
    return


class AgentProcess:
    """`on_event` is called with each event that changes what an agent is doing, after it is in the log; it must not wait."""

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
        attachments: tuple[Attachment, ...] = (),
        on_event: Listener = _ignore,
    ) -> None:
        self.plan = plan
        self.log = log
        self.number = number
        self.resume = resume
        self.fork = fork
        self._payload_files = PayloadFiles(directory.scratch / PAYLOADS)
        tools = socket_path(directory.scratch, number) if plan.uses_proxy else None
        self.conversation = Conversation(
            plan.dialect,
            launch=plan.opening(resume=resume, fork=fork, tools=tools, attachments=attachments),
            resumed=resume is not None,
            total_cost_usd=total_cost_usd,
            prefix=f"{number}.",
            error_budget=plan.conduct.error_budget,
            validators=plan.conduct.validators,
        )
        self.exit: ExitReason | None = None
        self.stopper: Stopper = "nobody"
        self.stderr = ""
        self.pid: int | None = None
        self.fault: Unresponsive | None = None
        self.over = trio.Event()
        self._transport: Transport | None = None
        self._directory = directory
        self._notify = on_event
        self._greeted, self._drained = trio.Event(), trio.Event()
        self.liveness = Liveness(
            self.conversation,
            plan.clocks,
            excused=lambda: self.stopper != "nobody",
            condition=lambda: self.transport.condition,
        )
        self._failure: AgentError | None = None
        memo, conduct = self.conversation.memo, plan.conduct
        hosted, added = plan.launch.host_tools, plan.dialect.adds
        self._tools = None if tools is None else ToolSocket(tools, hosted, memo, self._on_events, added=added)
        self._logger = ProcessLogger(plan.name, plan.dialect.name, number)
        who = partial(tool_context, plan.name, conduct.context, memo)
        self._host_calls = HostCalls(conduct.host_tools, conduct.hooks, self._answer, self.note, who)
        # written by a task of its own, which is there while there is something: reading never waits for writing
        self._queue: list[tuple[bytes, _Post | None]] = []
        self._is_ready = self._writes = False

    # -- life

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start it, report readiness, and return when it is dead and its output read.

        Raises, before it is ready: `StartRefused`, `GreetingTimeout`, `NotInstalled`, what the transport raises on
        connecting (`SpawnFailed`); at any time: `RecordingFailed`.
        """
        INSIDE_TURN.set(True)  # what its tools and hooks start waits for no turn under way
        # Outside the `try`: a recording that cannot be opened leaves nothing to finish.
        self._recording = recording = self._directory.open_incarnation()
        try:
            number, request = self.number, self.conversation.memo.launch
            feed_stderr, place = self._on_stderr, self._directory
            if request.attachments:
                self._payload_files.make_folder()  # a CLI looks for its folders when it starts
            opening = prepare_launch(self.plan, place, recording, feed_stderr, number=number, request=request)
            try:
                self.log.append(opening.notices)
                self._logger.executable = opening.program
                ready = await self._connected(opening.transport, task_status)
            finally:
                # When the process has ended, on every path: the files may hold secrets.
                opening.clear()
            if not ready:
                raise self._failure or start_failure(
                    self.plan.name, self._refusal_text, self.exit, self.stderr_end(), self.resume
                )
        finally:
            self._payload_files.clear()
            self._finish()

    async def _connected(self, transport: Transport, task_status: trio.TaskStatus[None]) -> bool:
        tools = nullcontext() if self._tools is None else self._tools.listening()
        with await StartSlot.take() as slot:
            # The socket of the tools first: a CLI connects to it as soon as it runs.
            async with tools, transport.connect():
                self._transport, self.pid = transport, transport.pid
                try:
                    return await self._run_process(slot, task_status)
                finally:
                    self._writes = True  # by no task any more

    async def _run_process(self, slot: StartSlot, task_status: trio.TaskStatus[None]) -> bool:
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(slot.release_after, self._greeted)
            # Before the greeting: a CLI that writes first would block on a full pipe.
            self._nursery.start_soon(self._read_output)
            if self._tools is not None:
                self._nursery.start_soon(self._tools.serve)
            if ready := await self._greet():
                self._logger.ready(self.pid)
                self._is_ready = True
                # Only a process that has answered the greeting is ready: one that hangs is an error of its start.
                task_status.started()
                self._nursery.start_soon(self._watch)
                if self._drained.is_set():
                    self._nursery.start_soon(self._exit_in_time, _NO_STDOUT)
                self.exit = await self.transport.wait()
                # The exit first, then the rest of the output: the last frames often say why.
                await self._drained.wait()
            self._nursery.cancel_scope.cancel("the process is over")
        return ready

    @property
    def outcome(self) -> Outcome:
        """The outcome of this process. If it exits by itself after a turn, the end of that turn decides."""
        ending = self.liveness.ending
        # Of a process that was stopped, the stop gives the label, whatever its last turn came to.
        spoke = ending is not None and not self.working and self.stopper == "nobody"
        if spoke and (self.plan.launch.mode == "oneshot" or exit_class(self.exit) in ("clean", "status")):
            return label(ending.ending if ending else None, self.exit)
        return label(None, self.exit, self.stopper)

    def ended_by_stop(self, end: v.TurnEnded, *, may_go_on: bool = False) -> bool:
        """Whether this end of a turn is the reply to the interrupt of our own stop sequence, and not the end of the request: after a
        failure, and for one that `may_go_on` when its agent runs again after any stop."""
        settling = ("nobody",) if may_go_on else ("nobody", "owner")
        return end.ending == "interrupted" and self.stopper not in settling

    @property
    def session_id(self) -> str | None:
        """The CLI's session id, None before it is known."""
        return self.conversation.memo.session_id

    @property
    def transport(self) -> Transport:
        """The connected transport. Raises `NotExecuted` before the start."""
        if self._transport is None:
            raise NotExecuted(self.plan.name, "its process was never started")
        return self._transport

    @property
    def process(self) -> Process:
        """The operating system's process. Raises `NotExecuted` for another transport, and before the start."""
        if not isinstance(self.transport, ProcessTransport):
            raise NotExecuted(self.plan.name, "it has no process of its own")
        return self.transport.process

    @property
    def program_pid(self) -> int | None:
        """The pid of the command line itself, where `pid` is that of its guard; None where it has no process."""
        transport = self._transport
        if isinstance(transport, ProcessTransport) and self.pid is not None:
            return transport.process.leader_pid
        return self.pid

    @property
    def recording_path(self) -> Path | None:
        """The folder of its recording, None for a temporary one."""
        return self._directory.path if self._directory.kept else None

    @property
    def working(self) -> bool:
        """True from the moment a prompt is written until the end of its turn."""
        return self.conversation.phase == "working"

    # -- what a host does with it

    async def send(self, request: v.AnyRequest) -> None:
        """Write one request whole. Raises `NotExecuted` when the process cannot take it any more, or `Misuse`."""
        await self._write(self._encode(request), request)

    def post(self, prompt: v.Prompt, written: Written) -> None:
        """Write a prompt behind what is queued; never waits. Raises as `send` does for one that makes no sense now."""
        self._write_soon(self._encode(prompt), (prompt, written))

    def _encode(self, request: v.AnyRequest) -> bytes:
        if isinstance(request, v.Prompt):
            if self.conversation.phase in ("ending", "ended"):
                raise NotExecuted(self.plan.name, "its process is about to exit")
            if request.attachments:
                attachments = self._payload_files.place(request.attachments)
                request = msgspec.structs.replace(request, attachments=attachments)
        # The conversation has the request before a byte is written: a fast CLI answers before that returns.
        data = self.conversation.send(request)
        self.liveness.begin(request)
        if isinstance(request, v.Prompt):
            self._logger.asked_at = trio.current_time()
            if LOGGER.isEnabledFor(logging.INFO):
                self._logger.asked(len(request.text))
        elif type(request) in REPLY_STEPS:
            self._await_reply_to(request)
        return data

    async def _write(self, data: bytes, request: v.AnyRequest | None = None) -> None:
        """Write a message whole. A request that cannot be written is forgotten, and raises `NotExecuted`."""
        assert self._transport is not None
        self._recording.stdin(data)  # before a byte is written: what the CLI may have read is on disk
        try:
            await self._transport.write(data)
        except (PipeFailed, ProcessGone, StdinClosed) as error:
            if request is None:
                raise
            self.conversation.forget(request)
            # a turn that runs may still come to its end
            if isinstance(request, v.Prompt) or not self.working:
                self._nursery.start_soon(self._exit_in_time, f"it takes no more input: {error}")
            raise NotExecuted(self.plan.name, str(error)) from error
        if isinstance(request, v.Prompt):
            self.liveness.sent = "yes"
        # A one-shot run reads its prompt up to the end of the input.
        if request is not None and self.conversation.closes_stdin:
            self._transport.end_input()

    def _write_soon(self, data: bytes, post: _Post | None = None) -> None:
        if len(self._queue) >= MAX_UNREAD:
            self.note("not_reading", f"the CLI left {MAX_UNREAD} replies unread; stopping it")
            self.kill()
            return
        self._queue.append((data, post))
        if not self._writes:
            self._writes = True  # at once: a task that is to start does not run yet
            self._nursery.start_soon(self._write_queued)

    async def _write_queued(self) -> None:
        while self._queue:
            data, post = self._queue.pop(0)
            if post is None:
                with suppress(ProcessGone, StdinClosed):  # a reply: its process is about to end
                    await self._write(data)
                continue
            prompt, written = post
            try:
                await self._write(data, prompt)
            except (AgentError, ProcessError) as error:
                written(error)
            else:
                written(None)
        self._writes = False  # the queue is empty still: there was no checkpoint

    async def stop(self, by: Stopper) -> None:
        """Run the stop sequence of the dialect, fitted into the plan's shutdown time, and wait for the end."""
        # First: what the stop sequence does says nothing about how far the request came.
        self.liveness.freeze()
        # The first stopper stays: it decides the outcome.
        if self.stopper == "nobody" and self.transport.exit is None:
            self.stopper = by
        await self.transport.stop(self._ladder())
        await self.over.wait()

    async def give_up(self, clock: Clock, text: str, by: Stopper = "stall") -> None:
        """Stop a process that does not respond, and log the evidence. Does nothing if it is being stopped already."""
        if self.stopper != "nobody" or self.transport.exit is not None:
            return
        self.liveness.freeze("closing" if clock == "exit" else None)
        # Before the stop: afterwards there is nothing to look at.
        evidence = f"{text}; {self._evidence()}"
        self.fault = Unresponsive(self.plan.name, evidence)
        self.note("stalled", evidence, clock=clock)
        if (error := self.liveness.error) is not None and clock == "silence":
            self._end_turn("api_error", error, "no_end")
        await self.stop(by)

    async def end_unrecorded(self, error: RecordingFailed) -> None:
        """Stop a process whose required recording has failed; a running turn ends with that error."""
        if self.stopper != "nobody" or self.transport.exit is not None:
            return
        if self.working:
            self._end_turn("error", str(error), "not_recorded")
        await self.stop("recording")

    def _end_turn(self, ending: v.Ending, error: str, detail: str) -> None:
        memo = self.conversation.memo
        prompts = tuple(memo.prompts)
        self._on_events([v.TurnEnded(v.HOST, memo.turn, ending, error=error, detail=detail, prompts=prompts)])

    def kill(self) -> None:
        """SIGKILL to the whole tree, now; before the start there is nothing to kill."""
        if self._transport is not None:
            self.liveness.freeze()
            self.stopper = "kill"
            self._transport.close()

    def note(self, code: str, text: str, **data: Any) -> None:
        """A `Notice` of the host's own in the log."""
        if code in NOTICES:
            self._logger.agent.note(code, text)
        self._on_events([v.Notice(v.HOST, self.conversation.memo.turn, code, text, data)])

    def stderr_end(self, size: int = STDERR_CHARS) -> str:
        """The last of what the process wrote to stderr, at most `size` characters."""
        return "" if self._transport is None else self._transport.stderr.decode("utf-8", "replace")[-size:]

    # -- start

    async def _greet(self) -> bool:
        if hello := self.conversation.greet():
            with trio.move_on_after(self.plan.clocks.greeting) as clock:
                try:
                    await self._write(hello)
                except (ProcessGone, StdinClosed):
                    # It died before it read the greeting: its output may say why, and is read to the end.
                    await self._drained.wait()
                else:
                    await self._greeted.wait()
            if clock.cancelled_caught:
                self.stopper, seconds = "stall", self.plan.clocks.greeting
                self._failure = GreetingTimeout(self.plan.name, seconds, self.stderr_end(300))
        else:
            self._greeted.set()
        memo = self.conversation.memo
        ready = memo.refused is None and (memo.greeted or not hello)
        if not ready:
            if self._failure is None and self._refusal_text is None:
                # A kill from outside (out of memory, a container that stops) is no refusal: a restart may
                # help.
                self._failure = await killed_start(self.plan.name, self.transport)
            self.exit = await self.transport.stop(self._ladder())
            await self._drained.wait()
        return ready

    @property
    def _refusal_text(self) -> str | None:
        ending = self.liveness.ending
        record = self.conversation.memo.refused or (ending.error if ending else None)
        return record or self.protocol_failure or None

    @property
    def protocol_failure(self) -> str:
        """Why it was stopped that no longer spoke its protocol, "" for one that does."""
        bound = self.plan.conduct.error_budget
        return f"{bound} consecutive lines did not follow its protocol" if self.conversation.exhausted else ""

    # -- reading and writing

    async def _read_output(self) -> None:
        reads_log = self.plan.dialect.read_log is not None
        await read_messages(self.transport, self._on_output, after_stderr=reads_log)
        self._on_events(self.conversation.receive(b""))
        self._stop_if_garbled()
        # After the end of its output no greeting comes: the start must not wait for its time-out.
        self._greeted.set()
        self._drained.set()
        if self._is_ready:  # else the start has to end first
            await self._exit_in_time(_NO_STDOUT)

    def _on_output(self, chunk: bytes) -> None:
        conversation, now = self.conversation, trio.current_time()
        self.liveness.last_output = now
        # On disk before it is decoded: a frame that breaks the decoder can be replayed.
        self._recording.stdout(chunk, conversation.frames, now)
        # A text delta changes nothing but the log: what is for all other events costs more than the event.
        if (delta := conversation.receive_delta(chunk)) is not None:
            self.log.append([delta])
            return
        self._on_events(conversation.receive(chunk))
        self._stop_if_garbled()

    def _stop_if_garbled(self) -> None:
        if self.conversation.exhausted and self.stopper == "nobody":
            self.liveness.freeze()
            # at once, and not by `stop`: it may have exited before it was read so far
            self.stopper = "garbled"
            self._nursery.start_soon(self.stop, "garbled")

    def _on_stderr(self, data: bytes) -> None:
        self._on_events(self.conversation.feed_stderr(data))

    def _on_events(self, events: list[v.AnyEvent]) -> None:
        start = 0
        unobserved = self._OBSERVED.isdisjoint(map(type, events))
        for place, event in enumerate(() if unobserved else events):
            if type(event) in self._OBSERVED:
                self.log.append(
                    events[start:place]
                )  # a listener's notes come before the event they are about
                start = place
                self.liveness.observe(event)
                if (observe := self._OBSERVERS.get(type(event))) is not None:
                    observe(self, event)
                self.liveness.reschedule()
                self._notify(event)
        self.log.append(events[start:] if start else events)
        # After the events: a reply must not be on its way before its question is in the log.
        if replies := self.conversation.data_to_send():
            self._write_soon(replies)
        if self.conversation.memo.greeted or self.conversation.memo.refused:
            self._greeted.set()

    # -- what the events change

    def _on_turn_ended(self, event: v.TurnEnded) -> None:
        if not self.ended_by_stop(event):
            self._logger.ended(event)
        if self.plan.launch.mode == "oneshot":
            self._nursery.start_soon(self._leave_in_time, self.conversation.memo.turns)

    async def _leave_in_time(self, turns: int) -> None:
        await trio.sleep(self.plan.clocks.final)
        if self.conversation.memo.turns == turns and not self.liveness.background:
            await self.stop("owner")  # its turn has ended and it did not exit

    async def _answer(self, request: v.AnyRequest) -> None:
        if not (self._tools and isinstance(request, v.ToolReturn) and await self._tools.give(request)):
            await self.send(request)

    def _on_host_call(self, event: HostCall | v.RequestWithdrawn) -> None:
        if isinstance(event, v.RequestWithdrawn):
            self._host_calls.withdraw(event)
        else:
            self._host_calls.take(event, self._nursery)

    def _on_question(self, event: v.ApprovalRequested) -> None:
        servers = self.conversation.memo.launch.mcp
        approved = is_approved(servers, event.tool) or self._payload_files.may_read(event)
        self._nursery.start_soon(answer_question, event, self.plan.conduct, self.send, self.note, approved)

    _OBSERVERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        v.TurnEnded: _on_turn_ended,
        v.ApprovalRequested: _on_question,
        **dict.fromkeys((v.ToolRequested, v.HookCalled, v.RequestWithdrawn), _on_host_call),
    }
    _OBSERVED = frozenset((*Liveness.OBSERVERS, *_OBSERVERS, v.Started, v.ApprovalWithdrawn, v.Steered))

    # -- clocks and the end

    async def _watch(self) -> None:
        stall = await self.liveness.wait()
        await self.give_up(stall.clock, stall.text, "eof" if stall.clock == "exit" else "stall")

    async def _exit_in_time(self, why: str) -> None:
        seconds = self.plan.clocks.final
        await trio.sleep(seconds)
        if self.plan.launch.mode == "oneshot" and self.liveness.ending is not None:
            await self.stop("owner")  # its turn has ended, nothing is lost
        else:
            await self.give_up("exit", f"{why}, and it did not exit within {seconds:g} s", by="eof")

    def _await_reply_to(self, request: v.AnyRequest) -> None:
        kind, asked = type(request), self.conversation.memo.pending
        # some CLIs take a request without a reply; an interrupt is answered by the end of the turn
        due = kind is v.Interrupt or request.id in asked
        if due and not self.liveness.awaits(kind):
            self._nursery.start_soon(self._await_reply, request)

    async def _await_reply(self, request: v.AnyRequest) -> None:
        name = str(request.__struct_config__.tag)
        with self.liveness.awaiting(request) as awaited:
            for number, stage in enumerate(REPLY_STEPS[type(request)]):
                # At the beginning of each stage: only what was done within it counts.
                before = activity_of(self.transport.pid)
                if await awaited.is_answered_within(REPLY_TIMEOUT):
                    self._on_reply(f"{name!r} was answered", late=number > 0)
                    return
                why = f"no answer to {name!r} for {(number + 1) * REPLY_TIMEOUT:g} s"
                silent = self.liveness.silent_for >= REPLY_TIMEOUT
                idle = silent and not activity_of(self.transport.pid).has_worked_since(before)
                if stage == "stop" or (stage == "look" and idle):
                    await self.give_up("reply", why)
                    return
                self.note("unresponsive", f"{why}; {self._evidence(before)}")
                if stage == "repeat":
                    again = msgspec.structs.replace(request, id=str(uuid.uuid4()))
                    awaited.ids.add(again.id)
                    self._nursery.start_soon(self._repeat, again)
        self._on_reply(f"{name!r} was not answered, but its process works", late=True)

    def _on_reply(self, text: str, *, late: bool) -> None:
        if late:
            self.note("responsive", text)

    async def _repeat(self, request: v.AnyRequest) -> None:
        with suppress(Misuse, ProcessGone, StdinClosed):  # its turn has ended, or its process is about to
            await self._write(self.conversation.send(request))

    def _evidence(self, before: Activity | None = None) -> str:
        found = activity_of(self.transport.pid).describe(before)
        return f"{self.transport.condition}; {found}; stderr ends {self.stderr_end(300)!r}"

    def _ladder(self) -> tuple[Step, ...]:
        wake = CONDITION_RULES[self.transport.condition].wake
        return stop_steps(self.plan, self.conversation, self._record, wake=wake)

    def _record(self, data: bytes) -> bytes:
        self._recording.stdin(data)
        return data

    def _finish(self) -> None:
        # a stack, so that a disk that refuses the log's last event leaves no file of the recording open
        with ExitStack() as stack:
            # They run in reverse: the last event, then the recording, and `over` at the end, when all of it
            # is there.
            stack.callback(self.over.set)
            stack.callback(self._close_recording)
            if self._transport is not None:
                self._finish_transport(self._transport)

    def _close_recording(self) -> None:
        facts = {"outcome": self.outcome, "stopper": self.stopper, "stdout_lines": self.conversation.frames}
        self._recording.close(exit=str(self.exit), **facts)

    def _finish_transport(self, transport: Transport) -> None:
        self.exit = transport.exit or self.exit
        if isinstance(self.exit, Killed) and self.stopper == "nobody":
            self.stopper = "kill"  # by us: this task was cancelled
        self.liveness.freeze()
        self.stderr = self.stderr_end()
        conversation, (usage, cost_usd) = self.conversation, self.conversation.used()
        exited = msgspec.structs.replace(
            exited_of(self.outcome, self.exit, self.stderr, self.number),
            turn=conversation.memo.turn,
            usage=usage,
            cost_usd=cost_usd,
            lines=conversation.frames,
        )
        # In the log before the listener acts on it: a `Turn` reads its end from there.
        self.log.append([exited])
        self._logger.exited(self.outcome, str(self.exit))
        self._notify(exited)
