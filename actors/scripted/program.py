"""The scripted agent as a program: its arguments, its script, and the parts that it is made of."""

from __future__ import annotations

import os
import sys

from proctor.actors.scripted.agent import Agent
from proctor.actors.scripted.faults import act
from proctor.actors.scripted.flags import Flags, UsageError, chosen_dialect
from proctor.actors.scripted.replayed_turn import ReplayedTurn
from proctor.actors.scripted.script import ScriptError, Turn, load_script
from proctor.actors.scripted.turn import ScriptedTurn
from proctor.actors.scripted.wires.registry import wire_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proctor.actors.scripted.interfaces import Prompt, RunningTurn


def main(argv: list[str]) -> int:
    """Run the program with these arguments. The exit status; 2 for a mistake in the script or in a fault."""
    try:
        wire = wire_named(chosen_dialect(argv))
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
