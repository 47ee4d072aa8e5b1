"""Questions to the person at the terminal: one at a time, on stderr, answered through /dev/tty.

What is not a clear yes is a no: another word, an empty line, the end of the input, a terminal that is not in front of
us. What was typed before the question was shown does not answer it. The deadline is the policy's, around the whole.
"""

from __future__ import annotations

import os
import termios
from collections.abc import Generator
from contextlib import contextmanager

import trio

from proctor.actors.permissions import Verdict
from proctor.cli.output import Output
from proctor.cli.wording import tool_use
from proctor.protocols.vocabulary import ApprovalRequested

TERMINAL = "/dev/tty"
WIDTH = 2000
"""Characters of a tool's use that are shown: what is approved must be seen."""


class Questions:
    """An approval policy: `await questions(question)` → a `Verdict`."""

    def __init__(self, shown: Output) -> None:
        self._shown = shown
        self._turn = trio.Lock()

    async def __call__(self, question: ApprovalRequested) -> Verdict:
        """Ask. Never raises for what a terminal does."""
        async with self._turn:
            try:
                return await self._ask(f"{tool_use(question.tool, question.input, WIDTH)} — allow? [y/N] ")
            except OSError as error:
                return Verdict(False, f"the terminal cannot be asked: {error.strerror or error}")

    async def _ask(self, text: str) -> Verdict:
        with _terminal() as fd:
            if os.tcgetpgrp(fd) != os.getpgrp():
                return Verdict(False, "nobody can be asked: proctor runs in the background")
            termios.tcflush(fd, termios.TCIFLUSH)
            await self._shown.write(text.encode())
            await trio.lowlevel.wait_readable(fd)
            answer = os.read(fd, 4096).decode("utf-8", "replace").strip().lower()
        allowed = answer in ("y", "yes")
        return Verdict(allowed, "" if allowed else "denied at the terminal")


def can_ask(shown: Output) -> bool:
    """Is there a person: does one read what is shown, and is there a terminal to answer at?"""
    try:
        with _terminal():
            return shown.is_terminal
    except OSError:
        return False


@contextmanager
def _terminal() -> Generator[int]:
    fd = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
