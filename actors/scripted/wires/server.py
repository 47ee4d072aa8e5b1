"""The host's MCP server as Claude Code uses it: over control requests, initialized when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proctor.actors.scripted.frames import Frame, as_frame, frames_in
from proctor.actors.scripted.interfaces import Call

SERVER = "host"
CLIENT: Mapping[str, str] = {"name": "claude-code", "title": "Claude Code", "version": "2.1.330"}


class HostServer:
    """The server that the host has named in its greeting, if it has."""

    def __init__(self, request: Callable[[Frame], str], answer: Callable[[str], Frame | None]) -> None:
        self.request, self.answer = request, answer
        self.declared = False
        self.names: set[str] | None = None
        self.requests = 0

    def tools(self) -> set[str]:
        """The names of its tools; it is greeted and asked for them once."""
        if self.names is None:
            self.names = set(self.listed()) if self.declared else set()
        return self.names

    def listed(self) -> list[str]:
        hello: Frame = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
        self.ask("initialize", params=hello)
        self.tell("notifications/initialized")
        result = as_frame(self.ask("tools/list").get("result")) or {}
        return [str(tool.get("name")) for tool in frames_in(result.get("tools"))]

    def ask(self, method: str, **fields: object) -> Frame:
        return reply_in(self.answer(self.send(method, id=self.next(), **fields)))

    def tell(self, method: str) -> None:
        self.answer(self.send(method))  # a notification is acknowledged too

    def next(self) -> int:
        self.requests += 1
        return self.requests - 1

    def send(self, method: str, **fields: object) -> str:
        message = {"jsonrpc": "2.0", "method": method, **fields}
        return self.request({"subtype": "mcp_message", "server_name": SERVER, "message": message})

    def call(self, call: Call, name: str) -> str:
        """Ask for a call of a tool. The id of the request."""
        params = {"name": name, "arguments": call.input, "_meta": {"claudecode/toolUseId": call.id}}
        return self.send("tools/call", id=self.next(), params=params)


def reply_in(answer: Frame | None) -> Frame:
    """The JSON-RPC reply that an answer of the host carries, empty when it carries none."""
    response = as_frame((answer or {}).get("response")) or {}
    return as_frame(response.get("mcp_response")) or {}


def returned(answer: Frame | None) -> tuple[str, bool]:
    """The text of a result of the host's tool, and whether it failed."""
    reply = reply_in(answer)
    result = as_frame(reply.get("result"))
    if result is None:
        error = as_frame(reply.get("error")) or {}
        return str(error.get("message", "the host's tool gave no result")), True
    texts = [str(part["text"]) for part in frames_in(result.get("content")) if "text" in part]
    return "\n".join(texts), result.get("isError") is True
