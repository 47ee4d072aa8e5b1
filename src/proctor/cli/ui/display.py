"""The two ways a fleet is shown: a line for each thing that happens, or a picture that is redrawn on a terminal.

`tell` never waits: what is told faster than it is read is dropped from the oldest on and counted. `run` shows until
`close`, and then what is left and the closing table. It raises `BrokenPipeError` when the reader has gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import trio
from rich.console import ConsoleDimensions, RenderableType

from proctor.cli.ui.fleet_log import Line
from proctor.cli.ui.fleet_table import told_line
from proctor.cli.ui.live import live_view
from proctor.cli.ui.output import Output

WAITING = 1000
"""Lines that may wait to be written."""
KEPT = 500
"""Lines that are shown again when the picture goes."""

Moment = tuple[float, Line]


class Screen(Protocol):
    """What a fleet is shown on."""

    def tell(self, at: float, line: Line) -> None:
        """Show a line, of something that happened `at` (Unix seconds)."""
        ...

    def close(self, closing: Sequence[str]) -> None:
        """Nothing more will be told; these lines are the last."""
        ...

    async def run(self) -> None:
        """Show, until closed and all is shown."""
        ...


class Lines:
    """One line per thing that happens."""

    def __init__(self, out: Output, width: int) -> None:
        self._out = out
        self._width = width
        self._waiting: deque[str] = deque()
        self._lost = 0
        self._closed = False
        self._news = trio.Event()

    def tell(self, at: float, line: Line) -> None:
        """Show a line."""
        if len(self._waiting) >= WAITING:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(told_line(at, line, self._width))
        self._news.set()

    def close(self, closing: Sequence[str]) -> None:
        """End with these lines."""
        self._waiting += closing
        self._closed = True
        self._news.set()

    async def run(self) -> None:
        """Write what is told."""
        while self._waiting or not self._closed:
            await self._news.wait()
            self._news = trio.Event()
            await self._out.write(self._taken().encode("utf-8", "replace"))

    def _taken(self) -> str:
        lost = [f"         ({self._lost} lines were not read in time)"] if self._lost else []
        lines, self._lost = [*lost, *self._waiting], 0
        self._waiting.clear()
        return "".join(f"{line}\n" for line in lines)


class Picture:
    """A table that is redrawn, with the last lines under it; `draw(moments, size)` makes it."""

    def __init__(
        self, out: Output, width: int, draw: Callable[[Sequence[Moment], ConsoleDimensions], RenderableType]
    ) -> None:
        self._out = out
        self._width = width
        self._draw = draw
        self._moments: deque[Moment] = deque(maxlen=KEPT)
        self._closing: Sequence[str] = ()
        self._scope = trio.CancelScope()

    def tell(self, at: float, line: Line) -> None:
        """Show a line with the next picture."""
        self._moments.append((at, line))

    def close(self, closing: Sequence[str]) -> None:
        """Give the terminal back; the story so far and these lines stay on it."""
        self._closing = closing
        self._scope.cancel("the fleet has ended")

    async def run(self) -> None:
        """Draw until closed."""
        with self._scope:
            await live_view(lambda size: self._draw(list(self._moments), size))
        story = (told_line(at, line, self._width) for at, line in self._moments)
        text = "".join(f"{line}\n" for line in (*story, *self._closing))
        await self._out.write(text.encode("utf-8", "replace"))
