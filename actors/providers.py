"""Providers by name: one way to ask, whatever answers, be it an agent, another library, or an API.

A provider makes the model that answers a request out of the request's context: for whom, where, with which account. The
context belongs to one bound copy (`within`) and so to one request; the provider itself keeps none (R168). A provider that
needs one and was given none answers with one error, and starts nothing (R115).

`converse` runs the caller's own tools for providers that do not run any themselves, and is bypassed by those that do (R167).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs

from proctor.actors.completion import (
    Completion,
    CompletionModel,
    CompletionRequest,
    CompletionStream,
    Model,
)
from proctor.actors.errors import BadOption, CompletionError, ContextMissing, NoSuchProvider
from proctor.actors.handle import Agent
from proctor.actors.speech import ToolUse
from proctor.actors.tools import Tool
from proctor.protocols.prompt import Called, Message
from proctor.runtime.spec import ChildSpec

Context = Mapping[str, object]
Made = Model | Agent | ChildSpec

ROUNDS = 10
"""How often a model may call the caller's tools before it has to answer."""


def _no_context() -> Context:
    return {}


@attrs.frozen(kw_only=True)
class Provider:
    """Something that answers, by name. `make` gives the model for a context: an agent, its spec, or a `Model`.

    `runs_tools`: it uses tools by itself, as agents do. `needs` names what its context must hold.
    """

    name: str
    make: Callable[[Context], Made] = attrs.field(repr=False)
    runs_tools: bool = True
    needs: frozenset[str] = frozenset()
    context: Context = attrs.field(factory=_no_context, repr=False)

    def within(self, context: Context) -> Provider:
        """The same provider for one request, or several of one user: nobody else's have this context."""
        return attrs.evolve(self, context=dict(context))

    async def completion(self, request: CompletionRequest) -> Completion:
        """As for `CompletionModel`; the error of a missing context is a `CompletionError` like any other."""
        async with self.stream(request) as said:
            return await said.finish()

    @asynccontextmanager
    async def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionStream]:
        """As for `CompletionModel`."""
        if missing := sorted(self.needs - self.context.keys()):
            stream = CompletionStream(self.name, request, _unheard)
            stream.fail(ContextMissing(self.name, missing))
            yield stream
            return
        async with _model(self.make(self.context)).stream(request) as stream:
            yield stream


class Providers:
    """The providers that a program knows; it makes one of these and hands it on (R006)."""

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
        """The provider of that name, within a context if one is given. Raises `NoSuchProvider`, which lists the known."""
        if name not in self._made:
            raise NoSuchProvider(name, self.names)
        made = self._made[name]
        return made if context is None else made.within(context)


async def converse(
    provider: Provider, request: CompletionRequest, tools: Sequence[Tool] = (), *, rounds: int = ROUNDS
) -> Completion:
    """Ask, and run the tools that the model calls until it answers.

    A provider that runs tools itself is asked once, and `tools` stay with it: give them to its agent. Raises
    `CompletionError`, also when after so many `rounds` there is still a call in place of an answer.
    """
    if provider.runs_tools:
        return await provider.completion(request)
    by_name = {tool.name: tool for tool in tools}
    request = attrs.evolve(request, tools=(*request.tools, *(tool.declared for tool in tools)))
    for _ in range(rounds):
        completion = await provider.completion(request)
        if not completion.tool_calls:
            return completion
        request = _continued(request, completion, [await _run(by_name, c) for c in completion.tool_calls])
    raise CompletionError(f"provider {provider.name!r} called tools {rounds} times and gave no answer")


def _model(made: Made) -> Model:
    return CompletionModel.make(made) if isinstance(made, Agent | ChildSpec) else made


def _unheard(error: CompletionError | None, /) -> None:
    """Nobody counts what was never asked."""


async def _run(tools: Mapping[str, Tool], call: ToolUse) -> Message:
    tool = tools.get(call.name)
    if tool is None:
        return Message("tool", f"there is no tool {call.name!r}", name=call.name)
    return Message("tool", (await tool.run(call.input)).text, name=call.name)


def _continued(
    request: CompletionRequest, completion: Completion, results: Sequence[Message]
) -> CompletionRequest:
    asked = (Message("user", request.prompt),) if request.prompt else ()
    calls = tuple(Called(call.id, call.name, call.input) for call in completion.tool_calls)
    said = Message("assistant", completion.text, calls=calls)
    return attrs.evolve(request, prompt="", history=(*request.history, *asked, said, *results))
