"""The server of the MCP SDK with the tools of an offer: it serves HTTP, with its sessions and the checks of headers.

Imported only for that, because the SDK takes long to import.
"""

from __future__ import annotations

from typing import Any

from mcp import types
from mcp.server import Server, ServerRequestContext

from proctor.actors.gateways.mcp.messages import Offer

Context = ServerRequestContext[Any]


def server_of(offer: Offer) -> Server[Any]:
    """A server with these tools."""

    listed = types.ListToolsResult.model_validate({"tools": [*offer.tools]})

    async def list_tools(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return listed

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        async def report(seconds: float, text: str) -> None:
            await context.session.report_progress(seconds, message=text)

        result = await offer.call(params.name, params.arguments or {}, report)
        return types.CallToolResult.model_validate(result)

    return Server[Any](
        offer.name,
        version=offer.version,
        instructions=offer.instructions or None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema={tool["name"]: tool["inputSchema"] for tool in offer.tools}.get,
    )
