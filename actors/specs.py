"""Agents as children: a spec for each kind, and a supervisor whose children can be asked.

An agent is a child like any other. `claude` and `scripted` return a `ChildSpec`; its options are those of the agent
and of the spec, by keyword. `open_supervisor` is the runtime's, with `agent(name)` added.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack

from proctor.actors.agent.agent import AgentActor
from proctor.actors.agent.handle import Agent
from proctor.actors.agent.stored_requests import requests_of_tree
from proctor.actors.errors import BadOption, OptionFault
from proctor.actors.limits.account_book import ACCOUNT_BOOK
from proctor.actors.limits.admission import TREE_LIMITS, TreeLimits
from proctor.actors.limits.overrides import Overrides
from proctor.actors.opencode_server.plan import served_plan
from proctor.actors.plan.budgets import Budget
from proctor.actors.plan.option_checks import DELAY, check
from proctor.actors.plan.options import (
    BACKOFF,
    OPTIONS,
    SHUTDOWN,
    SPEC_OPTIONS,
    START_ORDER,
    SpecOptions,
    check_option,
    document_options,
)
from proctor.actors.plan.plan import (
    Plan,
    acp_plan,
    claude_plan,
    codex_plan,
    gemini_plan,
    opencode_plan,
    plan_of,
    scripted_plan,
)
from proctor.actors.process.orphans import track_processes
from proctor.actors.runs import DEADLINE, Run
from proctor.actors.runs import stream as stream_plan
from proctor.actors.store.backend import StoreBackend
from proctor.actors.structured.payloads import Payload
from proctor.protocols.acp import Profile
from proctor.runtime import supervision
from proctor.runtime.spec import AutoShutdown, ChildSpec, GiveUp, StopOrder, Strategy
from proctor.runtime.trio_only import check_in_trio

T = TypeVar("T")

Handle = TypeVar("Handle", bound="Supervisor | DynamicSupervisor")


@document_options
def claude(id: str, **options: Unpack[SpecOptions]) -> ChildSpec:
    """A Claude Code agent as a child. Raises `BadOption` or `InvalidSpec` naming the option."""
    return _child(id, options, claude_plan)


@document_options
def codex(id: str, **options: Unpack[SpecOptions]) -> ChildSpec:
    """A Codex agent as a child. Raises `BadOption` or `InvalidSpec` naming the option."""
    return _child(id, options, codex_plan)


@document_options
def opencode(id: str, *, server: str | None = None, **options: Unpack[SpecOptions]) -> ChildSpec:
    """An OpenCode agent as a child; with `mode="serve"` a session on the `opencode_server` of the id `server`.

    Raises `BadOption` or `InvalidSpec` naming the option.
    """
    if options.get("mode") != "serve":
        if server is not None:
            mode = options.get("mode", "session")
            fault = OptionFault("server", f"{server!r} has no effect in mode {mode!r}: use mode='serve'")
            raise BadOption(f"agent {id!r}: {fault}", [fault])
        return _child(id, options, opencode_plan)
    del options["mode"]
    return _child(id, options, partial(served_plan, server=server))


@document_options
def gemini(id: str, **options: Unpack[SpecOptions]) -> ChildSpec:
    """A Gemini CLI agent as a child. Raises `BadOption` or `InvalidSpec` naming the option."""
    return _child(id, options, gemini_plan)


@document_options
def acp(
    id: str, argv: Sequence[str], *, profile: str | Profile = "generic", **options: Unpack[SpecOptions]
) -> ChildSpec:
    """Any agent of the Agent Client Protocol as a child: `argv` starts it, `profile` says what it is known to do.

    Profiles by name: `generic`, `opencode`, `gemini`, `codex`, `claude` (the last two are adapters). Raises `BadOption` or
    `InvalidSpec` naming the option.
    """
    return _child(id, options, partial(acp_plan, argv=argv, profile=profile))


@document_options
def scripted(
    id: str,
    script: str | Path,
    *,
    dialect: str = "claude",
    faults: tuple[str, ...] = (),
    speed: float = 0.0,
    **options: Unpack[SpecOptions],
) -> ChildSpec:
    """An agent played from a script file or a recorded run, in the wire of `dialect`, with faults on demand. `speed` 0 replays without delays."""
    make = partial(scripted_plan, script=script, dialect=dialect, faults=faults, speed=speed)
    return _child(id, options, make)


def agent_spec(id: str, plan: Plan, options: dict[str, Any]) -> ChildSpec:
    """The child spec of any plan; `options` are fields of `ChildSpec`."""
    chosen: dict[str, Any] = {
        "name": id,
        "shutdown": SHUTDOWN,
        "backoff": BACKOFF,
        "start_order": START_ORDER,
        **options,
    }
    return ChildSpec(id, AgentActor, (plan,), **chosen)


class Supervisor(supervision.Supervisor):
    """A supervisor whose children can be agents, at any depth below it. `overrides`: what an operator has decided about them."""

    overrides: Overrides

    def agent(self, name: str) -> Agent:
        """The agent of this name; follows its restarts. Looking up does not check that it is there: a call does."""
        return Agent(name, self.name(name))


class DynamicSupervisor(supervision.DynamicSupervisor):
    """A supervisor of children that come and go, agents among them. `overrides`: as for `Supervisor`."""

    overrides: Overrides

    def agent(self, name: str) -> Agent:
        """The agent of this name, as for `Supervisor`."""
        return Agent(name, self.name(name))


def open_supervisor(
    children: Sequence[ChildSpec] = (),
    *,
    strategy: Strategy = "one_for_one",
    intensity: int = 1,
    period: float = 5.0,
    auto_shutdown: AutoShutdown = "never",
    stop_order: StopOrder = "reverse",
    give_up: GiveUp = "supervisor",
    name: str | None = None,
    seed: int | None = None,
    budget: Budget | None = None,
    stagger: float = 0.0,
    store: StoreBackend | None = None,
) -> AbstractAsyncContextManager[Supervisor]:
    """Start `children`, agents beside each other and others in order, supervise them until the block is left, then stop them in reverse order, or
    all together where `stop_order` is "parallel".

    `period` in seconds. The same `seed` gives the same random delays of back-off and after usage limits. `budget`
    bounds what all agents below spend together; `stagger` (seconds) lies between the first prompts of those that come
    back from a restart. `store` keeps requests that have a key, and the conversations of agents, beyond the tree: see `Agent.ask`. Processes that an earlier host left are killed first. Raises `InvalidSpec` before anything starts, `StartError` when a child cannot start,
    `MaxRestartsExceeded` when the root gives up.
    """
    root = supervision.open_supervisor(
        children,
        strategy=strategy,
        intensity=intensity,
        period=period,
        auto_shutdown=auto_shutdown,
        stop_order=stop_order,
        give_up=give_up,
        name=name,
        handle=Supervisor,
        seed=seed,
    )
    return _with_tree_limits(root, _tree_limits(budget, stagger, seed), store)


def open_dynamic_supervisor(
    *,
    max_children: int | None = None,
    extra_arguments: Iterable[Any] = (),
    intensity: int = 1,
    period: float = 5.0,
    name: str | None = None,
    seed: int | None = None,
    budget: Budget | None = None,
    stagger: float = 0.0,
    store: StoreBackend | None = None,
) -> AbstractAsyncContextManager[DynamicSupervisor]:
    """A supervisor of children that come and go; they are stopped together when the block is left.

    At most `max_children` at a time; `extra_arguments` come before those of each spec. The rest, what is swept and what
    is raised: as for `open_supervisor`.
    """
    root = supervision.open_dynamic_supervisor(
        max_children=max_children,
        extra_arguments=extra_arguments,
        intensity=intensity,
        period=period,
        name=name,
        handle=DynamicSupervisor,
        seed=seed,
    )
    return _with_tree_limits(root, _tree_limits(budget, stagger, seed), store)


def _tree_limits(budget: Budget | None, stagger: float, seed: int | None) -> TreeLimits:
    check_option("budget", budget)
    check("stagger", stagger, DELAY)
    return TreeLimits(budget=budget, stagger=stagger, seed=seed)


@asynccontextmanager
async def _with_tree_limits(
    root: AbstractAsyncContextManager[Handle], fellows: TreeLimits, store: StoreBackend | None
) -> AsyncGenerator[Handle]:
    check_in_trio("proctor.open_supervisor")
    around, book = TREE_LIMITS.get(), ACCOUNT_BOOK.get()
    # Before anything is counted in it.
    fellows.book.enclose(book)
    TREE_LIMITS.set(fellows)
    ACCOUNT_BOOK.set(fellows.book)
    try:
        async with (
            track_processes(),
            requests_of_tree(store, fellows) as requests,
            root as supervisor,
        ):
            if requests is not None:
                requests.serve(supervisor.agent)
            supervisor.overrides = fellows.overrides
            yield supervisor
    finally:
        TREE_LIMITS.set(around)
        ACCOUNT_BOOK.set(book)


def stream(
    agent: ChildSpec,
    prompt: str,
    *,
    timeout: float | None = DEADLINE,
    schema: object = None,
    payloads: Sequence[Payload] = (),
) -> AbstractAsyncContextManager[Run]:
    """As `ask`, with events; see `runs.stream`."""
    return stream_plan(plan_of(agent), prompt, timeout=timeout, schema=schema, payloads=payloads)


def _child(id: str, options: SpecOptions, make: Callable[..., Plan]) -> ChildSpec:
    of_the_spec = SPEC_OPTIONS.keys() - OPTIONS.keys()
    own = {k: v for k, v in options.items() if k not in of_the_spec}
    spec: dict[str, Any] = {k: v for k, v in options.items() if k in of_the_spec}
    grace = spec.get("shutdown", SHUTDOWN)
    seconds = float(grace) if isinstance(grace, int | float) else SHUTDOWN
    return agent_spec(id, make(id, options=own, shutdown=seconds), spec)
