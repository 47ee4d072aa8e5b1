from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path

import pytest

import proctor
from proctor.actors.plan import AgentOptions, opencode_plan
from proctor.actors.runs import stream
from proctor.protocols import vocabulary as v
from tests.clis.not_run import NOT_RUN
from tests.fakes.model_api import COMPLETIONS, ModelApi, open_model_api
from tests.fakes.steps import Text, Tool
from tests.real.agents import opencode_home
from tests.real.homes import ClaudeHome

BOUND = 120.0


@proctor.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
async def api() -> AsyncGenerator[ModelApi]:
    async with open_model_api(COMPLETIONS) as fake:
        yield fake


@pytest.fixture
def home(tmp_path: Path, api: ModelApi) -> Generator[ClaudeHome]:
    made = opencode_home(tmp_path, api)
    yield made
    made.sweep()


@pytest.fixture
def options(installed_clis: Mapping[str, Path], home: ClaudeHome) -> AgentOptions:
    if "opencode-1.18.33" not in installed_clis:
        pytest.skip(f"{NOT_RUN}OpenCode is only pinned for Linux on x86-64")
    return {
        "executable": installed_clis["opencode-1.18.33"],
        "cwd": home.work,
        "env": home.environment,
        "model": "fake/m1",
        "greeting": BOUND,
    }


@pytest.mark.parametrize("mode", ["session", "run"])
async def test_opencode_calls_a_tool_of_the_host(
    mode: str, options: AgentOptions, api: ModelApi, home: ClaudeHome
) -> None:
    plan = opencode_plan("a", {**options, "mode": mode, "host_tools": [add]})
    api.play(Tool("host_add", {"a": 2, "b": 3}), Text("five"))
    async with stream(plan, "add", timeout=BOUND) as live:
        events = [event async for event in live]
    for e in events: print(e)
    print(api.scripted[0].tools if hasattr(api.scripted[0], "tools") else api.scripted[0])
    assert live.answer.text == "five"
    assert home.leftovers() == []
