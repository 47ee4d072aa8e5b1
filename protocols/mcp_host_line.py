"""One MCP client of the host's tools over a stream of lines: bytes in, events out; results in, bytes out.

Guarantees: no bytes of a client make it raise. Each call is answered once or withdrawn: by the client's cancellation, or
because the client disconnected. Arguments that the CLI added are removed, unless the tool declares them. An open call stands
in `Memo.calls`, so that the idle timeout counts it as activity. A truncated call is refused and never run.

The events have the `frame` `HOST`: no line of the CLI's own output caused them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.protocols import jsonrpc
from proctor.protocols.dialect import HostTool, Memo
from proctor.protocols.errors import Misuse
from proctor.protocols.framing import MAX_LINE, Framing, Oversized
from proctor.protocols.lenient import WHY
from proctor.protocols.mcp_host import Call, Outcome, fault, handle, returned
from proctor.protocols.vocabulary import (
    HOST,
    AnyEvent,
    Garbled,
    Notice,
    RequestWithdrawn,
    ToolRequested,
    ToolReturn,
)

CALLS = 256
"""Calls of one client that may be open at once."""

BUSY = -32000

PATH = "host_tools"
"""What the kinds of its odd events begin with."""


class ToolLine:
    """`name` begins the ids of its requests, and must be its own; `of` is the conversation that its calls belong to;
    `added` names arguments as `Dialect.adds` does."""

    def __init__(
        self,
        tools: Sequence[HostTool],
        of: Memo,
        name: str,
        *,
        added: frozenset[str] = frozenset(),
        max_line: int = MAX_LINE,
    ) -> None:
        self._tools = tools
        # A tool that declares the argument itself gets it.
        self._foreign = {tool.name: added.difference(tool.schema.get("properties", ())) for tool in tools}
        self._of = of
        self._name = name
        self._memo = Memo(frame=HOST)
        self._framing = Framing(max_line)
        self._to_send: list[bytes] = []
        self._open: dict[str, str] = {}
        self._calls = 0

    def receive(self, chunk: bytes) -> list[AnyEvent]:
        """The events of the lines that this chunk ends."""
        self._memo.turn = self._of.turn
        out: list[AnyEvent] = []
        for line in self._framing.feed(chunk):
            if isinstance(line, Oversized):
                out += self._read(line.truncated, kept=False)
            elif line.strip():
                out += self._read(line, kept=True)
        return out

    def data_to_send(self) -> bytes:
        """The replies since the last call of this method."""
        data = b"".join(self._to_send)
        self._to_send.clear()
        return data

    def holds(self, request: str) -> bool:
        """Does the client wait for the answer to this request?"""
        return request in self._open

    def write(self, answer: ToolReturn) -> bytes:
        """The bytes of an answer. Raises Misuse where its call is not open."""
        # Taken out first: a second answer finds no call.
        if (key := self._open.pop(answer.id, None)) is None:
            raise Misuse(f"{answer.id!r} is not an open call of a tool", request="tool_return")
        self._of.calls.pop(answer.id, None)
        return _line(key, returned(answer))

    def hang_up(self) -> list[AnyEvent]:
        """Withdraw all calls: the client is gone."""
        # A copy: withdrawing takes entries out.
        return [self._withdraw(request) for request in [*self._open]]

    def _read(self, line: bytes, *, kept: bool) -> list[AnyEvent]:
        memo = self._memo
        message = jsonrpc.read(memo, line)
        if isinstance(message, Garbled):
            return [Notice(HOST, memo.turn, "host_tools_garbled", f"not an MCP message: {message.head}")]
        handled = handle(memo, self._tools, message, PATH)
        if handled.call is not None:
            return (
                self._begin(message.key, handled.call) if kept else [self._unread(message.key, handled.call)]
            )
        if handled.outcome is not None:
            self._to_send.append(_line(message.key, handled.outcome))
        cancelled = [request for request, key in self._open.items() if key == handled.cancelled]
        return [*handled.events, *map(self._withdraw, cancelled)]

    def _begin(self, key: str, call: Call) -> list[AnyEvent]:
        # A client may call in a loop, and each open call holds a task of the host.
        if len(self._open) >= CALLS:
            self._to_send.append(_line(key, fault(BUSY, f"{CALLS} calls are open already")))
            return [
                Notice(HOST, self._memo.turn, "tool_refused", "too many calls are open", {"tool": call.tool})
            ]
        self._calls += 1
        request = f"{self._name}.{self._calls}"
        self._open[request] = key
        self._of.calls[request] = call.tool
        foreign = self._foreign[call.tool]
        arguments = {name: value for name, value in call.arguments.items() if name not in foreign}
        return [ToolRequested(HOST, self._memo.turn, request, call.tool, arguments, call.tool_call)]

    def _unread(self, key: str, call: Call) -> Notice:
        self._to_send.append(_line(key, returned(ToolReturn("", WHY, is_error=True))))
        return Notice(HOST, self._memo.turn, "tool_refused", WHY, {"tool": call.tool})

    def _withdraw(self, request: str) -> RequestWithdrawn:
        del self._open[request]
        self._of.calls.pop(request, None)
        return RequestWithdrawn(HOST, self._of.turn, request)


def _line(key: str, outcome: Outcome) -> bytes:
    identity = msgspec.Raw(key.encode()) if key else None
    return jsonrpc.line({"id": identity, **outcome}, tag=True)
