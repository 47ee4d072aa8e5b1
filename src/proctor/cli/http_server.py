"""HTTP server of `proctor serve --http`: MCP at `/mcp`, and `/healthz`, `/readyz` and `/metrics` as `proctor web` has them.

Access is checked by the code of `proctor web`. Imported only to serve HTTP, because it needs the extra `http`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import attrs
import trio
from starlette.applications import Starlette
from starlette.types import ASGIApp

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
class HttpServer:
    """The HTTP server of a toolset. Raises `BadOption` for an address that other machines can reach without a token."""

    where: Endpoint
    token: Token = attrs.field(factory=Token)

    def __attrs_post_init__(self) -> None:
        check_listen_address(self.where, self.token.value)

    async def serve(
        self,
        make: Make,
        checks: Mapping[str, Check],
        alarms: Mapping[str, Check],
        agents: CanAnswer,
        metrics_text: Gather | None,
        shutdown: trio.Event,
    ) -> None:
        """Serve until `shutdown` is set.

        `make` builds the MCP server from the routes beside it; `checks`, `alarms` and `agents` feed the health routes;
        `metrics_text` gives the text of `/metrics`, None for no metrics.
        """
        with bound(self.where) as opened:
            async with trio.open_nursery() as nursery:
                probes, here = (
                    Probes(HealthChecks(checks, nursery, alarms=alarms, agents=agents), metrics_text),
                    endpoint_of(opened),
                )
                nursery.start_soon(_mark_stopping, shutdown, probes)
                middleware = partial(_protected, where=here, token=self.token.value)
                server = make(routes=probes.routes())
                async with trio.open_nursery() as serving:
                    await serving.start(partial(server.serve_http, opened, middleware=middleware))
                    address = str(here) if here.path else f"http://{here}{PATH}"
                    _log.info("serves %s", address)
                    await announce(Output(2), f"serves {address}", self.token)
                nursery.cancel_scope.cancel("nothing is served any more")

    async def serve_probes(
        self,
        checks: Mapping[str, Check],
        alarms: Mapping[str, Check],
        agents: CanAnswer,
        metrics_text: Gather | None,
        shutdown: trio.Event,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve `/healthz`, `/readyz` and `/metrics` alone, until cancelled; the rest as for `serve`."""
        with bound(self.where) as opened:
            async with trio.open_nursery() as nursery:
                probes, here = (
                    Probes(HealthChecks(checks, nursery, alarms=alarms, agents=agents), metrics_text),
                    endpoint_of(opened),
                )
                nursery.start_soon(_mark_stopping, shutdown, probes)
                app = _protected(Starlette(routes=[*probes.routes()]), where=here, token=self.token.value)
                await nursery.start(partial(serve, app, opened, shutdown=trio.Event()))
                address = str(here) if here.path else f"http://{here}"
                _log.info("serves probes at %s", address)
                await announce(Output(2), f"serves probes at {address}", self.token)
                task_status.started()
                await trio.sleep_forever()


def _protected(application: ASGIApp, *, where: Endpoint, token: str | None) -> ASGIApp:
    return AuthMiddleware(application, where, token=token)


async def _mark_stopping(shutdown: trio.Event, probes: Probes) -> None:
    await shutdown.wait()
    probes.stopping = "the server is stopping"
