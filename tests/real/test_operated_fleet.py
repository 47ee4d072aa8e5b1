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
from tests.proctor.command import ROOT, once, proctor, running
from tests.proctor.command import Terminal as At
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
    stays = "[[agents]]\nkind = 'scripted'\nname = 'stays'\nscript = 's.ndjson'\n"
    (tmp_path / "fleet.toml").write_text(fleet_of(claude_cli, claude_home) + stays)
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


def fleet_of(cli: Cli, home: ClaudeHome) -> str:
    """A fleet file with the agent `fixer`."""
    values = {
        "executable": str(cli.path),
        "cwd": str(home.work),
        "env": [f"{name}={value}" for name, value in home.environment.items()],
    }
    return FLEET.format(**{key: json.dumps(value) for key, value in values.items()})


@newest_claude
async def test_a_person_attaches_to_an_agent_allows_what_it_asks_and_steers_it(
    claude_cli: Cli, messages_api: MessagesApi, claude_home: ClaudeHome, tmp_path: Path
) -> None:
    touch = Tool("Bash", {"command": "touch made.txt", "description": "x"})
    messages_api.play(touch, Text("touched"), Text("and steered"))
    path = tmp_path / "fleet.toml"
    path.write_text(fleet_of(claude_cli, claude_home).replace('prompt = "Touch the file."\n', ""))

    def attached() -> str:
        with running("up", str(path), home=tmp_path) as command:
            once(lambda: " idle " in proctor("ps", home=tmp_path).out)
            with At(["attach", "fixer"], tmp_path) as person:
                person.until("/help shows")
                person.press("Touch the file.\n")
                person.until("? Bash: touch made.txt")
                # while it waits: taken in with the result of the tool, or a turn of its own behind it
                person.press("/steer And say so.\n")
                person.press("y\n")
                assert "touched" in person.until("completed")
                person.press("\x04")
                assert person.end() == 0
            command.signal(signal.SIGTERM)
            command.end()
        return person.shown

    # in a thread: the model is served here
    shown = await trio.to_thread.run_sync(attached)
    assert (claude_home.work / "made.txt").exists()
    assert any(text in shown for text in ("taken into the running turn", "queued"))
    assert any("And say so." in repr(request.body) for request in messages_api.scripted)
    await until(lambda: claude_home.leftovers() == [], within=60)


def streamed(folder: Path) -> str:
    """What the agent has written to its hosts so far."""
    return "".join(path.read_text() for path in folder.rglob("events.ndjson") if "fixer" in str(path))
