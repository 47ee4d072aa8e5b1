"""Tools of the host and a server of MCP, called by the real command lines that have no host tools on their wire."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path

import attrs
import pytest

import proctor
from proctor.actors.mcp import McpServer
from proctor.actors.plan import AgentOptions, Plan, acp_plan, claude_plan, codex_plan, opencode_plan
from proctor.actors.runs import stream
from proctor.actors.served import served_plan
from proctor.actors.server import opencode_server
from proctor.actors.tools import ToolContext
from proctor.actors.trees import agent_spec
from proctor.protocols import vocabulary as v
from tests.clis.not_run import NOT_RUN
from tests.fakes import tiny_mcp
from tests.fakes.messages_api import MessagesApi
from tests.fakes.model_api import COMPLETIONS, CONTENT, ModelApi, open_model_api
from tests.fakes.responses_api import ResponsesApi, open_responses_api
from tests.fakes.steps import Text, Tool
from tests.real.agents import gemini_home, opencode_home
from tests.real.conftest import Cli
from tests.real.homes import MINIMAL_PATH, ClaudeHome, make_home

BOUND = 120.0
SECRET = "s3cret-of-tiny"
TINY = McpServer(
    command=sys.executable,
    args=["-I", str(tiny_mcp.__file__)],
    env={"TINY_KEY": SECRET},
    approved=True,
)
MARKED = {"structuredContent": {"seen": 2}, "_meta": {"tiny/marker": "row-7"}}
SEEN = f'I saw {{"PROCTOR_CONTEXT_PROJECT": "p1", "TINY_KEY": "{SECRET}"}}'


@proctor.tool
async def add(a: int, b: int, me: ToolContext) -> str:
    """Add two numbers."""
    return f"{a + b} for {me.values['project']}"


GIVEN: AgentOptions = {"host_tools": [add], "mcp": {"tiny": TINY}, "context": {"project": "p1"}}


async def told(plan: Plan) -> tuple[list[v.ToolResult], list[str]]:
    """The results of a run's tools, and which of the host's were asked for."""
    async with stream(plan, "work", timeout=BOUND) as live:
        events = [event async for event in live]
        kept = [
            path.read_bytes() for path in (live.directory / "1").iterdir() if path.name != "stdout.ndjson"
        ]
    assert (live.answer.outcome, live.answer.text, live.answer.denied_tools) == ("ok", "done", ())
    assert [text for text in kept if SECRET.encode() in text] == []  # R185
    asked = [event.tool for event in events if isinstance(event, v.ToolRequested)]
    return [event for event in events if isinstance(event, v.ToolResult)], asked


@pytest.fixture
async def completions() -> AsyncGenerator[ModelApi]:
    async with open_model_api(COMPLETIONS) as fake:
        yield fake


@pytest.fixture
def opencode(
    installed_clis: Mapping[str, Path], tmp_path: Path, completions: ModelApi
) -> Generator[tuple[Path, ClaudeHome]]:
    if "opencode-1.18.33" not in installed_clis:
        pytest.skip(f"{NOT_RUN}OpenCode is only pinned for Linux on x86-64")
    home = opencode_home(tmp_path, completions)
    yield installed_clis["opencode-1.18.33"], home
    home.sweep()


@pytest.mark.parametrize("mode", ["session", "run"])
async def test_opencode_calls_both_R161(
    mode: str, opencode: tuple[Path, ClaudeHome], completions: ModelApi
) -> None:
    path, home = opencode
    options: AgentOptions = {**GIVEN, "executable": path, "cwd": home.work, "env": home.environment}
    chosen: AgentOptions = {**options, "model": "fake/m1", "greeting": BOUND}
    plan = opencode_plan("a", {**chosen, "mode": "run" if mode == "run" else "session"})
    completions.play(Tool("host_add", {"a": 2, "b": 3}), Tool("tiny_look", {}), Text("done"))
    (added, looked), asked = await told(plan)
    assert (asked, added.text, looked.text.startswith(SEEN)) == (["add"], "5 for p1", True)
    assert home.leftovers() == []


async def test_agents_on_one_server_have_their_own_tools_and_not_each_others_R161_R164(
    opencode: tuple[Path, ClaudeHome], completions: ModelApi
) -> None:
    path, home = opencode
    server = opencode_server("hub", executable=path, cwd=home.work, env=home.environment, start=BOUND)
    chosen: AgentOptions = {"cwd": home.work, "model": "fake/m1", "silence": BOUND}
    first = served_plan("a", {**chosen, **GIVEN}, server="hub")
    other: AgentOptions = {**chosen, "host_tools": [add], "context": {"project": "p2"}}
    second = served_plan("b", other, server="hub")
    children = [server, agent_spec("a", first, {}), agent_spec("b", second, {})]
    async with proctor.open_supervisor(children) as sup:
        for name, text in (("a", "5 for p1"), ("b", "5 for p2")):
            completions.begin_anew()
            offered = first.opening(resume=None, fork=False) if name == "a" else None
            assert offered is None or "tiny" in offered.mcp
            completions.play(Text("which tools?"))
            await sup.agent(name).ask("hello", timeout=BOUND)
            names = [tool["function"]["name"] for tool in completions.scripted[0].body["tools"]]
            [full] = [each for each in names if each.endswith("-host_add")]
            assert len([each for each in names if each.endswith("-tiny_look")]) == (name == "a")
            completions.begin_anew()
            completions.play(Tool(full, {"a": 2, "b": 3}), Text("done"))
            async with sup.agent(name).stream("work") as turn:
                events = [event async for event in turn]
            assert [event.name for event in events if isinstance(event, v.ToolCall)] == ["host_add"]
            assert [event.text for event in events if isinstance(event, v.ToolResult)] == [text]
            assert turn.answer.text == "done"
    assert home.leftovers() == []


async def test_gemini_calls_both_without_a_question_R161(
    installed_clis: Mapping[str, Path], tmp_path: Path
) -> None:
    async with open_model_api(CONTENT) as api:
        home = gemini_home(tmp_path, api)
        trusting = {**home.environment, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        options: AgentOptions = {**GIVEN, "cwd": home.work, "env": trusting, "greeting": BOUND}
        argv = [str(installed_clis["gemini-0.61.0"])]
        plan = acp_plan("a", argv, {**options, "model": "gemini-2.5-pro"}, profile="gemini")
        api.play(Tool("mcp_host_add", {"a": 2, "b": 3}), Tool("mcp_tiny_look", {}), Text("done"))
        results, asked = await told(plan)
        assert (asked, [result.is_error for result in results]) == (["add"], [False, False])
        assert SEEN in str(api.scripted[-1].body).replace('\\\\"', '"')
        assert "5 for p1" in str(api.scripted[-1].body)
        home.sweep()


@pytest.fixture
async def responses() -> AsyncGenerator[ResponsesApi]:
    async with open_responses_api() as made:
        yield made
    assert not made.unexpected


@pytest.fixture
def codex(
    installed_clis: Mapping[str, Path], responses: ResponsesApi, tmp_path: Path
) -> Generator[tuple[AgentOptions, ClaudeHome]]:
    home = make_home(tmp_path, responses.url)
    environment = {
        "HOME": str(home.home),
        "PATH": MINIMAL_PATH,
        "LANG": "C.UTF-8",
        "FAKE_KEY": "sk-test-not-a-real-key",
        "NO_PROXY": "127.0.0.1,localhost",
    }
    home = attrs.evolve(home, environment=environment)
    provider = f'{{name="fake",base_url="{responses.url}",wire_api="responses",env_key="FAKE_KEY"}}'
    options: AgentOptions = {
        "executable": installed_clis["codex-0.169.0"],
        "cwd": home.work,
        "env": environment,
        "model": "gpt-5.5",
        "retries": 1,
        "extra": ("-c", 'model_provider="fake"', "-c", f"model_providers.fake={provider}"),
    }
    yield options, home
    home.sweep()


async def test_a_codex_run_calls_both_R161_R165(
    codex: tuple[AgentOptions, ClaudeHome], responses: ResponsesApi
) -> None:
    options, home = codex
    responses.play(Tool("mcp__host__add", {"a": 2, "b": 3}), Tool("mcp__tiny__look", {}), Text("done"))
    (added, looked), asked = await told(codex_plan("a", {**options, **GIVEN, "mode": "exec"}))
    assert (asked, added.text, looked.text) == (["add"], "5 for p1", SEEN)
    assert looked.metadata == MARKED
    assert home.leftovers() == []


async def test_a_codex_thread_calls_a_server_R161_R165(
    codex: tuple[AgentOptions, ClaudeHome], responses: ResponsesApi
) -> None:
    options, home = codex
    responses.play(Tool("mcp__tiny__look", {}), Text("done"))
    [looked], _ = await told(codex_plan("a", {**options, **GIVEN}))
    assert looked.text == SEEN
    assert looked.metadata == MARKED
    assert home.leftovers() == []


async def test_one_shot_claude_code_calls_both_R161_R165(
    claude_cli: Cli, claude_home: ClaudeHome, messages_api: MessagesApi
) -> None:
    options: AgentOptions = {
        **GIVEN,
        "executable": claude_cli.path,
        "cwd": claude_home.work,
        "env": claude_home.environment,
        "mode": "oneshot",
    }
    messages_api.play(Tool("mcp__host__add", {"a": 2, "b": 3}), Tool("mcp__tiny__look", {}), Text("done"))
    (added, looked), asked = await told(claude_plan("a", options))
    assert (asked, added.text) == (["add"], "5 for p1")
    # the structured content stands in for the text, also for the model
    assert (looked.text, looked.metadata) == ('{"seen":2}', MARKED)
    assert claude_home.leftovers() == []
