"""Transports: the bytes between a conversation and its peer, and how the peer ended.

`connect`, `write`, `messages`, `end_input`, `close`, `is_ready`, and `wait`, `stop` and `exit` for its end. A peer is a process
(here), a function of this program (`in_memory`), or a session on a server. A transport is connected once and has one reader.
Messages are written whole and in order; a write to a peer that has ended fails at once; ending the input leaves the output open.
Leaving the block of `connect` ends the peer on every path; its remaining output is still read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Protocol

import attrs

from proctor.actors.errors import TransportMisuse
from proctor.runtime.exits import ExitReason, ExitStatus
from proctor.runtime.processes import Command, Condition, Process, Step, open_process


@attrs.frozen(kw_only=True)
class Start:
    """The start of a peer. `on_stderr` gets its stderr as it comes; `marker` tells its processes
    from those of other hosts."""

    command: Command
    on_stderr: Callable[[bytes], object]
    marker: str | None = None


class Transport(Protocol):
    """One far end, from before its start to after its end. Before it is connected all but `connect`, `is_ready` and
    the facts raise `TransportMisuse`."""

    @property
    def pid(self) -> int | None:
        """The process to look for, None where there is none of its own."""
        ...

    @property
    def exit(self) -> ExitReason | None:
        """Its end, None before; an `ExitStatus` carries the last of its stderr."""
        ...

    @property
    def stderr(self) -> bytes:
        """The last bytes of its stderr so far; also after its end."""
        ...

    @property
    def condition(self) -> Condition:
        """Its state as seen from outside now; reading it never waits for the peer."""
        ...

    def connect(self) -> AbstractAsyncContextManager[object]:
        """Start it for the length of a block. Raises what keeps it from starting, or `TransportMisuse` if it was
        connected before."""
        ...

    async def write(self, data: bytes) -> None:
        """Write one message whole. Raises ProcessGone after its end, StdinClosed after the end of the input."""
        ...

    def messages(self) -> AsyncIterator[bytes]:
        """Its output, as it comes and wherever it was cut; ends with its output. Raises `TransportMisuse` at the
        second call."""
        ...

    def end_input(self) -> None:
        """Nothing more will be written. A second call does nothing."""
        ...

    def close(self) -> None:
        """End it now, by force and without waiting; nothing happens where it has ended."""
        ...

    def is_ready(self) -> bool:
        """Whether it is connected and alive."""
        ...

    async def wait(self) -> ExitReason:
        """Wait for its end."""
        ...

    async def stop(self, ladder: Sequence[Step]) -> ExitReason:
        """Take it down by `ladder` and return how it ended. The first ladder is the one that runs, however many wait."""
        ...


Reach = Callable[[Start], Transport]
"""How a far end is reached: by starting a process, or otherwise."""


class Chunks:
    """The messages of a far end, from a function that gives the next bytes and at the end none, for ever."""

    def __init__(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        self._receive = receive

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> bytes:
        if chunk := await self._receive():
            return chunk
        raise StopAsyncIteration


class TransportState:
    """The steps that can be done once with the peer called `name`, and were done."""

    def __init__(self, name: str) -> None:
        self.phase: Literal["new", "connecting", "connected", "left"] = "new"
        self._name = name
        self._read = False

    def connect(self) -> None:
        """Raises `TransportMisuse` the second time."""
        if self.phase != "new":
            raise TransportMisuse(
                f"{self._name} was connected before; make another transport for another start"
            )
        self.phase = "connecting"

    def read(self) -> None:
        """Raises `TransportMisuse` the second time, and before it was connected."""
        if self.phase in ("new", "connecting"):
            raise self.too_early()
        if self._read:
            raise TransportMisuse(f"the messages of {self._name} have a reader; it keeps them")
        self._read = True

    def too_early(self) -> TransportMisuse:
        """The error for what needs a connection."""
        return TransportMisuse(f"{self._name} is not connected yet; enter the block of connect() first")


class ProcessTransport:
    """A process below a guard, with a marker in its environment. It has no ladder of its own: who leaves the block
    without a `stop` kills it."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._usage = TransportState(repr(start.command.argv[0]) if start.command.argv else "a process")
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        """The process. Raises `TransportMisuse` before it was started."""
        if self._process is None:
            raise self._usage.too_early()
        return self._process

    @property
    def pid(self) -> int | None:
        """The leader of its group, None before its start."""
        return None if self._process is None else self._process.pid

    @property
    def exit(self) -> ExitReason | None:
        """Its end, by its status."""
        reason = None if self._process is None else self._process.exit
        return attrs.evolve(reason, stderr=self.stderr) if isinstance(reason, ExitStatus) else reason

    @property
    def stderr(self) -> bytes:
        """The last 64 KiB."""
        return b"" if self._process is None else self._process.stderr

    @property
    def condition(self) -> Condition:
        """That of the process and its guard."""
        return self.process.condition

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Process]:
        """Start it. Raises NotFound, NotExecutable, CwdMissing or another SpawnFailed, or `TransportMisuse`."""
        self._usage.connect()
        start = self._start
        opening = open_process(
            start.command, ladder=(), guard=True, on_stderr=start.on_stderr, marker=start.marker
        )
        async with opening as self._process:
            self._usage.phase = "connected"
            try:
                yield self._process
            finally:
                self._usage.phase = "left"
                self._process.kill()  # a cancellation waits for no ladder; else nothing is left

    async def write(self, data: bytes) -> None:
        """Write to stdin, whole; cancelled half-way it closes it."""
        if self._process is None:
            raise self._usage.too_early()
        await self._process.send(data)

    def messages(self) -> Chunks:
        """stdout, at most 256 KiB at a time."""
        self._usage.read()
        return Chunks(self.process.receive)

    async def listen(self, take: Callable[[bytes], object], *, after_stderr: bool = False) -> None:
        """Call `take` with each message, and return at the end of the output: in place of `messages`, see `Process.listen`."""
        self._usage.read()
        await self.process.listen(take, after_stderr=after_stderr)

    def end_input(self) -> None:
        """Close stdin."""
        self.process.close_stdin()

    def close(self) -> None:
        """SIGKILL to the whole tree."""
        self.process.kill()

    def is_ready(self) -> bool:
        """Whether it was started, its block was not left, and it runs."""
        return self._usage.phase == "connected" and self._process is not None and self.exit is None

    async def wait(self) -> ExitReason:
        """Wait for its exit."""
        reason = await self.process.wait()
        # `exit` first: it carries the end of stderr.
        return self.exit or reason

    async def stop(self, ladder: Sequence[Step]) -> ExitReason:
        """Take it down, with its group."""
        reason = await self.process.stop(ladder=ladder)
        return self.exit or reason


async def read_messages(
    transport: Transport, take: Callable[[bytes], object], *, after_stderr: bool = False
) -> None:
    """Call `take` with each message, until there are no more; `after_stderr`: after what a process wrote there before it."""
    if isinstance(transport, ProcessTransport):
        await transport.listen(take, after_stderr=after_stderr)
        return
    async for message in transport.messages():  # the stderr of other far ends is handed out as it is written
        take(message)
