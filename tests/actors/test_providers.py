from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.errors import BadOption, CompletionError, ContextMissing, NoSuchProvider, ProviderError
from proctor.actors.outcomes import Answer
from proctor.actors.serving.chunks import Chunk, Complete, Failed, TextChunk, ToolOutput, ToolUse, Void
from proctor.actors.serving.completion import Completion, CompletionModel, CompletionRequest, CompletionStream
from proctor.actors.serving.providers import Context, Provider, Providers, converse, stream_conversation
from proctor.actors.tools.tools import Tool, tool
from proctor.protocols.prompt import Message
from proctor.protocols.vocabulary import Usage
from proctor.runtime.spec import ChildSpec
from tests.actors.spoken import GOOD, TALK, saying, spec_of, unwanted

SOURCES = str(Path(proctor.__file__).parents[1])
HI = CompletionRequest(prompt="hi")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Caller:
    """A model that runs no tools itself: it asks for one each time, until it is told 4."""

    def __init__(self, name: str = "add") -> None:
        self.heard: list[CompletionRequest] = []
        self._name = name

    async def completion(self, request: CompletionRequest) -> Completion:
        self.heard.append(request)
        told = [message.content for message in request.history if message.role == "tool"]
        calls = () if told[-1:] == ["4"] else (ToolUse("c1", self._name, {"a": 2, "b": 2}),)
        raw = Answer(agent="direct", outcome="ok")
        return Completion(text=f"told {told}", value=None, tool_calls=calls, usage=None, raw=raw)

    @asynccontextmanager
    async def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionStream]:
        stream = CompletionStream("direct", request, lambda error: None)
        stream.complete(await self.completion(request))
        yield stream


@pytest.mark.covers("R166")
def test_a_provider_is_made_by_the_name_it_was_registered_under() -> None:
    providers = Providers()
    providers.register("fake", lambda context: spec_of(TALK))
    assert providers.create("fake").name == "fake"
    providers.register("direct", lambda context: Caller(), runs_tools=False)
    with pytest.raises(NoSuchProvider, match="no provider 'none'; registered: direct, fake"):
        providers.create("none")
    with pytest.raises(BadOption, match="'fake' is registered already"):
        providers.register("fake", lambda context: Caller())
    assert Providers().names == ()  # another program's


def given(model: Any, context: Context) -> Any:
    return model


@pytest.mark.covers("R135", "R166")
async def test_an_agent_a_spec_and_any_model_answer_alike(autojump_clock: MockClock) -> None:
    made: list[Any] = [spec_of(TALK), CompletionModel.make(spec_of(TALK))]
    for each in made:
        provider = Provider(name="p", make=partial(given, each))
        assert (await provider.completion(HI)).choice == "It is 4."


@pytest.mark.covers("R167")
async def test_a_provider_that_runs_tools_is_asked_once_and_the_loop_is_bypassed(
    autojump_clock: MockClock,
) -> None:
    run = list[int]()

    @tool
    async def never(path: str) -> str:
        run.append(1)
        return path

    provider = Provider(name="agent", make=lambda context: spec_of(TALK))
    completion = await converse(provider, HI, [attrs.evolve(never, declared=named(never, "Read"))])
    assert provider.runs_tools
    assert ([call.name for call in completion.tool_calls], run) == (["Read"], [])


def named(made: Tool, name: str) -> Any:
    return attrs.evolve(made.declared, name=name)


@pytest.mark.covers("R167")
async def test_a_provider_that_runs_none_is_told_what_the_callers_tools_gave() -> None:
    model = Caller()
    provider = Provider(name="direct", make=lambda context: model, runs_tools=False)
    completion = await converse(provider, HI, [add])
    assert (completion.text, len(model.heard)) == ("told ['4']", 2)
    assert [tool.name for tool in model.heard[0].tools] == ["add"]
    assert model.heard[1].history[0] == Message("user", "hi")


@pytest.mark.covers("R167")
async def test_a_model_that_only_calls_tools_is_given_up() -> None:
    model = Caller("subtract")
    provider = Provider(name="direct", make=lambda context: model, runs_tools=False)
    with pytest.raises(CompletionError, match="called tools 3 times and gave no answer"):
        await converse(provider, HI, [add], rounds=3)
    assert model.heard[2].history[-1] == Message("tool", "there is no tool 'subtract'", name="subtract")


@pytest.mark.covers("R168")
async def test_two_requests_at_once_keep_their_own_context(autojump_clock: MockClock) -> None:
    said = dict[str, str]()

    def make(context: Context) -> ChildSpec:
        answer: dict[str, Any] = {**GOOD, "result": f"for {context['user']}"}
        return spec_of(saying(**answer))

    provider = Provider(name="p", make=make, needs=frozenset({"user"}))

    async def ask(user: str) -> None:
        async with provider.within({"user": user}).stream(HI) as stream:
            await trio.sleep(1)
            said[user] = (await stream.finish()).text

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "ann")
        nursery.start_soon(ask, "bob")
    assert said == {"ann": "for ann", "bob": "for bob"}
    assert provider.context == {}


@pytest.mark.covers("R115")
async def test_without_its_context_there_is_one_error_and_no_process(autojump_clock: MockClock) -> None:
    provider = Provider(
        name="p", make=lambda context: spec_of(unwanted), needs=frozenset({"user", "account"})
    )
    async with provider.within({"account": 1}).stream(HI) as stream:
        [only] = [chunk async for chunk in stream]
    assert isinstance(only, Failed)
    assert (
        str(only.error) == "no completion: provider 'p': its context was not set: user; call within() first"
    )
    assert isinstance(only.error.__cause__, ProviderError)
    assert isinstance(only.error.__cause__.__cause__, ContextMissing)


@pytest.mark.covers("R169")
def test_two_providers_answer_one_list_of_prompts_in_one_table(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "compare_providers.py"
    done = subprocess.run(
        [sys.executable, str(script), "one", "two"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": SOURCES},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    head, *rows = [line.split() for line in done.stdout.splitlines()]
    assert head == ["provider", "prompt", "seconds", "tokens", "dollars", "answer"]
    assert [(row[0], row[1], row[5]) for row in rows] == [
        ("claude", "1", "Hello!"),
        ("codex", "1", "Hello!"),
        ("claude", "2", "Hello!"),
        ("codex", "2", "Hello!"),
    ]


# -- models of the caller's own


class Plain:
    """The least that can answer."""

    async def completion(self, request: CompletionRequest) -> Completion:
        return Completion(text=f"to {request.prompt}")


class Generator(Plain):
    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        async with trio.open_nursery() as nursery:  # what it holds open stays its own
            yield TextChunk("It ")
            await trio.sleep(1)
            yield TextChunk("was")
            yield Void("was")
            yield TextChunk("is 4.")
            yield Complete(Usage(1, 2))
            nursery.cancel_scope.cancel()


class Block(Generator):
    @asynccontextmanager
    async def open(self, request: CompletionRequest) -> AsyncGenerator[AsyncGenerator[Chunk]]:
        yield Generator.stream(self, request)


class InBlock(Plain):
    def stream(self, request: CompletionRequest) -> Any:
        return Block().open(request)


class Endless(Plain):
    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        yield TextChunk("so far")
        await trio.sleep_forever()


class Raising(Plain):
    async def completion(self, request: CompletionRequest) -> Completion:
        raise ConnectionError("out of reach")


class RaisingLate(Plain):
    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        yield TextChunk("so far")
        raise ConnectionError("out of reach")


def own(model: Any, *, runs_tools: bool = False) -> Provider:
    return Provider(name="own", make=partial(given, model), runs_tools=runs_tools)


async def test_a_model_of_your_own_needs_a_completion_and_no_more(autojump_clock: MockClock) -> None:
    async with own(Plain()).stream(HI) as stream:
        chunks = [chunk async for chunk in stream]
    assert chunks == [TextChunk("to hi"), Complete(None)]
    assert (stream.response.text, stream.response.raw.outcome) == ("to hi", "ok")
    assert (await own(Plain()).completion(HI)).choice == "to hi"


@pytest.mark.parametrize("model", [Generator(), InBlock()], ids=["generator", "block"])
async def test_a_model_of_your_own_streams_as_it_says_it(model: Plain, autojump_clock: MockClock) -> None:
    async with own(model).stream(HI) as stream:
        assert await anext(stream) == TextChunk("It ")
        begun = trio.current_time()
        rest = [chunk async for chunk in stream]
    assert trio.current_time() - begun == pytest.approx(1.0)
    assert rest == [TextChunk("was"), Void("was"), TextChunk("is 4."), Complete(Usage(1, 2))]
    assert (stream.response.text, stream.response.usage) == ("It is 4.", Usage(1, 2))


@pytest.mark.parametrize("model", [Raising(), RaisingLate()], ids=["at once", "late"])
async def test_what_a_model_of_your_own_raises_is_the_error_of_the_response(model: Plain) -> None:
    async with own(model).stream(HI) as stream:
        chunks = [chunk async for chunk in stream]
    assert isinstance(chunks[-1], Failed)
    assert isinstance(chunks[-1].error.__cause__, ProviderError)
    assert isinstance(chunks[-1].error.__cause__.__cause__, ConnectionError)


async def test_a_model_of_your_own_has_the_time_of_the_request_and_no_more(autojump_clock: MockClock) -> None:
    request = attrs.evolve(HI, timeout=5.0)
    with pytest.raises(CompletionError, match="5"):
        await own(Endless()).completion(request)
    assert trio.current_time() == pytest.approx(5.0, abs=0.1)


class Counting:
    """Calls a tool in each of two rounds, and then says what they gave."""

    async def completion(self, request: CompletionRequest) -> Completion:
        raise AssertionError("it streams")

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        told = [message.content for message in request.history if message.role == "tool"]
        if len(told) == 2:
            yield TextChunk(f"{told}")
        else:
            yield TextChunk(f"round {len(told)}")
            yield ToolUse(f"c{len(told)}", "add", {"a": len(told), "b": 2})
        yield Complete(Usage(10, 1))


async def test_a_conversation_streams_its_rounds_and_what_the_tools_gave_between_them(
    autojump_clock: MockClock,
) -> None:
    async with stream_conversation(own(Counting()), HI, [add]) as stream:
        chunks = [chunk async for chunk in stream]
    assert chunks == [
        TextChunk("round 0"),
        ToolUse("c0", "add", {"a": 0, "b": 2}),
        ToolOutput("c0", "add", "2", duration=0.0),
        TextChunk("\n\nround 1"),
        ToolUse("c1", "add", {"a": 1, "b": 2}),
        ToolOutput("c1", "add", "3", duration=0.0),
        TextChunk("\n\n['2', '3']"),
        Complete(Usage(30, 3)),
    ]
    response = stream.response
    assert (response.text, response.usage) == ("['2', '3']", Usage(30, 3))
    assert (
        [call.id for call in response.tool_calls] == [out.id for out in response.tool_outputs] == ["c0", "c1"]
    )
    assert await converse(own(Counting()), HI, [add]) == response


async def test_the_conversation_of_an_agent_streams_what_the_agent_says(autojump_clock: MockClock) -> None:
    provider = Provider(name="agent", make=lambda context: spec_of(TALK))
    async with stream_conversation(provider, HI, [add]) as stream:
        chunks = [chunk async for chunk in stream]
    assert [type(chunk) for chunk in chunks] == [TextChunk, ToolUse, ToolOutput, TextChunk, Complete]


async def test_a_conversation_that_its_reader_leaves_ends(autojump_clock: MockClock) -> None:
    with trio.fail_after(5):
        async with stream_conversation(own(Endless()), HI) as stream:
            assert await anext(stream) == TextChunk("so far")


async def test_what_its_reader_raises_leaves_a_conversation_bare(autojump_clock: MockClock) -> None:
    with pytest.raises(LookupError, match="of mine"):
        async with stream_conversation(own(Endless()), HI):
            raise LookupError("of mine")
