"""What a server says of itself: whether it lives, whether it takes work, its numbers. Every server of ours says it so.

Guarantees: `/healthz` is answered at once, whatever the checks do, and names no more than what does not work: whoever
asks needs no token. `/readyz` asks every check and gives the reasons.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proctor.actors.gateways.http.health_checks import Found, Looks, bad, grade
from proctor.actors.gateways.http.problems import problem, told
from proctor.actors.gateways.http.request_body import given
from proctor.actors.gateways.http.schemas import HealthRecord

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@attrs.define(eq=False)
class Probes:
    """Of one server. `gather` gives the bytes of `/metrics`, None: there are none. `not_ready` and `stopping` say why;
    whoever serves sets and clears them."""

    looks: Looks
    gather: Callable[[], Awaitable[bytes]] | None = None
    not_ready: str | None = None
    stopping: str | None = None

    def routes(self) -> list[Route]:
        """All three, for a server that has no operations of its own."""
        answers = {"/healthz": self.alive, "/readyz": self.ready, "/metrics": self.metrics}
        return [Route(path, answer) for path, answer in answers.items()]

    async def alive(self, request: Request) -> Response:
        """Answer `/healthz`."""
        self.looks.look_soon()
        found = self.looks.found
        why = self.stopping or _complaint(found)
        return given(HealthRecord(ready=self.stopping is None, grade=grade(found), why=why))

    async def ready(self, request: Request) -> Response:
        """Answer `/readyz`."""
        found = await self.looks.look()
        why = self.stopping or self.not_ready or _complaint(found)
        record = HealthRecord(ready=not why, grade=grade(found), why=why, checks=dict(found))
        return given(record, 503 if why else 200)

    async def metrics(self, request: Request) -> Response:
        """Answer `/metrics`."""
        if self.gather is None:
            return told(
                problem(404, "no-metrics", "this server keeps no metrics", "start it with them (--metrics)")
            )
        return Response(await self.gather(), headers={"content-type": PROMETHEUS})


def _complaint(found: Found) -> str:
    return f"not working: {', '.join(bad(found))}" if bad(found) else ""
