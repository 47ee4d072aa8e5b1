"""Are the command lines there, and do they work? Asked at the moment, not remembered from the start.

An adapter is well when its program is found as a start would find it and says its version. `Checks` asks each at most
once in `FRESH` seconds, whoever wants to know, a few at a time, and never longer than `DEADLINE`: a file system that
does not answer is left to its thread, a program that does not is killed. So a program that was taken away is missed
with the first look after that.

`troubles` asks agents that are up whether their command line still responds, whether they are recorded, and whether they
have failed.

Not here: logins, and whether a model answers; only a turn could tell.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

import attrs
import trio

from proctor.actors.agent.handle import Agent
from proctor.actors.agent.states import State
from proctor.actors.errors import AgentError
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

FRESH = 5.0
"""Seconds for which an answer is good."""

DEADLINE = 10.0
"""Seconds that one program has to say its version in."""

_AT_ONCE = 4

_ANSWER = 1.0
"""Seconds that an agent has to say its status in."""

_WORDS: Mapping[State, str] = {"failed": "failed", "backoff": "restarting"}
"""What is said of an agent in a state that no caller can do anything about."""

Grade = Literal["ok", "degraded", "down"]


@attrs.frozen
class Adapter:
    """A command line as agents start it: `executable` is the path that was named, None where it is looked for."""

    product: Product
    executable: Path | None = None


ADAPTERS: Mapping[str, Adapter] = {
    "claude": Adapter(CLAUDE_CODE),
    "codex": Adapter(CODEX_CLI),
    "opencode": Adapter(OPENCODE),
    "gemini": Adapter(GEMINI),
}
"""The command lines that are known by name."""


@attrs.frozen(kw_only=True)
class Finding:
    """What was found of one adapter; `why` it does not work, None when it does. `path` is None where it was not found."""

    adapter: str
    path: Path | None = None
    version: str = ""
    why: str | None = None

    @property
    def ok(self) -> bool:
        """It is there and works."""
        return self.why is None


@attrs.frozen
class Health:
    """All that was found."""

    findings: tuple[Finding, ...]

    @property
    def grade(self) -> Grade:
        """`ok`: all work; `down`: none does; `degraded`: some do."""
        well = sum(finding.ok for finding in self.findings)
        return "ok" if well == len(self.findings) else "degraded" if well else "down"

    @property
    def missing(self) -> tuple[str, ...]:
        """The adapters that do not work, by name."""
        return tuple(finding.adapter for finding in self.findings if not finding.ok)


@attrs.define(eq=False)
class _Probe:
    adapter: Adapter
    one: trio.Lock = attrs.field(factory=trio.Lock)
    found: Finding | None = None
    at: float = -math.inf


class Checks:
    """Looks after `adapters`, by name. `fresh` is the age in seconds up to which a finding is given again."""

    def __init__(
        self,
        adapters: Mapping[str, Adapter] = ADAPTERS,
        *,
        fresh: float = FRESH,
        deadline: float = DEADLINE,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._probes = {name: _Probe(adapter) for name, adapter in adapters.items()}
        self._fresh = fresh
        self._deadline = deadline
        self._environ = environ
        self._few = trio.CapacityLimiter(_AT_ONCE)

    async def look(self) -> Health:
        """What is so now. Never raises for what a command line is."""
        async with trio.open_nursery() as nursery:
            for name in self._probes:
                nursery.start_soon(self.finding, name)
        return Health(tuple(probe.found for probe in self._probes.values() if probe.found is not None))

    async def finding(self, name: str) -> Finding:
        """What is so of one."""
        probe = self._probes[name]
        async with probe.one:
            if probe.found is None or trio.current_time() - probe.at > self._fresh:
                probe.found = await self._probed(name, probe.adapter)
                probe.at = trio.current_time()
            return probe.found

    def by_name(self) -> Mapping[str, Callable[[], Awaitable[str | None]]]:
        """For each adapter a function that says what is wrong with it, None when nothing is."""
        return {name: partial(self._complaint, name) for name in self._probes}

    async def _complaint(self, name: str) -> str | None:
        return (await self.finding(name)).why

    async def _probed(self, name: str, adapter: Adapter) -> Finding:
        path: Path | None = None
        look = partial(find_program, adapter.product, adapter.executable, self._environ)
        async with self._few:
            with trio.move_on_after(self._deadline):
                try:
                    path = await trio.to_thread.run_sync(look, abandon_on_cancel=True)
                    numbers = await version(path, timeout=math.inf, env=self._environ)
                except AgentError as error:
                    return Finding(adapter=name, path=path, why=str(error))
                return Finding(adapter=name, path=path, version=".".join(map(str, numbers)))
        return Finding(adapter=name, path=path, why=f"no answer within {self._deadline:g} s")


async def troubles(agents: Mapping[str, Agent]) -> str | None:
    """What is wrong with the agents that are up, each in one clause; None when nothing is."""
    found: dict[str, str] = {}
    async with trio.open_nursery() as nursery:
        for name, agent in agents.items():
            nursery.start_soon(_look_at, name, agent, found)
    return "; ".join(f"{name} is {found[name]}" for name in sorted(found)) or None


async def _look_at(name: str, agent: Agent, found: dict[str, str]) -> None:
    # at rest, or just starting: that is not for this check to say
    with suppress(NoProc, ActorExited, CallTimeout), trio.move_on_after(_ANSWER):
        status = await agent.status()
        if status.unresponsive:
            found[name] = f"stalled: {status.unresponsive}"
        elif status.state in _WORDS:
            found[name] = f"{_WORDS[status.state]}: {' '.join(status.evidence.split())}"
        elif status.not_recorded:
            found[name] = f"not recorded: {status.not_recorded}"


def adapters_of(plans: Mapping[str, Plan]) -> dict[str, Adapter]:
    """The command lines that these agents need, each once: by the name of its wire, or by its program's for more."""
    found: dict[str, Adapter] = {}
    for plan in plans.values():
        if plan.product is not None and not isinstance(plan.reach, WrapperReach):
            adapter = Adapter(plan.product, plan.executable)
            if adapter not in found.values():
                name = plan.product.program
                found[name if name not in found else str(plan.executable)] = adapter
    return found
