"""Liveness of a command line: its clocks, the rules for its condition, and the steps for a request without a reply.

Every wait has a bound. Each condition of the peer has a rule in `CONDITION_RULES`, each control request its `REPLY_STEPS`. Delays of
this host never count against the CLI: when a clock runs out, bytes that have arrived are read first.

`stage` is how far the current request has come, derived from the conversation on demand. It is frozen when the process begins to
end: what the stop sequence does says nothing about the request.

The clock `silence` runs within a turn from the last output; an announced retry holds it, an error without an end of the turn
shortens it, and while a tool runs it is `tool_silence`. It does not run while an approval or a call of the host is open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, get_args

import attrs
import trio

from proctor.actors.delivery import Sent, Stage
from proctor.actors.outcomes import Outcome
from proctor.actors.plan.options import Clocks
from proctor.protocols import vocabulary as v
from proctor.protocols.conversation import Conversation
from proctor.runtime.processes import Condition, GuardState, PipeState, ProcessState, Sample, sample_tree

READ_GRACE = 0.05
"""Seconds in which what is already in the pipe may still be read."""

CHECK_INTERVAL, MAX_CHECK_INTERVAL = 3.0, 30.0
"""Seconds of silence after which the condition of the peer is looked at; then at intervals of a tenth of the silence, at
most `MAX_CHECK_INTERVAL`. What is found twice in a row counts, and the second look comes `CHECK_INTERVAL` seconds after the first."""

REPLY_TIMEOUT = 10.0
"""Seconds for each stage of a request that is not answered."""

ACTIVE_CPU, ACTIVE_IO = 0.5, 64 * 1024
"""Seconds of CPU time or bytes of I/O of the whole tree, within one stage, that show that it works."""

Bound = Literal["status", "exit", "stopped", "silence"]
"""What ends a condition: nothing has to, the exit status is known (`status`); the time that a process has to exit
(`exit`: `Clocks.final`); two looks that find it stopped (`stopped`); `Clocks.silence` or `tool_silence` (`silence`)."""

Clock = Literal["silence", "tool_silence", "stopped", "exit", "reply"]


@attrs.frozen
class ConditionRule:
    """Rule for one condition of the peer: the bound, and the outcome of a turn that it runs out in. `wake`: it must
    be continued (SIGCONT) before any other step of the stop sequence can have an effect."""

    bound: Bound
    outcome: Outcome
    wake: bool = False


_EXITED = ConditionRule("status", "crashed")
_QUIET = ConditionRule("silence", "stalled")
_OUTPUT_CLOSED = ConditionRule("exit", "crashed")
_STOPPED = ConditionRule("stopped", "stalled", wake=True)

_BY_STDOUT: Mapping[tuple[PipeState, ProcessState, GuardState], ConditionRule] = {
    ("open", "running", "running"): _QUIET,
    ("open", "running", "none"): _QUIET,
    ("open", "running", "stopped"): _QUIET,  # the program works; only its end would not be seen
    ("open", "running", "dead"): _EXITED,  # the guard's death kills the program
    ("open", "stopped", "running"): _STOPPED,
    ("open", "stopped", "none"): _STOPPED,
    ("open", "stopped", "stopped"): _STOPPED,
    ("open", "stopped", "dead"): _EXITED,
    (
        "open",
        "dead",
        "running",
    ): _OUTPUT_CLOSED,  # another process holds stdout, the guard has not ended it yet
    ("open", "dead", "none"): _EXITED,
    ("open", "dead", "stopped"): ConditionRule("stopped", "stalled", wake=True),
    ("open", "dead", "dead"): _EXITED,
    ("closed", "running", "running"): _OUTPUT_CLOSED,
    ("closed", "running", "none"): _OUTPUT_CLOSED,
    ("closed", "running", "stopped"): ConditionRule("exit", "crashed", wake=True),
    ("closed", "running", "dead"): _EXITED,
    ("closed", "stopped", "running"): ConditionRule("exit", "crashed", wake=True),
    ("closed", "stopped", "none"): ConditionRule("exit", "crashed", wake=True),
    ("closed", "stopped", "stopped"): ConditionRule("exit", "crashed", wake=True),
    ("closed", "stopped", "dead"): _EXITED,
    ("closed", "dead", "running"): _OUTPUT_CLOSED,
    ("closed", "dead", "none"): _EXITED,
    ("closed", "dead", "stopped"): ConditionRule("exit", "crashed", wake=True),
    ("closed", "dead", "dead"): _EXITED,
}


def _condition_rules() -> Iterator[tuple[Condition, ConditionRule]]:
    pipes = itertools.product(get_args(PipeState), get_args(PipeState))
    for (stderr, stdin), ((stdout, process, guard), cell) in itertools.product(pipes, _BY_STDOUT.items()):
        yield (
            Condition(stdout=stdout, stderr=stderr, stdin=stdin, process=process, guard=guard),
            cell,
        )


CONDITION_RULES: Mapping[Condition, ConditionRule] = dict(_condition_rules())
"""Condition of the peer → what bounds it. stderr changes nothing: it may be closed for good reasons. A closed stdin is
met by the next request: one that cannot be written leaves the process the `exit` bound to leave in, whatever the cell."""

ReplyStep = Literal["repeat", "look", "stop", "leave"]

REPLY_STEPS: Mapping[type[v.Request], tuple[ReplyStep, ...]] = {
    v.Interrupt: ("repeat", "look", "stop"),
    v.SetModel: ("repeat", "look", "leave"),
    v.SetPermissionMode: ("repeat", "look", "leave"),
    v.StopTask: ("repeat", "look", "leave"),
}
"""Control request → what each `REPLY_TIMEOUT` seconds without its reply lead to. `repeat`: it is sent again. `look`: a process
that wrote nothing meanwhile and whose tree used neither CPU nor I/O is stopped. `leave`: it works, so it may go on
unanswered. An interrupt is answered by the end of its turn. `EndSession` is sent by the stop sequence, which bounds it."""


@attrs.frozen
class Stall:
    """A clock that ran out, and the evidence for a person."""

    clock: Clock
    text: str


@attrs.define(eq=False)
class PendingReply:
    """A control request that is not answered yet: its kind, and the ids that it was sent under so far."""

    kind: type[v.Request]
    ids: set[str]
    answered: trio.Event = attrs.field(factory=trio.Event)

    async def is_answered_within(self, seconds: float) -> bool:
        """Wait for the reply, at most so long."""
        with trio.move_on_after(seconds):
            await self.answered.wait()
        return self.answered.is_set()


@attrs.frozen
class Activity:
    """CPU and I/O that the processes of a tree have used until `at` (Trio's clock)."""

    processes: tuple[Sample, ...] = ()
    at: float = 0.0

    def has_worked_since(self, earlier: Activity) -> bool:
        """Whether it did work meanwhile: CPU time, I/O, or another process."""
        started = {sample.pid for sample in self.processes} - {sample.pid for sample in earlier.processes}
        cpu, io = self._used_since(earlier)
        return bool(started) or cpu >= ACTIVE_CPU or io >= ACTIVE_IO

    def describe(self, earlier: Activity | None = None) -> str:
        """One clause: how many processes, which of them are stopped, and what they used, in all or since `earlier`."""
        if not self.processes:
            return "no process found"
        cpu, io = self._used_since(earlier or Activity())
        stopped = ", ".join(
            f"{sample.name} ({sample.pid})" for sample in self.processes if sample.state == "T"
        )
        last = self.processes[-1]
        used = "in all" if earlier is None else f"in {self.at - earlier.at:.0f} s"
        return (
            f"{len(self.processes)} processes, stopped: {stopped or 'none'}, "
            f"the last is {last.name} ({last.pid}, state {last.state}), CPU {cpu:.2f} s and I/O {io} bytes {used}"
        )

    def _used_since(self, earlier: Activity) -> tuple[float, int]:
        before = {sample.pid: sample for sample in earlier.processes}
        pairs = [(sample, before.get(sample.pid)) for sample in self.processes]
        cpu = sum(sample.cpu - (old.cpu if old else 0.0) for sample, old in pairs)
        return cpu, sum(sample.io - (old.io if old else 0) for sample, old in pairs)


def activity_of(pid: int | None) -> Activity:
    """The tree below this process; an empty one where there is none."""
    return Activity(() if pid is None else sample_tree(pid), trio.current_time())


class Liveness:
    """The state of one process by its events, and the clocks that follow from it.

    `ending` is the last turn's, None while one runs; `tools` the ids of those that run, with their names; `background`
    says whether work goes on between turns; `resets_at` when a usage limit ends (Unix seconds); `error` what the CLI last
    reported and did not get over; `sent` whether the last prompt was written; `last_output`, to be set with each sign of life, is when it
    gave the last. `condition` looks at the peer. While `excused`, no clock runs.
    """

    def __init__(
        self,
        conversation: Conversation,
        clocks: Clocks,
        *,
        excused: Callable[[], bool],
        condition: Callable[[], Condition],
    ) -> None:
        self.ending: v.TurnEnded | None = None
        self.tools: dict[str, str] = {}
        self.background = False
        self.resets_at: float | None = None
        self.error: str | None = None
        self.sent: Sent = "no"
        self._is_interrupted = False
        self._frozen: Stage | None = None
        self._conversation = conversation
        self._clocks = clocks
        self._excused = excused
        self._condition = condition
        self._awaited: list[PendingReply] = []
        self.last_output = self._held_until = self._last_check = 0.0
        self._suspect: Bound | None = None
        self._shortest = min(CHECK_INTERVAL, clocks.silence, clocks.tool_silence, clocks.final)
        self._alarm = trio.CancelScope()  # what the waiter sleeps in, until its deadline

    # -- the current request

    def begin(self, request: v.AnyRequest) -> None:
        """Record that a request is about to be written. A prompt starts the clocks of a turn."""
        # Silence counts from the request on: before, the CLI had no reason to write.
        self.last_output = trio.current_time()
        if isinstance(request, v.Prompt):
            self.sent, self._is_interrupted, self._frozen = "unknown", False, None
            if self._conversation.memo.mode == "session":
                self.ending = None  # of the turn before
        elif isinstance(request, v.Interrupt):
            self._is_interrupted = True
        # The earliest that any clock can run out; the waiter looks which one it is.
        self._alarm.deadline = min(self._alarm.deadline, self.last_output + self._shortest)

    @property
    def stage(self) -> Stage:
        """The stage of the request now, or at the beginning of its process's end."""
        return self._frozen or self._current_stage()

    def freeze(self, stage: Stage | None = None) -> None:
        """Keep `stage`, or the current one: the end of the process begins."""
        self._frozen = self._frozen or stage or self._current_stage()

    def _current_stage(self) -> Stage:
        memo = self._conversation.memo
        if self.sent == "no":
            return "starting"
        if self._is_interrupted and memo.prompts:
            return "interrupting"
        if memo.approvals:
            return "question"
        if self.tools:
            return "tool"
        if memo.open_turns:
            return "streaming"
        return "sent" if self.sent == "yes" else "sending"

    # -- signs of life

    def reschedule(self) -> None:
        """Reconsider the clocks after an event that they depend on. Wakes no task."""
        # Only forward: output moves the alarm back all the time, and the waiter looks again when the old one rings.
        self._alarm.deadline = min(self._alarm.deadline, trio.current_time() + self._left())

    @property
    def silent_for(self) -> float:
        """Seconds since the last sign of life."""
        return trio.current_time() - self.last_output

    async def wait(self) -> Stall:
        """Wait until a clock has run out."""
        while True:
            # Again where output has come since the alarm was set: of one that works each alarm rings so.
            while (left := self._left()) > 0:
                with trio.CancelScope(deadline=trio.current_time() + left) as self._alarm:
                    await trio.sleep_forever()
            # This host may have been slow itself: what lies in the pipe is read first, and sets the clock
            # back.
            await trio.sleep(READ_GRACE)
            if self._silence_left() <= 0:
                return self._silent()
            if self._check_left() <= 0 and (stall := self._check()) is not None:
                return stall

    def _left(self) -> float:
        return min(self._silence_left(), self._check_left())

    def _silence_left(self) -> float:
        memo = self._conversation.memo
        # A CLI that waits for us is silent by no fault of its own.
        if self._conversation.phase != "working" or memo.approvals or memo.calls or self._excused():
            return math.inf
        return max(self.last_output, self._held_until) + self._limit - trio.current_time()

    @property
    def _limit(self) -> float:
        if self.tools:
            return self._clocks.tool_silence
        final = math.inf if self.error is None else self._clocks.final
        return min(self._clocks.silence, final)

    def _silent(self) -> Stall:
        text = f"no output for {self.silent_for:.0f} s"
        if not self.tools:
            return Stall("silence", text)
        running = ", ".join(f"{name} ({id})" for id, name in self.tools.items())
        return Stall("tool_silence", f"{text} while a tool runs: {running}")

    def _check_left(self) -> float:
        if (self._conversation.phase != "working" and not self._awaited) or self._excused():
            return math.inf
        suspected = self._suspect in ("stopped", "exit")
        interval = (
            CHECK_INTERVAL
            if suspected
            else min(max(CHECK_INTERVAL, self.silent_for / 10), MAX_CHECK_INTERVAL)
        )
        return max(self.last_output, self._last_check) + interval - trio.current_time()

    def _check(self) -> Stall | None:
        condition = self._condition()
        bound = CONDITION_RULES[condition].bound
        before = (
            self._suspect if self._last_check >= self.last_output else None
        )  # output since then clears a suspicion
        self._suspect, self._last_check = bound, trio.current_time()
        # One look may hit a process that is stopped for a moment only.
        if bound == before == "stopped":
            return Stall("stopped", f"found stopped twice within {CHECK_INTERVAL:g} s: {condition}")
        if bound == before == "exit":
            return Stall("exit", f"its end was not reported: {condition}")
        return None

    # -- replies that are due

    def awaits(self, kind: type[v.Request]) -> bool:
        """Whether a reply to a request of this kind is due."""
        return any(awaited.kind is kind for awaited in self._awaited)

    @contextmanager
    def awaiting(self, request: v.Request) -> Generator[PendingReply]:
        """Have the reply to `request` noticed, for the length of a block."""
        awaited = PendingReply(type(request), {request.id})
        self._awaited.append(awaited)
        self.reschedule()
        try:
            yield awaited
        finally:
            self._awaited.remove(awaited)

    # -- what events tell

    def observe(self, event: v.AnyEvent) -> None:
        """Take in an event, if it is of a type in `OBSERVERS`."""
        if (observe := self.OBSERVERS.get(type(event))) is not None:
            observe(self, event)

    def _on_turn_started(self, event: v.TurnStarted) -> None:
        self.tools.clear()
        self.ending = self.error = None

    def _on_turn_ended(self, event: v.TurnEnded) -> None:
        # A CLI that breaks off a turn reports no results of its tools.
        self.tools.clear()
        self.ending, self.error = event, None
        for awaited in self._awaited:
            if awaited.kind is v.Interrupt:
                awaited.answered.set()

    def _on_tool_call(self, event: v.ToolCall) -> None:
        self.tools[event.id] = event.name

    def _on_tool_result(self, event: v.ToolResult) -> None:
        self.tools.pop(event.id, None)

    def _on_retrying(self, event: v.Retrying) -> None:
        self._held_until = trio.current_time() + event.delay

    def _on_limit(self, event: v.LimitReached) -> None:
        self.resets_at = event.resets_at

    def _on_notice(self, event: v.Notice) -> None:
        if event.code == "api_failure":
            self.error = event.text
        elif event.code == "background_tasks":
            self.background = bool(event.data.get("tasks"))

    def _on_answered(self, event: v.Answered) -> None:
        for awaited in self._awaited:
            # An `Answered` says only that the interrupt was taken; the end of the turn is its answer.
            if event.request in awaited.ids and awaited.kind is not v.Interrupt:
                awaited.answered.set()

    # one table for all: a bound method for each row would cost each process more than the rest of its clocks
    OBSERVERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        v.TurnStarted: _on_turn_started,
        v.TurnEnded: _on_turn_ended,
        v.ToolCall: _on_tool_call,
        v.ToolResult: _on_tool_result,
        v.Retrying: _on_retrying,
        v.LimitReached: _on_limit,
        v.Notice: _on_notice,
        v.Answered: _on_answered,
    }
    """Event → what it changes."""
