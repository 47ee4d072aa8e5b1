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

PLAYER = PROGRAM.with_name("player.py")
"""The program that plays recordings of JSON-RPC, to be run as `python -I -S PLAYER --script PREFIX`."""


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
    return attrs.evolve(CLAUDE, name="scripted", launch=functools.partial(launch, executable))


def launch(executable: tuple[str, ...], wanted: Launch) -> Command:
    """Claude Code's own arguments behind another executable."""
    return CLAUDE.launch(attrs.evolve(wanted, executable=executable))
