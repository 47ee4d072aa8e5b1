"""An MCP server for a toolset, over stdio and HTTP.

The list of tools is made once, with the server, and its names are the names of the calls. A failed tool gives a result that
is marked as an error; only a violation of the protocol is an error of JSON-RPC. A call that the client withdraws is
cancelled. `stop` cancels the running calls, answers each with a result that says so, and refuses new ones.

Streams are served by `Connection`, HTTP by the MCP SDK, which is imported for it: its types alone take several times as long to
import as all that a server over stdio needs.

Not here: the tools, authentication, and the sockets of HTTP.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from operator import ne
from typing import TYPE_CHECKING, Any, cast

import msgspec
import trio
from trio_util import AsyncValue, wait_any

from proctor.actors.gateways.mcp.connection import Connection, standard_streams
from proctor.actors.gateways.mcp.messages import Object, Offer
from proctor.actors.serving.toolset import Call, Counts, Send, Toolset
from proctor.actors.tools.tools import ToolResult

if TYPE_CHECKING:
    from mcp.server import Server
    from starlette.applications import Starlette
    from starlette.routing import Route
    from starlette.types import ASGIApp

GRACE = 3.0
"""Seconds in which running calls are answered at shutdown; clients kill the server after four."""
IDLE_TIMEOUT = 1800.0
"""Seconds until an idle session of a client over HTTP is closed."""
SESSIONS = 1000
"""The largest number of sessions over HTTP at a time; more are refused."""
PATH = "/mcp"
"""The path of the protocol over HTTP."""
LOOPBACK = tuple(f"{host}{port}" for host in ("127.0.0.1", "localhost", "[::1]") for port in ("", ":*"))
"""The `Host` values of clients on this machine."""
FACTS = "proctor"
"""The key in a result's `_meta` for the facts about its call."""
_STOPPING = ToolResult("the server is stopping; the call was cancelled", is_error=True)


class ToolsetServer:
    """One server; it serves once.

    HTTP serves the `routes` as well, such as health and metrics, and closes sessions that are `idle` for so many seconds. Setting
    `shutdown` has the same effect as `stop`. `sdk` is a server of the SDK, for other transports.
    """

    def __init__(
        self,
        name: str,
        toolset: Toolset,
        *,
        version: str = "",
        instructions: str = "",
        routes: Sequence[Route] = (),
        shutdown: trio.Event | None = None,
        idle: float = IDLE_TIMEOUT,
        changes: bool = False,
    ) -> None:
        self.name = name
        self._idle = idle
        self.shutdown = trio.Event() if shutdown is None else shutdown
        self._toolset = toolset
        self._routes = routes
        self._running = AsyncValue(frozenset[trio.CancelScope]())
        self._listed = toolset.version.value, _list_of(toolset)
        self._offer = Offer(
            name=name,
            version=version,
            instructions=instructions,
            tools=self._tools,
            call=self._call,
            changes=changes,
        )

    def _tools(self) -> Sequence[Object]:
        # made once for each version of the set: clients ask often
        if self._listed[0] != self._toolset.version.value:
            self._listed = self._toolset.version.value, _list_of(self._toolset)
        return self._listed[1]

    @property
    def counts(self) -> Mapping[str, Counts]:
        """The call counts of each tool, by name."""
        return self._toolset.counts

    def stop(self) -> None:
        """Cancel the running calls and refuse new ones."""
        self.shutdown.set()  # first, so that no call begins after the running ones were cancelled
        for scope in self._running.value:
            scope.cancel("the server is stopping")

    async def _call(self, name: str, arguments: Mapping[str, Any], progress: Send | None) -> Object:
        result: ToolResult | None = None
        with trio.CancelScope() as scope:
            self._running.value |= {scope}
            try:
                # A call that comes in the tick of the stop is refused as well.
                if not self.shutdown.is_set():
                    result = await self._run_call(name, arguments, progress)
            finally:
                self._running.value -= {scope}
        return _to_result(_STOPPING if result is None else result)

    async def _run_call(self, name: str, arguments: Mapping[str, Any], progress: Send | None) -> ToolResult:
        call = Call()

        async def send(seconds: float, text: str) -> None:
            if progress is not None:
                await progress(seconds, _replace_surrogates(text))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.follow, send)
            result = await self._toolset.call(name, arguments, call)
            # Progress ends with the result: a message behind it would be about a request that is over.
            nursery.cancel_scope.cancel("the call has its result")
        return result

    # -- over stdio

    async def serve_stdio(self) -> None:
        """Serve stdin and stdout of this process until stdin ends, stdout is closed, or `shutdown` is set."""
        async with standard_streams() as (rx, tx):
            await self.serve_streams(rx, tx)

    async def serve_streams(self, rx: trio.abc.ReceiveStream, tx: trio.abc.SendStream) -> None:
        """Serve any two streams."""
        connection = Connection(self._offer, rx, tx)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end, connection, nursery.cancel_scope)
            nursery.start_soon(self._report_changes, connection)
            await connection.run()
            nursery.cancel_scope.cancel("everything is answered")

    async def _report_changes(self, connection: Connection) -> None:
        while True:
            known = self._toolset.version.value
            await self._toolset.version.wait_value(partial(ne, known))
            connection.report_changed_tools()

    async def _end(self, connection: Connection, scope: trio.CancelScope) -> None:
        await wait_any(connection.closed.wait, self.shutdown.wait)
        self.stop()
        connection.close()
        # Calls that were cancelled still get a reply, so the output stays open for it.
        await trio.sleep(GRACE)
        scope.cancel("the server has stopped")

    # -- over HTTP

    async def serve_http(
        self,
        bound: socket.socket,
        *,
        middleware: Callable[[ASGIApp], ASGIApp] | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve a bound socket until `shutdown` is set: the protocol at `/mcp`, and the `routes`.

        `middleware` wraps the whole application and authenticates its requests. Without it `/mcp` accepts requests with a loopback
        `Host` and without a foreign `Origin`, and the routes accept every request.
        """
        from proctor.actors.web_server.server import serve  # needs the extra `http`, which stdio does not

        app = self.app() if middleware is None else middleware(self.app(hosts=None))
        closing = trio.Event()
        serving = partial(serve, cast("Any", app), bound, shutdown=closing)
        async with trio.open_nursery() as nursery:
            await nursery.start(serving)
            task_status.started()
            await self.shutdown.wait()
            self.stop()
            # The calls end first, then the connections: their replies still go out.
            with trio.move_on_after(GRACE):
                await self._running.wait_value(frozenset())
            closing.set()

    def app(self, hosts: Sequence[str] | None = LOOPBACK) -> Starlette:
        """The ASGI application of `serve_http`, for other servers. Needs the lifespan of ASGI.

        `/mcp` accepts requests whose `Host` is one of `hosts` (`:*` for any port; None: any host) and that have no foreign `Origin`.
        """
        from mcp.server.transport_security import TransportSecuritySettings

        return self.sdk.streamable_http_app(
            streamable_http_path=PATH,
            session_idle_timeout=None if math.isinf(self._idle) else self._idle,
            max_sessions=SESSIONS,
            transport_security=TransportSecuritySettings(
                enable_dns_rebinding_protection=hosts is not None,
                allowed_hosts=list(hosts or ()),
                allowed_origins=[f"http://{host}" for host in hosts or ()],
            ),
            custom_starlette_routes=[*self._routes],
        )

    @cached_property
    def sdk(self) -> Server[Any]:
        """The server of the SDK with the same tools, for HTTP and other transports."""
        from proctor.actors.gateways.mcp.sdk import server_of

        return server_of(self._offer)


def _list_of(toolset: Toolset) -> Sequence[Object]:
    return [_listed(tool.name, tool.description, tool.schema) for tool in toolset.tools]


def _listed(name: str, description: str, schema: Mapping[str, Any]) -> Object:
    return {
        "name": name,
        "description": _replace_surrogates(description),
        "inputSchema": _replace_surrogates(dict(schema)),
    }


def _to_result(result: ToolResult) -> Object:
    made: Object = {"content": [{"type": "text", "text": result.text}], "isError": result.is_error}
    if (data := msgspec.to_builtins(result.data)) is not None:
        made["structuredContent"] = data if isinstance(data, dict) else {"result": data}
    if result.facts:
        made["_meta"] = {FACTS: msgspec.to_builtins(dict(result.facts))}
    return cast("Object", _replace_surrogates(made))


def _replace_surrogates(value: Any) -> Any:
    """Replace each lone surrogate by `?`: UTF-8 cannot encode it, and a writer of JSON fails on it."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [*map(_replace_surrogates, cast("list[Any]", value))]  # type: ignore[redundant-cast]
        case dict():
            items = cast("dict[Any, Any]", value)  # type: ignore[redundant-cast]
            return {_replace_surrogates(key): _replace_surrogates(inner) for key, inner in items.items()}
        case _:
            return value
