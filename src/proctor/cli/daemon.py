"""Runs a command that serves until it is stopped. SIGTERM is the normal way to stop it, so it is no failure."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from signal import SIGTERM
from typing import TypeVar

import trio

from proctor.cli.exit_status import BY_SIGNAL, OK

T = TypeVar("T")


def run_daemon(main: Callable[[T], Awaitable[int]], options: T) -> int:
    """Run `main` to its end and return the exit status."""
    try:
        status = trio.run(main, options)
    finally:
        gc.freeze()  # skips a garbage collection at exit that takes most of a second
    return OK if status == BY_SIGNAL + SIGTERM else status
