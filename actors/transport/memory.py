"""An in-memory transport: the peer is an async function of this process.

For tests on a virtual clock, and for peers elsewhere, to which the function carries the bytes. What the function returns is its exit
status (None is 0); an error is exit status 1 with the traceback on stderr, but an `AgentError` is a `Crash` with it; a signal or
kill cancels it. It is not cancelled with its callers. The exit is set before the streams close, so that a reader of their end
finds the reason. A function that shields itself from cancellation is waited for.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial

import attrs
import trio

from proctor.actors.errors import AgentError, RecordingFailed
from proctor.actors.transport.transport import Chunks, Reach, Start, TransportState
from proctor.protocols.framing import Framing
from proctor.runtime.exits import Crash, ExitReason, ExitStatus, Killed, Normal, Shutdown
from proctor.runtime.processes import (
    CONTINUE,
    Condition,
    Context,
    ProcessGone,
    StdinClosed,
    Step,
    run_ladder,
    stdin_refused,
)

MAX_WAITING = 16
"""Messages that may wait in either direction before their writer does."""
STDERR_LIMIT = 64 * 1024


class Lines:
    """Lines from a function that gives the next bytes; may be left at any line. One too long to keep comes cut."""

    def __init__(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        self._receive = receive
        self._framing = Framing()
        self._ready: deque[bytes] = deque()

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            chunk = await self._receive()
            if not chunk:
                raise StopAsyncIteration
            self._ready.extend(
                line if isinstance(line, bytes) else line.truncated for line in self._framing.feed(chunk)
            )
        return self._ready.popleft()


class PeerStreams:
    """The streams of the peer: its input, its output and its stderr. `shown` is its condition as the host sees it
    from outside, running and without a guard unless the function sets something else."""

    def __init__(
        self,
        incoming: trio.MemoryReceiveChannel[bytes],
        outgoing: trio.MemorySendChannel[bytes],
        complain: Callable[[bytes], None],
    ) -> None:
        self.shown = Condition()
        self._incoming = incoming
        self._outgoing = outgoing
        self.complain = complain
        """Put bytes on stderr; never waits."""

    async def receive_some(self) -> bytes:
        """The next message; `b""` at the end of the input, each time."""
        try:
            return await self._incoming.receive()
        except trio.EndOfChannel:
            return b""

    def lines(self) -> Lines:
        """The lines of the input, each without its newline, until its end."""
        return Lines(self.receive_some)

    async def send_all(self, data: bytes) -> None:
        """Send output; waits while the host does not read."""
        if data:  # an empty chunk would be taken for the end
            await self._outgoing.send(data)

    def end_output(self) -> None:
        """Close the output, and live on."""
        self.shown = attrs.evolve(self.shown, stdout="closed")
        self._outgoing.close()

    def end_input(self) -> None:
        """Close the input, and live on."""
        self.shown = attrs.evolve(self.shown, stdin="closed")
        self._incoming.close()

    def hang_up(self) -> None:
        """Close both."""
        self._incoming.close()
        self._outgoing.close()


Peer = Callable[[PeerStreams], Awaitable[int | None]]
"""The whole life of a peer; it returns its exit status."""


def in_memory(peer: Peer, *, name: str = "an in-memory peer") -> Reach:
    """Reach `peer` in place of a process; it is called anew for each start. `name` is for the texts of errors."""
    return partial(MemoryTransport, partial(_always, peer), name)


OpenPeer = Callable[[], AbstractAsyncContextManager[Peer]]
"""Makes a peer with its resources, for as long as it is connected; raises what keeps it from being connected."""


class MemoryTransport:
    """A `Transport` to a function."""

    def __init__(self, open_peer: OpenPeer, name: str, start: Start) -> None:
        self._usage = TransportState(name)
        self._open = open_peer
        self._task = _Task(name, start.on_stderr)
        self._stopping = False
        self._nursery: trio.Nursery

    @property
    def pid(self) -> None:
        """It has none."""
        return

    @property
    def exit(self) -> ExitReason | None:
        """The exit of the function, None before."""
        return self._task.exit

    @property
    def stderr(self) -> bytes:
        """The last 64 KiB of its stderr."""
        return self._task.stderr

    @property
    def condition(self) -> Condition:
        """The condition that the function shows, and which of its streams are open."""
        return self._task.condition

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[None]:
        """Call it for the length of a block. Raises what its opening does."""
        self._usage.connect()
        async with self._open() as peer, _beside(partial(self._task.live, peer)) as self._nursery:
            self._usage.phase = "connected"
            try:
                yield
            finally:
                self._usage.phase = "left"
                # A cancelled block waits for no ladder.
                self._task.kill()

    async def write(self, data: bytes) -> None:
        """Put a message into its input; cancelled, none of it is."""
        self._must_be_connected()
        if data:  # an empty chunk would be taken for the end
            await self._task.send(data)

    def messages(self) -> Chunks:
        """Its output, one message for each `send_all`."""
        self._usage.read()
        return Chunks(self._task.receive)

    def end_input(self) -> None:
        """End its input; what waits there is still received."""
        self._must_be_connected()
        self._task.close_stdin()

    def close(self) -> None:
        """Cancel it, as a kill."""
        self._must_be_connected()
        self._task.kill()

    def is_ready(self) -> bool:
        """Whether its block was entered and not left, and it has not returned."""
        return self._usage.phase == "connected" and self.exit is None

    async def wait(self) -> ExitReason:
        """Wait until it has returned."""
        self._must_be_connected()
        return await self._task.wait()

    async def stop(self, ladder: Sequence[Step]) -> ExitReason:
        """Stop it, in a task of its own, so that the caller may be cancelled."""
        self._must_be_connected()
        if not self._stopping and self.exit is None:
            self._stopping = True
            self._nursery.start_soon(_shielded, partial(run_ladder, self._task, tuple(ladder)))
        return await self._task.wait()

    def _must_be_connected(self) -> None:
        if self._usage.phase in ("new", "connecting"):
            raise self._usage.too_early()


class _Task:
    """The function as the target of a ladder."""

    def __init__(self, name: str, on_stderr: Callable[[bytes], object]) -> None:
        self.exit: ExitReason | None = None
        self.stdin_closed_at: float | None = None
        self.kill_sent = False
        self.stderr = b""
        self._failure: AgentError | None = None
        self._name = name
        self._on_stderr = on_stderr
        # Shielded: a peer ends by its ladder or a kill, as a process does, not with its caller.
        self._scope = trio.CancelScope(shield=True)
        self._exited = trio.Event()
        self._born: float | None = None
        self._input, incoming = trio.open_memory_channel[bytes](MAX_WAITING)
        outgoing, self._output = trio.open_memory_channel[bytes](MAX_WAITING)
        self._side = PeerStreams(incoming, outgoing, self.complain)

    async def live(self, peer: Peer) -> None:
        self._born = trio.current_time()
        status: int | None = None
        with self._scope:
            status = await self._play(peer)
        if self._failure is not None:
            self.exit = Crash(self._failure)
        elif self._scope.cancelled_caught:
            self.exit = Killed() if self.kill_sent else Shutdown()
        else:
            self.exit = ExitStatus(status, stderr=self.stderr) if status else Normal()
        # Before the streams close: a reader of their end looks for the reason.
        self._exited.set()
        self._side.hang_up()
        self.close_stdin()

    async def _play(self, peer: Peer) -> int | None:
        try:
            return await peer(self._side)
        except AgentError as error:
            self._failure = error
            self.complain(str(error).encode("utf-8", "replace"))
            return 1
        except Exception as error:  # noqa: BLE001  # the user's function: its fault is its crash, as a program's is
            self.complain("".join(traceback.format_exception(error)).encode("utf-8", "replace"))
            return 1

    @property
    def condition(self) -> Condition:
        if self.exit is not None:
            return Condition(stdout="closed", stderr="closed", stdin="closed", process="dead")
        shown = self._side.shown
        return shown if self.stdin_closed_at is None else attrs.evolve(shown, stdin="closed")

    def complain(self, text: bytes) -> None:
        self.stderr = (self.stderr + text)[-STDERR_LIMIT:]
        with suppress(RecordingFailed):  # the next frame raises it where it is handled
            self._on_stderr(text)

    async def receive(self) -> bytes:
        try:
            return await self._output.receive()
        except trio.EndOfChannel:
            return b""

    async def wait(self) -> ExitReason:
        await self._exited.wait()
        assert self.exit is not None
        return self.exit

    async def send(self, data: bytes) -> None:
        try:
            await self._input.send(data)
        except (trio.ClosedResourceError, trio.BrokenResourceError) as error:
            raise self._refused(error) from error

    def close_stdin(self) -> None:
        if self.stdin_closed_at is None:
            self.stdin_closed_at = trio.current_time()
            self._input.close()

    def signal(self, signum: int) -> None:
        if signum == CONTINUE.signal:
            shown = self._side.shown
            self._side.shown = attrs.evolve(
                shown,
                process="running" if shown.process == "stopped" else shown.process,
                guard="running" if shown.guard == "stopped" else shown.guard,
            )
        else:
            self.terminate()

    def terminate(self) -> None:
        self._scope.cancel("the peer is stopping")

    def kill(self, *, guard_too: bool = False) -> None:
        if self.exit is None:
            self.kill_sent = True
            self._scope.cancel("the peer was killed")

    def note(self, what: str) -> None:
        return

    def _refused(self, error: Exception) -> ProcessGone | StdinClosed:
        elapsed = 0.0 if self._born is None else trio.current_time() - self._born
        context: Context = {"stage": "stdin", "argv0": self._name, "pid": None, "elapsed": elapsed}
        return stdin_refused(error, self.exit, self.stderr, context)


@asynccontextmanager
async def _always(peer: Peer) -> AsyncGenerator[Peer]:
    yield peer


@asynccontextmanager
async def _beside(task: Callable[[], Awaitable[None]]) -> AsyncGenerator[trio.Nursery]:
    """Run `task` beside the block and wait for its end; the block's own error leaves bare, in no group."""
    tasks = trio.open_nursery()
    nursery = await tasks.__aenter__()
    nursery.start_soon(task)
    try:
        yield nursery
    finally:
        # The exit has to be known when the block is left; the kill before it bounds the wait.
        nursery.cancel_scope.shield = True
        await tasks.__aexit__(None, None, None)


async def _shielded(task: Callable[[], Awaitable[object]]) -> None:
    with trio.CancelScope(shield=True):
        await task()
