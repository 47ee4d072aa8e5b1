"""A set of tools by name, and the progress of their calls.

Each schema is compiled when the set is made. Every call ends in a result: an unknown tool, arguments that break the schema and an
error of the function are results marked as errors, which a model can read. Cancellation passes through.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import attrs
import trio
from trio_util import AsyncValue

from proctor.actors.errors import BadOption
from proctor.actors.structured.schemas import Schema, schema_of
from proctor.actors.structured.submit import format_violations
from proctor.actors.tools.tools import Tool, ToolResult

PERIOD = 0.25
"""Seconds between two pieces of progress, at least."""
HEARTBEAT = 15.0
"""Seconds without progress after which a call reports that it is still running."""
KEPT = 4000
"""Characters of progress that are kept for the next piece, at most."""

Send = Callable[[float, str], Awaitable[None]]
"""Takes the seconds since the call began, which only increase, and a text."""


class Call:
    """A running call, to which its function reports progress."""

    def __init__(self) -> None:
        self._waiting = ""
        self._news = trio.Event()

    def tell(self, line: str) -> None:
        """Report progress on a line of its own; never waits."""
        self.write(f"{'' if self._waiting[-1:] in ('', chr(10)) else chr(10)}{line}\n")

    def write(self, piece: str) -> None:
        """Report a piece of text that continues the last one; never waits."""
        if piece:
            self._waiting = (self._waiting + piece)[-KEPT:]
            self._news.set()

    async def follow(self, send: Send) -> None:
        """Pass progress on to `send`, joined, at most once every `PERIOD`. Runs until it is cancelled."""
        begun = trio.current_time()
        while True:
            with trio.move_on_after(HEARTBEAT):
                await self._news.wait()
            self._news = trio.Event()
            text, self._waiting = self._waiting, ""
            so_far = trio.current_time() - begun
            await send(so_far, text.rstrip("\n") or f"nothing new after {so_far:.0f} s")
            await trio.sleep(PERIOD)


Function = Callable[[Mapping[str, Any], Call], Awaitable[ToolResult]]


@attrs.frozen(kw_only=True)
class ServedTool:
    """A tool as it is offered. `schema` is the JSON schema of its arguments, an object's; `function` takes the
    arguments and the call. The arguments match the schema, unless `checked` is False: then the function checks them itself."""

    name: str
    description: str
    schema: Mapping[str, Any]
    function: Function
    checked: bool = True

    @classmethod
    def of(cls, tool: Tool) -> ServedTool:
        """Make a served tool of a typed function of the host."""

        async def function(arguments: Mapping[str, Any], call: Call) -> ToolResult:
            return await tool.run(arguments)

        return cls(
            name=tool.name,
            description=tool.declared.description,
            schema=tool.declared.schema,
            function=function,
            checked=tool.parameters is not None,
        )


@attrs.define
class Counts:
    """The numbers of calls of one tool: all, those that run, and of the ended ones the errors and the cancelled ones;
    `seconds` is the duration of all ended calls together."""

    calls: int = 0
    running: int = 0
    errors: int = 0
    cancelled: int = 0
    seconds: float = 0.0


class Toolset:
    """Tools by name, in their order; a `proctor.tool` is accepted as it is.

    `counts` has the numbers of each, also of those that are gone. Raises `BadOption` for two tools of one name, and for an invalid schema.
    """

    def __init__(self, tools: Iterable[ServedTool | Tool]) -> None:
        self.version = AsyncValue(0)
        """How often the tools have become others."""
        self.tools: tuple[ServedTool, ...] = ()
        self.counts: dict[str, Counts] = {}
        self._checks: dict[str, tuple[ServedTool, Schema]] = {}
        self._put(tools)

    def replace(self, tools: Iterable[ServedTool | Tool]) -> None:
        """Offer these tools from now on; running calls of others go on. Raises as making it does, and then nothing has changed."""
        self._put(tools)
        self.version.value += 1

    def _put(self, tools: Iterable[ServedTool | Tool]) -> None:
        served = tuple(ServedTool.of(tool) if isinstance(tool, Tool) else tool for tool in tools)
        checks = {tool.name: (tool, _compiled(tool)) for tool in served}
        if len(checks) < len(served):
            names = [tool.name for tool in served]
            twice = next(name for name in names if names.count(name) > 1)
            raise BadOption(f"two tools are named {twice!r}")
        self.tools, self._checks = served, checks
        for tool in served:
            self.counts.setdefault(tool.name, Counts())

    async def call(self, name: str, arguments: Mapping[str, Any], call: Call) -> ToolResult:
        """Carry out one call. Raises no `Exception`."""
        if name not in self._checks:
            return ToolResult(self._unknown(name), is_error=True)
        tool, schema = self._checks[name]
        counts, begun = self.counts[name], trio.current_time()
        counts.calls += 1
        counts.running += 1
        cancelled = True
        try:
            result = await _run(tool, schema, arguments, call)
            cancelled = False
        finally:
            counts.running -= 1
            counts.cancelled += cancelled
            counts.seconds += trio.current_time() - begun
        counts.errors += result.is_error
        return result

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._checks, 1)
        guess = f" (did you mean {near[0]!r}?)" if near else ""
        return f"there is no tool {name!r}{guess}; there are: {', '.join(self._checks) or 'none'}"


async def _run(tool: ServedTool, schema: Schema, arguments: Mapping[str, Any], call: Call) -> ToolResult:
    values = dict(arguments)
    if tool.checked and (wrong := schema.violations(values)):
        return ToolResult(
            f"The arguments of {tool.name!r} do not match its schema. {format_violations(wrong)}",
            is_error=True,
        )
    try:
        return await tool.function(values, call)
    except Exception as error:  # noqa: BLE001  # the function is not ours: its error is a result for the model
        return ToolResult(f"{type(error).__name__}: {error}", is_error=True)


def _compiled(tool: ServedTool) -> Schema:
    if tool.schema.get("type") != "object":
        raise BadOption(f"the schema of tool {tool.name!r} must be one of an object, got {tool.schema!r}")
    return schema_of({"title": tool.name, **tool.schema})
