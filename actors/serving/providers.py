"""Providers of completions by name: agents, other libraries, or APIs, all with one interface.

A provider makes the model for a request from its context, which belongs to one bound copy (`within`). Without a context that it needs it
answers with one error and starts nothing. `converse` runs the caller's own tools for providers that run none.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import attrs
import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.errors import BadOption, CompletionError, ContextMissing, NoSuchProvider
from proctor.actors.expense import add_usage
from proctor.actors.serving.chunks import BETWEEN, Chunk, Complete, Failed, TextChunk, ToolOutput, ToolUse
from proctor.actors.serving.completion import (
    Completer,
    Completion,
    CompletionModel,
    CompletionRequest,
    CompletionStream,
    chunks_of,
    wrapped,
)
from proctor.actors.tools.tools import Tool
from proctor.protocols.prompt import Called, Message
from proctor.protocols.vocabulary import Usage
from proctor.runtime.spec import ChildSpec
from proctor.runtime.trio_only import check_in_trio

Context = Mapping[str, object]
Made = Completer | Agent | ChildSpec

ROUNDS = 10
"""Rounds of tool calls after which a model must answer."""


def _no_context() -> Context:
    return {}


@attrs.frozen(kw_only=True)
class Provider:
    """A provider with a name. `make` makes the model for a context: an agent, its spec, or a model of your own.

    Such a model has `completion(request)`, a coroutine that returns a `Completion`, and may have `stream(request)` for chunks:
    `TextChunk`s, a `ToolUse` for each tool to run, and `Complete` at the end if it counts tokens. It is an async generator, or an
    async context manager around an async iterator. An exception of either is the error of the response.

    `runs_tools`: it runs tools itself, as agents do. `needs` names the required keys of its context.
    """

    name: str
    make: Callable[[Context], Made] = attrs.field(repr=False)
    runs_tools: bool = True
    needs: frozenset[str] = frozenset()
    context: Context = attrs.field(factory=_no_context, repr=False)

    def within(self, context: Context) -> Provider:
        """The same provider with this context, for one request or several of one user."""
        return attrs.evolve(self, context=dict(context))

    async def completion(self, request: CompletionRequest) -> Completion:
        """As for `CompletionModel`; a missing context is a `CompletionError`, too."""
        async with self.stream(request) as response:
            return await response.finish()

    @asynccontextmanager
    async def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionStream]:
        """As for `CompletionModel`."""
        check_in_trio("proctor.Provider")
        if missing := sorted(self.needs - self.context.keys()):
            stream = CompletionStream(self.name, request)
            stream.fail(ContextMissing(self.name, missing))
            yield stream
            return
        made = self.make(self.context)
        if isinstance(made, Agent | ChildSpec):
            made = CompletionModel.make(made)
        if isinstance(made, CompletionModel):
            async with made.stream(request) as stream:
                yield stream
            return
        async with _relayed(self.name, request, _Own(made, request)) as stream:
            yield stream


class Providers:
    """The registered providers of a program."""

    def __init__(self) -> None:
        self._made: dict[str, Provider] = {}

    def register(
        self,
        name: str,
        make: Callable[[Context], Made],
        *,
        runs_tools: bool = True,
        needs: Sequence[str] = (),
    ) -> None:
        """Register a provider. Raises `BadOption` for a name that is taken."""
        if name in self._made:
            raise BadOption(f"a provider named {name!r} is registered already")
        self._made[name] = Provider(name=name, make=make, runs_tools=runs_tools, needs=frozenset(needs))

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(sorted(self._made))

    def create(self, name: str, context: Context | None = None) -> Provider:
        """The provider of this name, with a context if there is one. Raises `NoSuchProvider`, which lists the names."""
        if name not in self._made:
            raise NoSuchProvider(name, self.names)
        made = self._made[name]
        return made if context is None else made.within(context)


async def converse(
    provider: Provider, request: CompletionRequest, tools: Sequence[Tool] = (), *, rounds: int = ROUNDS
) -> Completion:
    """Ask, and run the tools that the model calls until it answers.

    A provider that runs tools itself is asked once, without `tools`: give them to its agent. The response is the last one, with
    the calls, results and tokens of all rounds. Raises `CompletionError`, also if the model still calls tools after `rounds`.
    """
    async with stream_conversation(provider, request, tools, rounds=rounds) as stream:
        return await stream.finish()


@asynccontextmanager
async def stream_conversation(
    provider: Provider, request: CompletionRequest, tools: Sequence[Tool] = (), *, rounds: int = ROUNDS
) -> AsyncGenerator[CompletionStream]:
    """The same as a stream of chunks: those of every round, with the results of the tools between them."""
    if provider.runs_tools:
        async with provider.stream(request) as stream:
            yield stream
        return
    declared = tuple(tool.declared for tool in tools)
    request = attrs.evolve(request, tools=(*request.tools, *declared))
    conversation = _Conversation(provider, request, {tool.name: tool for tool in tools}, rounds)
    # the timeout of the request is for each round, without one for all together
    async with _relayed(provider.name, attrs.evolve(request, timeout=None), conversation) as stream:
        yield stream


class _Conversation:
    """A conversation: rounds of a request and of the tools that it calls."""

    def __init__(
        self, provider: Provider, request: CompletionRequest, tools: Mapping[str, Tool], rounds: int
    ) -> None:
        self._provider = provider
        self._request = request
        self._tools = tools
        self._rounds = rounds
        self._calls: list[ToolUse] = []
        self._outputs: list[ToolOutput] = []
        self._usage: Usage | None = None
        self._last = Completion()
        self._has_text = False

    def whole(self) -> Completion:
        """The response of the last round, with the calls and results of all."""
        return attrs.evolve(
            self._last,
            tool_calls=tuple(self._calls),
            tool_outputs=(*self._last.tool_outputs, *self._outputs),
            usage=self._usage,
        )

    async def live(self) -> AsyncGenerator[Chunk]:
        """The chunks of all rounds."""
        request = self._request
        for _ in range(self._rounds):
            async with self._provider.stream(request) as stream, aclosing(self._round(stream)) as chunks:
                async for chunk in chunks:
                    yield chunk
                # the reader has got the failure as a chunk already
                if stream.failed:
                    return
                self._last = stream.response
            self._calls += self._last.tool_calls
            self._usage = add_usage(self._usage, self._last.usage)
            if not self._last.tool_calls:
                yield Complete(self._usage)
                return
            results = list[ToolOutput]()
            for call in self._last.tool_calls:
                results.append(await _run(self._tools, call))
                yield results[-1]
            self._outputs += results
            request = _continued(request, self._last, results)
        error = f"provider {self._provider.name!r} called tools {self._rounds} times and gave no answer"
        yield Failed(CompletionError(error))

    async def _round(self, stream: CompletionStream) -> AsyncGenerator[Chunk]:
        """The chunks of one round without `Complete`, because other rounds may follow."""
        lead = BETWEEN if self._has_text else ""
        async for chunk in stream:
            match chunk:
                case Complete():
                    pass
                case TextChunk(text=text):
                    self._has_text = True
                    yield attrs.evolve(chunk, text=lead + text)
                    lead = ""
                case _:
                    yield chunk


class _Own:
    """A model of the caller, with or without `stream`."""

    def __init__(self, model: Completer, request: CompletionRequest) -> None:
        self._model = model
        self._request = request
        self._whole: Completion | None = None
        self._stream: CompletionStream | None = None

    def whole(self) -> Completion | None:
        """The response, if the model returned it whole."""
        return self._whole if self._stream is None else self._stream.response

    async def live(self) -> AsyncGenerator[Chunk]:
        """Its chunks: those of its `stream`, or else of its completion."""
        begin: Callable[[CompletionRequest], Any] | None = getattr(self._model, "stream", None)
        if begin is None:
            self._whole = await self._model.completion(self._request)
            for chunk in chunks_of(self._whole):
                yield chunk
            yield Complete(self._whole.usage)
            return
        async with AsyncExitStack() as stack:
            source: Any = begin(self._request)
            # `stream` may be a generator, a coroutine or a context manager: what each needs is seen only from
            # the object
            if hasattr(source, "__await__"):
                source = await source
            if hasattr(source, "__aenter__"):
                source = await stack.enter_async_context(source)
            elif hasattr(source, "aclose"):
                await stack.enter_async_context(aclosing(source))
            chunks: AsyncIterable[Chunk] = source
            self._stream = chunks if isinstance(chunks, CompletionStream) else None
            async for chunk in chunks:
                yield chunk


@asynccontextmanager
async def _relayed(
    name: str, request: CompletionRequest, source: _Own | _Conversation
) -> AsyncGenerator[CompletionStream]:
    """A stream of chunks that are made in a task of their own, because their source may hold cancel scopes open between two."""
    stream = CompletionStream(name, request)
    # no buffer: the model goes only as fast as its chunks are read
    send, receive = trio.open_memory_channel[Chunk](0)
    stream.relay(receive, source.whole)
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_carry, name, source, send)
        try:
            yield stream
        except Exception as error:  # noqa: BLE001  # the caller's own: it is raised as it is, not in a group of one
            raised = error
        # a reader that leaves early must not wait for the rest of the response
        nursery.cancel_scope.cancel("the reader is done")
    if raised is not None:
        raise raised


async def _carry(name: str, source: _Own | _Conversation, send: trio.MemorySendChannel[Chunk]) -> None:
    # The source is closed before the channel: a reader sees the end when nothing of the source runs any more.
    async with send, aclosing(source.live()) as chunks:
        try:
            async for chunk in chunks:
                await send.send(chunk)
        except Exception as error:  # noqa: BLE001  # the model is not ours: its error is the response's
            await send.send(Failed(wrapped(name, error)))


async def _run(tools: Mapping[str, Tool], call: ToolUse) -> ToolOutput:
    tool, begun = tools.get(call.name), trio.current_time()
    # a result, not an error: models invent names, and the text lets them correct it
    if tool is None:
        return ToolOutput(call.id, call.name, f"there is no tool {call.name!r}", is_error=True)
    result = await tool.run(call.input)
    return ToolOutput(call.id, call.name, result.text, result.is_error, trio.current_time() - begun)


def _continued(
    request: CompletionRequest, completion: Completion, results: Sequence[ToolOutput]
) -> CompletionRequest:
    asked = (Message("user", request.prompt),) if request.prompt else ()
    calls = tuple(Called(call.id, call.name, call.input) for call in completion.tool_calls)
    reply = Message("assistant", completion.text, calls=calls)
    outputs = (Message("tool", result.text, name=result.name) for result in results)
    return attrs.evolve(request, prompt="", history=(*request.history, *asked, reply, *outputs))
