"""The output of a process on stdout and stderr: always read, handed on, and kept in part.

Guarantees: a pipe with a callback, and stderr in any case, is read from the first moment, by the run's hub or a task that only
the end of that output ends, so the process never blocks on it; a callback that raises ends no reader. stdout
without a callback is for one consumer by `receive`, and what was unread on leaving stays to be had, up to
LEFTOVER_LIMIT. Everything that was in the pipes at the exit is handed out; where somebody else still holds a pipe
open, what is written later than the drain allows is not. An output that the system refuses to read has ended; the one
the receiver gets the error, and where there is none, `lost` keeps it for the owner and `on_lost` is called.

Not here: the process. Who calls `drain` and `collect`, and when, is the business of `process`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar

import trio

from proctor.runtime.processes.pipes import OutputPipe, Tail

LEFTOVER_LIMIT = 1024 * 1024

T = TypeVar("T")
Listener = Callable[[bytes], object]
OutputName = Literal["stdout", "stderr"]


class Outputs:
    """The output of one process. `tail` holds the last of stderr; `discarded` counts the bytes left unread on leaving
    above LEFTOVER_LIMIT; `callback_error` is the first error of a callback; `lost` is the first output that could not be
    read while it had no receiver, with the reason."""

    def __init__(
        self,
        stdout: OutputPipe | None,
        stderr: OutputPipe | None,
        *,
        stderr_limit: int,
        on_stdout: Listener | None,
        on_stderr: Listener | None,
        on_lost: Callable[[], object],
    ) -> None:
        self.tail = Tail(stderr_limit)
        self.discarded = 0
        self.callback_error: Exception | None = None
        self._stdout, self._stderr = stdout, stderr
        self.lost: tuple[OutputName, OSError] | None = None
        self._on_stdout, self._on_stderr, self._on_lost = on_stdout, on_stderr, on_lost
        self._leftover = b""
        self._closing = False
        self._collected: trio.Event | None = None

    def start(self, nursery: trio.Nursery) -> None:
        """Read what is not for `receive`: by the hub, and in `nursery` what it cannot. The tasks shield themselves."""
        if self._stdout is not None and self._on_stdout is not None:
            self._begin(nursery, self._stdout, "stdout", self._on_stdout)
        if self._stderr is not None:
            self._begin(nursery, self._stderr, "stderr", self._hear)

    async def receive(self, stdout: OutputPipe) -> bytes:
        """See `Process.receive`."""
        if self._closing:
            return await self._rest()
        try:
            return await stdout.receive()
        except trio.ClosedResourceError:
            # `collect` took the pipe over while we waited in it: the rest is what it has kept
            return await self._rest()

    async def listen(self, stdout: OutputPipe, take: Listener) -> None:
        """Have the hub hand stdout to `take`, as far as it can: `receive` gives the rest."""
        if not self._closing:
            await stdout.hand_over(take)

    def read_stderr(self) -> None:
        """Hand out what is in stderr now: all that was written before what has just been read from stdout."""
        if self._stderr is not None and (data := self._stderr.read_now()):
            self.call(self._hear, data)

    async def drain(self, seconds: float) -> None:
        """Give the outputs so long to end, then let them end with what they hold."""
        outlets = self._outlets
        with trio.move_on_after(seconds):
            for output_pipe in outlets:
                await output_pipe.ended.wait()
        for output_pipe in outlets:
            output_pipe.expire()

    async def collect(self) -> None:
        """Take stdout over from its consumer, keep what is unread, and wait for the end of all."""
        # before the pipe is taken: a `receive` that comes now must get the rest, not compete for it
        self._closing = True
        if self._stdout is not None and self._on_stdout is None:
            # set only when all is kept: `_rest` would else hand out a part and then nothing
            self._collected = trio.Event()
            self._stdout.take_over()
            await self._keep(self._stdout)
            self._collected.set()
        for output_pipe in self._outlets:
            await output_pipe.ended.wait()

    def call(self, callback: Callable[[T], object], news: T) -> None:
        """Call the owner's `callback`, and keep its first error."""
        try:
            callback(news)
        except Exception as error:  # noqa: BLE001  the owner's code; it ends no reader
            self.callback_error = self.callback_error or error

    @property
    def _outlets(self) -> list[OutputPipe]:
        return [output_pipe for output_pipe in (self._stdout, self._stderr) if output_pipe is not None]

    def _begin(
        self, nursery: trio.Nursery, output_pipe: OutputPipe, name: OutputName, take: Listener
    ) -> None:
        def rest(error: BaseException | None) -> None:
            nursery.start_soon(self._pump, output_pipe, name, take, error)

        # no task before there is a rest: each process would have one that mostly waits
        if output_pipe.begin_hand_over(partial(self.call, take), rest) is None:
            rest(None)

    async def _pump(
        self, output_pipe: OutputPipe, name: OutputName, take: Listener, failure: BaseException | None
    ) -> None:
        if failure is not None:  # of a callback that raised what ends the program
            raise failure
        # a cancelled pump would leave bytes in the pipe, and the last ones tell why a process ended; `drain`
        # bounds it
        with trio.CancelScope(shield=True):
            try:
                while data := await output_pipe.receive():
                    self.call(take, data)
            except OSError as error:
                self._lose(name, error)

    def _lose(self, name: OutputName, error: OSError) -> None:
        # the first: a later one is mostly its consequence
        self.lost = self.lost or (name, error)
        self._on_lost()

    def _hear(self, data: bytes) -> None:
        self.tail.add(data)
        if self._on_stderr is not None:
            self._on_stderr(data)

    async def _rest(self) -> bytes:
        if self._collected is not None:
            await self._collected.wait()
        data, self._leftover = self._leftover, b""
        return data

    async def _keep(self, stdout: OutputPipe) -> None:
        kept = bytearray()
        try:
            while data := await stdout.receive():
                # read on above the limit, only not kept: a full pipe would block the program in its exit
                room = LEFTOVER_LIMIT - len(kept)
                kept += data[:room]
                self.discarded += max(0, len(data) - room)
        except OSError as error:
            self._lose("stdout", error)
        self._leftover = bytes(kept)
