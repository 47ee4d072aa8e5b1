"""The server of the MCP SDK with the tools of an offer: it serves HTTP, with its sessions and the checks of headers.

Imported only for that, because the SDK takes long to import.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcp import types
from mcp.server import Server, ServerRequestContext

from proctor.actors.gateways.mcp.messages import Object, Offer

Context = ServerRequestContext[Any]


def server_of(offer: Offer) -> Server[Any]:
    """A server with these tools."""
    tools = offer.tools()
    listed = _validated(tools)

    async def list_tools(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        nonlocal tools, listed
        if (now := offer.tools()) is not tools:
            tools, listed = now, _validated(now)
        return listed

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        async def report(seconds: float, text: str) -> None:
            await context.session.report_progress(seconds, message=text)

        result = await offer.call(params.name, params.arguments or {}, report)
        return types.CallToolResult.model_validate(result)

    def schema_of(name: str) -> Any:
        return next((tool["inputSchema"] for tool in offer.tools() if tool["name"] == name), None)

    return Server[Any](
        offer.name,
        version=offer.version,
        instructions=offer.instructions or None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=schema_of,
    )


def _validated(tools: Sequence[Object]) -> types.ListToolsResult:
    return types.ListToolsResult.model_validate({"tools": [*tools]})
