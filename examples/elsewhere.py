"""An agent behind another command: a shell that stays above it, and a function that maps the whole command.

Runs offline: the scripted agent takes the part of a command line.
"""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

import attrs
import trio

import proctor
from proctor.runtime import Command

SCRIPT = '{"reply": "All is well, {prompt}"}\n'


def logged_in(command: Command) -> Command:
    """As `ssh` would have it: one line for a shell on the other side, which goes to the folder first."""
    line = f"cd {shlex.quote(command.cwd or '.')} && exec {shlex.join(command.argv)}"
    return attrs.evolve(command, argv=("sh", "-c", line), cwd=None)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "agent.ndjson")
        await trio.Path(script).write_text(SCRIPT)
        specs = [
            proctor.scripted("jailed", script, reach=("sh", "-c", '"$@"; exit $?', "sh")),
            proctor.scripted("remote", script, cwd=folder, reach=logged_in),
        ]
        async with proctor.open_supervisor(specs) as sup:
            for spec in specs:
                answer = await sup.agent(spec.id).ask(spec.id)
                print(f"{spec.id}: {answer.outcome}, {answer.text}")


trio.run(main)
