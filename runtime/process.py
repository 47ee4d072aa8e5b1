"""An operating-system process in a group of its own, owned by a block of code.

`async with open_process(command) as process` guarantees: leaving the block, on any path and under any cancellation,
the process is stopped by its ladder, its group is killed, it is reaped, its output is drained, its pipes are closed
and no task is left, in this order (R037), which is to be seen on `process.trace`.
The exit is what the status says (R040), the end of output what the pipe says; neither stands in for the other.

Invariants. Nothing is awaited between the birth of the process and its having an owner. The dead leader stays a
zombie until its group has been killed, so that its number cannot belong to strangers. stderr is read from the first
moment by a task that only the end of stderr ends. After the exit everything that was in the pipes is still handed
out; where a grandchild holds a pipe open, what it writes later than `drain` seconds after the exit is not. The ladder
runs once, in a task of its own, shielded: whoever waits for it may be cancelled, it may not.

Guarded (Linux), the group's leader is `guard`, which takes the whole tree down, in whatever sessions it hides, also
when the runtime dies without a word. Elsewhere, and unguarded, a descendant in a session of its own survives.
Not here: restarts, lines, deadlines, what an earlier host left behind.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import attrs
import trio

from proctor.runtime.exits import ExitReason, Shutdown
from proctor.runtime.ledger import marked
from proctor.runtime.pipes import Outlet, Tail
from proctor.runtime.process_errors import (
    Context,
    NoStderr,
    NoStdin,
    NoStdout,
    ProcessGone,
    Stage,
    StdinClosed,
)
from proctor.runtime.spawning import MARKER, Child, Command, Ends, hear_guard, resident, spawn, survivors
from proctor.runtime.stopping import DEFAULT_LADDER, Sent, Step, judge, run_ladder

__all__ = ["DRAIN", "MARKER", "Command", "Process", "open_process", "survivors"]

DRAIN = 2.0
"""Seconds after the exit for which output that a grandchild still writes is waited for."""

STDERR_LIMIT = 64 * 1024
LEFTOVER_LIMIT = 1024 * 1024

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class _Plan:
    command: Command
    ladder: tuple[Step, ...]
    guarded: bool
    success_codes: AbstractSet[int]
    stop_signal: int
    stderr_limit: int
    on_stderr: Callable[[bytes], object] | None
    on_unresponsive: Callable[[float], object] | None
    drain: float
    note_birth: Callable[[int], None]


class Process:
    """A running process; made and entered by `open_process` only.

    `pid` and `pgid` are the leader's, `leader_pid` the program's own (not the same when guarded). `trace` lists what
    was done to it as (time, what). `discarded` counts bytes of output left unread on leaving that were more than
    LEFTOVER_LIMIT. `callback_error` is the first error a callback of the owner raised; none of them stops anything.
    """

    def __init__(self, plan: _Plan, child: Child, ends: Ends) -> None:
        self.command = plan.command
        self.pid = self.pgid = self.leader_pid = child.pid
        self.guarded = plan.guarded
        self.started_at = trio.current_time()
        self.stdin_closed_at = -math.inf if ends.stdin is None else None
        self.kill_sent = False
        self.trace: list[tuple[float, str]] = []
        self.discarded = 0
        self.callback_error: Exception | None = None
        self._plan = plan
        self._ladder = plan.ladder
        self._child = child
        self._ends = ends
        self._signals: set[int] = set()
        self._detail = Shutdown()
        self._exit: ExitReason | None = None
        self._ended_at: float | None = None
        self._exited = trio.Event()
        self._down = trio.Event()
        self._closed = trio.Event()
        self._stopping = self._closing = False
        self._tail = Tail(plan.stderr_limit)
        self._leftover = bytearray()
        self._nursery: trio.Nursery

    @property
    def exit(self) -> ExitReason | None:
        """The reason of the exit by T19, None while it runs."""
        return self._exit

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the exit, or to now."""
        return (trio.current_time() if self._ended_at is None else self._ended_at) - self.started_at

    @property
    def stderr(self) -> bytes:
        """The last bytes of stderr so far. Raises NoStderr when it is not a pipe."""
        if self._ends.stderr is None:
            raise NoStderr("stderr is not a pipe; open the command with one", **self._context("stderr"))
        return self._tail.value

    @property
    def stderr_total(self) -> int:
        """Bytes of stderr so far, kept or not."""
        return self._tail.total

    @property
    def resident(self) -> int | None:
        """Resident memory of the program itself in bytes (R049); None after its exit and where /proc does not say."""
        return resident(self.leader_pid) if self._exit is None else None

    async def wait(self) -> ExitReason:
        """Wait for the exit, by status: output may still be to be received (R040)."""
        await self._exited.wait()
        assert self._exit is not None
        return self._exit

    async def receive(self) -> bytes:
        """The next bytes of stdout, at most 256 KiB; `b""` at the end, for ever. Also after the block was left.

        One consumer: raises trio.BusyResourceError while another task receives. Raises NoStdout without a pipe.
        """
        stdout = self._ends.stdout
        if stdout is None:
            raise NoStdout("stdout is not a pipe; open the command with one", **self._context("stdout"))
        if not self._closing:
            with contextlib.suppress(trio.ClosedResourceError):
                return await stdout.receive()
        await self._closed.wait()
        data, self._leftover = bytes(self._leftover), bytearray()
        return data

    async def send(self, data: bytes) -> None:
        """Write one whole message to stdin; messages of several tasks never interleave (R097).

        Raises at once (R098): ProcessGone after the exit, StdinClosed when stdin was closed by either side, NoStdin
        without a pipe. Cancelled half-way it closes stdin, so that nothing can follow half a message.
        """
        stdin = self._ends.stdin
        if stdin is None:
            raise NoStdin("stdin is not a pipe; open the command with one", **self._context("stdin"))
        try:
            await stdin.send(data)
        except (trio.ClosedResourceError, trio.BrokenResourceError) as error:
            raise self._unwritable(error) from error
        finally:
            self._note_stdin()

    def close_stdin(self) -> None:
        """End the input; output still flows (R099). A message being written is cut. A second call does nothing."""
        if self._ends.stdin is not None:
            self._ends.stdin.close()
        self._note_stdin()

    def signal(self, signum: int) -> None:
        """Send a signal to the group; no error when nobody is there (R035). SIGKILL is `kill`."""
        if signum == signal.SIGKILL:
            self.kill()
            return
        if self._exit is None:
            self._signals.add(signum)
        if self.guarded and signum == signal.SIGUSR1:  # to the guard it would mean: kill everything
            self._deliver(os.kill, self.leader_pid, signum)
        else:
            self._deliver(os.killpg, self.pgid, signum)

    def terminate(self) -> None:
        """Send the stop signal to the group."""
        self.signal(self._plan.stop_signal)

    def kill(self, *, guard_too: bool = False) -> None:
        """Kill the group, or by the guard the whole tree, without waiting. `guard_too` does not rely on the guard."""
        if self._exit is not None:
            return
        self.kill_sent = True
        if self.guarded and not guard_too:
            self._deliver(os.kill, self.pid, signal.SIGUSR1)
            self._deliver(os.kill, self.pid, signal.SIGCONT)
        else:
            self._deliver(os.killpg, self.pgid, signal.SIGKILL)

    async def stop(
        self, reason: Shutdown | None = None, *, ladder: Sequence[Step] | None = None
    ) -> ExitReason:
        """Take it down by its ladder, with its group, and return the reason of its exit.

        The ladder runs once: a second call waits for the first. A cancelled call stops waiting, not the ladder. `reason`
        becomes the exit when the process dies of the stop signal, `ladder` replaces the one it was opened with; only
        the first call's count.
        """
        if not self._stopping:
            self._stopping = True
            self._detail = reason or self._detail
            if ladder is not None:
                self._ladder = tuple(ladder)
            self._nursery.start_soon(_shielded, self._bring_down)
        await self._down.wait()
        return await self.wait()

    def note(self, what: str) -> None:
        """Put `what` on the trace with the time."""
        self.trace.append((trio.current_time(), what))

    async def __aenter__(self) -> Self:
        self._tasks = trio.open_nursery()
        self._nursery = await self._tasks.__aenter__()
        self._nursery.start_soon(_shielded, self._watch)
        if self._ends.stderr is not None:
            self._nursery.start_soon(_shielded, partial(self._pump, self._ends.stderr))
        started = False
        try:
            if self._ends.report is not None:
                self.leader_pid = await hear_guard(self._ends.report, self.command, self._context("guard"))
            started = True
        finally:
            if not started:
                await self.__aexit__(None, None, None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _shielded(self._close)
        # shielded, and told of no error: the body's own is to leave bare, neither in the group of a nursery that the
        # caller cannot see nor replaced by a cancellation that came meanwhile
        self._nursery.cancel_scope.shield = True
        await self._tasks.__aexit__(None, None, None)
        if error is None:
            await trio.lowlevel.checkpoint_if_cancelled()

    async def _watch(self) -> None:
        code, signum = await self._child.wait_dead()
        sent = Sent(signals=self._signals, killed=self.kill_sent, guarded=self.guarded, detail=self._detail)
        self._exit = judge(code, signum, sent, self._plan.success_codes)
        self._ended_at = trio.current_time()
        self.note("exited")
        self._exited.set()
        self.close_stdin()
        outlets = [end for end in (self._ends.stdout, self._ends.stderr) if end is not None]
        with trio.move_on_after(self._plan.drain):
            for end in outlets:
                await end.ended.wait()
        for end in outlets:
            end.expire()

    async def _pump(self, stderr: Outlet) -> None:
        while data := await stderr.receive():
            self._tail.add(data)
            if self._plan.on_stderr is not None:
                self._tell(self._plan.on_stderr, data)

    async def _bring_down(self) -> None:
        told = self._plan.on_unresponsive
        await run_ladder(self, self._ladder, on_unresponsive=told and partial(self._tell, told))
        self._deliver(os.killpg, self.pgid, signal.SIGKILL)
        self.note("group killed")
        self._child.reap()
        self.note("reaped")
        self._down.set()

    async def _close(self) -> None:
        self._closing = True
        async with trio.open_nursery() as nursery:
            if self._ends.stdout is not None:
                self._ends.stdout.take_over()
                nursery.start_soon(self._collect, self._ends.stdout)
            await self.stop()
        if self._ends.stderr is not None:
            await self._ends.stderr.ended.wait()
        self.note("drained")
        self._ends.close()
        self.note("closed")
        self._closed.set()

    async def _collect(self, stdout: Outlet) -> None:
        while data := await stdout.receive():
            room = LEFTOVER_LIMIT - len(self._leftover)
            self._leftover += data[:room]
            self.discarded += max(0, len(data) - room)

    def _unwritable(self, error: Exception) -> ProcessGone | StdinClosed:
        context = self._context("stdin")
        if self._exit is not None:
            text = f"it has ended ({self._exit}), stdin takes nothing more"
            return ProcessGone(text, reason=self._exit, stderr=self._tail.value, **context)
        return StdinClosed(f"stdin takes nothing more: {error}", **context)

    def _context(self, stage: Stage) -> Context:
        return {"stage": stage, "argv0": self.command.argv[0], "pid": self.pid, "elapsed": self.elapsed}

    def _deliver(self, send: Callable[[int, int], None], number: int, signum: int) -> None:
        if self._down.is_set():
            return  # reaped: the number may be a stranger's
        try:
            send(number, signum)
        except (ProcessLookupError, PermissionError) as error:
            self.note(f"{signal.Signals(signum).name} not delivered: {error.strerror}")

    def _tell(self, callback: Callable[[T], object], news: T) -> None:
        try:
            callback(news)
        except Exception as error:  # noqa: BLE001  the owner's code; it ends no reader (L20)
            self.callback_error = self.callback_error or error

    def _note_stdin(self) -> None:
        stdin = self._ends.stdin
        if self.stdin_closed_at is None and stdin is not None and stdin.closed:
            self.stdin_closed_at = trio.current_time()


@trio.lowlevel.enable_ki_protection
async def _shielded(task: Callable[[], Awaitable[None]]) -> None:
    with trio.CancelScope(shield=True):
        await task()


class _Opening(AbstractAsyncContextManager[Process, None]):
    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Process:
        await trio.lowlevel.checkpoint_if_cancelled()  # nothing is started in a cancelled scope (T6)
        self._process = Process(self._plan, *spawn(self._plan.command, guarded=self._plan.guarded))
        self._plan.note_birth(self._process.pid)
        return await self._process.__aenter__()

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
    stop_signal: int = signal.SIGTERM,
    stderr_limit: int = STDERR_LIMIT,
    on_stderr: Callable[[bytes], object] | None = None,
    on_unresponsive: Callable[[float], object] | None = None,
    drain: float = DRAIN,
    marker: str | None = None,
) -> AbstractAsyncContextManager[Process, None]:
    """Start `command` for the length of a block: `async with open_process(command) as process`.

    On leaving, `ladder` takes it down; a kill is its last step whether written or not. `guard` puts the guard above it
    (Linux; elsewhere the process group has to do). `success_codes` are Normal exits besides 0. `stop_signal` is what
    "terminate" sends. `stderr_limit` bytes of stderr are kept; `on_stderr(bytes)` gets all of it as it comes.
    `on_unresponsive(seconds)` is told when a kill does not take. `drain` in seconds. `marker` goes into the environment
    as PROCTOR_MARKER, see `survivors`; below an open ledger it ends a marker of that one's, see `open_ledger`.

    Entering raises NotFound, NotExecutable, CwdMissing or another SpawnFailed; then nothing is left running.
    """
    command, note_birth = marked(command, marker)
    plan = _Plan(
        command=command,
        ladder=tuple(ladder),
        guarded=guard and sys.platform == "linux",
        success_codes=success_codes,
        stop_signal=stop_signal,
        stderr_limit=stderr_limit,
        on_stderr=on_stderr,
        on_unresponsive=on_unresponsive,
        drain=drain,
        note_birth=note_birth,
    )
    return _Opening(plan)
