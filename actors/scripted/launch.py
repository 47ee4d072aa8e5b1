"""The scripted agent as a dialect: any wire, spoken by a program that plays a script.

`SCRIPTED_WIRES` lists them. Scripts and faults are checked when the dialect is made, by the code of the program itself.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

import attrs

from proctor.actors.scripted import cli
from proctor.actors.scripted.script import ScriptError, load_script, read_fault
from proctor.protocols.dialect import Command, Dialect, Launch, Mode

PROGRAM = Path(cli.__file__)
"""The program, to be run as `python -I -S PROGRAM --script FILE`."""

UNSUPPORTED = ("host_hooks",)
"""What no script can say."""


@attrs.frozen
class ScriptedWire:
    """A wire: how the `dialect` that reads it is loaded, the `wire` of the program (its `--dialect`), the `mode` of a launch."""

    load: Callable[[], Dialect]
    wire: str
    mode: Mode

    @property
    def dialect(self) -> Dialect:
        """The dialect that reads it."""
        return self.load()


def _named(family: str, name: str) -> Dialect:
    # imported with the first agent that speaks it: all of them take longer to import than the event loop
    dialect: Dialect = getattr(import_module(f"proctor.protocols.{family}"), name)
    return dialect


def _acp(profile: str) -> Dialect:
    from proctor.protocols.acp import PROFILES, acp_dialect

    return acp_dialect(PROFILES[profile])


SCRIPTED_WIRES: Mapping[str, ScriptedWire] = {
    "claude": ScriptedWire(partial(_named, "claude", "CLAUDE"), "claude", "session"),
    "codex": ScriptedWire(partial(_named, "codex", "CODEX"), "codex", "session"),
    "codex-exec": ScriptedWire(partial(_named, "codex", "CODEX_EXEC"), "codex-exec", "oneshot"),
    "acp": ScriptedWire(partial(_acp, "generic"), "acp", "session"),
    "opencode": ScriptedWire(partial(_named, "opencode", "OPENCODE"), "opencode", "session"),
    "opencode-run": ScriptedWire(partial(_named, "opencode", "OPENCODE_RUN"), "opencode-run", "oneshot"),
    "gemini": ScriptedWire(partial(_acp, "gemini"), "gemini", "session"),
    "claude-oneshot": ScriptedWire(partial(_named, "claude", "CLAUDE"), "claude", "oneshot"),
}
"""The wires that a scripted agent can be had in, by name."""


def scripted_wire(name: str) -> ScriptedWire:
    """The wire of that name. Raises ScriptError when there is none."""
    if name not in SCRIPTED_WIRES:
        raise ScriptError("dialect", 0, f"unknown dialect {name!r}; there are {', '.join(SCRIPTED_WIRES)}")
    return SCRIPTED_WIRES[name]


def check_script(script: Path) -> None:
    """Read a script, or find the recorded run of that name (a directory, or a prefix of its files).

    Raises ScriptError with `file`, `line` (from 1, 0 when no line is to blame) and `text`.
    """
    load_script(os.fspath(script))


def scripted_executable(
    script: Path, *, dialect: str = "claude", faults: tuple[str, ...] = (), speed: float = 0
) -> tuple[str, ...]:
    """The words that start the program, to which the arguments of the real CLI are appended.

    `speed` is for recorded runs: 0 as fast as possible, 1 as it was, 2 twice as fast. Raises ScriptError.
    """
    check_script(script)
    if isinstance(faults, str):
        raise ScriptError("--fault", 0, f"faults is a tuple of faults, got {faults!r}")
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 <= speed < math.inf:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScriptError("speed", 0, f"a speed is 0 or more, got {speed!r}")
    for fault in faults:
        read_fault(fault)
    return program_command(str(script.absolute()), scripted_wire(dialect).wire, faults, speed)


def program_command(script: str, wire: str, faults: tuple[str, ...], speed: float) -> tuple[str, ...]:
    """The words that start the program with arguments that were checked; `wire` is its `--dialect`."""
    words = [sys.executable, "-I", "-S", str(PROGRAM), f"--script={script}"]
    words += [f"--dialect={wire}"] if wire != "claude" else []
    return (*words, *(f"--fault={fault}" for fault in faults), *([f"--speed={speed:g}"] if speed else ()))


def scripted_dialect(
    script: Path, *, dialect: str = "claude", faults: tuple[str, ...] = (), speed: float = 0
) -> Dialect:
    """A dialect of `SCRIPTED_WIRES` with our program behind it; `Launch.executable` is not looked at.

    Raises ScriptError for a dialect that there is not, and for a mistake in the script or in a fault, before anything
    is started.
    """
    executable = scripted_executable(script, dialect=dialect, faults=faults, speed=speed)
    real = scripted_wire(dialect).dialect
    unplayed = {*UNSUPPORTED, *(("host_tools",) if scripted_wire(dialect).mode in real.relayed else ())}
    can = {word: first for word, first in real.capabilities.items() if word not in unplayed}
    how = partial(launch, real, executable)
    return attrs.evolve(real, name="scripted", launch=how, capabilities=can, relayed=frozenset())


def launch(real: Dialect, executable: tuple[str, ...], options: Launch) -> Command:
    """The real dialect's own arguments behind another executable. Hooks of the host are never called, and no server of MCP
    is started: so tools of the host are only there where the wire itself has them."""
    command = real.launch(attrs.evolve(options, executable=executable, host_hooks=()))
    relayed = ("host_tools",) if options.mode in real.relayed else ()
    unplayed = [field for field in (*UNSUPPORTED, *relayed, "mcp") if getattr(options, field)]
    return attrs.evolve(command, ignored=tuple(dict.fromkeys((*command.ignored, *unplayed))))
