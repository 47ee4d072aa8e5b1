"""The health checks of a gateway and their last results.

`run` runs all checks, for at most `CHECK_TIMEOUT` seconds. `run_soon` starts one run in the background and returns at once, so
that a liveness probe never waits for a check.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from proctor.actors.operations.health import Grade

CHECK_TIMEOUT = 5.0

Check = Callable[[], Awaitable[str | None]]
"""Returns the problem, None when there is none."""

Results = Mapping[str, str | None]
CanAnswer = Callable[[Results], Awaitable[Results]]
"""Returns why each agent cannot answer, None for one that can, given the results of the checks."""


class HealthChecks:
    """The checks of one gateway; `nursery` runs them in the background. `results` has those of the last run, by name. An
    alarm is a check that appears in the results only when it fails. `agents` has the reason why each agent cannot answer."""

    def __init__(
        self,
        checks: Mapping[str, Check],
        nursery: trio.Nursery,
        *,
        alarms: Mapping[str, Check] | None = None,
        agents: CanAnswer | None = None,
    ) -> None:
        self.results: Results = {}
        self.agents: Results = {}
        self._can_answer = agents
        self._checks = {**checks, **(alarms or {})}
        self._alarms = frozenset(alarms or ())
        self._nursery = nursery
        self._running = False

    async def run(self) -> Results:
        """Run every check and return the results by name."""
        results: dict[str, str | None] = {}
        async with trio.open_nursery() as nursery:
            for name, check in self._checks.items():
                nursery.start_soon(_run_check, name, check, results)
        silent = {name for name in self._alarms if results[name] is None}
        agents: Results = {} if self._can_answer is None else await self._can_answer(results)
        self.results, self.agents = {name: results[name] for name in sorted(results.keys() - silent)}, agents
        return self.results

    @property
    def grade(self) -> Grade:
        """`down` when no agent can answer, or without agents no check passes; `degraded` when a check fails."""
        can_answer = self.agents or self.results
        if can_answer and all(why is not None for why in can_answer.values()):
            return "down"
        return "degraded" if failed_checks(self.results) else "ok"

    def run_soon(self) -> None:
        """Start a run in the background, unless one is under way."""
        if self._checks and not self._running:
            self._running = True
            self._nursery.start_soon(self._run_once)

    async def _run_once(self) -> None:
        try:
            await self.run()
        finally:
            self._running = False


def failed_checks(results: Results) -> tuple[str, ...]:
    """The names of the checks that failed."""
    return tuple(sorted(name for name, why in results.items() if why is not None))


async def _run_check(name: str, check: Check, results: dict[str, str | None]) -> None:
    results[name] = f"the check did not end within {CHECK_TIMEOUT:g} s"
    with trio.move_on_after(CHECK_TIMEOUT):
        results[name] = await check()
