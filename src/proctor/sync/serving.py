"""proctor for plain code: pools, sessions, completion models and providers.

Written by `python -m tests.faces` from the names of `proctor`; see docs/reference/faces.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

import trio

from proctor.actors import runs
from proctor.actors.limits.account_book import AccountBook
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan
from proctor.actors.process.memory import Memory
from proctor.actors.serving.chunks import Chunk
from proctor.actors.serving.completion import Completion, CompletionRequest, Counts
from proctor.actors.serving.completion import CompletionModel as _CompletionModel
from proctor.actors.serving.pool import Pool as _Pool
from proctor.actors.serving.pool import Pools as _Pools
from proctor.actors.serving.pool import PoolStatistics, Warm
from proctor.actors.serving.pool import pool_spec as _pool_spec
from proctor.actors.serving.providers import Context
from proctor.actors.serving.providers import Provider as _Provider
from proctor.actors.serving.providers import Providers as _Providers
from proctor.actors.serving.providers import converse as _converse
from proctor.actors.serving.providers import stream_conversation as _stream_conversation
from proctor.actors.serving.sessions import Session as _Session
from proctor.actors.serving.sessions import SessionFacts
from proctor.actors.serving.sessions import Sessions as _Sessions
from proctor.actors.structured.payloads import Payload
from proctor.actors.tools.tools import Tool
from proctor.bridge.adapters import as_is, provided, served
from proctor.bridge.proxies import Proxy, unwrapped
from proctor.bridge.sync_face import Block, ModelReader, Opened, Stream, call, call_plain, hosted, runner_of
from proctor.bridge.trio_thread import current_thread
from proctor.runtime.spec import ChildSpec
from proctor.sync.agents import Agent, Run

T = TypeVar("T")


def converse(
    provider: Provider, request: CompletionRequest, tools: Sequence[Tool] = (), *, rounds: int = 10
) -> Completion:
    """Ask, and run the tools that the model calls until it answers."""
    result: Completion = call(current_thread(), _converse, provider, request, tools, rounds=rounds)
    return result


def stream_conversation(
    provider: Provider, request: CompletionRequest, tools: Sequence[Tool] = (), *, rounds: int = 10
) -> Block[CompletionStream]:
    """The same as a stream of chunks: those of every round, with the results of the tools between them."""
    return Block(None, CompletionStream.around, _stream_conversation, provider, request, tools, rounds=rounds)


class CompletionStream(Stream[Chunk]):
    """The chunks of one response, in order: `async for chunk in stream`, then `response`."""

    @property
    def response(self) -> Completion:
        """The whole response."""
        value: Completion = self._target.response
        return value

    @property
    def failed(self) -> bool:
        """Whether it ended without a response."""
        value: bool = self._target.failed
        return value

    def finish(self) -> Completion:
        """Read to the end; see `response`."""
        self._drained()
        result: Completion = call(self._thread, self._target.finish)
        return result


class CompletionModel(Proxy[_CompletionModel]):
    """An agent that answers completion requests; see `make`."""

    @classmethod
    def make(
        cls, agent: Agent | ChildSpec, model: str | None = None, *, pool: Pool | Pools | None = None
    ) -> CompletionModel:
        """Make a model of a held agent, or of an agent's spec: then each request gets a process, in a slot of `pool` if there is one."""
        return cls.around(_CompletionModel.make(unwrapped(agent), unwrapped(model), pool=unwrapped(pool)))

    @property
    def name(self) -> str:
        """The name of the agent."""
        value: str = self._target.name
        return value

    def statistics(self) -> Counts:
        """The numbers of its requests so far, without those that were left early."""
        result: Counts = call_plain(self._thread, self._target.statistics)
        return result

    def completion(self, request: CompletionRequest) -> Completion:
        """The response."""
        result: Completion = call(self._thread, self._target.completion, request)
        return result

    def stream(self, request: CompletionRequest) -> Block[CompletionStream]:
        """Stream the response."""
        return Block(self._thread, CompletionStream.around, self._target.stream, request)


class Pool(Proxy[_Pool]):
    """A pool for one command line."""

    def __init__(
        self,
        name: str,
        *,
        limit: int | None = None,
        queue: int = 1000,
        warm: Sequence[Warm] = (),
        starts: trio.CapacityLimiter | None = None,
        book: AccountBook | None = None,
    ) -> None:
        self._target = _Pool(name, limit=limit, queue=queue, warm=warm, starts=starts, book=book)

    @property
    def name(self) -> str:
        """See `Pool`."""
        value: str = self._target.name
        return value

    def statistics(self) -> PoolStatistics:
        """Its numbers now."""
        result: PoolStatistics = call_plain(self._thread, self._target.statistics)
        return result

    def memory(self) -> Memory | None:
        """The memory of its processes now, as `Agent.memory`."""
        result: Memory | None = call_plain(self._thread, self._target.memory)
        return result

    def slot(self, *, timeout: float | None = None) -> Block[float | None]:
        """Hold a slot for a block, for work that the pool does not run."""
        return Block(self._thread, as_is, self._target.slot, timeout=timeout)

    def stream(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = 300.0,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Block[Run]:
        """As `proctor.stream`, in a slot of the pool, which is given back when the block is left."""
        return Block(
            self._thread,
            Run.around,
            self._target.stream,
            agent,
            prompt,
            timeout=timeout,
            schema=schema,
            payloads=payloads,
        )

    @overload
    def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = 300.0,
        schema: type[T],
        payloads: Sequence[Payload] = (),
    ) -> Answer[T]: ...

    @overload
    def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = 300.0,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Answer: ...

    def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = 300.0,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Answer:
        """As `proctor.ask`, in a slot of the pool."""
        result: Answer[Any] = call(
            self._thread, self._target.run, agent, prompt, timeout=timeout, schema=schema, payloads=payloads
        )
        return result

    def serve(self) -> Block[None]:
        """Keep processes warm for the length of a block; then close the pool and stop its runs. One block at a time."""
        return Block(self._home, as_is, served, self._target.serve)


class Pools(Proxy[_Pools]):
    """A pool for each kind of command line, made at its first use, so that a full one delays no other."""

    def __init__(
        self,
        *,
        limit: int | None = None,
        limits: Mapping[str, int] | None = None,
        queue: int = 1000,
        warm: Sequence[Warm] = (),
        book: AccountBook | None = None,
    ) -> None:
        self._target = _Pools(limit=limit, limits=limits, queue=queue, warm=warm, book=book)

    def of(self, agent: ChildSpec | Plan) -> Pool:
        """The pool of this agent's command line."""
        return Pool.around(call_plain(self._thread, self._target.of, agent), self._thread)

    def stream(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = 300.0,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Block[Run]:
        """As `Pool.stream`, in the agent's pool."""
        return Block(
            self._thread,
            Run.around,
            self._target.stream,
            agent,
            prompt,
            timeout=timeout,
            schema=schema,
            payloads=payloads,
        )

    def statistics(self) -> tuple[PoolStatistics, ...]:
        """The numbers of each pool."""
        result: tuple[PoolStatistics, ...] = call_plain(self._thread, self._target.statistics)
        return result

    @overload
    def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = 300.0,
        schema: type[T],
        payloads: Sequence[Payload] = (),
    ) -> Answer[T]: ...

    @overload
    def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = 300.0,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Answer: ...

    def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = 300.0,
        schema: object = None,
        payloads: Sequence[Payload] = (),
    ) -> Answer:
        """As `proctor.ask`, in a slot of the pool."""
        result: Answer[Any] = call(
            self._thread, self._target.run, agent, prompt, timeout=timeout, schema=schema, payloads=payloads
        )
        return result

    def serve(self) -> Block[None]:
        """As `Pool.serve`, for all."""
        return Block(self._home, as_is, served, self._target.serve)


class Provider(Proxy[_Provider]):
    """A provider with a name."""

    @property
    def name(self) -> str:
        """See `Provider`."""
        value: str = self._target.name
        return value

    @property
    def runs_tools(self) -> bool:
        """See `Provider`."""
        value: bool = self._target.runs_tools
        return value

    @property
    def needs(self) -> frozenset[str]:
        """See `Provider`."""
        value: frozenset[str] = self._target.needs
        return value

    @property
    def context(self) -> Context:
        """See `Provider`."""
        value: Context = self._target.context
        return value

    def within(self, context: Context) -> Provider:
        """The same provider with this context, for one request or several of one user."""
        return Provider.around(self._target.within(context), self._thread)

    def completion(self, request: CompletionRequest) -> Completion:
        """As for `CompletionModel`; a missing context is a `CompletionError`, too."""
        result: Completion = call(self._thread, self._target.completion, request)
        return result

    def stream(self, request: CompletionRequest) -> Block[CompletionStream]:
        """As for `CompletionModel`."""
        return Block(self._thread, CompletionStream.around, self._target.stream, request)

    def __init__(
        self,
        *,
        name: str,
        make: Callable[[Mapping[str, object]], object],
        runs_tools: bool = True,
        needs: frozenset[str] = frozenset(),
        context: Mapping[str, object] | None = None,
    ) -> None:
        made = provided(make, hosted, ModelReader)
        self._target = _Provider(
            name=name, make=made, runs_tools=runs_tools, needs=needs, context=dict(context or {})
        )


class Providers(Proxy[_Providers]):
    """The registered providers of a program."""

    def __init__(self) -> None:
        self._target = _Providers()

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        value: tuple[str, ...] = self._target.names
        return value

    def create(self, name: str, context: Context | None = None) -> Provider:
        """The provider of this name, with a context if there is one."""
        return Provider.around(self._target.create(name, context), self._thread)

    def register(
        self,
        name: str,
        make: Callable[[Mapping[str, object]], object],
        *,
        runs_tools: bool = True,
        needs: Sequence[str] = (),
    ) -> None:
        """Register a provider. Raises `BadOption` for a name that is taken."""
        made = provided(make, hosted, ModelReader)
        self._target.register(name, made, runs_tools=runs_tools, needs=needs)


class Session(Proxy[_Session]):
    """One session, held by its caller."""

    @property
    def id(self) -> str | None:
        """See `Session`."""
        value: str | None = self._target.id
        return value

    @property
    def path(self) -> Path:
        """See `Session`."""
        value: Path = self._target.path
        return value

    def conversation(self, agent: ChildSpec | Plan) -> str | None:
        """The id of the conversation in this agent's CLI, None before the first answer."""
        result: str | None = call_plain(self._thread, self._target.conversation, agent)
        return result

    def remember(self, agent: ChildSpec | Plan, answer: Answer) -> None:
        """Let the next call continue the conversation of this answer, if it has one that can be continued."""
        call_plain(self._thread, self._target.remember, agent, answer)

    def forget(self, agent: ChildSpec | Plan) -> None:
        """Let the next call begin a new conversation."""
        call_plain(self._thread, self._target.forget, agent)

    def run(
        self,
        agent: ChildSpec | Plan,
        prompt: str,
        *,
        timeout: float | None = 300.0,
        schema: object = None,
        payloads: Sequence[Payload] = (),
        by: Callable[..., Answer] | None = None,
    ) -> Answer:
        """One prompt of this conversation, run as by `proctor.ask` or by another such as `Pool.run`, whose errors it raises."""
        more = {"payloads": payloads} if payloads else {}
        runner = runs.ask if by is None else runner_of(by)
        asked = partial(self._target.run, agent, prompt, timeout=timeout, schema=schema, by=runner, **more)
        answer: Answer[Any] = call(self._thread, asked)
        return answer


class Sessions(Opened):
    """`async with Sessions(root) as sessions`, then `async with sessions.hold(id) as session`."""

    def __init__(
        self, root: str | Path, *, ttl: float | None = None, limit: int = 100, keep: bool = False
    ) -> None:
        self._target = _Sessions(root, ttl=ttl, limit=limit, keep=keep)

    @property
    def root(self) -> Path:
        """See `Sessions`."""
        value: Path = self._target.root
        return value

    def facts(self) -> tuple[SessionFacts, ...]:
        """The sessions that were used since the start, without calls that have none; the longest idle one comes first."""
        result: tuple[SessionFacts, ...] = call_plain(self._thread, self._target.facts)
        return result

    def remove(self, id: str) -> bool:
        """Remove a session with everything in it; returns whether it existed, in memory or on disk."""
        result: bool = call(self._thread, self._target.remove, id)
        return result

    def hold(self, id: str | None = None, *, timeout: float | None = None) -> Block[Session]:
        """Hold the session of this id for the block; waits while another call has it."""
        return Block(self._thread, Session.around, self._target.hold, id, timeout=timeout)

    def __len__(self) -> int:
        return len(self._target)

    def __contains__(self, id: object) -> bool:
        return id in self._target


def pool_spec(id: str, pool: Pool | Pools, *, shutdown: float = 20.0, **spec: Any) -> ChildSpec:
    """Child spec of a pool. Put it before the children that use it: the tree stops it with all that runs in it."""
    return _pool_spec(id, unwrapped(pool), shutdown=shutdown, **spec)
