"""Displays of a running fleet: lines, or a table that is redrawn on a terminal.

`show` never waits: lines that come faster than they are read are dropped, oldest first, and counted. `run` writes until
`close` and then the closing table. It raises `BrokenPipeError` when the reader has gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import trio
from rich.console import ConsoleDimensions, RenderableType

from proctor.cli.ui.fleet_log import Line
from proctor.cli.ui.fleet_table import format_line
from proctor.cli.ui.live import live_view
from proctor.cli.ui.output import Output

WAITING = 1000
"""Lines that may wait to be written."""
KEPT = 500
"""Lines that are written again when the live table is closed."""

TimedLine = tuple[float, Line]


class LineDisplay:
    """Display with one line for each event."""

    def __init__(self, out: Output, width: int) -> None:
        self._out = out
        self._width = width
        self._waiting: deque[str] = deque()
        self._lost = 0
        self._closed = False
        self._news = trio.Event()

    def show(self, at: float, line: Line) -> None:
        """Show a line."""
        if len(self._waiting) >= WAITING:
            # the oldest: what happens now matters more to a reader who falls behind
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(format_line(at, line, self._width))
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
        lost = [f"         ({self._lost} lines were not read in time)"] if self._lost else []
        lines, self._lost = [*lost, *self._waiting], 0
        self._waiting.clear()
        return "".join(f"{line}\n" for line in lines)


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
