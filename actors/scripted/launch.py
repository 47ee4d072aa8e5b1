"""The scripted agent as a dialect: Claude Code's wire, spoken by a program of ours that plays a script.

Scripts and faults are checked when the dialect is made, by the code that the program itself reads them with.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import attrs

from proctor.actors.scripted import cli
from proctor.actors.scripted.script import load_script, read_fault
from proctor.protocols.claude import CLAUDE
from proctor.protocols.dialect import Command, Dialect, Launch

PROGRAM = Path(cli.__file__)
"""The program, to be run as `python -I -S PROGRAM --script FILE`."""

UNPLAYED = ("host_tools", "host_hooks")
"""What no script can say."""


def check_script(script: Path) -> None:
    """Read a script, or find the recorded run of that name (a directory, or a prefix of its files).

    Raises ScriptError with `file`, `line` (from 1, 0 when no line is to blame) and `text`.
    """
    load_script(os.fspath(script))


def scripted_executable(script: Path, *, faults: tuple[str, ...] = (), speed: float = 0) -> tuple[str, ...]:
    """The words that start the program, to which the flags of the real CLI are appended.

    `speed` is for recorded runs: 0 as fast as possible, 1 as it was, 2 twice as fast. Raises ScriptError.
    """
    check_script(script)
    for fault in faults:
        read_fault(fault)
    words = [sys.executable, "-I", "-S", str(PROGRAM), f"--script={script.absolute()}"]
    return (*words, *(f"--fault={fault}" for fault in faults), *([f"--speed={speed:g}"] if speed else ()))


def scripted_dialect(script: Path, *, faults: tuple[str, ...] = (), speed: float = 0) -> Dialect:
    """CLAUDE with another program behind it; `Launch.executable` is not looked at.

    Raises ScriptError for a mistake in the script or in a fault, before anything is started (R189).
    """
    executable = scripted_executable(script, faults=faults, speed=speed)
    can = {word: first for word, first in CLAUDE.capabilities.items() if word not in UNPLAYED}
    return attrs.evolve(
        CLAUDE, name="scripted", launch=functools.partial(launch, executable), capabilities=can
    )


def launch(executable: tuple[str, ...], wanted: Launch) -> Command:
    """Claude Code's own arguments behind another executable. Tools and hooks of the host are never called."""
    command = CLAUDE.launch(attrs.evolve(wanted, executable=executable, host_tools=(), host_hooks=()))
    unplayed = tuple(field for field in UNPLAYED if getattr(wanted, field))
    return attrs.evolve(command, ignored=(*command.ignored, *unplayed))
