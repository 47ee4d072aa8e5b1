from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import pytest
import trio

from tests.actors.far_end import write_script
from tests.fakes.messages_api import MessagesApi
from tests.fakes.responses_api import ResponsesApi, open_responses_api
from tests.fakes.steps import Text, Tool
from tests.real.homes import MINIMAL_PATH, ClaudeHome

BOUND = 90.0
ROOT = Path(__file__).parents[2]
# the first turn waits for its servers, and has their tools in full: else it is a race with their start
PATIENT = {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_TIMEOUT": "80000", "MCP_CONNECT_TIMEOUT_MS": "80000"}
PLAIN = {"ENABLE_TOOL_SEARCH": "false"}
TOOL = "mcp__proctor__ask_scribe"
ASK = Tool(TOOL, {"prompt": "write"})
FLEET = '[[agents]]\nkind = "scripted"\nname = "scribe"\nscript = "agent.ndjson"\n'
CONSOLE = f"""\
#!{sys.executable}
import sys
sys.path.insert(0, {str(ROOT / "src")!r})
from proctor.cli import main
main()
"""


@pytest.fixture
async def responses_api() -> AsyncGenerator[ResponsesApi]:
    async with open_responses_api() as made:
        yield made
    assert not made.unexpected


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """proctor as an installer would have put it into a folder of programs, with a fleet beside it."""
    path = tmp_path / "bin" / "proctor"
    path.parent.mkdir()
    path.write_text(CONSOLE)
    path.chmod(0o755)
    write_script(path.parent, [{"reply": "the scribe wrote: {prompt}"}]).rename(path.parent / "agent.ndjson")
    (path.parent / "fleet.toml").write_text(FLEET)
    return path


async def done(*argv: str | Path, env: Mapping[str, str], cwd: Path) -> str:
    with trio.fail_after(BOUND):
        ended = await trio.run_process(
            [os.fspath(word) for word in argv],
            env=env,
            cwd=cwd,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    return ended.stdout.decode()


async def registered(client: str, script: Path, env: Mapping[str, str], cwd: Path) -> None:
    words: Sequence[str | Path] = ("setup", "--client", client, "--fleet", script.parent / "fleet.toml")
    assert " registered in " in await done(script, *words, env=env, cwd=cwd)


@pytest.mark.covers("R170")
async def test_claude_code_calls_an_agent_by_what_setup_wrote_alone(
    installed_clis: Mapping[str, Path], claude_home: ClaudeHome, messages_api: MessagesApi, script: Path
) -> None:
    env, work = {**claude_home.environment, **PATIENT, **PLAIN}, claude_home.work
    await registered("claude", script, env, work)
    messages_api.play(ASK, Text("it has written"))
    words = ("-p", "--output-format=text", f"--allowedTools={TOOL}", "--", "have it written")
    assert await done(installed_clis["claude-2.1.330"], *words, env=env, cwd=work) == "it has written\n"
    first, second = messages_api.scripted
    assert TOOL in first.tools
    assert "the scribe wrote: write" in str(second.body.messages[-1])
    assert claude_home.leftovers() == []


@pytest.mark.covers("R170")
async def test_codex_calls_an_agent_by_what_setup_wrote_alone(
    installed_clis: Mapping[str, Path], responses_api: ResponsesApi, script: Path, tmp_path: Path
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    env = {"PATH": MINIMAL_PATH, "HOME": str(home), "LANG": "C.UTF-8", "FAKE_KEY": "sk-test-not-a-real-key"}
    await registered("codex", script, env, work)
    responses_api.play(ASK, Text("it has written"))
    provider = f'{{name="fake",base_url="{responses_api.url}",wire_api="responses",env_key="FAKE_KEY"}}'
    settings = (
        'model_provider="fake"',
        f"model_providers.fake={provider}",
        "mcp_servers.proctor.required=true",  # waited for: else it is a race with its start
        'mcp_servers.proctor.default_tools_approval_mode="approve"',
    )
    words = [word for setting in settings for word in ("-c", setting)]
    codex = installed_clis["codex-0.169.0"]
    said = await done(
        codex, "exec", "--skip-git-repo-check", "-m", "gpt-5.5", *words, "go", env=env, cwd=work
    )
    assert said.strip().endswith("it has written")
    assert "the scribe wrote: write" in responses_api.requests[-1].tool_outputs[-1]
