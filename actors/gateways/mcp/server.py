"""A toolset served by the Model Context Protocol: the tools are listed as they were declared, a call is a call.

Guarantees: what is listed is made once, when the server is; the name that is listed is the name that is called. What
a tool says is a result, its failure one that is marked as an error; what breaks the protocol is an error of JSON-RPC.
A call that the client withdraws is cancelled. `stop` cancels every call that runs, answers each with a result that
says so, and refuses those to come; stdio and HTTP then end.

Not here: how a tool works, who may call, and the sockets of HTTP.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec
import trio
from mcp import types
from mcp.server import Server, ServerRequestContext, stdio
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp
from trio_util import AsyncValue

from proctor.actors.gateways.mcp.wire import Wire, standard_streams
from proctor.actors.serving.toolset import Call, Counts, ServedTool, Toolset
from proctor.actors.tools.tools import ToolResult

GRACE = 3.0
"""Seconds that calls have to answer in, once the server is to stop; clients kill after four."""
IDLE = 1800.0
"""Seconds that a client's session over HTTP is kept while nothing is asked in it."""
SESSIONS = 1000
"""Sessions over HTTP at a time; the next one is refused until others have ended."""
PATH = "/mcp"
"""Where HTTP has the protocol."""
LOOPBACK = tuple(f"{host}{port}" for host in ("127.0.0.1", "localhost", "[::1]") for port in ("", ":*"))
"""What a client on this machine calls it."""
FACTS = "proctor"
"""The key of a result's `_meta` under which the facts about its call are."""
_STOPPING = ToolResult("the server is stopping; the call was cancelled", is_error=True)

Context = ServerRequestContext[Any]


class ToolsetServer:
    """One server. `routes` are what HTTP has beside the protocol, such as health and metrics; setting `shutdown` stops
    it as `stop` does; `idle` is how many seconds HTTP keeps a session in which nothing is asked; `counts` has the numbers of each tool; `sdk` is the SDK's own server, for a transport of another
    kind. It serves once."""

    def __init__(
        self,
        name: str,
        toolset: Toolset,
        *,
        version: str = "",
        instructions: str = "",
        routes: Sequence[Route] = (),
        shutdown: trio.Event | None = None,
        idle: float = IDLE,
    ) -> None:
        self.name = name
        self._idle = idle
        self.shutdown = trio.Event() if shutdown is None else shutdown
        self._toolset = toolset
        self._routes = routes
        self._running = AsyncValue(frozenset[trio.CancelScope]())
        self._listed = types.ListToolsResult(tools=[_listed(tool) for tool in toolset.tools])
        self.sdk = Server[Any](
            name,
            version=version,
            instructions=instructions or None,
            on_list_tools=self._list,
            on_call_tool=self._call,
            get_tool_input_schema={tool.name: tool.schema for tool in toolset.tools}.get,
        )

    @property
    def counts(self) -> Mapping[str, Counts]:
        """The numbers of each tool, by name."""
        return self._toolset.counts

    def stop(self) -> None:
        """Cancel the calls that run and refuse those to come."""
        self.shutdown.set()
        for scope in self._running.value:
            scope.cancel("the server is stopping")

    # -- what is asked

    async def _list(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return self._listed

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        result: ToolResult | None = None
        with trio.CancelScope() as scope:
            self._running.value |= {scope}
            try:
                result = None if self.shutdown.is_set() else await self._carried_out(context, params)
            finally:
                self._running.value -= {scope}
        return _told(_STOPPING if result is None else result)

    async def _carried_out(self, context: Context, params: types.CallToolRequestParams) -> ToolResult:
        call = Call()

        async def send(seconds: float, text: str) -> None:
            await context.session.report_progress(seconds, message=_whole(text))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.follow, send)
            result = await self._toolset.call(params.name, params.arguments or {}, call)
            nursery.cancel_scope.cancel("the call has its result")
        return result

    # -- over stdio

    async def serve_stdio(self) -> None:
        """Serve this process's stdin and stdout until stdin ends, nobody reads stdout, or `shutdown` is set."""
        async with standard_streams() as (rx, tx):
            await self.serve_streams(rx, tx)

    async def serve_streams(self, rx: trio.abc.ReceiveStream, tx: trio.abc.SendStream) -> None:
        """The same for any two streams."""
        wire, transport = Wire(rx, tx), cast("Any", stdio).stdio_server  # wants files, uses what a wire has
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stopped_with, wire.over)
            nursery.start_soon(self._left, wire, nursery.cancel_scope)
            async with transport(wire, wire) as (read, write):
                await self.sdk.run(read, write, self.sdk.create_initialization_options())

    async def _stopped_with(self, over: trio.Event) -> None:
        await over.wait()
        self.stop()

    async def _left(self, wire: Wire, scope: trio.CancelScope) -> None:
        await self.shutdown.wait()
        self.stop()
        with trio.move_on_after(GRACE):
            await wire.settled()
        scope.cancel("the server has stopped")

    # -- over HTTP

    async def serve_http(
        self,
        bound: socket.socket,
        *,
        door: Callable[[ASGIApp], ASGIApp] | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve a bound socket until `shutdown` is set: the protocol at `/mcp`, and the `routes`.

        Who may come in is up to `door`, which is put around the whole application. Without one `/mcp` is for programs
        that call this machine by a name of its own, and for no page of another origin; the routes are for all.
        """
        from proctor.actors.web_server.server import serve  # another extra's: stdio does without

        app = self.app() if door is None else door(self.app(hosts=None))
        closing = trio.Event()
        serving = partial(serve, cast("Any", app), bound, shutdown=closing)
        async with trio.open_nursery() as nursery:
            await nursery.start(serving)
            task_status.started()
            await self.shutdown.wait()
            self.stop()
            with trio.move_on_after(GRACE):
                await self._running.wait_value(frozenset())
            closing.set()

    def app(self, hosts: Sequence[str] | None = LOOPBACK) -> Starlette:
        """The ASGI application of `serve_http`, for a server of another kind. Needs the lifespan of ASGI.

        `/mcp` is for requests whose `Host` is one of `hosts` (`:*` for any port; None: any), and for no page elsewhere.
        """
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


def _listed(tool: ServedTool) -> types.Tool:
    return types.Tool(
        name=tool.name, description=_whole(tool.description), input_schema=_whole(dict(tool.schema))
    )


def _told(result: ToolResult) -> types.CallToolResult:
    data, facts = _whole(msgspec.to_builtins(result.data)), _whole(msgspec.to_builtins(dict(result.facts)))
    return types.CallToolResult(
        content=[types.TextContent(text=_whole(result.text))],
        is_error=result.is_error,
        structured_content=data if data is None or isinstance(data, dict) else {"result": data},
        _meta={FACTS: facts} if facts else None,
    )


def _whole(value: Any) -> Any:
    """The same with `?` for each half of a surrogate pair: UTF-8 has no bytes for one, and its writer would die of it."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [*map(_whole, cast("list[Any]", value))]  # type: ignore[redundant-cast]
        case dict():
            given = cast("dict[Any, Any]", value)  # type: ignore[redundant-cast]
            return {_whole(key): _whole(inner) for key, inner in given.items()}
        case _:
            return value
