"""Turns in sessions: each session has a folder and a conversation of its own.

Such a turn runs in a process of its own in a slot of the pool, with the options of an agent of the tree, and continues the
conversation of its session. Sessions of two agents are separate, and turns of one session run one after the other. A turn is
refused while a budget that does more than warn is spent, the tree's or the agent's, so that the client learns when to retry.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import attrs

from proctor.actors.errors import BudgetExceeded
from proctor.actors.gateways.http.problems import Problem, problem
from proctor.actors.gateways.http.schemas import SessionRecord, TurnRequest
from proctor.actors.gateways.http.turns import ServedTurn
from proctor.actors.limits.admission import current_tree_limits
from proctor.actors.limits.spend_limits import SpendLimits, spend_limits_of
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan
from proctor.actors.runs import Run, stream
from proctor.actors.serving.pool import Pools
from proctor.actors.serving.sessions import Sessions
from proctor.runtime.messaging import left


@attrs.frozen(kw_only=True)
class SessionTurns:
    """The turns in the `sessions` of a server.

    The ids of the sessions start with `prefix`; `plans` are those of the agents that have sessions, by name; the turns run in
    `pools`. Use it within the block of the tree's supervisor.
    """

    sessions: Sessions
    plans: Mapping[str, Plan]
    pools: Pools = attrs.field(factory=Pools)
    prefix: str = ""
    _live: set[Run] = attrs.field(factory=set[Run], init=False)
    _spend_limits: dict[str, SpendLimits] = attrs.field(factory=dict[str, SpendLimits], init=False)

    def records(self, agent: str) -> tuple[SessionRecord, ...]:
        """The sessions of an agent."""
        own = self._key(agent, "")
        return tuple(
            SessionRecord(id=facts.id.removeprefix(own), in_use=facts.users, idle=round(facts.idle, 3))
            for facts in self.sessions.facts()
            if facts.id.startswith(own)
        )

    async def remove(self, agent: str, id: str) -> bool:
        """Remove a session; returns whether it existed. Raises `SessionBusy` when it is in use."""
        return await self.sessions.remove(self._key(agent, id))

    async def answer(self, agent: str, id: str, request: TurnRequest, turn: ServedTurn) -> Answer:
        """Run a turn of a session."""
        limits = self._limits_of(agent)
        # before the session is opened: a spent budget must not cost a folder and a place in the queue
        _check(limits)
        try:
            async with self.sessions.hold(self._key(agent, id), timeout=left(turn.ends)) as session:
                by = partial(self._run, request, turn, limits)
                return await session.run(self.plans[agent], request.prompt, timeout=None, by=by)
        except OSError as error:
            detail = f"session {id!r} cannot be opened: {error.strerror or error}"
            raise problem(503, "no-session", detail, "free space on the server's disk") from error

    def kill(self) -> None:
        """Kill the processes of the running turns."""
        for live in self._live:
            live.kill()

    async def _run(
        self,
        request: TurnRequest,
        turn: ServedTurn,
        limits: SpendLimits,
        plan: Plan,
        prompt: str,
        *,
        timeout: float | None,
    ) -> Answer:
        try:
            # The slot is held around the run: its process has ended when it is given back.
            async with self.pools.of(plan).slot(timeout=timeout) as remaining:
                running = stream(
                    plan, prompt, timeout=remaining, schema=request.schema, limits=limits, parks=False
                )
                async with running as live:
                    return await self._follow(live, turn)
        except BudgetExceeded as error:
            raise _spent(error.account, error.seconds) from error

    async def _follow(self, live: Run, turn: ServedTurn) -> Answer:
        # Its log outlives the run: clients may still read it.
        live.lent = True
        self._live.add(live)
        position = 0
        try:
            turn.start_log(live.incarnation.log, position)
            while events := await live.batch():
                position += len(events)
                turn.advance(position, len(events))
            return await live.finish()
        finally:
            self._live.discard(live)

    def _limits_of(self, agent: str) -> SpendLimits:
        if agent not in self._spend_limits:
            book = current_tree_limits().book
            self._spend_limits[agent] = spend_limits_of(self.plans[agent], book, f"sessions of {agent}")
        return self._spend_limits[agent]

    def _key(self, agent: str, id: str) -> str:
        # with the length in front, no name of an agent and of a session give the same key as two others
        return f"{self.prefix}{len(agent)}:{agent}/{id}"


def _check(limits: SpendLimits) -> None:
    if (spent := limits.spent("park", "escalate")) is not None:
        raise _spent(*spent)


def _spent(account: str, seconds: float | None) -> Problem:
    finite = seconds is not None and math.isfinite(seconds)
    headers = {"retry-after": str(math.ceil(seconds or 0.0))} if finite else None
    return problem(429, "budget-spent", account, "ask again when its window is free again", headers=headers)
