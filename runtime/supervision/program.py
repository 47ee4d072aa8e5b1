"""A plain program as a supervised child: a bridge from one process to one incarnation.

Guarantees: the end of the process ends the child with the same reason, and the bridge never starts it again by
itself. A stop takes the process down by its ladder, whose graces are fitted into the child's `shutdown`; a kill kills
the group, or the guarded tree, at once. The child has ended only when the group is gone, the process is reaped and its
output is drained. Its output is always read, so it never blocks on a full pipe. An end that is neither clean nor ours
carries the last of stderr, so that the reason shows the cause; so does a start that took too long.

A start that fails raises the typed error of `process_errors`, which is the cause of the `StartError`; a process that
ends before it is ready is a start failure with that end.

Not here: when to start it again, and how long a start may take: the supervisor's, as for any child.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from signal import SIGKILL, SIGTERM, valid_signals
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

import attrs
import trio

from proctor.runtime.errors import InvalidSpec
from proctor.runtime.exits import Exit, ExitReason, ExitStatus, Killed, Normal, Shutdown
from proctor.runtime.messaging import Kept, raise_one_of
from proctor.runtime.processes import (
    DEFAULT_LADDER,
    Command,
    Notify,
    OutputName,
    Process,
    ProcessError,
    Readiness,
    Step,
    Watch,
    fitted,
    open_process,
    spawn_refused,
)
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision.child import Bridge, Delegate
from proctor.runtime.task_status import ChildStatus

Target: TypeAlias = Literal["pipe", "null", "inherit"] | str | os.PathLike[str]
Listener: TypeAlias = Callable[[bytes], object]

QUOTED = 4096
"""Bytes of stderr that the reason of an end carries."""

PASSED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"})
PASSED_PREFIX = "LC_"


def plain_environment(parent: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of `parent` for a plain program; left out: of our own environment. No key, no proxy, nothing by accident.

    PATH, HOME, USER, LOGNAME, SHELL, LANG, LANGUAGE, LC_*, TZ and TMPDIR, those that are set.
    """
    source = os.environ if parent is None else parent
    return {k: v for k, v in source.items() if k in PASSED or k.startswith(PASSED_PREFIX)}


class Report(ChildStatus, Protocol):
    """The `task_status` of a child and the delegate of its start: `last_words` are for one that took too long."""

    delegate: Delegate | None
    last_words: bytes


@attrs.frozen(kw_only=True)
class Program(Bridge):
    """The `start` of a child that is a program; made by `process`."""

    command: Command
    ready: Readiness | None
    ladder: tuple[Step, ...]
    guard: bool
    stop_signal: int
    success_codes: frozenset[int]
    on_output: Listener | None
    on_stderr: Listener | None

    async def __call__(self, *, task_status: Report) -> None:
        """Run it in the child's task."""
        run = _Run(self, task_status)
        # Before the first wait, as `Bridge` demands: a stop has to find it.
        task_status.delegate = run
        try:
            await run.live()
        except ProcessError:
            # The start failed because a stop cut it short: then the reason is the stop.
            if run.asked is None:
                raise
            raise Exit(run.asked) from None


class _Run:
    """One process, from before its start to its end, and who may end it."""

    left: Mapping[str, Kept] = MappingProxyType({})

    def __init__(self, program: Program, report: Report) -> None:
        self.asked: ExitReason | None = None
        self._program = program
        self._report = report
        self._process: Process | None = None
        self._killed = False
        self._before = trio.CancelScope()

    def stop(self, reason: ExitReason) -> None:
        self.asked = self.asked or reason
        # Before the process exists there is only `prepare` to cut short.
        if self._process is None:
            self._before.cancel(reason=str(reason))
        else:
            self._process.begin_stop(reason if isinstance(reason, Shutdown) else None)

    def kill(self) -> None:
        self._killed = True
        if self._process is None:
            self._before.cancel(reason="killed")
        else:
            self._process.kill()
            # A bare kill for a ladder: this also sweeps the group, reaps and drains.
            self._process.begin_stop(ladder=(Step("kill"),))

    async def live(self) -> None:
        ready = self._program.ready
        if ready is None:
            await self._run_until_end(self._program.command, None)
            return
        with ExitStack() as stack:
            watch = self._watched(ready, stack)
            with self._before:
                await watch.prepare()
            # The scope has swallowed its cancellation, so the request has to be looked at.
            if self._killed or self.asked is not None:
                raise Exit(self.asked or Killed())
            command = self._program.command
            await self._run_until_end(attrs.evolve(command, env={**command.env, **watch.env}), watch)

    def _watched(self, ready: Readiness, stack: ExitStack) -> Watch:
        command = self._program.command
        try:
            return stack.enter_context(ready.watch(command, self._report))
        except OSError as error:
            argv0, path = command.argv[0], command.env.get("PATH")
            raise spawn_refused(error, argv0=argv0, cwd=command.cwd, path=path, stage="ready") from error

    async def _run_until_end(self, command: Command, watch: Watch | None) -> None:
        async with self._open(command, watch) as process:
            if watch is None:
                self._report.started(process)
                await process.wait()
            else:
                await self._wait_and_watch(process, watch)
        # After the block: only then is the output drained and stderr complete.
        self._end(process)

    def _open(self, command: Command, watch: Watch | None) -> AbstractAsyncContextManager[Process]:
        program, to_watch = self._program, None if watch is None else watch.on_output
        return open_process(
            command,
            ladder=program.ladder,
            guard=program.guard,
            success_codes=program.success_codes,
            stop_signal=program.stop_signal,
            on_stdout=_both(to_watch, "stdout", program.on_output) or _forget,
            on_stderr=_both(to_watch, "stderr", program.on_stderr),
            # By a callback: a stop that comes while the block is being entered has to reach the process
            # already.
            on_birth=self._born,
        )

    def _born(self, process: Process) -> None:
        self._process = process

    async def _wait_and_watch(self, process: Process, watch: Watch) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._become_ready, process, watch)
                await process.wait()
                # A dead process never becomes ready, and readiness may wait without a limit of its own.
                nursery.cancel_scope.cancel(reason="the process ended")
        except BaseExceptionGroup as group:
            raise_one_of(group)
            raise

    async def _become_ready(self, process: Process, watch: Watch) -> None:
        await watch.until_ready(process)
        self._report.started(process)
        if watch.afterwards is not None:
            await watch.afterwards(process)

    def _end(self, process: Process) -> None:
        stderr = process.stderr[-QUOTED:] if process.command.stderr == "pipe" else b""
        self._report.last_words = stderr
        match process.exit:
            case None | Normal():
                if self.asked is not None:  # as an actor that was asked to end and did
                    raise Exit(self.asked)
            case ExitStatus() as status:
                raise Exit(attrs.evolve(status, stderr=stderr))
            case Shutdown() as shutdown:
                raise Exit(self.asked or shutdown)
            case reason:
                raise Exit(reason)


def _forget(data: bytes) -> None:
    return


def _both(
    to_watch: Callable[[OutputName, bytes], None] | None, name: OutputName, listener: Listener | None
) -> Listener | None:
    if to_watch is None:
        return listener

    def listen(data: bytes) -> None:
        to_watch(name, data)
        if listener is not None:
            listener(data)

    return listen


def process(
    argv: Sequence[str],
    *,
    id: str,
    ready: Readiness | None = None,
    stop_signal: int = SIGTERM,
    success_codes: Collection[int] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    guard: bool = False,
    ladder: Sequence[Step] | None = None,
    stdin: Literal["pipe", "null"] = "null",
    stdout: Target | None = None,
    stderr: Target = "pipe",
    on_output: Listener | None = None,
    on_stderr: Listener | None = None,
    **spec: Any,
) -> ChildSpec:
    """A program as a child; its `Process` is the `info` of its `Ref`, and `spec` are further `ChildSpec` fields.

    `ready` says when it counts as started; left out, it is when the system runs it. `env` is its whole environment,
    left out `plain_environment()`; `cwd` left out is ours. `ladder` is how a stop goes, shortened to fit into
    `shutdown` and closed by a kill; left out, `stop_signal` and all of that time. `success_codes` end it as `Normal`,
    as 0 does. `guard` puts all it starts under a guard (Linux).

    `stdout` and `stderr` are "pipe", "null", "inherit", or a file to append to; stdout left out is a pipe where
    `on_output` or `ready` hears it, else null. Pipes are read always; the last 64 KiB of stderr are kept. `on_output`
    and `on_stderr` get the bytes as they come; what they raise is on `Process.callback_error`.

    Raises `InvalidSpec`, and `ValueError` for an `argv` or `env` that no system takes.
    """
    draft = ChildSpec(id, Program, **spec)
    _check_exits(id, stop_signal, success_codes)
    listened = _listened(ready, on_output, on_stderr)
    command = Command(
        tuple(argv) if not isinstance(argv, str) else argv,
        plain_environment() if env is None else env,
        None if cwd is None else os.fspath(cwd),
        stdin=stdin,
        stdout=_stream(stdout or ("pipe" if "stdout" in listened else "null"), id, "stdout", listened),
        stderr=_stream(stderr, id, "stderr", listened),
    )
    program = Program(
        command=command,
        ready=_with_watchdog(ready, draft.watchdog),
        ladder=_ladder(ladder, stdin, draft),
        guard=guard,
        stop_signal=stop_signal,
        success_codes=frozenset(success_codes),
        on_output=on_output,
        on_stderr=on_stderr,
    )
    return attrs.evolve(draft, start=program)


def _check_exits(id: str, stop_signal: int, success_codes: Collection[int]) -> None:
    if stop_signal not in valid_signals() or stop_signal == SIGKILL:
        raise InvalidSpec("stop_signal", stop_signal, "a signal that can be caught", of=id)
    if not all(code in range(256) for code in success_codes):
        raise InvalidSpec("success_codes", success_codes, "exit statuses from 0 to 255", of=id)


def _listened(
    ready: Readiness | None, on_output: Listener | None, on_stderr: Listener | None
) -> frozenset[OutputName]:
    listened = set[OutputName]() if ready is None else set(ready.outputs)
    if on_output is not None:
        listened.add("stdout")
    if on_stderr is not None:
        listened.add("stderr")
    return frozenset(listened)


def _stream(
    target: Target, id: str, name: OutputName, listened: frozenset[OutputName]
) -> Literal["pipe", "null", "inherit"] | Path:
    if name in listened and target != "pipe":
        raise InvalidSpec(name, target, "'pipe' where it is listened to", of=id)
    match target:
        case "pipe" | "null" | "inherit":
            return target
        case _:
            return Path(target)


def _with_watchdog(ready: Readiness | None, watchdog: float | None) -> Readiness | None:
    if isinstance(ready, Notify) and ready.watchdog is None:
        return attrs.evolve(ready, watchdog=watchdog)
    return ready


def _ladder(ladder: Sequence[Step] | None, stdin: str, spec: ChildSpec) -> tuple[Step, ...]:
    if spec.grace == "brutal_kill":
        return (Step("kill"),)
    if ladder is None:
        ladder = DEFAULT_LADDER if stdin == "pipe" else (Step("terminate", spec.grace), Step("kill"))
    return fitted(ladder, spec.grace)
