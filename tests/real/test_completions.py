"""Agents as completion models, on the real command lines: what their streams say when the model's own stream breaks."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import httpx
import pytest
from starlette.applications import Starlette

from proctor.actors.gateways.openai import routes
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, claude_plan, codex_plan
from proctor.actors.serving.chunks import TextChunk, ToolOutput, Void
from proctor.actors.serving.completion import CompletionModel, CompletionRequest
from proctor.actors.specs import agent_spec
from tests.fakes.messages_api import MessagesApi
from tests.fakes.responses_api import ResponsesApi, call
from tests.fakes.steps import Drop, Message, Step, Text, Tool
from tests.real.conftest import newest_claude

BROKEN = "The answer is fif"
LONG = 2.5
"""Seconds behind which the gateway has sent what was said."""


@attrs.frozen
class Cli:
    """A command line, and what its model plays."""

    plan: Plan
    play: Callable[..., None]
    shell: Callable[[str], Tool]

    @property
    def model(self) -> CompletionModel:
        """It as a completion model."""
        return CompletionModel.make(agent_spec("agent", self.plan, {}))


@pytest.fixture
def claude(claude_options: AgentOptions, messages_api: MessagesApi) -> Cli:
    plan = claude_plan("agent", {**claude_options, "retries": 2, "permission": "allow"})
    return Cli(
        plan, messages_api.play, lambda command: Tool("Bash", {"command": command, "description": "x"})
    )


@pytest.fixture
def codex(codex_options: AgentOptions, responses_api: ResponsesApi) -> Cli:
    options: AgentOptions = {**codex_options, "sandbox": "danger-full-access", "permission_mode": "never"}
    return Cli(codex_plan("agent", options), responses_api.play, call)


def drop(after: int = 4, linger: float = 0.3) -> Step:
    return Drop(Text(BROKEN, chunk=4), after=after, linger=linger)


async def said(cli: Cli) -> tuple[str, str, list[ToolOutput]]:
    """The texts less what was taken back, the response's own text, and what came of tools."""
    text, outputs = "", list[ToolOutput]()
    async with cli.model.stream(CompletionRequest(prompt="hi")) as stream:
        async for chunk in stream:
            match chunk:
                case TextChunk():
                    text += chunk.text
                case Void(text=void):
                    assert text.endswith(void)
                    text = text.removesuffix(void)
                case ToolOutput():
                    outputs.append(chunk)
                case _:
                    pass
    return text, stream.response.text, outputs


async def streamed(cli: Cli) -> tuple[str, str]:
    """What a client of the chat API joins, and the last line but one that it is sent."""
    application = Starlette(routes=routes({"agent": cli.model}))
    asked = {"model": "agent", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://here", timeout=90) as client:
        response = await client.post("/v1/chat/completions", json=asked)
    events = [
        line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")
    ]
    return "".join(_content(event) for event in events), events[-1]


def _content(event: str) -> str:
    told = httpx.Response(200, text=event).json()
    return "".join(choice["delta"].get("content") or "" for choice in told.get("choices", ()))


async def says_it_once(cli: Cli) -> None:
    for after in (1, 3, 5):
        cli.play(drop(after), Text("The answer is fifteen."))
        assert (await said(cli))[:2] == ("The answer is fifteen.", "The answer is fifteen.")
    cli.play(cli.shell("echo 4"), drop(), Text("It is four."))
    text, answer, [output] = await said(cli)
    assert (text, answer) == ("It is four.", "It is four.")
    assert (output.text.strip().endswith("4"), output.is_error, bool(output.name)) == (True, False, True)


async def joins_to_the_answer(cli: Cli) -> None:
    for linger, answer in ((0.3, "It is four."), (LONG, "The answer is fifteen.")):
        cli.play(drop(linger=linger), Message((Text(answer, chunk=3),)))
        assert (await streamed(cli))[0] == answer
    cli.play(drop(linger=LONG), Text("It is four."))
    joined, last = await streamed(cli)
    assert joined == BROKEN[:16]
    assert '"retracted"' in last
    assert '"content":"It is four."' in last


@newest_claude
async def test_claude_says_each_block_once_when_its_models_stream_breaks(claude: Cli) -> None:
    await says_it_once(claude)


async def test_codex_says_each_block_once_when_its_models_stream_breaks(codex: Cli) -> None:
    await says_it_once(codex)


@newest_claude
async def test_what_a_client_joins_of_claude_is_the_answer_when_its_models_stream_breaks(claude: Cli) -> None:
    await joins_to_the_answer(claude)


async def test_what_a_client_joins_of_codex_is_the_answer_when_its_models_stream_breaks(codex: Cli) -> None:
    await joins_to_the_answer(codex)
