"""Displays of a running fleet: lines, lines of JSON, or a table that is redrawn on a terminal.

`show` never waits: lines that come faster than they are read are dropped, oldest first, and counted. `run` writes until
`close` and then the closing table. It raises `BrokenPipeError` when the reader has gone.

The table is drawn into memory and written by a thread: a terminal that does not read (Ctrl-S, a slow line) stops the view, not
the fleet. The screen of the terminal is restored on every way out, within half a second.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import msgspec
import trio
from rich.console import Console, ConsoleDimensions, RenderableType
from rich.live import Live

from proctor.cli.ui.fleet_log import Line
from proctor.cli.ui.fleet_table import format_line
from proctor.cli.ui.output import Output
from proctor.cli.ui.text import json_printable
from proctor.protocols.vocabulary import AnyEvent
from proctor.runtime.events import SupervisorEvent

WAITING = 1000
"""Lines that may wait to be written."""
RECORDS_WAITING = 10_000
"""Lines of JSON that may wait to be written: a program reads more than a person."""
KEPT = 500
"""Lines that are written again when the live table is closed."""

TimedLine = tuple[float, Line]


class LineDisplay:
    """Display with one line for each event."""

    def __init__(self, out: Output, width: int, most: int = WAITING) -> None:
        self._out = out
        self._width = width
        self._most = most
        self._waiting: deque[str] = deque()
        self._lost = 0
        self._closed = False
        self._news = trio.Event()

    def show(self, at: float, line: Line) -> None:
        """Show a line."""
        self._add(format_line(at, line, self._width))

    def _add(self, line: str) -> None:
        if len(self._waiting) >= self._most:
            # the oldest: what happens now matters more to a reader who falls behind
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(line)
        self._news.set()

    def close(self, closing: Sequence[str]) -> None:
        """End with these lines."""
        self._waiting += closing
        self._closed = True
        self._news.set()

    async def run(self) -> None:
        """Write the lines."""
        while self._waiting or not self._closed:
            await self._news.wait()
            # replaced before the write: a line that comes during it sets the new event
            self._news = trio.Event()
            await self._out.write(self._taken().encode("utf-8", "replace"))

    def _taken(self) -> str:
        lost = [self._format_lost(self._lost)] if self._lost else []
        lines, self._lost = [*lost, *self._waiting], 0
        self._waiting.clear()
        return "".join(f"{line}\n" for line in lines)

    def _format_lost(self, count: int) -> str:
        return f"         ({count} lines were not read in time)"


class JsonDisplay(LineDisplay):
    """Display with one line of JSON for each event of agents and supervisors."""

    def __init__(self, out: Output) -> None:
        super().__init__(out, 0, RECORDS_WAITING)

    def show(self, at: float, line: Line) -> None:
        """Nothing: the events that the line is about stand for themselves."""

    def show_agent(self, agent: str, events: Sequence[AnyEvent]) -> None:
        """Show events of an agent, with its name."""
        name = msgspec.json.encode(agent).decode()
        for event in events:
            self._add(f'{{"agent":{name},{self._encoded(event)[1:]}')

    def show_tree(self, event: SupervisorEvent) -> None:
        """Show an event of a supervisor."""
        facts = {name: _plain(value) for name, value in attrs.asdict(event, recurse=False).items()}
        self._add(self._encoded({"type": event.kind, **facts}))

    def close_with(self, results: Sequence[Mapping[str, Any]]) -> None:
        """End with these records."""
        self.close([self._encoded(result) for result in results])

    def _encoded(self, value: object) -> str:
        text = msgspec.json.encode(value).decode()
        return json_printable(text) if self._out.is_terminal else text

    def _format_lost(self, count: int) -> str:
        return self._encoded({"type": "dropped", "events": count})


def _plain(value: object) -> object:
    """A fact of an event as JSON has it: what is no number or text as its text."""
    return value if value is None or isinstance(value, str | int | float) else str(value)


class LiveDisplay:
    """Display that redraws a table with the last lines below it; `draw(lines, size)` renders both."""

    def __init__(
        self,
        out: Output,
        width: int,
        draw: Callable[[Sequence[TimedLine], ConsoleDimensions], RenderableType],
    ) -> None:
        self._out = out
        self._width = width
        self._draw = draw
        self._lines: deque[TimedLine] = deque(maxlen=KEPT)
        self._closing: Sequence[str] = ()
        self._scope = trio.CancelScope()

    def show(self, at: float, line: Line) -> None:
        """Show a line with the next redraw."""
        self._lines.append((at, line))

    def close(self, closing: Sequence[str]) -> None:
        """Give the terminal back; all lines so far and these lines stay on it."""
        self._closing = closing
        self._scope.cancel("the fleet has ended")

    async def run(self) -> None:
        """Draw until closed."""
        # the view restores the screen when it is cancelled; the lines below then go to the normal screen
        with self._scope:
            await live_view(lambda size: self._draw(list(self._lines), size))
        text_lines = (format_line(at, line, self._width) for at, line in self._lines)
        text = "".join(f"{line}\n" for line in (*text_lines, *self._closing))
        await self._out.write(text.encode("utf-8", "replace"))


HERTZ = 4.0
_GOODBYE = 0.5


def size_of(fd: int) -> ConsoleDimensions:
    """The size of a terminal; 80 x 24 for one that reports 0. Raises `BrokenPipeError` when it has gone."""
    try:
        size = os.get_terminal_size(fd)
    except OSError as error:
        # the descriptor was a terminal when the view began, so a failed ioctl means that it was closed
        raise BrokenPipeError(error.errno, error.strerror) from None
    return ConsoleDimensions(size.columns or 80, size.lines or 24)


async def live_view(render: Callable[[ConsoleDimensions], RenderableType], fd: int = 1) -> None:
    """Redraw `render(size)` until cancelled.

    Raises `BrokenPipeError` when the terminal has gone.
    """
    buffer, out = io.StringIO(), Output(fd)
    # drawn into memory: Rich itself would write in the loop's thread and block there
    console = Console(file=buffer, force_terminal=True)
    live = Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop")
    console.size = size_of(fd)
    live.start()
    try:
        while True:
            # asked at each redraw: SIGWINCH would need a handler, which belongs to the program
            console.size = size_of(fd)
            live.update(render(console.size), refresh=True)
            await out.write(_taken(buffer))
            await trio.sleep(1 / HERTZ)
    finally:
        live.stop()
        # shielded: the usual way out is a cancellation, and the alternate screen must not stay; bounded: the
        # terminal may be stopped by Ctrl-S
        with trio.move_on_after(_GOODBYE, shield=True), suppress(BrokenPipeError):
            await out.write(_taken(buffer))


def _taken(buffer: io.StringIO) -> bytes:
    data = buffer.getvalue().encode("utf-8", "replace")
    buffer.seek(0)
    buffer.truncate()
    return data
