"""`proctor record`: runs a command unchanged and records its input and output, so that the run can be replayed.

The program gets our stdin, environment and signals; its output is passed on byte for byte, and its exit status becomes
ours. Output is on disk before it is passed on, so a slow reader costs disk, not memory, and does not delay the program.
A reader of stdout that has gone stops the program, as a closed pipe would. The program has pipes, no terminal.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from proctor.actors.errors import AgentError, BadOption, RecordingFailed
from proctor.actors.process.orphans import track_processes
from proctor.actors.recording.recording import Recording, RunDirectory
from proctor.cli.exit_status import BY_SIGNAL, FAILED, NOT_INSTALLED, STDOUT_GONE, status_of
from proctor.cli.interrupts import not_ignored
from proctor.cli.recordings import make_room, state_directory
from proctor.cli.ui.output import Output, OutputFailed
from proctor.runtime.exits import ExitReason, ExitStatus, Killed, Normal
from proctor.runtime.processes import (
    Command,
    NotExecutable,
    NotFound,
    Process,
    ProcessError,
    ProcessGone,
    StdinClosed,
    make_directory,
    open_private,
    open_process,
)

FORWARDED_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
_CHUNK = 64 * 1024


def record_command(command: tuple[str, ...], directory: str | None) -> int:
    """Run the program and return its exit status. `directory` None: a new one in the user's state folder."""
    return trio.run(_main, command, directory)


async def _main(command: tuple[str, ...], directory: str | None) -> int:
    screen = Output(2)
    try:
        async with track_processes(screen.say), _folder(Path(command[0]).name, directory) as recording:
            return await RecordedProgram(command, recording, screen).run()
    except (NotFound, NotExecutable) as error:
        await screen.say(" ".join(str(error).split()))
        return NOT_INSTALLED
    except (AgentError, OutputFailed, ProcessError) as error:
        await screen.say(" ".join(str(error).split()))
        return status_of(error)


@asynccontextmanager
async def _folder(program: str, name: str | None) -> AsyncGenerator[Recording]:
    """Open the recording: the next incarnation of the named directory, or the first of a new one."""
    if name is None:
        root = state_directory()
        directory = RunDirectory(root, program)
        try:
            yield directory.open_incarnation()
        finally:
            directory.close()
            await make_room(root)
        return
    folder, lock = _locked(name)
    try:
        yield Recording(_next(folder))
    finally:
        # after the recording is closed: the next one may then take the next number
        os.close(lock)


def _next(folder: Path) -> Path:
    numbers = [int(inner.name) for inner in folder.iterdir() if inner.name.isdecimal()]
    return folder / str(max(numbers, default=0) + 1)


def _locked(name: str) -> tuple[Path, int]:
    """Open the directory and lock it; closing the descriptor releases the lock."""
    folder = Path(os.path.expanduser(name)).absolute()
    try:
        make_directory(folder, parents=True, exist_ok=True)
        lock = open_private(folder / "lock", os.O_RDWR)
    except OSError as error:
        raise RecordingFailed(str(folder), error) from error
    try:
        # two recordings at once would take the same number for their incarnation
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise BadOption(f"{str(folder)!r} is in use by another recording") from None
    return folder, lock


class Spool:
    """Copies the recording of one stream to our output, at the pace of its reader."""

    def __init__(self, path: Path, out: Output) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._out = out
        self._news = trio.Event()
        self._over = False

    def notify(self, *, over: bool = False) -> None:
        """Report that more is on disk; `over`: the stream has ended."""
        self._over = self._over or over
        self._news.set()

    async def copy(self) -> None:
        """Write the stream to its end. Raises `BrokenPipeError` and `OutputFailed`."""
        offset = 0
        try:
            while True:
                # both before the read: what comes during it sets the new event and is read in the next round
                self._news, over = trio.Event(), self._over
                while part := os.pread(self._fd, _CHUNK, offset):
                    await self._out.write(part)
                    offset += len(part)
                # only the value from before the read: an end that came during it may have brought more bytes
                if over:
                    return
                if not self._over:
                    await self._news.wait()
        finally:
            os.close(self._fd)


class RecordedProgram:
    """One run of the recorded program. `status` replaces its exit status, None keeps that."""

    def __init__(self, argv: tuple[str, ...], recording: Recording, screen: Output) -> None:
        self._argv, self._recording = argv, recording
        self._out = Spool(recording.path / "stdout.ndjson", Output(1))
        self._err = Spool(recording.path / "stderr.txt", screen)
        self._frames = 0
        self._status: int | None = None
        self._signalled = False
        self._process: Process

    async def run(self) -> int:
        """Run to the end and return the exit status. Raises the error of a failed start, and `RecordingFailed`."""
        program = Path(self._argv[0]).name
        names = sorted(os.environ)
        number = int(self._recording.path.name)
        # a dialect has the name of its program, by which a replay finds it
        self._recording.begin(cli=program, argv=self._argv, environment=names, incarnation=number)
        command = Command(self._argv, os.environ)
        ended: ExitReason | None = None
        try:
            # around the process, so that no signal between its start and its end can kill us and leave it
            with trio.open_signal_receiver(*not_ignored(*FORWARDED_SIGNALS)) as signals:
                async with open_process(command, guard=True, on_stderr=self._take_stderr) as self._process:
                    ended = await self._live(signals)
        finally:
            self._close(ended)
        return _code(ended) if self._status is None else self._status

    async def _live(self, signals: AsyncIterator[int]) -> ExitReason:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._forward_signals, signals)
            nursery.start_soon(self._feed)
            async with trio.open_nursery() as outward:
                outward.start_soon(self._show)
                outward.start_soon(self._show_errors)
                await self._pump()
                ended = await self._process.wait()
                # all of stdout is on disk when the pump has ended; stderr may grow until the stop, so its end
                # comes after
                self._out.notify(over=True)
                # ends what the program has left behind, and with it stderr
                await self._process.stop()
                self._err.notify(over=True)
            # the reader of our stdin waits in a thread, perhaps for ever, and is abandoned
            nursery.cancel_scope.cancel("the program has ended")
        return ended

    async def _forward_signals(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            self._signalled = True
            self._process.signal(number)

    async def _feed(self) -> None:
        """Copy our stdin to the program, with its end."""
        while data := await trio.to_thread.run_sync(_read, abandon_on_cancel=True):
            # recorded before it is sent, so that no output can stand in the recording before its cause
            self._recording.stdin(data)
            try:
                await self._process.send(data)
            except (ProcessGone, StdinClosed):
                return
        self._process.close_stdin()

    async def _pump(self) -> None:
        while data := await self._process.receive():
            self._recording.stdout(data, self._frames)
            self._frames += data.count(b"\n")
            self._out.notify()

    def _take_stderr(self, data: bytes) -> None:
        self._recording.stderr(data)
        self._err.notify()

    async def _show(self) -> None:
        try:
            await self._out.copy()
        except BrokenPipeError:
            self._status = STDOUT_GONE
            # as a closed pipe would end the program: it cannot see ours, because its output goes into the
            # recording
            self._process.begin_stop()

    async def _show_errors(self) -> None:
        # a closed stderr must not end the program: it would not have noticed it either
        with suppress(BrokenPipeError, OutputFailed):
            await self._err.copy()

    def _close(self, ended: ExitReason | None) -> None:
        # an end that we or the user caused is no property of the program, so a replay must not repeat it
        alone = not self._signalled and self._status is None and ended is not None
        facts: dict[str, object] = {
            "exit": str(ended),
            "stopper": "nobody" if alone else "owner",
            "stdout_lines": self._frames,
        }
        if alone:
            facts["exit_code"] = _raw(ended)
        self._recording.close(**facts)


def _read() -> bytes:
    stdin: object = sys.stdin
    try:
        return b"" if stdin is None else os.read(0, _CHUNK)
    except OSError:
        return b""  # a terminal that was closed, or that we may not read


def _raw(ended: ExitReason | None) -> int:
    """The exit status as `waitpid` gives it: negative for a signal."""
    match ended:
        case Normal():
            return 0
        case ExitStatus(code=int(code)):
            return code
        case ExitStatus(signal=int(number)):
            return -number
        case Killed():
            return -signal.SIGKILL
        case _:
            return FAILED


def _code(ended: ExitReason | None) -> int:
    """The exit status as a shell shows it."""
    raw = _raw(ended)
    return raw if raw >= 0 else BY_SIGNAL - raw
