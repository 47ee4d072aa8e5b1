"""Completion models: a request to an agent in, a response or a stream of chunks out.

Chunks are read from the agent's log, so that a slow reader costs disk and no memory. The last one is `Complete` or `Failed`; leaving the
stream ends the run. A failure is a `CompletionError`, caused by a `ProviderError`, caused by what the agent raised. A process that exits
with a status after a valid answer has answered.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import attrs
import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.agent.turn import Turn
from proctor.actors.delivery import Delivery
from proctor.actors.error_kinds import facts_of, fault_of
from proctor.actors.errors import (
    AgentError,
    AskInterrupted,
    AskNotSent,
    AskTimeout,
    BadOption,
    CompletionError,
    ProviderError,
)
from proctor.actors.limits.account_book import AccountBook
from proctor.actors.limits.spend_limits import run_limits
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan, plan_of
from proctor.actors.runs import DEADLINE, Run, stream
from proctor.actors.serving.chunks import (
    Chunk,
    ChunkBuilder,
    Complete,
    Failed,
    TextChunk,
    ThinkingChunk,
    ToolOutput,
    ToolUse,
    Void,
)
from proctor.actors.serving.pool import Pool, Pools
from proctor.actors.structured.payloads import Payload
from proctor.protocols.dialect import HostTool
from proctor.protocols.errors import Misuse
from proctor.protocols.prompt import Content, Document, Message, prompt_of
from proctor.protocols.vocabulary import Usage
from proctor.runtime.error_facts import Fault
from proctor.runtime.exits import ExitStatus, RuntimeFault
from proctor.runtime.processes import ProcessError
from proctor.runtime.spec import ChildSpec
from proctor.runtime.trio_only import check_in_trio

LONGEST_PREAMBLE = 64 * 1024
"""The largest preamble, in bytes, that becomes an argument of a command line; the system's limit is 128 KiB."""

Ended = Callable[[CompletionError | None], None]
"""Is called at the end of a response."""

ADAPTER = (AgentError, ProcessError, RuntimeFault)
"""Errors that an agent raises to its caller."""


@attrs.frozen(kw_only=True)
class CompletionRequest:
    """A request. Its parts become one prompt (`protocols.prompt`), with the `payloads` in their order. The `preamble` is added to
    the instructions of the command line if a new process starts and accepts some, else it begins the prompt.

    `schema` declares the answer, as for `Agent.ask`. `timeout` is in seconds, None waits without limit.
    """

    prompt: Content = ""
    preamble: str = ""
    history: tuple[Message, ...] = ()
    documents: tuple[Document, ...] = ()
    tools: tuple[HostTool, ...] = ()
    payloads: tuple[Payload, ...] = ()
    schema: object = None
    timeout: float | None = DEADLINE

    def with_payload(self, payload: Payload) -> CompletionRequest:
        """The same request with another payload at the end."""
        return attrs.evolve(self, payloads=(*self.payloads, payload))

    def text(self) -> str:
        """The prompt, made of all its parts."""
        return prompt_of(
            self.prompt,
            preamble=self.preamble,
            history=self.history,
            documents=self.documents,
            tools=self.tools,
        )


def _direct(completion: Completion) -> Answer:
    """The answer of a completion without an agent."""
    return Answer(agent="", outcome="ok", text=completion.text, usage=completion.usage)


@attrs.frozen(kw_only=True)
class Completion:
    """A response: the agent's final `text`, or the `value` for the request's schema; the calls of tools and their results; the
    `thinking` that the CLI reported; its `usage` (None if it reports none); `raw`, the agent's whole answer. A model of your own
    sets the fields that it has."""

    text: str = ""
    value: object = None
    tool_calls: tuple[ToolUse, ...] = ()
    usage: Usage | None = None
    raw: Answer = attrs.field(default=attrs.Factory(_direct, takes_self=True))
    tool_outputs: tuple[ToolOutput, ...] = ()
    thinking: str = ""

    @property
    def choice(self) -> object:
        """The structured value, else the text."""
        return self.text if self.value is None else self.value


class Completer(Protocol):
    """A model that gives whole responses; `providers.Provider` lists what else it may have."""

    async def completion(self, request: CompletionRequest) -> Completion:
        """The response."""
        ...


class Model(Completer, Protocol):
    """A model that also streams: an agent (`CompletionModel`), a provider, or a model of the caller."""

    def stream(self, request: CompletionRequest) -> AbstractAsyncContextManager[CompletionStream]:
        """Stream the response as chunks; leaving the block ends the run."""
        ...


@attrs.frozen
class Counts:
    """Number of completions that succeeded, and that failed by `fault`."""

    completed: int
    failed: Mapping[Fault, int]


class CompletionModel:
    """An agent that answers completion requests; see `make`."""

    def __init__(self, agent: Agent | ChildSpec, model: str | None, pool: Pool | Pools | None) -> None:
        self._agent = agent
        self._model = model
        self._pool = pool
        self._book = AccountBook()
        self._completed = 0
        self._failed: Counter[Fault] = Counter()

    @classmethod
    def make(
        cls, agent: Agent | ChildSpec, model: str | None = None, *, pool: Pool | Pools | None = None
    ) -> CompletionModel:
        """Make a model of a held agent, or of an agent's spec: then each request gets a process, in a slot of `pool` if there is one.

        `model` is the CLI's name of a model; a held agent is set to it before each request. Raises `BadOption` for a spec that
        is not an agent's, and for a held agent with a pool.
        """
        if pool is not None and not isinstance(agent, ChildSpec):
            raise BadOption(f"agent {agent.name!r} is held, and needs no place in a pool")
        if isinstance(agent, ChildSpec) and model is not None:
            plan = plan_of(agent)
            launch = attrs.evolve(plan.launch, model=model)
            agent = attrs.evolve(agent, args=(attrs.evolve(plan, launch=launch),))
        elif isinstance(agent, ChildSpec):
            plan_of(agent)
        return cls(agent, model, pool)

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self._agent.id if isinstance(self._agent, ChildSpec) else self._agent.name

    def statistics(self) -> Counts:
        """The numbers of its requests so far, without those that were left early."""
        return Counts(self._completed, dict(self._failed))

    async def completion(self, request: CompletionRequest) -> Completion:
        """The response. Raises `CompletionError` with its causes."""
        async with self.stream(request) as response:
            return await response.finish()

    @asynccontextmanager
    async def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionStream]:
        """Stream the response. An agent that cannot start gives a stream of one chunk, `Failed`."""
        check_in_trio("proctor.CompletionModel")
        async with AsyncExitStack() as stack:
            stream = CompletionStream(self.name, request, self._ended)
            try:
                if not (prompt := request.text()) and not request.payloads:
                    raise BadOption(
                        "there is nothing to answer: neither the history nor the prompt says anything"
                    )
                stream.follow(await stack.enter_async_context(self._live(prompt, request)))
            except ADAPTER as error:
                stream.fail(error)
            yield stream

    @asynccontextmanager
    async def _live(self, prompt: str, request: CompletionRequest) -> AsyncGenerator[Turn | Run]:
        if isinstance(self._agent, ChildSpec):
            spec = self._agent
            if (informed := _informed(plan_of(spec), request.preamble)) is not None:
                spec = attrs.evolve(spec, args=(informed,))
                prompt = attrs.evolve(request, preamble="").text()
            async with self._run(spec, prompt, request) as live:
                yield live
        else:
            await self._choose(self._agent)
            schema, payloads = request.schema, request.payloads
            async with self._agent.stream(prompt, schema=schema, payloads=payloads) as turn:
                yield turn

    def _run(
        self, spec: ChildSpec, prompt: str, request: CompletionRequest
    ) -> AbstractAsyncContextManager[Run]:
        timeout, schema, payloads = request.timeout, request.schema, request.payloads
        if self._pool is not None:
            return self._pool.stream(spec, prompt, timeout=timeout, schema=schema, payloads=payloads)
        plan = plan_of(spec)
        limits = run_limits(plan, self._book)
        return stream(plan, prompt, timeout=timeout, schema=schema, payloads=payloads, limits=limits)

    async def _choose(self, agent: Agent) -> None:
        if self._model is None:
            return
        receipt = await agent.set_model(self._model)
        if receipt.fate not in ("delivered", "queued"):
            raise BadOption(f"{agent.name} cannot go on with the model {self._model!r}: {receipt.why}")

    def _ended(self, error: CompletionError | None) -> None:
        if error is None:
            self._completed += 1
        else:
            self._failed[fault_of(error)] += 1


class CompletionStream:
    """The chunks of one response, in order: `async for chunk in stream`, then `response`."""

    def __init__(self, provider: str, request: CompletionRequest, ended: Ended | None = None) -> None:
        self._provider = provider
        self._request = request
        self._ended = ended
        self._deadline = math.inf
        self._advance: Callable[[], Awaitable[None]] | None = None
        self._gathered = Gathered()
        self._ready: deque[Chunk] = deque()
        self._chunk_builder = ChunkBuilder()
        self._response: Completion | None = None
        self._error: CompletionError | None = None

    @property
    def response(self) -> Completion:
        """The whole response. Raises its `CompletionError` if it failed, and RuntimeError before the end."""
        if self._error is not None:
            raise self._error
        if self._response is None:
            raise RuntimeError("the response has not ended; read its chunks, or await finish()")
        return self._response

    @property
    def failed(self) -> bool:
        """Whether it ended without a response."""
        return self._error is not None

    @property
    def pending(self) -> int:
        """Chunks that wait for their reader: those of one event at most, because the next event is read after them."""
        return len(self._ready)

    async def finish(self) -> Completion:
        """Read to the end; see `response`."""
        async for _ in self:
            pass
        return self.response

    def follow(self, live: Turn | Run) -> None:
        """Take the response from the events of an agent from now on."""
        self._begin(partial(self._next_event, live), timed=isinstance(live, Turn))

    def relay(self, chunks: AsyncIterator[Chunk], whole: Callable[[], Completion | None]) -> None:
        """Take these chunks up to a `Complete`, a `Failed` or their end. Then `whole` may give the response, else it is their sum."""
        self._begin(partial(self._next_chunk, chunks, whole), timed=True)

    def _begin(self, advance: Callable[[], Awaitable[None]], *, timed: bool) -> None:
        self._advance = advance
        if timed and self._request.timeout is not None:
            self._deadline = trio.current_time() + self._request.timeout

    def complete(self, response: Completion) -> None:
        """Take a whole response, of a model that does not stream; it becomes as few chunks as possible."""
        self._ready += chunks_of(response)
        self._respond(response)

    def fail(self, error: Exception) -> None:
        """End without a response; the error is the last chunk."""
        self._conclude(wrapped(self._provider, error), {})

    def __aiter__(self) -> CompletionStream:
        return self

    async def __anext__(self) -> Chunk:
        """The next chunk. Errors of the agent are not raised: they are the last chunk."""
        while not self._ready:
            if self._advance is None:
                raise StopAsyncIteration
            await self._advance()
        return self._ready.popleft()

    async def _next_chunk(self, chunks: AsyncIterator[Chunk], whole: Callable[[], Completion | None]) -> None:
        chunk: Chunk | None = None
        with trio.move_on_at(self._deadline) as clock:
            chunk = await anext(chunks, None)
        # A chunk that came in the tick of the deadline still counts.
        if clock.cancelled_caught and chunk is None:
            self.fail(AskTimeout(self._provider, self._request.timeout or 0.0))
            return
        match chunk:
            case Failed(error=error):
                self.fail(error)
            case Complete() | None:
                usage = None if chunk is None else chunk.usage
                self._response = whole() or self._gathered.response(usage)
                self._conclude(None, {} if chunk is None else chunk.metadata)
            case _:
                self._add(chunk)

    def _add(self, *chunks: Chunk) -> None:
        for chunk in chunks:
            self._gathered.add(chunk)
        self._ready += chunks

    async def _next_event(self, live: Turn | Run) -> None:
        event = None
        try:
            with trio.move_on_at(self._deadline) as clock:
                event = await anext(live, None)
            # An event that came in the tick of the deadline still counts.
            if event is not None:
                self._add(*self._chunk_builder.add(event))
            elif clock.cancelled_caught:
                raise _late(self._provider, self._request.timeout or 0.0, live.delivery)
            else:
                self._judge(live.answer)
        except ADAPTER as error:
            self.fail(error)

    def _judge(self, answer: Answer) -> None:
        if not answer.ok:
            self._conclude(wrapped(self._provider, _no_answer(self._provider, answer)), _metadata_of(answer))
            return
        if self._request.schema is None:  # with a schema the answer is a value, whatever text came before it
            self._ready += self._chunk_builder.end(answer.text)
        whole = attrs.evolve(self._gathered.response(answer.usage), thinking=self._chunk_builder.thinking)
        self._respond(attrs.evolve(whole, text=answer.text, value=_value(answer), raw=answer))

    def _respond(self, response: Completion) -> None:
        self._response = response
        self._conclude(None, _metadata_of(response.raw))

    def _conclude(self, error: CompletionError | None, metadata: Mapping[str, Any]) -> None:
        self._advance, self._error = None, error
        if self._ended is not None:
            self._ended(error)
        if error is None and self._response is not None:
            self._ready.append(Complete(self._response.usage, metadata=metadata))
        elif error is not None:
            self._ready.append(Failed(error, metadata=metadata))


class Gathered:
    """The response that is the sum of chunks."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolUse] = []
        self._outputs: list[ToolOutput] = []

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
        match chunk:
            case TextChunk():
                self._text.append(chunk.text)
            case ThinkingChunk():
                self._thinking.append(chunk.text)
            case ToolUse():
                self._calls.append(chunk)
            case ToolOutput():
                self._outputs.append(chunk)
            case Void():
                self._text = _less(self._text, chunk.text)
                self._thinking = _less(self._thinking, chunk.thinking)
            case _:
                pass

    def response(self, usage: Usage | None) -> Completion:
        """The sum as a response."""
        return Completion(
            text="".join(self._text),
            tool_calls=tuple(self._calls),
            usage=usage,
            tool_outputs=tuple(self._outputs),
            thinking="".join(self._thinking),
        )


def chunks_of(response: Completion) -> list[Chunk]:
    """A whole response in as few chunks as possible, without its end."""
    thinking = [ThinkingChunk(response.thinking)] if response.thinking else []
    text = [TextChunk(response.text)] if response.text else []
    return [*thinking, *response.tool_calls, *response.tool_outputs, *text]


def _less(pieces: list[str], end: str) -> list[str]:
    return ["".join(pieces).removesuffix(end)] if end else pieces


def _informed(plan: Plan, preamble: str) -> Plan | None:
    """The plan with a preamble among the instructions of the CLI; None if it must stay in the prompt."""
    if not preamble or len(preamble.encode("utf-8", "replace")) > LONGEST_PREAMBLE:
        return None
    instructions = "\n\n".join(part for part in (plan.launch.append_system_prompt, preamble) if part)
    launch = attrs.evolve(plan.launch, append_system_prompt=instructions)
    try:
        ignored = plan.dialect.launch(attrs.evolve(launch, executable=(plan.dialect.name,))).ignored
    except Misuse:
        return None
    return None if "append_system_prompt" in ignored else attrs.evolve(plan, launch=launch)


def _value(answer: Answer) -> object:
    return answer.structured_output if answer.value is None else answer.value


def _no_answer(provider: str, answer: Answer) -> ProviderError:
    code = answer.exit.code if isinstance(answer.exit, ExitStatus) else None
    status = "" if code is None else f" (exit status {code})"
    error = ProviderError(
        provider,
        f"{answer.outcome}{status}: {answer.error or answer.text or 'it gave no reason'}",
        outcome=answer.outcome,
        ending=answer.ending,
        code=code,
        stderr=answer.stderr,
        resets_at=answer.resets_at,
    )
    error.delivery = answer.delivery
    return error


def _late(provider: str, seconds: float, delivery: Delivery) -> AskTimeout:
    """The error of a deadline that passed while a held agent streamed; leaving its stream interrupts the turn."""
    if delivery.is_repeatable:
        return AskNotSent(provider, seconds, delivery=delivery)
    return AskInterrupted(provider, seconds, acknowledged=False, delivery=delivery)


def wrapped(provider: str, error: Exception) -> CompletionError:
    """The error of a response, caused by one with the provider's name, caused by the agent's."""
    if isinstance(error, CompletionError):
        return error
    if not isinstance(error, ProviderError):
        behind, error = error, ProviderError(provider, str(error) or type(error).__name__)
        error.__cause__ = behind
    whole = CompletionError(str(error))
    whole.__cause__ = error
    facts = facts_of(whole)
    error.adopt(facts)
    whole.adopt(facts)
    return whole


def _metadata_of(answer: Answer) -> dict[str, Any]:
    """Metadata of an answer: facts that only its CLI reports."""
    facts = {
        "agent": answer.agent,
        "outcome": answer.outcome,
        "model": answer.model,
        "session_id": answer.session_id,
        "cost_usd": answer.cost_usd,
        "duration": answer.duration,
        "model_turns": answer.model_turns,
        "denied_tools": list(answer.denied_tools) or None,
        "notes": list(answer.notes) or None,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}
