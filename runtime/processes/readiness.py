"""Readiness of a process: a line that it writes, a file, or a port. `notify` has the notify socket.

A readiness is a frozen record in a spec; `watch` makes a `Watch` of it for one start. Guarantees: what was there before
the start proves nothing: a file must be new or changed, and a port that is open already is a failed
start (`PortTaken`). Output is looked at as it is read, so a pattern is found across reads and wherever it stands in
the output. What the kernel gives no notification of is polled every POLL seconds.

Not here: how long it may take (`start_timeout`), and what it means when the process ends before (`program`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

import attrs
import trio

from proctor.runtime.errors import InvalidSpec
from proctor.runtime.processes.process import Process
from proctor.runtime.processes.process_errors import PortTaken
from proctor.runtime.processes.spawning import Command
from proctor.runtime.task_status import ChildStatus

POLL = 0.05
PATIENCE = 1.0
"""Seconds a port may take to answer before it is asked again."""

WINDOW = 64 * 1024
"""Bytes of output that a pattern may span, at the least."""

OutputName: TypeAlias = Literal["stdout", "stderr"]
Pattern: TypeAlias = "str | bytes | re.Pattern[bytes] | Callable[[bytes], bool]"


async def _nothing() -> None:
    return


@attrs.frozen(kw_only=True)
class Watch:
    """One start, watched. `prepare` runs before the process is there, and raises where a start makes no sense;
    `until_ready` returns when it is ready; `afterwards` runs from then to its end. `on_output` gets its output, `env` goes
    into its environment."""

    until_ready: Callable[[Process], Awaitable[None]]
    prepare: Callable[[], Awaitable[None]] = _nothing
    afterwards: Callable[[Process], Awaitable[None]] | None = None
    on_output: Callable[[OutputName, bytes], None] | None = None
    env: Mapping[str, str] = attrs.field(factory=dict[str, str])


class Readiness(Protocol):
    """A way to tell that a process is ready. `outputs` are the pipes it reads."""

    @property
    def outputs(self) -> frozenset[OutputName]:
        """The pipes it listens on."""
        ...

    def watch(self, command: Command, report: ChildStatus) -> AbstractContextManager[Watch]:
        """Watch one start of `command`."""
        ...


def _holds(part: bytes, data: bytes) -> bool:
    return part in data


def _as_test(pattern: Pattern) -> Callable[[bytes], object]:
    if isinstance(pattern, str):
        pattern = pattern.encode()
    if isinstance(pattern, bytes):
        return partial(_holds, pattern)
    return pattern if callable(pattern) else pattern.search


def _check_pattern(_: object, __: object, value: Any) -> None:
    compiled: object = getattr(value, "pattern", None)
    if isinstance(compiled, str):
        raise InvalidSpec("pattern", value, "a pattern of bytes, as in re.compile(rb'...')", of="Output")
    text = isinstance(value, str | bytes) and len(value) > 0
    if not (text or callable(value) or isinstance(compiled, bytes)):
        accepted = "a text, bytes, a compiled pattern of bytes, or a function"
        raise InvalidSpec("pattern", value, accepted, of="Output")


@attrs.frozen
class Output:
    """Ready once `pattern` is in its output: a text, a compiled pattern, or a function of the bytes read so far.

    A pattern or a function is shown the last 64 KiB and what came now. `stream` is "stdout", "stderr" or "both", each
    looked at by itself. An error of the function is a failed start. Raises `InvalidSpec`.
    """

    pattern: Pattern = attrs.field(validator=_check_pattern)
    stream: Literal["stdout", "stderr", "both"] = "both"

    @property
    def outputs(self) -> frozenset[OutputName]:
        """The pipes it listens on."""
        return frozenset({"stdout", "stderr"}) if self.stream == "both" else frozenset({self.stream})

    @contextmanager
    def watch(self, command: Command, report: ChildStatus) -> Generator[Watch]:
        """Watch one start."""
        search = _Search(_as_test(self.pattern), self.outputs)
        yield Watch(until_ready=search.until_match, on_output=search.on_output)


class _Search:
    """Looks in the task that waits, so that an error of the test is raised there."""

    def __init__(self, test: Callable[[bytes], object], outputs: frozenset[OutputName]) -> None:
        self._test = test
        self._seen: dict[OutputName, bytes] = dict.fromkeys(outputs, b"")
        self._fresh: dict[OutputName, bytearray] = {name: bytearray() for name in outputs}
        self._news = trio.Event()
        self._over = False

    def on_output(self, name: OutputName, data: bytes) -> None:
        if not self._over and name in self._fresh:
            self._fresh[name] += data
            self._news.set()

    async def until_match(self, process: Process) -> None:
        try:
            while not any(self._look(name) for name in self._fresh):
                await self._news.wait()
                self._news = trio.Event()
        finally:
            # Also when the start fails: a program that goes on writing must not fill the memory with output
            # that is never looked at.
            self._over = True

    def _look(self, name: OutputName) -> bool:
        if not self._fresh[name]:
            return False
        data = self._seen[name] + self._fresh[name]
        # Without a checkpoint since it was read, so no output gets lost between the two.
        self._fresh[name].clear()
        self._seen[name] = data[-WINDOW:]
        return bool(self._test(data))


@attrs.frozen
class File:
    """Ready once there is a file at `path`, made or changed since the start; relative to the program's directory."""

    path: str | os.PathLike[str]

    @property
    def outputs(self) -> frozenset[OutputName]:
        """None."""
        return frozenset()

    @contextmanager
    def watch(self, command: Command, report: ChildStatus) -> Generator[Watch]:
        """Watch one start."""
        path = os.path.join(command.cwd or "", self.path)
        # Taken before the program is started: a file of an earlier run proves nothing.
        before = (None, _identity(path))

        async def changed(process: Process) -> None:
            while _identity(path) in before:  # noqa: ASYNC110  # no notification exists
                await trio.sleep(POLL)

        yield Watch(until_ready=changed)


def _identity(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # The inode, too: a file replaced within one tick of the clock has the same time and often the same size.
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


def _check_port(_: object, __: object, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 65536:
        raise InvalidSpec("port", value, "a number from 1 to 65535", of="Port")


@attrs.frozen
class Port:
    """Ready once `port` of `host` takes a TCP connection, which is closed at once. Raises `InvalidSpec`.

    A port that is open before the start would prove nothing: the start fails with `PortTaken`.
    """

    port: int = attrs.field(validator=_check_port)
    host: str = "127.0.0.1"

    @property
    def outputs(self) -> frozenset[OutputName]:
        """None."""
        return frozenset()

    @contextmanager
    def watch(self, command: Command, report: ChildStatus) -> Generator[Watch]:
        """Watch one start."""

        async def free() -> None:
            if await self._answers():
                # An answer now comes from another program: it would make this start look ready at once.
                raise PortTaken(self.host, self.port, argv0=command.argv[0])

        async def answered(process: Process) -> None:
            while not await self._answers():  # noqa: ASYNC110  # no notification exists
                await trio.sleep(POLL)

        yield Watch(prepare=free, until_ready=answered)

    async def _answers(self) -> bool:
        # A firewall that drops packets answers neither way; without a limit one attempt takes minutes.
        with trio.move_on_after(PATIENCE):
            try:
                stream = await trio.open_tcp_stream(self.host, self.port)
            except OSError:
                return False
            async with stream:
                # without a listener, a connection within the range of local ports can meet itself
                return bool(stream.socket.getsockname() != stream.socket.getpeername())
        return False
