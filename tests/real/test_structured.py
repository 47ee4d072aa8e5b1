from __future__ import annotations

import datetime
import json
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import Annotated, Any

import attrs
import msgspec
import pytest

import proctor
from proctor.actors.outcomes import Answer
from proctor.actors.plan import AgentMode, AgentOptions, claude_plan, codex_plan, opencode_plan
from proctor.actors.runs import run
from proctor.actors.served import served_plan
from proctor.actors.server import opencode_server
from proctor.actors.trees import agent_spec
from tests.clis.not_run import NOT_RUN
from tests.fakes.messages_api import MessagesApi
from tests.fakes.model_api import COMPLETIONS, ModelApi, open_model_api
from tests.fakes.responses_api import ResponsesApi, open_responses_api
from tests.fakes.steps import Text, Tool
from tests.real.agents import opencode_home
from tests.real.conftest import Cli
from tests.real.homes import MINIMAL_PATH, ClaudeHome, make_home

BOUND = 120.0


class Line(msgspec.Struct):
    article: str
    amount: Annotated[int, msgspec.Meta(ge=1)]


class Invoice(msgspec.Struct):
    due: datetime.date
    lines: Annotated[list[Line], msgspec.Meta(min_length=1)]
    note: str | None = None


GOOD: Mapping[str, Any] = {"due": "2024-02-29", "lines": [{"article": "nut", "amount": 2}], "note": None}
BAD: Mapping[str, Any] = {**GOOD, "due": "tomorrow"}
INVOICE = Invoice(datetime.date(2024, 2, 29), [Line("nut", 2)])


def assert_right(answer: Answer, attempts: int) -> None:
    assert (answer.outcome, answer.value, answer.attempts) == ("ok", INVOICE, attempts), answer
    assert answer.structured_output == GOOD


# -- Claude Code


@pytest.fixture
def claude_options(claude_cli: Cli, claude_home: ClaudeHome) -> AgentOptions:
    return {"executable": claude_cli.path, "cwd": claude_home.work, "env": claude_home.environment}


@pytest.mark.parametrize("mode", ["session", "oneshot"])
async def test_claude_is_told_the_schema_at_its_launch_and_asked_again_when_it_writes_prose(
    mode: AgentMode, claude_options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    messages_api.play(
        Text("It is two nuts."), Text("As I said."), Tool("StructuredOutput", GOOD), Text("done")
    )
    plan = claude_plan("a", {**claude_options, "mode": mode})
    answer = await run(plan, "What is due?", schema=Invoice, timeout=BOUND)
    assert_right(answer, 2)
    offered = {offer.name for offer in messages_api.scripted[0].body.tools}
    assert "StructuredOutput" in offered
    assert claude_home.leftovers() == []


async def test_a_held_claude_hands_its_answer_in_by_a_tool(
    claude_options: AgentOptions, messages_api: MessagesApi
) -> None:
    messages_api.play(
        Tool("mcp__host__submit", {"value": BAD}), Tool("mcp__host__submit", {"value": GOOD}), Text("done")
    )
    plan = claude_plan("a", {**claude_options, "schemas": True})
    async with proctor.open_supervisor([agent_spec("a", plan, {})]) as sup:
        answer = await sup.agent("a").ask("What is due?", schema=Invoice, timeout=BOUND)
    assert_right(answer, 2)
    assert '/due: "tomorrow" is not a "date"' in str(messages_api.scripted[1].body)
    assert answer.cost_usd


# -- Codex


@pytest.fixture
async def responses_api() -> AsyncGenerator[ResponsesApi]:
    async with open_responses_api() as made:
        yield made
    assert not made.unexpected


@pytest.fixture
def codex_home(tmp_path: Path, responses_api: ResponsesApi) -> Generator[ClaudeHome]:
    folders = make_home(tmp_path, responses_api.url)
    environment = {
        "HOME": str(folders.home),
        "PATH": MINIMAL_PATH,
        "LANG": "C.UTF-8",
        "FAKE_KEY": "sk-test-not-a-real-key",
        "NO_PROXY": "127.0.0.1,localhost",
    }
    made = attrs.evolve(folders, environment=environment)
    yield made
    made.sweep()


@pytest.mark.parametrize("mode", ["session", "exec"])
async def test_codex_is_told_the_strict_form_and_asked_again_since_it_checks_nothing(
    mode: AgentMode, installed_clis: Mapping[str, Path], responses_api: ResponsesApi, codex_home: ClaudeHome
) -> None:
    provider = f'{{name="fake",base_url="{responses_api.url}",wire_api="responses",env_key="FAKE_KEY"}}'
    options: AgentOptions = {
        "executable": installed_clis["codex-0.169.0"],
        "cwd": codex_home.work,
        "env": codex_home.environment,
        "model": "gpt-5.5",
        "extra": ("-c", 'model_provider="fake"', "-c", f"model_providers.fake={provider}"),
        "mode": mode,
    }
    responses_api.play(Text(json.dumps(BAD)), Text(json.dumps(GOOD)))
    answer = await run(codex_plan("a", options), "What is due?", schema=Invoice, timeout=BOUND)
    assert_right(answer, 2)
    first, second = responses_api.requests
    for request in (first, second):
        told = request.body["text"]["format"]
        assert (told["type"], told["strict"]) == ("json_schema", True)
        assert told["schema"]["required"] == ["due", "lines", "note"]
        assert told["schema"]["additionalProperties"] is False
    assert "What is due?" in str(second.body)
    assert "is not a" in second.user_texts[-1]
    assert codex_home.leftovers() == []


# -- OpenCode


@pytest.fixture
async def model_api() -> AsyncGenerator[ModelApi]:
    async with open_model_api(COMPLETIONS) as fake:
        yield fake


@pytest.fixture
def opencode(tmp_path: Path, model_api: ModelApi) -> Generator[ClaudeHome]:
    made = opencode_home(tmp_path, model_api)
    yield made
    made.sweep()


@pytest.fixture
def executable(installed_clis: Mapping[str, Path]) -> Path:
    if "opencode-1.18.33" not in installed_clis:
        pytest.skip(f"{NOT_RUN}OpenCode is only pinned for Linux on x86-64")
    return installed_clis["opencode-1.18.33"]


async def test_an_opencode_server_is_told_the_schema_with_the_prompt(
    executable: Path, model_api: ModelApi, opencode: ClaudeHome
) -> None:
    server = opencode_server(
        "hub", executable=executable, cwd=opencode.work, env=opencode.environment, start=BOUND
    )
    options: AgentOptions = {"cwd": opencode.work, "model": "fake/m1", "silence": BOUND}
    children = [server, agent_spec("a", served_plan("a", options, server="hub"), {})]
    model_api.play(Tool("StructuredOutput", BAD), Tool("StructuredOutput", GOOD), Text("And in words."))
    async with proctor.open_supervisor(children, intensity=5, period=60) as sup:
        answer = await sup.agent("a").ask("What is due?", schema=Invoice, timeout=BOUND)
        words = await sup.agent("a").ask("And in words?", timeout=BOUND)
    assert_right(answer, 2)
    assert (words.text, words.value) == ("And in words.", None)
    assert opencode.leftovers() == []


async def test_opencode_is_told_the_schema_in_the_prompt_and_read_by_its_text(
    executable: Path, model_api: ModelApi, opencode: ClaudeHome
) -> None:
    options: AgentOptions = {
        "executable": executable,
        "cwd": opencode.work,
        "env": opencode.environment,
        "model": "fake/m1",
        "greeting": BOUND,
    }
    model_api.play(Text("Two nuts."), Text(f"Here:\n```json\n{json.dumps(GOOD)}\n```"))
    plan = opencode_plan("a", options)
    answer = await run(plan, "What is due?", schema=Invoice, timeout=BOUND)
    assert_right(answer, 2)
    assert "the answer is not JSON" in model_api.scripted[1].text
    assert opencode.leftovers() == []
