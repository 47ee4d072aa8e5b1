"""Approvals at the terminal: one question at a time, on stderr, answered through /dev/tty.

Everything but a clear yes denies: another word, an empty line, the end of the input, a process in the background. Input
from before the question was shown is thrown away. `a` allows the tool until the run ends; `d` denies with a reason for
the model. A tool that writes a file is shown with its diff. A tool that asks its user is a menu, whatever the rules say.
"""

from __future__ import annotations

import glob
import os
import termios
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from proctor.actors.plan.permissions import Rule, Verdict, verdict_of
from proctor.actors.tools.diffs import changes
from proctor.actors.tools.menus import MenuQuestion, questions_of
from proctor.cli.ui.output import Output
from proctor.cli.ui.text import printable, tool_use
from proctor.protocols.vocabulary import ApprovalRequested

TERMINAL = "/dev/tty"
WIDTH = 2000
"""Characters of a tool call that are shown: the user must see what is approved."""

LINES = 400
"""Lines of a diff that are shown; the number of the others stands below."""

CHOICE = "allow? [y/N, a: always in this run, d: deny and say why] "
_DENIED = "denied at the terminal"
_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"


class TerminalApprovals:
    """An approval policy that asks at the terminal. `rules` decide first; `cwd` is the folder of relative paths in a tool call."""

    def __init__(self, shown: Output, rules: Sequence[Rule] = (), cwd: Path | None = None) -> None:
        self._shown = shown
        self._rules = list(rules)
        self._cwd = cwd or Path()
        self._turn = trio.Lock()

    async def __call__(self, question: ApprovalRequested) -> Verdict:
        """Ask about one tool call. An error of the terminal denies."""
        # agents ask at the same time, but the terminal has one line for an answer
        async with self._turn:
            items = questions_of(question)
            ruled = verdict_of(self._rules, question.tool)
            # a rule may deny a question to the user but not answer it
            if ruled is not None and not (ruled.allow and items):
                return ruled
            try:
                return await (self._choose(question, items) if items else self._approve(question))
            except OSError as error:
                return Verdict(False, f"the terminal cannot be asked: {error.strerror or error}")

    async def _approve(self, question: ApprovalRequested) -> Verdict:
        shown = tool_use(question.tool, question.input, WIDTH)
        diff = partial(changes, question.tool, question.input, self._cwd)
        lines = await trio.to_thread.run_sync(diff, abandon_on_cancel=True)
        before = "" if lines is None else _coloured(lines)
        with _terminal() as fd:
            match await self._line(fd, f"{before}{shown} — {CHOICE}"):
                case None:
                    return Verdict(False, "cannot ask: proctor runs in the background")
                case "y" | "yes":
                    return Verdict(True)
                case "a" | "always":
                    return await self._always(question.tool)
                case "d" | "deny":
                    why = (await self._line(fd, "why? ", lower=False)) or ""
                    return Verdict(False, f"{_DENIED}: {why}" if why else _DENIED)
                case _:
                    return Verdict(False, _DENIED)

    async def _always(self, tool: str) -> Verdict:
        # escaped: the name of a tool is the model's, and as a glob it could allow others
        rule = Rule(glob.escape(tool), True)
        self._rules.insert(0, rule)
        await self._shown.say(f"from now on in this run: --allow {rule.tool}")
        return Verdict(True)

    async def _choose(self, question: ApprovalRequested, items: Sequence[MenuQuestion]) -> Verdict:
        """Ask each question of a menu; a missing answer denies the whole call."""
        answers = dict[str, str]()
        with _terminal() as fd:
            for item in items:
                typed = await self._line(fd, printable(item.format()), lower=False)
                if not typed:
                    return Verdict(False, "nothing was chosen at the terminal")
                answers[item.question] = item.answer(typed)
        return Verdict(True, input={**question.input, "answers": answers})

    async def _line(self, fd: int, text: str, *, lower: bool = True) -> str | None:
        """Read a line, None in the background."""
        # to read in the background would stop us with SIGTTIN
        if os.tcgetpgrp(fd) != os.getpgrp():
            return None
        # keys from before the question was shown are no answer to it
        termios.tcflush(fd, termios.TCIFLUSH)
        await self._shown.write(text.encode("utf-8", "replace"))
        # not a read in a thread: that could not be abandoned, and would eat the next answer
        await trio.lowlevel.wait_readable(fd)
        typed = os.read(fd, 4096).decode("utf-8", "replace").strip()
        return typed.lower() if lower else typed


def _coloured(lines: Sequence[str]) -> str:
    colours = {"+": _GREEN, "-": _RED}
    shown = [f"{colours.get(line[:1], '')}{_plain(line)}{_PLAIN}\n" for line in lines[:LINES]]
    if len(lines) > LINES:
        shown.append(f"… and {len(lines) - LINES} more lines\n")
    return "".join(shown)


def _plain(line: str) -> str:
    return printable(line.replace("\n", " "))


def can_ask(shown: Output) -> bool:
    """Whether a user can answer: stderr and the controlling terminal are there."""
    try:
        with _terminal():
            return shown.is_terminal
    except OSError:
        return False


@contextmanager
def _terminal() -> Generator[int]:
    # the controlling terminal, since stdin may hold the prompt; O_CLOEXEC keeps it from the agents
    fd = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
