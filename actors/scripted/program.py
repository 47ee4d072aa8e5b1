"""The scripted agent as a program: its arguments, its script, and the parts that it is made of."""

from __future__ import annotations

import os
import sys

from proctor.actors.scripted.agent import Agent
from proctor.actors.scripted.faults import act
from proctor.actors.scripted.flags import Flags, UsageError, chosen_dialect
from proctor.actors.scripted.interfaces import Prompt, RunningTurn, Wire
from proctor.actors.scripted.script import ScriptError, Turn, load_script
from proctor.actors.scripted.turn import ReplayedTurn, ScriptedTurn

NAMES = ("claude", "codex", "codex-exec", "acp", "opencode", "gemini", "opencode-run")
"""The wires that the program speaks, by the values of `--dialect`."""

REPLAY = "jsonrpc"
"""The value of `--dialect` for a recording of any command line that speaks JSON-RPC."""


def main(argv: list[str]) -> int:
    """Run the program with these arguments. The exit status; 2 for a mistake in the script or in a fault."""
    try:
        if (dialect := chosen_dialect(argv)) == REPLAY:
            from proctor.actors.scripted import jsonrpc_replay

            return jsonrpc_replay.main(argv)
        wire = wire_named(dialect)
        flags = Flags(argv, wire.bare)
        if flags.has("version") or flags.has("v"):
            os.write(1, f"{wire.version_line}\n".encode())
            return 0
        script = load_script(flags.script)
        if script.recorded and not wire.replays:
            raise ScriptError(flags.script, 0, f"a recording cannot be replayed in the wire of {wire.name}")
        return Agent(flags, script, wire, act, turn_of).run()
    except (ScriptError, UsageError) as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, ScriptError) else 1


def turn_of(agent: Agent, turn: Turn, prompts: list[Prompt]) -> RunningTurn:
    """The turn that plays a turn of the script, or repeats a recorded one."""
    kind = ReplayedTurn if agent.script.recorded and not turn.steps else ScriptedTurn
    return kind(agent, turn, prompts)


def wire_named(name: str) -> type[Wire]:
    """The wire of that name, and no other, is loaded: start-up time is in every test. ScriptError when there is none."""
    if name == "claude":
        from proctor.actors.scripted.wires.claude import ClaudeWire

        return ClaudeWire
    if name == "codex":
        from proctor.actors.scripted.wires.codex import CodexWire

        return CodexWire
    if name in ("codex-exec", "opencode-run"):
        from proctor.actors.scripted.wires.oneshots import CodexExecWire, OpencodeRunWire

        return CodexExecWire if name == "codex-exec" else OpencodeRunWire
    if name in NAMES:
        from proctor.actors.scripted.wires.acp import AcpWire, GeminiWire, OpencodeWire

        return {"acp": AcpWire, "gemini": GeminiWire, "opencode": OpencodeWire}[name]
    raise ScriptError("--dialect", 0, f"unknown dialect {name!r}; there are {', '.join(NAMES)}")
