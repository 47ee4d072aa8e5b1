from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import pytest
import trio

from proctor.actors.plan.plan import claude_plan
from proctor.actors.runs import stream
from proctor.actors.setup.registration import CLIENTS, SetupRequest, register
from proctor.protocols import vocabulary as v
from tests.fakes.messages_api import MessagesApi
from tests.fakes.steps import Text
from tests.real.conftest import Cli, newest_claude
from tests.real.homes import MINIMAL_PATH, ClaudeHome

BOUND = 90.0
REQUEST = SetupRequest(argv=("/bin/cat", "serve"))
REMOVED = attrs.evolve(REQUEST, goal="remove")
ALIASES: Mapping[str, str] = {
    "claude-2.1.197": "claude",
    "claude-2.1.330": "claude",
    "codex-0.169.0": "codex",
    "opencode-1.18.33": "opencode",
}


def environment(home: Path) -> dict[str, str]:
    """A private home, and nowhere to go."""
    closed = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "npm_config_registry"), "http://127.0.0.1:9")
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    return {"PATH": MINIMAL_PATH, "HOME": str(home), "LANG": "C.UTF-8", **closed, **quiet}


async def said(program: Path, *words: str, home: Path) -> str:
    """What the program answers, without colours; whether it likes the server is its exit status."""
    with trio.fail_after(BOUND):
        done = await trio.run_process(
            [program, *words], env=environment(home), cwd=home, capture_stdout=True, capture_stderr=True
        )
    return re.sub(r"\x1b\[\d*m", "", done.stdout.decode())


@pytest.mark.covers("R170", "C09")
@pytest.mark.parametrize("alias", ALIASES)
async def test_the_program_itself_lists_what_was_registered(
    alias: str, program_of: Callable[[str], Path], tmp_path: Path
) -> None:
    program = program_of(alias)
    client = CLIENTS[ALIASES[alias]]
    made = await register(client, REQUEST, environment(tmp_path))
    assert made.error is None
    listed = await said(program, "mcp", "list", home=tmp_path)
    assert re.search(r"proctor\b.*\s/bin/cat\s+serve\b", listed, re.DOTALL), listed


@newest_claude
async def test_a_claude_that_runs_writes_its_file_and_the_server_stays_in_it(
    claude_cli: Cli, claude_home: ClaudeHome, messages_api: MessagesApi
) -> None:
    messages_api.play(Text("hello"))
    environ = claude_home.environment
    plan = claude_plan("a", {"executable": claude_cli.path, "cwd": claude_home.work, "env": environ})
    async with stream(plan, "work", timeout=BOUND) as live:
        async for event in live:
            if isinstance(event, v.Started):
                made = await register(CLIENTS["claude"], REQUEST, environ)
                assert (made.error, made.path) == (None, claude_home.home / ".claude" / ".claude.json")
    settings = json.loads(_read(claude_home.home / ".claude" / ".claude.json"))
    assert settings["mcpServers"]["proctor"]["command"] == "/bin/cat"
    assert {*settings} > {"mcpServers", "firstStartTime"}  # what it wrote itself
    assert (await register(CLIENTS["claude"], REMOVED, environ)).error is None
    assert "proctor" not in json.loads(_read(claude_home.home / ".claude" / ".claude.json")).get(
        "mcpServers", {}
    )


async def test_codex_adds_a_server_of_its_own_and_it_stays_when_ours_goes(
    installed_clis: Mapping[str, Path], tmp_path: Path
) -> None:
    codex, path = installed_clis["codex-0.169.0"], tmp_path / ".codex" / "config.toml"
    await register(CLIENTS["codex"], REQUEST, environment(tmp_path))
    await said(codex, "mcp", "add", "zzz", "--", "/bin/true", home=tmp_path)
    assert {*tomllib.loads(_read(path))["mcp_servers"]} == {"proctor", "zzz"}
    await register(CLIENTS["codex"], REMOVED, environment(tmp_path))
    assert {*tomllib.loads(_read(path))["mcp_servers"]} == {"zzz"}


def _read(path: Path) -> str:
    return path.read_text()
