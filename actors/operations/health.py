"""Health checks: whether the command lines are installed and work, and whether the agents do.

An adapter is healthy when its program is found as a start would find it and reports its version. `AdapterChecks` checks each
at most once in `MAX_AGE` seconds, a few at the same time, and within `CHECK_TIMEOUT`: a file system that hangs is left to its
thread, and a program that hangs is killed. `agent_problems` asks running agents for their status, and
`Readiness` says of each agent whether it can answer.

Not here: logins, and whether a model answers; only a turn shows that.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import attrs
import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.agent.states import State, Status
from proctor.actors.errors import AgentError, NotInstalled
from proctor.actors.plan.discovery import (
    CLAUDE_CODE,
    CODEX_CLI,
    GEMINI,
    OPENCODE,
    Product,
    find_program,
    version,
)
from proctor.actors.plan.plan import Plan
from proctor.actors.plan.reach import WrapperReach
from proctor.runtime.errors import ActorExited, CallTimeout
from proctor.runtime.exits import NoProc

MAX_AGE = 5.0
"""Seconds for which a result is reused."""

CHECK_TIMEOUT = 10.0
"""Seconds in which a program must report its version."""

_CONCURRENT = 4

STATUS_TIMEOUT = 1.0
"""Seconds in which an agent must report its status."""

_STATE_NAMES: Mapping[State, str] = {"failed": "failed", "backoff": "restarting"}
"""States in which an agent takes no requests, and their names in a report."""

Grade = Literal["ok", "degraded", "down"]
"""`ok`: all work; `down`: none works; `degraded`: some work."""


@attrs.frozen
class Adapter:
    """A command line of agents: `executable` is its path, None when it is searched for."""

    product: Product
    executable: Path | None = None


ADAPTERS: Mapping[str, Adapter] = {
    "claude": Adapter(CLAUDE_CODE),
    "codex": Adapter(CODEX_CLI),
    "opencode": Adapter(OPENCODE),
    "gemini": Adapter(GEMINI),
}
"""The built-in command lines, by name."""


@attrs.frozen(kw_only=True)
class CheckResult:
    """The result of one adapter; `why` it does not work, None when it works. `path` is None when the program cannot be run, and
    `installed` is False when it was not found."""

    adapter: str
    path: Path | None = None
    version: str = ""
    why: str | None = None
    installed: bool = True

    @property
    def ok(self) -> bool:
        """Whether it is installed and works."""
        return self.why is None


@attrs.frozen
class Health:
    """The results of all adapters."""

    results: tuple[CheckResult, ...]

    @property
    def grade(self) -> Grade:
        """The grade of all results."""
        return grade_of(result.ok for result in self.results)

    @property
    def missing(self) -> tuple[str, ...]:
        """The adapters that do not work, by name."""
        return tuple(result.adapter for result in self.results if not result.ok)


def grade_of(working: Iterable[bool]) -> Grade:
    """The grade of checks, by whether each works."""
    states = [*working]
    # nothing to check is ok: `all` of none is true
    return "ok" if all(states) else "degraded" if any(states) else "down"


@attrs.define(eq=False)
class _Probe:
    adapter: Adapter
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    result: CheckResult | None = None
    at: float = -math.inf


class AdapterChecks:
    """The checks of `adapters`, by name. A result is reused for `max_age` seconds."""

    def __init__(
        self,
        adapters: Mapping[str, Adapter] = ADAPTERS,
        *,
        max_age: float = MAX_AGE,
        timeout: float = CHECK_TIMEOUT,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._probes = {name: _Probe(adapter) for name, adapter in adapters.items()}
        self._max_age = max_age
        self._timeout = timeout
        self._environ = environ
        self._limiter = trio.CapacityLimiter(_CONCURRENT)

    async def run(self) -> Health:
        """Check all of them. A command line that does not work is a result, not an error."""
        async with trio.open_nursery() as nursery:
            for name in self._probes:
                nursery.start_soon(self.check, name)
        return Health(tuple(probe.result for probe in self._probes.values() if probe.result is not None))

    async def check(self, name: str) -> CheckResult:
        """Check one of them."""
        probe = self._probes[name]
        # those who ask meanwhile get the result of this check and start no second program
        async with probe.lock:
            if probe.result is None or trio.current_time() - probe.at > self._max_age:
                probe.result = await self._probe(name, probe.adapter)
                # the end of the check: one that takes long must not be too old at once
                probe.at = trio.current_time()
            return probe.result

    def by_name(self) -> Mapping[str, Callable[[], Awaitable[str | None]]]:
        """A function for each adapter that returns its problem, None when it works."""
        return {name: partial(self._problem, name) for name in self._probes}

    async def _problem(self, name: str) -> str | None:
        return (await self.check(name)).why

    async def _probe(self, name: str, adapter: Adapter) -> CheckResult:
        path: Path | None = None
        search = partial(find_program, adapter.product, adapter.executable, self._environ)
        # outside the time limit: a check that waits for its turn has not failed
        async with self._limiter:
            with trio.move_on_after(self._timeout):
                try:
                    path = await trio.to_thread.run_sync(search, abandon_on_cancel=True)
                    parts = await version(path, timeout=math.inf, env=self._environ)
                except NotInstalled as error:
                    return CheckResult(adapter=name, why=str(error), installed=False)
                except (AgentError, OSError) as error:
                    return CheckResult(adapter=name, path=path, why=str(error))
                return CheckResult(adapter=name, path=path, version=".".join(map(str, parts)))
        return CheckResult(adapter=name, path=path, why=f"no answer within {self._timeout:g} s")


async def statuses_of(agents: Mapping[str, Agent]) -> dict[str, Status | None]:
    """The status of each agent, None for one that does not run. An agent that does not reply in time is left out."""
    statuses: dict[str, Status | None] = {}

    async def ask(name: str, agent: Agent) -> None:
        try:
            with trio.move_on_after(STATUS_TIMEOUT):
                statuses[name] = await agent.status()
        except (NoProc, ActorExited):
            statuses[name] = None
        except CallTimeout:
            # left out: an agent that is slow to reply has not ended, which None would say
            pass

    async with trio.open_nursery() as nursery:
        for name, agent in agents.items():
            nursery.start_soon(ask, name, agent)
    return statuses


async def agent_problems(agents: Mapping[str, Agent]) -> str | None:
    """The problems of running agents, one clause each; None when there are none."""
    problems: list[str] = []
    for name, status in sorted((await statuses_of(agents)).items()):
        if status is None:
            continue  # an agent that is at rest or starting is not a problem
        if (problem := _problem(status)) is not None:
            problems.append(f"{name} is {problem}")
        elif status.not_recorded:
            problems.append(f"{name} is not recorded: {status.not_recorded}")
    return "; ".join(problems) or None


def _problem(status: Status) -> str | None:
    """Why a running agent cannot answer, None when it can."""
    if status.unresponsive:
        return f"stalled: {status.unresponsive}"
    if status.state in _STATE_NAMES:
        return f"{_STATE_NAMES[status.state]}: {' '.join(status.evidence.split())}"
    return None


@attrs.frozen
class Readiness:
    """Which agents can answer. `agents` are held; `needs` names the check of the command line that an agent starts, by agent,
    also for kinds that have a process for each request; `absent` has the reason why one was left out."""

    agents: Mapping[str, Agent]
    needs: Mapping[str, str] = attrs.field(factory=dict[str, str])
    absent: Mapping[str, str] = attrs.field(factory=dict[str, str])

    async def check(self, results: Mapping[str, str | None]) -> dict[str, str | None]:
        """Why each agent cannot answer, None when it can. `results` are those of the checks of the command lines."""
        statuses = await statuses_of({n: a for n, a in self.agents.items() if self.absent.get(n) is None})
        reasons: dict[str, str | None] = {}
        for name in sorted({*self.agents, *self.needs}):
            program, status = results.get(self.needs.get(name, "")), statuses.get(name)
            if (absent := self.absent.get(name)) is not None:
                reasons[name] = absent
            elif name not in self.agents:
                reasons[name] = program
            elif status is None:  # one that is only slow may answer
                reasons[name] = "it does not run" if name in statuses else None
            else:  # a running process answers, whatever has become of its program since the start
                reasons[name] = _problem(status) or (program if status.pid is None else None)
        return reasons


def adapters_of(plans: Mapping[str, Plan]) -> dict[str, Adapter]:
    """The command lines that these agents need, each once, by the name of its program or by its path."""
    adapters: dict[str, Adapter] = {}
    for plan in plans.values():
        if (adapter := _adapter_of(plan)) is not None and adapter not in adapters.values():
            name = adapter.product.program
            adapters[name if name not in adapters else str(plan.executable)] = adapter
    return adapters


def needs_of(plans: Mapping[str, Plan]) -> dict[str, str]:
    """The name in `adapters_of` of the command line that each of these agents needs, by agent."""
    adapters = adapters_of(plans)
    return {
        agent: next(name for name, adapter in adapters.items() if adapter == _adapter_of(plan))
        for agent, plan in plans.items()
        if _adapter_of(plan) is not None
    }


def _adapter_of(plan: Plan) -> Adapter | None:
    """The command line of a plan, None for one that is not a product's or is reached elsewhere."""
    if plan.product is None or isinstance(plan.reach, WrapperReach):
        return None
    return Adapter(plan.product, plan.executable)
