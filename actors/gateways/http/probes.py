"""The probes of a server: `/healthz` (liveness), `/readyz` (readiness) and `/metrics`.

`/healthz` answers at once, whatever the checks do, and names only what does not work, because it needs no token.
`/readyz` runs every check and gives the reasons.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proctor.actors.gateways.http.health_checks import HealthChecks, Results, failed_checks
from proctor.actors.gateways.http.problems import problem, to_response
from proctor.actors.gateways.http.request_body import json_response
from proctor.actors.gateways.http.schemas import HealthRecord

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


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
        results, grade, agents = await self.checks.run(), self.checks.grade, dict(self.checks.agents)
        none = "no agent can answer" if grade == "down" else ""
        why = self.stopping or self.not_ready or _failures(results) or none
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
