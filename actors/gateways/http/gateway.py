"""The state that the requests of one HTTP gateway share, and its orderly end.

`drain` accepts no new turns (503), lets running turns finish within their grace period, interrupts the rest, and ends
every stream with the reason. It returns shortly after `grace` seconds at the latest. When the block of a gateway is
left, its turns are withdrawn.

Not here: the socket (`web_server`), authentication (`auth`), and the end of the agents (their supervisor).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio
from starlette.routing import BaseRoute

from proctor.actors.agent.handle import Agent
from proctor.actors.agent.states import Status
from proctor.actors.agent.stored_requests import StoredRequests, current_requests
from proctor.actors.durations import format_duration
from proctor.actors.errors import AgentError
from proctor.actors.gateways.http.fleet_view import FleetView
from proctor.actors.gateways.http.lifecycle import Command, Lifecycle
from proctor.actors.gateways.http.probes import Check, HealthChecks, Probes
from proctor.actors.gateways.http.problems import Problem, no_new_work, problem, problem_of
from proctor.actors.gateways.http.request_body import LIMIT
from proctor.actors.gateways.http.schemas import TurnRequest
from proctor.actors.gateways.http.session_turns import SessionTurns
from proctor.actors.gateways.http.streams import HEARTBEAT, EncodedEvents
from proctor.actors.gateways.http.turns import LogCall, ServedTurn, Turns, ask_with_key
from proctor.actors.limits.admission import TREE_LIMITS, TreeLimits, until_reset
from proctor.actors.operations.health import Readiness, agent_problems
from proctor.actors.operations.restarts import RestartHistory
from proctor.actors.serving.in_flight import CancelSignal, InFlight
from proctor.runtime.errors import ActorExited, CallTimeout, SupervisionError
from proctor.runtime.exits import DeliveryError

T = TypeVar("T")
POLL = 0.25
"""Seconds between two checks for parked agents during the grace period."""
FINAL_WAIT = 0.1
"""Seconds in which interrupted turns report their end."""


def _no_log(what: str, facts: Mapping[str, Any]) -> None:
    return


@attrs.frozen(kw_only=True)
class Hooks:
    """Options of a gateway.

    `checks` are run by `/readyz`, by name, and `alarms` appear in it only when they fail. `needs` names the check of
    the command line of each agent, by agent. `absent` has the reason why an
    agent cannot start, by name, and may change. `metrics` makes the text of `/metrics`. `routes` are served as well, and
    `visits` counts their requests in flight. `session_turns` runs turns in sessions; its owner opens and closes it.
    `lifecycle` stops and starts agents, `reload` reads the fleet file again (keywords `dry_run` and `restart`), `shutdown` the whole host, without waiting; `file` is their fleet file. `log` is called when a turn or stream ends, and when an operator acts.
    """

    checks: Mapping[str, Check] = attrs.field(factory=dict[str, Check])
    alarms: Mapping[str, Check] = attrs.field(factory=dict[str, Check])
    needs: Mapping[str, str] = attrs.field(factory=dict[str, str])
    absent: Mapping[str, str] = attrs.field(factory=dict[str, str])
    metrics: Callable[[], Awaitable[bytes]] | None = None
    routes: Sequence[BaseRoute] = ()
    visits: InFlight = attrs.field(factory=InFlight)
    session_turns: SessionTurns | None = None
    lifecycle: Lifecycle | None = None
    reload: Callable[..., Awaitable[Mapping[str, Any]]] | None = None
    shutdown: Callable[[], None] | None = None
    file: Path | None = None
    log: LogCall = _no_log


@attrs.define(eq=False)
class Gateway:
    """Made by `open_gateway`. The code that starts the agents may set and clear `probes.not_ready`."""

    agents: Mapping[str, Agent]
    hooks: Hooks
    turns: Turns
    probes: Probes
    limit: int
    heartbeat: float
    nursery: trio.Nursery
    view: FleetView
    limits: TreeLimits | None = None
    stored: StoredRequests | None = None
    restarts: RestartHistory | None = None
    closing: CancelSignal = attrs.field(factory=CancelSignal)
    encoded_events: EncodedEvents = attrs.field(factory=EncodedEvents)

    def agent(self, name: str) -> Agent:
        """The agent of this name. Raises `Problem`."""
        agent = self.agents.get(name)
        if agent is None:
            detail, remedy = f"there is no agent {name!r}", "GET /agents lists them"
            raise problem(404, "no-such-agent", detail, remedy, where="name")
        return agent

    def session_turns_of(self, agent: Agent) -> SessionTurns:
        """The sessions of this agent. Raises `Problem` when it has none."""
        session_turns = self.hooks.session_turns
        if session_turns is None or agent.name not in session_turns.plans:
            detail = f"agent {agent.name!r} has no sessions on this server"
            raise problem(422, "no-sessions", detail, "ask without a session_id", where="/session_id")
        return session_turns

    def begin(self, agent: Agent, request: TurnRequest, key: str | None = None) -> ServedTurn:
        """Start a turn, in its session if it names one; with a `key` it is the tree's, and has no events here. Raises `Problem`."""
        self.check_takes_work()
        if request.session_id is None:
            work = None if key is None else partial(ask_with_key, agent, request, key)
            return self.turns.begin(agent, request, work)
        if key is not None:
            detail = "a turn in a session cannot have a key: its agent is not in the tree that keeps requests"
            raise problem(
                422, "no-key", detail, "leave Idempotency-Key or session_id out", where="Idempotency-Key"
            )
        answer = self.session_turns_of(agent).answer
        return self.turns.begin(agent, request, partial(answer, agent.name, request.session_id, request))

    async def control(self, agent: Agent, command: Command, **options: Any) -> None:
        """Carry out a command to an agent. Continues when the caller is cancelled. Raises `Problem`."""
        lifecycle = self.hooks.lifecycle
        if lifecycle is None or agent.name not in lifecycle.paths:
            detail = f"agent {agent.name!r} cannot be stopped, started or parked from here"
            raise problem(422, "not-possible", detail, "start the server with the supervisor of its agents")
        if command in ("start", "restart", "reset"):
            self.check_takes_work()
        await self._carry_out(partial(getattr(lifecycle, command), agent.name, **options))

    async def reload(self, *, dry_run: bool, restart: bool) -> Mapping[str, Any]:
        """Read the fleet file again; returns what is different. Continues when the caller is cancelled. Raises `Problem`."""
        if (work := self.hooks.reload) is None:
            detail = "this server has no fleet file to reload"
            raise problem(422, "not-possible", detail, "start the fleet with proctor up or proctor web")
        self.check_takes_work()
        return await self._carry_out(partial(work, dry_run=dry_run, restart=restart))

    async def _carry_out(self, work: Callable[[], Awaitable[T]]) -> T:
        # in the gateway's nursery: an agent must not stay half restarted when the client disconnects
        done, results = trio.Event(), list[T | Problem]()
        self.nursery.start_soon(_run_command, work, done, results)
        await done.wait()
        self.view.forget_tree()
        if isinstance(result := results[0], Problem):
            raise result
        return result

    def budget_place(self, agent: Agent | None) -> tuple[TreeLimits, str]:
        """Where the budget of an agent is, or of the whole tree. Raises `Problem` where there is no such place."""
        lifecycle, limits = self.hooks.lifecycle, self.limits
        if lifecycle is None or limits is None or (agent is not None and agent.name not in lifecycle.paths):
            remedy = "start the server with the supervisor of its agents"
            raise problem(422, "not-possible", "this server has no budgets of its agents", remedy)
        place = "" if agent is None else lifecycle.paths[agent.name]
        try:
            limits.budget_of(place)
        except KeyError:
            detail = f"agent {agent.name if agent else ''!r} has not started yet, so its budget is not known"
            raise problem(409, "not-started", detail, "ask again when it runs") from None
        return limits, place

    def shut_down(self, grace: float) -> None:
        """Stop the host when running turns have had `grace` seconds. Raises `Problem` when it cannot be stopped from here."""
        if (stop := self.hooks.shutdown) is None:
            detail = "this server cannot be stopped by a request"
            raise problem(422, "not-possible", detail, "stop the program that it belongs to")
        self.probes.stopping = self.probes.stopping or "the server is stopping"
        self.nursery.start_soon(self._shut_down, grace, stop)

    async def _shut_down(self, grace: float, stop: Callable[[], None]) -> None:
        with trio.move_on_after(grace):
            # turns that were not requested here have the grace as well
            while self._is_working():  # noqa: ASYNC110  # nothing signals the end of the last of all turns
                await trio.sleep(POLL)
        stop()

    def _is_working(self) -> bool:
        return any(record.state in ("working", "blocked") for record in self.view.records())

    def check_takes_work(self) -> None:
        """Raise `Problem` while the server is stopping."""
        if self.probes.stopping is not None:
            raise no_new_work(self.probes.stopping, "ask again later, or another server")

    async def drain(self, grace: float, why: str = "the server is stopping") -> None:
        """Accept no new turns, wait `grace` seconds for running ones, interrupt the rest, and end every stream."""
        self.probes.stopping = self.probes.stopping or why  # first of all: no turn may start from now on
        # First no new work, then the wait for what runs.
        self.hooks.visits.close(why)
        with trio.move_on_after(grace):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._withdraw_parked, why, trio.current_time() + grace)
                await self._wait_done()
                nursery.cancel_scope.cancel("no turn is running")
        detail = f"{why}; the turn did not end within the grace period of {grace:g} s and was interrupted"
        self.turns.withdraw_all(
            problem(503, "stopping", detail, "look at what the agent did before asking again")
        )
        self.hooks.visits.ended.fire(detail)
        # Interrupted turns report their end in a moment, and their streams show it.
        with trio.move_on_after(FINAL_WAIT):
            await self._wait_done()
        self.closing.fire(why)  # last: a stream shows the ends of the turns before its own

    async def _withdraw_parked(self, why: str, ends: float) -> None:
        """Withdraw the turns of agents that stay parked beyond `ends` (Trio's clock): they cannot finish in time."""
        while True:
            for name in {turn.agent for turn in self.turns.running if turn.session is None}:
                # An agent that is slow to answer must not hold up the look at the others.
                with trio.move_on_after(POLL), suppress(CallTimeout, DeliveryError, ActorExited):
                    self._withdraw_beyond(ends, await self.agents[name].status(), why)
            await trio.sleep(POLL)

    def _withdraw_beyond(self, ends: float, status: Status, why: str) -> None:
        left = None if status.until is None else until_reset(status.until)
        if status.state != "parked" or (left is not None and trio.current_time() + left <= ends):
            return
        wait = "" if left is None else f" for {format_duration(left)} more"
        detail = f"{why}; {status.name} is parked{wait}, so the turn cannot end within the grace period"
        for turn in self.turns.running:
            if turn.agent == status.name and turn.session is None:
                turn.withdraw(problem(503, "stopping", detail, "ask again later, or another server"))

    async def _wait_done(self) -> None:
        await self.turns.wait_settled()
        await self.hooks.visits.wait_empty()


async def _run_command(
    work: Callable[[], Awaitable[T]], done: trio.Event, results: list[T | Problem]
) -> None:
    try:
        results.append(await work())
    except (Problem, SupervisionError, DeliveryError, ActorExited, AgentError) as error:
        results.append(problem_of(error))
    finally:
        done.set()


@asynccontextmanager
async def open_gateway(
    agents: Mapping[str, Agent],
    hooks: Hooks | None = None,
    *,
    limit: int = LIMIT,
    heartbeat: float = HEARTBEAT,
) -> AsyncGenerator[Gateway]:
    """Open a gateway over `agents` by name; the mapping may change. Leaving the block withdraws its turns.

    `limit`: the largest request body, in bytes; `heartbeat`: seconds between two comments of an idle stream.
    """
    hooks = hooks or Hooks()
    async with trio.open_nursery() as nursery:
        alarms: dict[str, Check] = {"agents": partial(agent_problems, agents), **hooks.alarms}
        can_answer = Readiness(agents, hooks.needs, hooks.absent).check
        checks = HealthChecks(hooks.checks, nursery, alarms=alarms, agents=can_answer)
        turns, probes = Turns(nursery, hooks.log), Probes(checks, hooks.metrics)
        limits = TREE_LIMITS.get()
        with FleetView(agents, hooks.lifecycle, hooks.absent, file=hooks.file, limits=limits) as view:
            gateway = Gateway(
                agents, hooks, turns, probes, limit, heartbeat, nursery, view, limits, current_requests()
            )
            if hooks.lifecycle is not None:
                gateway.restarts = RestartHistory(hooks.lifecycle.tree, gateway.stored)
                await nursery.start(gateway.restarts.follow)
            yield gateway
        nursery.cancel_scope.cancel("the gateway is closed")
