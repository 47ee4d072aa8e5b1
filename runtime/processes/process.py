"""An operating-system process in a group of its own, owned by a block of code.

`async with open_process(command) as process` guarantees: leaving the block, on any path and under any cancellation,
the process is stopped by its ladder, its group is killed, it is reaped, its output is drained, its pipes are closed
and no task is left, in this order, which is to be seen on `process.trace`.
The exit comes from the status, the end of output from the pipe; neither stands in for the other.

Invariants. Nothing is awaited between the birth of the process and its having an owner. The dead leader stays a
zombie until its group has been killed, so that its number cannot belong to strangers. stderr is read from the first
moment by a task that only the end of stderr ends. A task watches for the exit where somebody could be stuck on a pipe
without it; elsewhere it needs none: each question looks. After the exit everything that was in the pipes is still handed
out; where a grandchild holds a pipe open, what it writes later than `drain` seconds after the exit is not. The ladder
runs once, in a task of its own, shielded: a waiting caller may be cancelled, the stop may not.

Guarded (Linux), the group's leader is `guard`, which takes the whole tree down, in whatever sessions it hides, also
when the runtime dies without a word. Elsewhere, and unguarded, a descendant in a session of its own survives.
Not here: restarts, lines, deadlines, what an earlier host left behind.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from functools import partial
from signal import SIGKILL, SIGTERM
from types import TracebackType
from typing import Self

import attrs
import trio

from proctor.runtime.exits import ExitReason, Shutdown
from proctor.runtime.processes.condition import Condition, process_state
from proctor.runtime.processes.fork_server import ForkServer
from proctor.runtime.processes.group import Group
from proctor.runtime.processes.ledger import current_ledger, marked
from proctor.runtime.processes.outputs import Outputs
from proctor.runtime.processes.pipes import OutputPipe
from proctor.runtime.processes.process_errors import (
    Context,
    NoStderr,
    NoStdin,
    NoStdout,
    Stage,
    pipe_failed,
    stdin_refused,
)
from proctor.runtime.processes.procfs import stat_of
from proctor.runtime.processes.spawning import (
    MARKER,
    WATCHED_BY_DESCRIPTOR,
    Child,
    Command,
    Ends,
    resident,
    spawn_in_turn,
    wait_for_guard,
)
from proctor.runtime.processes.stopping import DEFAULT_LADDER, Step, judge, run_ladder

__all__ = ["DRAIN", "MARKER", "Command", "Process", "open_process"]

DRAIN = 2.0
"""Seconds after the exit for which output that a grandchild still writes is waited for."""

EXIT_PATIENCE = 2.0
"""Seconds for which a refused message waits for the exit of a process that is ending."""

STDERR_LIMIT = 64 * 1024


@attrs.frozen(kw_only=True)
class _Plan:
    command: Command
    ladder: tuple[Step, ...]
    guarded: bool
    guards: ForkServer | None
    success_codes: AbstractSet[int]
    stop_signal: int
    stderr_limit: int
    on_stdout: Callable[[bytes], object] | None
    on_stderr: Callable[[bytes], object] | None
    on_unresponsive: Callable[[float], object] | None
    on_birth: Callable[[Process], object] | None
    drain: float
    note_birth: Callable[[int], None]


class Process:
    """A running process; made and entered by `open_process` only.

    `pid` and `pgid` are the leader's, `leader_pid` the program's own (not the same when guarded). `trace` lists what
    was done to it as (time, what); `kill_sent` is true once a kill was sent by anyone. `status` is its last report of
    itself to a notify socket.
    """

    def __init__(self, plan: _Plan, child: Child, ends: Ends) -> None:
        self.command = plan.command
        self.pid = self.pgid = child.pid
        self.started_at = trio.current_time()
        self.stdin_closed_at = -math.inf if ends.stdin is None else None
        self.guarded = plan.guarded
        self.kill_sent = False
        self.trace: list[tuple[float, str]] = []
        self.status = ""
        self._plan = plan
        self._ladder = plan.ladder
        self._child = child
        self._ends = ends
        # The guard's number where there is one: a signal to the program alone would miss what it has started.
        self._group = Group(child.pid, plan.guarded, self.note)
        consumed = ends.stdout is None or plan.on_stdout is not None
        # A task can be blocked on stdin or on a stdout for `receive` that a grandchild holds open; only a
        # watcher of the exit ends that. Elsewhere a task for each process would be idle.
        self._watched = ends.stdin is not None or not consumed or not WATCHED_BY_DESCRIPTOR
        self._detail: Shutdown | None = None
        self._exit: ExitReason | None = None
        self._ended_at: float | None = None
        self._exited, self._down = trio.Event(), trio.Event()
        self._stopping = False
        self._outputs = Outputs(
            ends.stdout,
            ends.stderr,
            stderr_limit=plan.stderr_limit,
            on_stdout=plan.on_stdout,
            on_stderr=plan.on_stderr,
            on_lost=self.begin_stop,  # it would block on a pipe that is read no more, or die of it
        )
        self._nursery: trio.Nursery

    @property
    def leader_pid(self) -> int:
        """The pid of the program itself."""
        return self._group.leader_pid

    @property
    def exit(self) -> ExitReason | None:
        """The reason of the exit, None while it runs."""
        if self._exit is None and not self._watched:
            self._look()
        return self._exit

    @property
    def condition(self) -> Condition:
        """Its observable state now, with its pipes and its guard: some reads of /proc, no wait."""
        ends, parent = self._ends, self.pid if self.guarded else None
        # Asked first: once the exit is known the number may be given away, and /proc would show a stranger.
        gone = self.exit is not None
        process = "dead" if gone else process_state(self.leader_pid, parent)
        guard = "dead" if gone else process_state(self.pid)
        return Condition(
            stdout="closed" if ends.stdout is None or ends.stdout.ended.is_set() else "open",
            stderr="closed" if ends.stderr is None or ends.stderr.ended.is_set() else "open",
            stdin="closed" if ends.stdin is None or ends.stdin.refused else "open",
            process=process,
            guard=guard if self.guarded else "none",
        )

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the exit, or to now."""
        return (trio.current_time() if self._ended_at is None else self._ended_at) - self.started_at

    @property
    def stderr(self) -> bytes:
        """The last bytes of stderr so far. Raises NoStderr when it is not a pipe."""
        if self._ends.stderr is None:
            raise NoStderr("stderr is not a pipe; open the command with one", **self._context("stderr"))
        return self._outputs.tail.value

    @property
    def stderr_total(self) -> int:
        """Bytes of stderr so far, kept or not."""
        return self._outputs.tail.total

    @property
    def discarded(self) -> int:
        """Bytes of stdout left unread on leaving that were more than 1 MiB."""
        return self._outputs.discarded

    @property
    def callback_error(self) -> Exception | None:
        """The first error a callback of the owner raised; none of them stops anything."""
        return self._outputs.callback_error

    @property
    def resident(self) -> int | None:
        """Resident memory of the program itself in bytes; None after its exit and where /proc does not show it."""
        return resident(self.leader_pid) if self.exit is None else None

    async def wait(self) -> ExitReason:
        """Wait for the exit, by status: output may still be to be received."""
        # With a watcher only that waits on the child. An exit that is known already makes this a checkpoint.
        if self._watched or self.exit is not None:
            await self._exited.wait()
        return await self._see_exit()

    async def receive(self) -> bytes:
        """The next bytes of stdout, at most 256 KiB; `b""` at the end, and on each call after it. Also after the block was left.

        One consumer: raises trio.BusyResourceError while another task, or `on_stdout`, receives. Raises NoStdout
        without a pipe, PipeFailed when the system refuses to read.
        """
        stdout = self._stdout()
        try:
            return await self._outputs.receive(stdout)
        except OSError as error:
            raise pipe_failed(error, self._context("stdout")) from error

    async def listen(self, take: Callable[[bytes], object], *, after_stderr: bool = False) -> None:
        """Call `take` with the bytes of stdout as they come, and return at their end: as a loop over `receive` does, for less
        where many processes have little to say, since one task of the run reads for all.

        `take` is called in the context of this task and must not wait; what it raises is raised here, and the next consumer
        goes on behind the bytes that it had. `after_stderr`: what was written on stderr before is handed out first. Raises as
        `receive` does.
        """
        if after_stderr:
            take = partial(self._take_after_stderr, take)
        await self._outputs.listen(self._stdout(), take)
        while data := await self.receive():
            take(data)

    def _take_after_stderr(self, take: Callable[[bytes], object], data: bytes) -> None:
        self._outputs.read_stderr()
        take(data)

    async def send(self, data: bytes) -> None:
        """Write one whole message to stdin; messages of several tasks never interleave.

        Raises at once: ProcessGone when the process has ended or is ending, StdinClosed when stdin was closed by
        either side of a process that lives, NoStdin without a pipe. Cancelled half-way it closes stdin, so that nothing can follow half a message.
        """
        stdin = self._ends.stdin
        if stdin is None:
            raise NoStdin("stdin is not a pipe; open the command with one", **self._context("stdin"))
        try:
            await stdin.send(data)
        except (trio.ClosedResourceError, trio.BrokenResourceError) as error:
            # A lost output has begun the stop that closed stdin: the caller needs the first failure, not its
            # effect.
            self._raise_lost()  # the end of the process is the consequence, that is the cause
            reason = await self._exit_behind_refusal()
            stderr = self._outputs.tail.value
            raise stdin_refused(error, reason, stderr, self._context("stdin")) from error
        except OSError as error:
            raise pipe_failed(error, self._context("stdin")) from error
        finally:
            self._note_stdin()

    def close_stdin(self) -> None:
        """End the input; output still flows. A message being written is cut. A second call does nothing."""
        if self._ends.stdin is not None:
            self._ends.stdin.close()
        self._note_stdin()

    def signal(self, signum: int) -> None:
        """Send a signal to the group; no error when the group is empty. SIGKILL is `kill`."""
        if signum == SIGKILL:
            self.kill()
        else:
            self._group.send(signum, alive=self.exit is None)

    def terminate(self) -> None:
        """Send the stop signal to the group."""
        self.signal(self._plan.stop_signal)

    def kill(self, *, guard_too: bool = False) -> None:
        """Kill the group, or by the guard the whole tree, without waiting. `guard_too` does not rely on the guard."""
        if self.exit is None:
            self.kill_sent = True
            self._group.kill(guard_too=guard_too)

    async def stop(
        self, reason: Shutdown | None = None, *, ladder: Sequence[Step] | None = None
    ) -> ExitReason:
        """Take it down by its ladder, with its group, and return the reason of its exit.

        The ladder runs once: a second call waits for the first. A cancelled call stops waiting, not the ladder. `reason`
        becomes the exit when the process dies of the stop signal, `ladder` replaces the one it was opened with; only
        the first call's count.
        """
        self.begin_stop(reason, ladder=ladder)
        await self._down.wait()
        return await self.wait()

    def begin_stop(self, reason: Shutdown | None = None, *, ladder: Sequence[Step] | None = None) -> None:
        """The same without waiting for it."""
        if self._stopping:
            return
        # Set before anything else: a second call in the midst of the ladder must not climb it again.
        self._stopping = True
        self._detail = reason
        if ladder is not None:
            self._ladder = tuple(ladder)
        if self.exit is not None:
            # Dead already: no ladder, but its group may live, and the zombie has to be reaped.
            self._put_away()
        else:
            # In a task of its own: a caller whose `stop` is cancelled stops waiting, and the process goes
            # down all the same.
            self._nursery.start_soon(_shielded, self._bring_down)

    def note(self, what: str) -> None:
        """Put `what` on the trace with the time."""
        self.trace.append((trio.current_time(), what))

    async def __aenter__(self) -> Self:
        self._tasks = trio.open_nursery()
        # Entered by hand, not by `async with`: it has to stay open between `__aenter__` and `__aexit__` of
        # this object.
        self._nursery = await self._tasks.__aenter__()
        if self._watched:
            self._nursery.start_soon(_shielded, self._watch)
        self._outputs.start(self._nursery)
        if self._ends.report is not None:
            await self._wait_for_guard(self._ends.report)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.begin_stop()
        # Shielded: a cancelled block must not leave a process. Without pipes and already down there is
        # nothing to wait for.
        if self._ends.piped or not self._down.is_set():
            await _shielded(self._wait_for_the_end)
        self.note("drained")
        # The pipes are closed after the readers have ended: a descriptor closed under a reader may be reused.
        self._ends.close()
        self.note("closed")
        # shielded, and without the error: the body's own is to leave bare, neither in the group of a nursery that the
        # caller cannot see nor replaced by a cancellation that came meanwhile
        if self._nursery.child_tasks:
            self._nursery.cancel_scope.shield = True
        await self._tasks.__aexit__(None, None, None)
        if error is None:
            # All above was shielded, so a cancellation that came meanwhile is delivered here. With an error
            # of the body it would hide that one.
            await trio.lowlevel.checkpoint_if_cancelled()
            self._raise_lost()

    async def _wait_for_guard(self, report: OutputPipe) -> None:
        try:
            self._group.leader_pid = await wait_for_guard(
                report, self.command, self._context("guard"), lambda: process_state(self.pid) == "stopped"
            )
        except BaseException:
            self.kill()  # no caller has seen the program, and none will
            # `async with` does not call `__aexit__` when `__aenter__` raises; without this the guard and its
            # nursery stay.
            await self.__aexit__(None, None, None)
            raise

    async def _watch(self) -> None:
        await self._see_exit()
        await self._outputs.drain(self._plan.drain)

    async def _see_exit(self) -> ExitReason:
        while self._exit is None:
            await self._child.wait_dead()
            self._look()
        return self._exit

    def _look(self) -> None:
        if self._exit is not None or (status := self._child.peek()) is None:
            return  # once reaped, there is nothing to look at
        sent = self._group.sent(self.kill_sent, self._detail or Shutdown())
        self._exit = judge(*status, sent, self._plan.success_codes)
        self._ended_at = trio.current_time()
        self.note("exited")
        # After `_exit`: a task that wakes here reads the reason at once.
        self._exited.set()
        # Wakes a sender that is blocked on a full pipe: a grandchild may hold the other end, and no error
        # would come.
        self.close_stdin()

    async def _exit_behind_refusal(self) -> ExitReason | None:
        self._look()
        if self._exit is None and self._is_ending():
            # the kernel closes the pipes of a dying process before it shows the status: a write in between
            # would fail with the pipe's error, which explains nothing
            with trio.move_on_after(EXIT_PATIENCE):
                await self._exited.wait()
        return self._exit

    def _raise_lost(self) -> None:
        if self._outputs.lost is not None:
            name, cause = self._outputs.lost
            raise pipe_failed(cause, self._context(name)) from cause

    def _is_ending(self) -> bool:
        try:
            stat = stat_of(self.leader_pid)
        except OSError:  # no descriptor for the look
            return True
        return (
            stat is None or stat.exiting
        )  # a guard has reaped it, or the exit cannot be seen here: the wait is bounded

    async def _bring_down(self) -> None:
        callback = self._plan.on_unresponsive
        await run_ladder(
            self, self._ladder, on_unresponsive=callback and partial(self._outputs.call, callback)
        )
        self._put_away()

    def _put_away(self) -> None:
        # The order matters: while the leader is an unreaped zombie its group number cannot be reused, so this
        # hits only ours.
        self._group.sweep()
        self.note("group killed")
        # Behind the sweep: from here on the system may give the number away.
        self._child.reap()
        # With the reap, without a checkpoint between: no other task can send to the freed number.
        self._group.close()
        self.note("reaped")
        # Last of all: the tasks that wait for it rely on a process that is gone and reaped.
        self._down.set()

    async def _wait_for_the_end(self) -> None:
        if self._ends.piped:
            if not self._watched:
                # There is no watcher to drain, so it is done here, once the exit is certain.
                await self._down.wait()
                await self._outputs.drain(self._plan.drain)
            await self._outputs.collect()
        await self._down.wait()

    def _stdout(self) -> OutputPipe:
        if self._ends.stdout is None:
            raise NoStdout("stdout is not a pipe; open the command with one", **self._context("stdout"))
        return self._ends.stdout

    def _context(self, stage: Stage) -> Context:
        has_started = (
            not self.guarded or self.leader_pid != self.pid
        )  # a guard reports the pid of what it started
        pid = self.leader_pid if has_started else None
        return {"stage": stage, "argv0": self.command.argv[0], "pid": pid, "elapsed": self.elapsed}

    def _note_stdin(self) -> None:
        stdin = self._ends.stdin
        if self.stdin_closed_at is None and stdin is not None and stdin.closed:
            self.stdin_closed_at = trio.current_time()


@trio.lowlevel.enable_ki_protection
# KI protection, too: an interrupt in the middle of the stop would leave the process behind.
async def _shielded(task: Callable[[], Awaitable[None]]) -> None:
    with trio.CancelScope(shield=True):
        await task()


class _Opening(AbstractAsyncContextManager[Process, None]):
    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Process:
        # From here to the end of `Process.__aenter__` no checkpoint comes before the process has an owner.
        plan = self._plan
        spawned = None if plan.guards is None else await plan.guards.spawn(plan.command)
        if spawned is None:
            spawned = await spawn_in_turn(plan.command, guarded=plan.guarded)
        self._process = process = Process(plan, *spawned)
        # At once: a host killed after this line finds the process in its ledger.
        self._plan.note_birth(process.pid)
        if self._plan.on_birth is not None:
            self._plan.on_birth(process)
        return await process.__aenter__()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._process.__aexit__(kind, error, trace)


def open_process(
    command: Command,
    *,
    ladder: Sequence[Step] = DEFAULT_LADDER,
    guard: bool = False,
    success_codes: AbstractSet[int] = frozenset({0}),
    stop_signal: int = SIGTERM,
    stderr_limit: int = STDERR_LIMIT,
    on_stdout: Callable[[bytes], object] | None = None,
    on_stderr: Callable[[bytes], object] | None = None,
    on_unresponsive: Callable[[float], object] | None = None,
    on_birth: Callable[[Process], object] | None = None,
    drain: float = DRAIN,
    marker: str | None = None,
) -> AbstractAsyncContextManager[Process, None]:
    """Start `command` for the length of a block: `async with open_process(command) as process`.

    On leaving, `ladder` takes it down; a kill is its last step whether written or not. `guard` puts the guard above it
    (Linux; elsewhere the process group has to do). `success_codes` are Normal exits besides 0. `stop_signal` is what
    "terminate" sends. `stderr_limit` bytes of stderr are kept; `on_stderr(bytes)` gets all of it as it comes, and
    `on_stdout(bytes)`, if given, all of stdout in place of `receive`. `on_unresponsive(seconds)` is called when a kill
    does not take. `on_birth(process)` is called with the process before anything else happens to it, and must not raise.
    `drain` in seconds. `marker` goes into the environment as PROCTOR_MARKER; below an open ledger it
    ends a marker of that one's, see `open_ledger`.

    Entering raises NotFound, NotExecutable, CwdMissing or another SpawnFailed; then nothing is left running.
    """
    command, note_birth = marked(command, marker)
    # The guard needs subreaper, pidfd and parent-death signal, which only Linux has.
    guarded, ledger = guard and sys.platform == "linux", current_ledger()
    plan = _Plan(
        command=command,
        ladder=tuple(ladder),
        guarded=guarded,
        guards=ledger.guards if guarded and ledger is not None else None,
        success_codes=success_codes,
        stop_signal=stop_signal,
        stderr_limit=stderr_limit,
        on_stdout=on_stdout,
        on_stderr=on_stderr,
        on_unresponsive=on_unresponsive,
        on_birth=on_birth,
        drain=drain,
        note_birth=note_birth,
    )
    return _Opening(plan)
