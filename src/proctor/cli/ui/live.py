"""A live view on a terminal, redrawn a few times a second, that cannot block the program.

It is drawn into memory and written by a thread: a terminal that does not read (Ctrl-S, a slow line) stops the view, not
the fleet. The screen of the terminal is restored on every way out, within half a second.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import suppress

import trio
from rich.console import Console, ConsoleDimensions, RenderableType
from rich.live import Live

from proctor.cli.ui.output import Output

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
