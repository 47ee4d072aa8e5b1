"""The probes of a server: `/healthz` (liveness), `/readyz` (readiness) and `/metrics`, and its health checks.

`/healthz` answers at once with the last results, and starts one run of the checks in the background; it names only what does
not work, because it needs no token. `/readyz` runs every check, for at most `CHECK_TIMEOUT` seconds, and gives the reasons.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proctor.actors.gateways.http.problems import problem, to_response
from proctor.actors.gateways.http.request_body import json_response
from proctor.actors.gateways.http.schemas import HealthRecord
from proctor.actors.operations.health import Grade

CHECK_TIMEOUT = 5.0

Check = Callable[[], Awaitable[str | None]]
"""Returns the problem, None when there is none."""

Results = Mapping[str, str | None]
CanAnswer = Callable[[Results], Awaitable[Results]]
"""Returns why each agent cannot answer, None for one that can, given the results of the checks."""

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


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
            self._running = True  # now, not in the task: a second probe may come before it starts
            self._nursery.start_soon(self._run_once)

    async def _run_once(self) -> None:
        try:
            await self.run()
        finally:
            self._running = False


@attrs.define(eq=False)
class Probes:
    """The probes of one server. `metrics_text` makes the text of `/metrics`, None: no metrics. `not_ready` and `stopping` are
    reasons; the server sets and clears them."""

    checks: HealthChecks
    metrics_text: Callable[[], Awaitable[bytes]] | None = None
    not_ready: str | None = None
    stopping: str | None = None

    def routes(self) -> list[Route]:
        """The routes of all three."""
        answers = {"/healthz": self.alive, "/readyz": self.ready, "/metrics": self.metrics}
        return [Route(path, answer) for path, answer in answers.items()]

    async def alive(self, request: Request) -> Response:
        """Answer `/healthz`."""
        self.checks.run_soon()
        results = self.checks.results
        why = self.stopping or _failures(results)
        return json_response(HealthRecord(ready=self.stopping is None, grade=self.checks.grade, why=why))

    async def ready(self, request: Request) -> Response:
        """Answer `/readyz`."""
        not_ready = (
            self.not_ready
        )  # before the checks: what they found while it started says nothing about the time after
        results, grade, agents = await self.checks.run(), self.checks.grade, dict(self.checks.agents)
        none = "no agent can answer" if grade == "down" else ""
        why = self.stopping or not_ready or _failures(results) or none
        record = HealthRecord(ready=not why, grade=grade, why=why, checks=dict(results), agents=agents)
        return json_response(record, 503 if why else 200)

    async def metrics(self, request: Request) -> Response:
        """Answer `/metrics`."""
        if self.metrics_text is None:
            return to_response(
                problem(404, "no-metrics", "this server has no metrics", "start it with --metrics")
            )
        return Response(await self.metrics_text(), headers={"content-type": PROMETHEUS})


def _failures(results: Results) -> str:
    return f"not working: {', '.join(failed_checks(results))}" if failed_checks(results) else ""


def failed_checks(results: Results) -> tuple[str, ...]:
    """The names of the checks that failed."""
    return tuple(sorted(name for name, why in results.items() if why is not None))


async def _run_check(name: str, check: Check, results: dict[str, str | None]) -> None:
    # Written first: a check that does not end leaves this result.
    results[name] = f"the check did not end within {CHECK_TIMEOUT:g} s"
    with trio.move_on_after(CHECK_TIMEOUT):
        results[name] = await check()
