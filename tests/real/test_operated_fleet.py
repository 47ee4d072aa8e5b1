"""A fleet of the real Claude Code in the background, operated from other terminals, its host killed in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import trio

from tests.fakes.messages_api import MessagesApi
from tests.fakes.steps import Hang, Text, Tool
from tests.proctor.command import ROOT
from tests.real.conftest import Cli, newest_claude
from tests.real.homes import ClaudeHome, until

FLEET = """
[[agents]]
kind = "claude"
name = "fixer"
executable = {executable}
cwd = {cwd}
env = {env}
retries = 2
permission = "ask"
approval_deadline = "1h"
on_crash = "resume"
prompt = "Touch the file."
"""


@attrs.frozen
class Terminal:
    """A place from which the fleet in `folder` is operated."""

    folder: Path

    async def run(self, *words: str) -> str:
        """What a command prints. Fails when it does."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder / "runtime"),
            "PYTHONPATH": str(ROOT / "src"),
        }
        done = await trio.run_process(
            (sys.executable, "-m", "proctor", *words),
            cwd=self.folder,
            env=environment,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode()
        return done.stdout.decode()

    async def host(self) -> int:
        """The process of the fleet that runs."""
        [fleet] = json.loads(await self.run("ls", "-o", "json"))
        pid: int = fleet["pid"]
        return pid


@newest_claude
async def test_a_question_is_answered_and_a_killed_host_goes_on_from_other_terminals(
    claude_cli: Cli, messages_api: MessagesApi, claude_home: ClaudeHome, tmp_path: Path
) -> None:
    touch = Tool("Bash", {"command": "touch made.txt", "description": "x"})
    messages_api.play(touch, Text("touched"), Hang(Text("never finished"), after=1), Text("went on"))
    terminal = Terminal(tmp_path)
    (tmp_path / "runtime").mkdir(mode=0o700)
    values = {
        "executable": str(claude_cli.path),
        "cwd": str(claude_home.work),
        "env": [f"{name}={value}" for name, value in claude_home.environment.items()],
    }
    texts = {key: json.dumps(value) for key, value in values.items()}
    (tmp_path / "fleet.toml").write_text(
        FLEET.format(**texts) + "[[agents]]\nkind = 'scripted'\nname = 'stays'\nscript = 's.ndjson'\n"
    )
    (tmp_path / "s.ndjson").write_text('{"reply": "x"}\n')
    try:
        await terminal.run("up", "-d")
        while not json.loads(await terminal.run("approvals", "-o", "json")):  # noqa: ASYNC110  # as a person looks again
            await trio.sleep(0.1)
        await terminal.run("approve", "fixer")
        await until(lambda: len(messages_api.scripted) == 2, within=60)
        await terminal.run("wait", "--for", "idle")
        assert (claude_home.work / "made.txt").exists()
        await terminal.run("send", "fixer", "And now think.")
        await until(lambda: len(messages_api.scripted) == 3, within=60)
        await until(lambda: "never" in streamed(tmp_path), within=60)
        os.kill(await terminal.host(), signal.SIGKILL)
        await until(lambda: claude_home.leftovers() == [], within=60)
        await terminal.run("up", "-d")
        await until(lambda: len(messages_api.scripted) == 4, within=90)
        await terminal.run("wait", "--for", "idle")
        runs = json.loads(await terminal.run("runs", "--agent", "fixer", "-o", "json"))
        assert [run["text"] for run in runs] == ["went on", "touched"]
        assert runs[0]["session_id"] == runs[1]["session_id"]
        await terminal.run("down")
    finally:
        for fleet in json.loads(await terminal.run("ls", "-o", "json")):
            os.kill(fleet["pid"], signal.SIGKILL)
    assert claude_home.leftovers() == []


def streamed(folder: Path) -> str:
    """What the agent has written to its hosts so far."""
    return "".join(path.read_text() for path in folder.rglob("events.ndjson") if "fixer" in str(path))
