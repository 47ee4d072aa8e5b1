"""NDJSON from a child process: one turn of text deltas, from the pipe to the reader.

    python -m bench.ndjson [--lines 100000] [--rounds 7] [--per-write 16]

All contenders read the same writer. By default it writes 16 lines, about 4 KB, at once: with a write(2) for each line
it is slower than the limit, which then spends its time on being woken. The watch runs from the moment the writer, which
is ready, is let go, to the last line; the start of processes is not in it. Each contender counts what it got, and a
wrong count is an error.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sized
from contextlib import aclosing, closing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
import msgspec
import trio

from bench import writer
from bench.contest import Contender, Stopwatch, Work, hold, in_asyncio, in_trio, options, table
from bench.peers.entries import streamers
from proctor.actors.plan.plan import Plan
from proctor.actors.process.agent_process import AgentProcess
from proctor.actors.recording.eventlog import Cursor, EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.protocols import dialect as dialects
from proctor.protocols.claude import CLAUDE
from proctor.protocols.conversation import Conversation
from proctor.protocols.framing import Framing, Oversized
from proctor.protocols.vocabulary import Prompt, TextDelta, TurnEnded
from proctor.runtime.processes import Command, Process, open_process

LINES = 100_000
PER_WRITE = 16
"""Lines to a write(2); about 4 KB, which a pipe takes whole."""

READ_SIZE = 64 * 1024
PIPE_SIZE = 256 * 1024
START = 30.0
"""Seconds that a writer may take to get ready."""

FRAMES = 2
"""What the writer writes besides the deltas."""

LIMIT = "read, decode_lines"
WHOLE = "whole path, async for"
PEER = "asyncio, json.loads"


class Incomplete(Exception):
    """The writer did not start, or a contender did not get every line."""


def expect(got: int, wanted: int) -> None:
    """Raises `Incomplete` when they differ."""
    if got != wanted:
        raise Incomplete(f"{got} of {wanted} lines")


class Source:
    """One writer to be: `argv` starts it, `wait_ready` blocks until it has made its lines; `folder` is its own
    and empty but for a FIFO. To be used in a `with`."""

    def __init__(self, per_write: int, lines: int) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="proctor-bench-")
        self.folder = self._temporary.name
        fifo = str(Path(self.folder, "ready"))
        os.mkfifo(fifo)
        self._ready = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        program = str(Path(writer.__file__))
        self.argv = (sys.executable, "-I", "-S", program, str(lines), str(per_write), fifo)

    def wait_ready(self) -> None:
        """Blocks, also an event loop: nothing else is to happen meanwhile. Raises `Incomplete` after START seconds."""
        if not select.select([self._ready], [], [], START)[0]:
            raise Incomplete(f"the writer was not ready after {START:g} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._ready)
        self._temporary.cleanup()


class Line(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    """A line, as little of it as tells one from another and gives the text."""


class Delta(msgspec.Struct, frozen=True, gc=False):
    """The piece of text."""

    type: str = ""
    text: str = ""


class ApiEvent(msgspec.Struct, frozen=True, gc=False):
    """What a line of a stream wraps."""

    type: str = ""
    delta: Delta | None = None


class StreamEvent(Line, frozen=True, gc=False, tag="stream_event"):
    """All lines but the first and the last."""

    event: ApiEvent
    parent_tool_use_id: str | None = None


class System(Line, frozen=True, gc=False, tag="system"):
    """The first."""

    subtype: str = ""


class Result(Line, frozen=True, gc=False, tag="result"):
    """The last."""

    result: str | None = None


decode_lines = msgspec.json.Decoder(StreamEvent | System | Result).decode_lines


def blocking(count: Callable[[int], int], per_write: int, lines: int) -> Stopwatch:
    """The limits: plain reads in this thread, no event loop. `count` reads a descriptor to its end."""
    pipe = subprocess.PIPE
    with (
        Source(per_write, lines) as source,
        subprocess.Popen(source.argv, stdin=pipe, stdout=pipe, pipesize=PIPE_SIZE) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        source.wait_ready()
        with Stopwatch() as watch:
            child.stdin.close()
            got = count(child.stdout.fileno())
    expect(got, lines + FRAMES)
    return watch


def count_newlines(fd: int) -> int:
    """Read and look for line ends, which is less than anybody needs."""
    got = 0
    while data := os.read(fd, READ_SIZE):
        got += data.count(b"\n")
    return got


def count_decoded(fd: int) -> int:
    """Read and decode."""
    got, kept = 0, b""
    while data := os.read(fd, READ_SIZE):
        cut = data.rfind(b"\n") + 1
        if cut:
            got += len(decode_lines(b"".join((kept, memoryview(data)[:cut]))))
            kept = data[cut:]
        else:
            kept += data
    return got


async def framing(per_write: int, lines: int) -> Stopwatch:
    """`open_process`, its lines one by one from an async generator, not decoded."""
    got = 0
    with Source(per_write, lines) as source:
        async with (
            open_process(Command(source.argv, dict(os.environ))) as process,
            aclosing(framed(process)) as frames,
        ):
            source.wait_ready()
            with Stopwatch() as watch:
                process.close_stdin()
                async for _ in frames:
                    got += 1
    expect(got, lines + FRAMES)
    return watch


async def framed(process: Process) -> AsyncGenerator[bytes | Oversized]:
    """The lines of a process."""
    framing = Framing()
    while data := await process.receive():
        for line in framing.feed(data):
            yield line


Feed = Callable[[bytes], Sized]


async def feeding(make: Callable[[], Feed], per_write: int, lines: int) -> Stopwatch:
    """`open_process`, and what takes its bytes and returns something to be counted for each line."""
    feed, got = make(), 0
    with Source(per_write, lines) as source:
        async with open_process(Command(source.argv, dict(os.environ))) as process:
            source.wait_ready()
            with Stopwatch() as watch:
                process.close_stdin()
                while data := await process.receive():
                    got += len(feed(data))
    expect(got, lines + FRAMES)
    return watch


def to_frames() -> Feed:
    """Bytes to lines."""
    return Framing().feed


def to_events() -> Feed:
    """Bytes to events: `Started` and `TurnStarted` come of the first line, `TurnEnded`, not counted, of the last."""
    conversation = Conversation(CLAUDE, mode="oneshot")
    conversation.greet()
    conversation.send(Prompt("p1", "go"))
    return lambda data: [event for event in conversation.receive(data) if event.__class__ is not TurnEnded]


Reader = Callable[[Cursor], Awaitable[int]]


async def one_by_one(cursor: Cursor) -> int:
    """Count the deltas of a turn, event by event."""
    got = 0
    async for event in cursor:
        if event.__class__ is TextDelta:
            got += 1
        elif event.__class__ is TurnEnded:
            break
    return got


async def by_batch(cursor: Cursor) -> int:
    """Count the deltas of a turn, a batch at a time."""
    got = 0
    while batch := await cursor.batch():
        got += sum(event.__class__ is TextDelta for event in batch)
        if any(event.__class__ is TurnEnded for event in batch[-3:]):
            break
    return got


async def incarnate(read: Reader, per_write: int, lines: int) -> Stopwatch:
    """The path of every agent: process under its guard, recording, conversation, log on disk, cursor."""
    with Source(per_write, lines) as source, closing(RunDirectory(None, "bench")) as directory:
        log = EventLog(directory.path / "events.ndjson")
        live = AgentProcess(plan_for(source), log, directory)
        async with trio.open_nursery() as nursery:
            await nursery.start(live.serve)
            source.wait_ready()
            cursor = log.cursor(0)
            with Stopwatch() as watch:
                await live.send(Prompt("p1", "go"))
                got = await read(cursor)
        log.release()
    expect(got, lines)
    return watch


def plan_for(source: Source) -> Plan:
    """An agent whose command line is the writer, in a one-shot run: it begins when its stdin ends."""

    def launch(wanted: dialects.Launch) -> dialects.Command:
        return dialects.Command(argv=source.argv)

    dialect = attrs.evolve(CLAUDE, name="writer", launch=launch)
    return Plan(name="writer", dialect=dialect, launch=dialects.Launch(executable=(), mode="oneshot"))


async def asyncio_json(per_write: int, lines: int) -> Stopwatch:
    """The way of most programs: a coroutine and a dict for each line."""
    got, pipe = 0, asyncio.subprocess.PIPE
    with Source(per_write, lines) as source:
        process = await asyncio.create_subprocess_exec(*source.argv, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        source.wait_ready()
        with Stopwatch() as watch:
            process.stdin.close()
            async for line in process.stdout:
                json.loads(line)
                got += 1
        await process.wait()
    expect(got, lines + FRAMES)
    return watch


def work(lines: int = LINES, per_write: int = PER_WRITE) -> Work:
    """`lines` deltas, `per_write` of them to a write(2)."""
    contenders = (
        Contender("limit", "read only", partial(blocking, count_newlines, per_write)),
        Contender("limit", LIMIT, partial(blocking, count_decoded, per_write)),
        Contender("ours", "frames", in_trio(partial(feeding, to_frames, per_write))),
        Contender("ours", "frames, async for", in_trio(partial(framing, per_write))),
        Contender("ours", "events, not kept", in_trio(partial(feeding, to_events, per_write))),
        Contender("ours", "whole path, by batch", in_trio(partial(incarnate, by_batch, per_write))),
        Contender("ours", WHOLE, in_trio(partial(incarnate, one_by_one, per_write))),
        Contender("peer", PEER, in_asyncio(partial(asyncio_json, per_write))),
        *streamers(per_write),
    )
    return Work("NDJSON", lines, LIMIT, contenders)


def main() -> None:
    """Print the table."""
    chosen = options("NDJSON from a child process", lines=LINES, per_write=PER_WRITE)
    print(table(hold(work(chosen.lines, chosen.per_write), chosen.rounds)))


if __name__ == "__main__":
    main()
