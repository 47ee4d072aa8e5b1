"""What the requests of one gateway share, and its end.

Guarantees: at its end nothing is cut off without a word. `drain` takes no new turns (503), gives those that run their
grace, interrupts the rest, and has every stream say why it ends; it returns within `grace` and a moment. The turns of
a gateway whose block is left are withdrawn.

Not here: the socket (`webserver`), who may come in (`entrance`), the agents' own end (the tree's).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal

import attrs
import trio
from starlette.routing import BaseRoute

from proctor.actors.agent.handle import Agent
from proctor.actors.agent.states import Status
from proctor.actors.durations import format_duration
from proctor.actors.gateways.http.cancel_signal import Bell
from proctor.actors.gateways.http.encoded_events import Shelf
from proctor.actors.gateways.http.health_checks import Check, Looks
from proctor.actors.gateways.http.lifecycle import Steering
from proctor.actors.gateways.http.probes import Probes
from proctor.actors.gateways.http.problems import RETRY_AFTER, Problem, problem, problem_of
from proctor.actors.gateways.http.request_body import LIMIT
from proctor.actors.gateways.http.schemas import TurnRequest
from proctor.actors.gateways.http.session_turns import Rooms
from proctor.actors.gateways.http.streams import HEARTBEAT
from proctor.actors.gateways.http.turns import ServedTurn, Tell, Turns
from proctor.actors.limits.admission import until_reset
from proctor.actors.operations.health import troubles
from proctor.actors.serving.in_flight import InFlight
from proctor.runtime.errors import ActorExited, CallTimeout, SupervisionError
from proctor.runtime.exits import DeliveryError

Word = Literal["stop", "start", "restart"]

LOOK = 0.25
"""Seconds between two looks at which agents are parked, while turns have their grace."""
LAST_WORDS = 0.1
"""Seconds that interrupted turns have to say so."""


def _forget(what: str, facts: Mapping[str, Any]) -> None:
    return


@attrs.frozen(kw_only=True)
class Hooks:
    """What a gateway is given beside its agents: what `/readyz` checks, by name; the `alarms` that it names only when
    something is wrong; why an agent is `absent`, by name, as it changes; what gives the bytes of `/metrics`;
    further routes, and the `visits` to them; the `rooms` for turns within sessions, which whoever gives them opens; the
    `steering` of agents; who is told of turns and streams that end."""

    checks: Mapping[str, Check] = attrs.field(factory=dict[str, Check])
    alarms: Mapping[str, Check] = attrs.field(factory=dict[str, Check])
    absent: Mapping[str, str] = attrs.field(factory=dict[str, str])
    metrics: Callable[[], Awaitable[bytes]] | None = None
    routes: Sequence[BaseRoute] = ()
    visits: InFlight = attrs.field(factory=InFlight)
    rooms: Rooms | None = None
    steering: Steering | None = None
    tell: Tell = _forget


@attrs.define(eq=False)
class Gateway:
    """Made by `open_gateway`. `probes.not_ready` says why; whoever starts the agents may set and clear it."""

    agents: Mapping[str, Agent]
    hooks: Hooks
    turns: Turns
    probes: Probes
    limit: int
    heartbeat: float
    nursery: trio.Nursery
    closing: Bell = attrs.field(factory=Bell)
    shelf: Shelf = attrs.field(factory=Shelf)

    def agent(self, name: str) -> Agent:
        """The agent of this name. Raises `Problem`."""
        agent = self.agents.get(name)
        if agent is None:
            detail, remedy = f"there is no agent {name!r}", "GET /agents lists them"
            raise problem(404, "no-such-agent", detail, remedy, where="name")
        return agent

    def rooms_of(self, agent: Agent) -> Rooms:
        """The sessions of this agent. Raises `Problem` where it has none."""
        rooms = self.hooks.rooms
        if rooms is None or agent.name not in rooms.plans:
            detail = f"there are no sessions of agent {agent.name!r}: this server keeps none for it"
            raise problem(422, "no-sessions", detail, "ask without a session_id", where="/session_id")
        return rooms

    def begin(self, agent: Agent, request: TurnRequest) -> ServedTurn:
        """Start a turn, in its session if it names one. Raises `Problem`."""
        self.take_work()
        if request.session_id is None:
            return self.turns.begin(agent, request)
        answer = self.rooms_of(agent).answer
        return self.turns.begin(agent, request, partial(answer, agent.name, request.session_id, request))

    async def steer(self, agent: Agent, word: Word) -> None:
        """Stop, start or restart it, to the end, also when whoever waits for that leaves. Raises `Problem`."""
        steering = self.hooks.steering
        if steering is None or agent.name not in steering.paths:
            detail = f"agent {agent.name!r} cannot be stopped or started from here"
            raise problem(422, "not-possible", detail, "let the server be given its tree")
        if word != "stop":
            self.take_work()
        done, wrong = trio.Event(), list[Problem]()
        self.nursery.start_soon(_carried_out, partial(getattr(steering, word), agent.name), done, wrong)
        await done.wait()
        if wrong:
            raise wrong[0]

    def take_work(self) -> None:
        """Raises `Problem` while stopping."""
        if self.probes.stopping is not None:
            headers = {"retry-after": str(RETRY_AFTER)}
            remedy = "ask again later, or another server"
            raise problem(503, "no-new-work", self.probes.stopping, remedy, headers=headers)

    async def drain(self, grace: float, why: str = "the server is stopping") -> None:
        """Take no more turns, wait `grace` seconds for those that run, interrupt the rest, end every stream."""
        self.probes.stopping = self.probes.stopping or why
        self.hooks.visits.close(why)
        with trio.move_on_after(grace):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._withdraw_parked, why, trio.current_time() + grace)
                await self._wait_done()
                nursery.cancel_scope.cancel("no turn runs")
        detail = f"{why}; the turn did not end within the grace of {grace:g} s and was interrupted"
        self.turns.withdraw_all(
            problem(503, "stopping", detail, "look at what the agent did before asking again")
        )
        self.hooks.visits.end(detail)
        with trio.move_on_after(LAST_WORDS):
            await self._wait_done()
        self.closing.ring(why)

    async def _withdraw_parked(self, why: str, ends: float) -> None:
        """End the turns of agents that are parked until after `ends` (Trio's clock): waiting would only delay the stop."""
        while True:
            for name in {turn.agent for turn in self.turns.running if turn.session is None}:
                with trio.move_on_after(LOOK), suppress(CallTimeout, DeliveryError, ActorExited):
                    self._withdraw_beyond(ends, await self.agents[name].status(), why)
            await trio.sleep(LOOK)

    def _withdraw_beyond(self, ends: float, status: Status, why: str) -> None:
        left = None if status.until is None else until_reset(status.until)
        if status.state != "parked" or (left is not None and trio.current_time() + left <= ends):
            return
        wait = "" if left is None else f" for {format_duration(left)} more"
        detail = f"{why}; {status.name} is parked{wait}, so that the turn would not end within the grace"
        for turn in self.turns.running:
            if turn.agent == status.name and turn.session is None:
                turn.withdraw(problem(503, "stopping", detail, "ask again later, or another server"))

    async def _wait_done(self) -> None:
        await self.turns.wait_settled()
        await self.hooks.visits.wait_empty()


async def _carried_out(work: Callable[[], Awaitable[None]], done: trio.Event, wrong: list[Problem]) -> None:
    try:
        await work()
    except (Problem, SupervisionError, DeliveryError, ActorExited) as error:
        wrong.append(problem_of(error))
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
    """A gateway over `agents` by name, which may come and go. Its turns are withdrawn when the block is left.

    `limit`: bytes of a body; `heartbeat`: seconds between two comments of a stream that has nothing to say.
    """
    hooks = hooks or Hooks()
    async with trio.open_nursery() as nursery:
        looks = Looks(hooks.checks, nursery, alarms={"agents": partial(troubles, agents), **hooks.alarms})
        turns, probes = Turns(nursery, hooks.tell), Probes(looks, hooks.metrics)
        yield Gateway(agents, hooks, turns, probes, limit, heartbeat, nursery)
        nursery.cancel_scope.cancel("the gateway is closed")
