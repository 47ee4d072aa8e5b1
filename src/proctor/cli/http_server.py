"""HTTP server of `proctor serve --http`: MCP at `/mcp`, and `/healthz`, `/readyz` and `/metrics` as `proctor web` has them.

Access is checked by the code of `proctor web`. Imported only to serve HTTP, because it needs the extra `http`.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio
from starlette.applications import Starlette

from proctor.actors.gateways.http import (
    AuthMiddleware,
    CanAnswer,
    Check,
    HealthChecks,
    Probes,
    check_listen_address,
)
from proctor.actors.gateways.mcp.server import PATH, ToolsetServer
from proctor.actors.web_server.listening import Endpoint, bound, endpoint_of
from proctor.actors.web_server.server import serve
from proctor.cli.tokens import Token, announce
from proctor.cli.ui.output import Output

Make = Callable[..., ToolsetServer]
Gather = Callable[[], Awaitable[bytes]]

_log = logging.getLogger("proctor.serve")


@attrs.frozen
class Health:
    """The sources of the health routes of a server, until `shutdown` is set. `metrics_text` gives the text of `/metrics`, None for no metrics."""

    checks: Mapping[str, Check]
    alarms: Mapping[str, Check]
    agents: CanAnswer
    metrics_text: Gather | None
    shutdown: trio.Event


@attrs.frozen
class HttpServer:
    """The HTTP server of a toolset. Raises `BadOption` for an address that other machines can reach without a token."""

    where: Endpoint
    token: Token = attrs.field(factory=Token)

    def __attrs_post_init__(self) -> None:
        check_listen_address(self.where, self.token.value)

    async def serve(self, make: Make, health: Health) -> None:
        """Serve until shutdown. `make` builds the MCP server from the routes beside it."""
        async with self._probed(health) as (opened, probes):
            here = endpoint_of(opened)
            middleware = partial(AuthMiddleware, where=here, token=self.token.value)
            server = make(routes=probes.routes())
            async with trio.open_nursery() as serving:
                # start waits until it accepts connections, so the address below is never announced too early
                await serving.start(partial(server.serve_http, opened, middleware=middleware))
                await self._announce("serves", here, PATH)

    async def serve_probes(
        self, health: Health, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve `/healthz`, `/readyz` and `/metrics` alone, until cancelled."""
        async with self._probed(health) as (opened, probes), trio.open_nursery() as nursery:
            here = endpoint_of(opened)
            app = AuthMiddleware(Starlette(routes=[*probes.routes()]), here, token=self.token.value)
            await nursery.start(partial(serve, app, opened, shutdown=trio.Event()))
            # announced only once the port answers: a probe that reads the line may connect at once
            await self._announce("serves probes at", here)
            task_status.started()

    @asynccontextmanager
    async def _probed(self, health: Health) -> AsyncGenerator[tuple[socket.socket, Probes]]:
        with bound(self.where) as opened:
            async with trio.open_nursery() as nursery:
                checks = HealthChecks(health.checks, nursery, alarms=health.alarms, agents=health.agents)
                probes = Probes(checks, health.metrics_text)
                nursery.start_soon(_mark_stopping, health.shutdown, probes)
                yield opened, probes
                nursery.cancel_scope.cancel("nothing is served any more")

    async def _announce(self, what: str, here: Endpoint, path: str = "") -> None:
        address = str(here) if here.path else f"http://{here}{path}"
        _log.info("%s %s", what, address)
        await announce(Output(2), f"{what} {address}", self.token)


async def _mark_stopping(shutdown: trio.Event, probes: Probes) -> None:
    # /readyz must fail from the first moment of the stop, while the last calls are still answered
    await shutdown.wait()
    probes.stopping = "the server is stopping"
