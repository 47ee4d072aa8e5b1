"""A command that serves until it is told to end: SIGTERM is how it is told, and no failure."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from signal import SIGTERM
from typing import TypeVar

import trio

from proctor.cli.codes import BY_SIGNAL, OK

T = TypeVar("T")


def run_daemon(main: Callable[[T], Awaitable[int]], options: T) -> int:
    """Run `main` to its end and return the exit status."""
    try:
        status = trio.run(main, options)
    finally:
        gc.freeze()  # the interpreter would take everything apart first, for most of a second
    return OK if status == BY_SIGNAL + SIGTERM else status
