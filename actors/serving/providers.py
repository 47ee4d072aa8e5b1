"""Providers by name: one way to ask for completions, whatever answers: an agent, another library, or an API.

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

Context = Mapping[str, object]
Made = Completer | Agent | ChildSpec

ROUNDS = 10
"""Rounds of tool calls after which a model must answer."""


def _no_context() -> Context:
    return {}


@attrs.frozen(kw_only=True)
class Provider:
    """Something that answers, by name. `make` gives the model for a context: an agent, its spec, or a model of your own.

    Such a model has `completion(request)`, a coroutine that gives a `Completion`, and may have `stream(request)`, which gives
    chunks: `TextChunk`s, `ToolUse`s for tools that are to be run, `Complete` at the end where tokens were counted. It is an
    async generator of them, or a block around anything that gives them. What either raises is the error of the response.

    `runs_tools`: it uses tools by itself, as agents do. `needs` names what its context must hold.
    """

    name: str
    make: Callable[[Context], Made] = attrs.field(repr=False)
    runs_tools: bool = True
    needs: frozenset[str] = frozenset()
    context: Context = attrs.field(factory=_no_context, repr=False)

    def within(self, context: Context) -> Provider:
        """The same provider for one request, or several of one user: no other request has this context."""
        return attrs.evolve(self, context=dict(context))

    async def completion(self, request: CompletionRequest) -> Completion:
        """As for `CompletionModel`; the error of a missing context is a `CompletionError` like any other."""
        async with self.stream(request) as response:
            return await response.finish()

    @asynccontextmanager
    async def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionStream]:
        """As for `CompletionModel`."""
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
    """The providers that a program knows; it makes one of these and hands it on."""

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
        """Add one, under a name of its own. Raises `BadOption` for a name that is taken."""
        if name in self._made:
            raise BadOption(f"a provider named {name!r} is registered already")
        self._made[name] = Provider(name=name, make=make, runs_tools=runs_tools, needs=frozenset(needs))

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(sorted(self._made))

    def create(self, name: str, context: Context | None = None) -> Provider:
        """The provider of that name, within a context if one is given. Raises `NoSuchProvider`, which lists those registered."""
        if name not in self._made:
            raise NoSuchProvider(name, self.names)
        made = self._made[name]
        return made if context is None else made.within(context)


async def converse(
    provider: Provider, request: CompletionRequest, tools: Sequence[Tool] = (), *, rounds: int = ROUNDS
) -> Completion:
    """Ask, and run the tools that the model calls until it answers.

    A provider that runs tools itself is asked once, and `tools` stay with it: give them to its agent. The response is the
    last one, with the calls, what came of them and the tokens of all. Raises `CompletionError`, also when after so many
    `rounds` there is still a call in place of an answer.
    """
    async with stream_conversation(provider, request, tools, rounds=rounds) as stream:
        return await stream.finish()


@asynccontextmanager
async def stream_conversation(
    provider: Provider, request: CompletionRequest, tools: Sequence[Tool] = (), *, rounds: int = ROUNDS
) -> AsyncGenerator[CompletionStream]:
    """The same as a stream of chunks: those of every round, what came of the tools between them."""
    if provider.runs_tools:
        async with provider.stream(request) as stream:
            yield stream
        return
    declared = tuple(tool.declared for tool in tools)
    request = attrs.evolve(request, tools=(*request.tools, *declared))
    talk = _Talk(provider, request, {tool.name: tool for tool in tools}, rounds)
    # each round has the request's time, all of them together none
    async with _relayed(provider.name, attrs.evolve(request, timeout=None), talk) as stream:
        yield stream


class _Talk:
    """Rounds of asking and of running what was called."""

    def __init__(
        self, provider: Provider, request: CompletionRequest, tools: Mapping[str, Tool], rounds: int
    ) -> None:
        self._provider = provider
        self._request = request
        self._tools = tools
        self._rounds = rounds
        self._calls: list[ToolUse] = []
        self._outputs: list[ToolOutput] = []
        self._usages: list[Usage] = []
        self._last = Completion()
        self._has_text = False

    def whole(self) -> Completion:
        """The response of the last round, with what all did."""
        return attrs.evolve(
            self._last,
            tool_calls=tuple(self._calls),
            tool_outputs=(*self._last.tool_outputs, *self._outputs),
            usage=_sum(self._usages),
        )

    async def live(self) -> AsyncGenerator[Chunk]:
        """The chunks of all rounds."""
        request = self._request
        for _ in range(self._rounds):
            async with self._provider.stream(request) as stream, aclosing(self._round(stream)) as chunks:
                async for chunk in chunks:
                    yield chunk
                if stream.failed:
                    return
                self._last = stream.response
            self._count(self._last)
            if not self._last.tool_calls:
                yield Complete(_sum(self._usages))
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
        """The chunks of one round, but for a good end, which may not be the last."""
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

    def _count(self, completion: Completion) -> None:
        self._calls += completion.tool_calls
        if completion.usage is not None:
            self._usages.append(completion.usage)


def _sum(usages: Sequence[Usage]) -> Usage | None:
    """The tokens of all rounds; None where none was counted."""
    if not usages:
        return None
    return Usage(*(_total(usages, name) for name in Usage.__struct_fields__))


def _total(usages: Sequence[Usage], name: str) -> int | None:
    counted = [value for usage in usages if (value := getattr(usage, name)) is not None]
    return sum(counted) if counted else None


class _Own:
    """A model of the caller's own, whichever way it answers."""

    def __init__(self, model: Completer, request: CompletionRequest) -> None:
        self._model = model
        self._request = request
        self._whole: Completion | None = None
        self._stream: CompletionStream | None = None

    def whole(self) -> Completion | None:
        """The response, where the model gave it whole."""
        return self._whole if self._stream is None else self._stream.response

    async def live(self) -> AsyncGenerator[Chunk]:
        """Its chunks: those that its `stream` gives, in a block or bare, or else its completion's."""
        begin: Callable[[CompletionRequest], Any] | None = getattr(self._model, "stream", None)
        if begin is None:
            self._whole = await self._model.completion(self._request)
            for chunk in chunks_of(self._whole):
                yield chunk
            yield Complete(self._whole.usage)
            return
        async with AsyncExitStack() as stack:
            source: Any = begin(self._request)
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
    name: str, request: CompletionRequest, source: _Own | _Talk
) -> AsyncGenerator[CompletionStream]:
    """The stream of chunks that are made in a task of their own: what makes them may hold blocks open from one to the next."""
    stream = CompletionStream(name, request)
    send, receive = trio.open_memory_channel[Chunk](0)
    stream.relay(receive, source.whole)
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_carry, name, source, send)
        try:
            yield stream
        except Exception as error:  # noqa: BLE001  # the caller's own: it leaves bare, not in a group of one
            raised = error
        nursery.cancel_scope.cancel("the reader is done")
    if raised is not None:
        raise raised


async def _carry(name: str, source: _Own | _Talk, send: trio.MemorySendChannel[Chunk]) -> None:
    async with send, aclosing(source.live()) as chunks:
        try:
            async for chunk in chunks:
                await send.send(chunk)
        except Exception as error:  # noqa: BLE001  # the model is not ours: its error is the response's
            await send.send(Failed(wrapped(name, error)))


async def _run(tools: Mapping[str, Tool], call: ToolUse) -> ToolOutput:
    tool, begun = tools.get(call.name), trio.current_time()
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
