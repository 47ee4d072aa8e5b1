"""Three tools by which an agent hands in an answer that fits: `submit`, `validate` and `example`.

Guarantees: only data without a violation is accepted; whatever else is handed in comes back with all that is wrong in
it, each with its place, and the agent may go on. `validate` says the same and hands in nothing. `example` shows data
that fits, or says that none could be made.

Made for one schema (`schema_tools`) they take the answer itself as their arguments, so that the model is told its
shape by the CLI. Made for an agent that is asked for many things (`standing_tools`) they take it as `value`, and look
up what the request that runs now is to be answered with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import attrs
import msgspec

from proctor.actors.structured.schemas import Schema, Violation
from proctor.actors.tools.tools import Tool, ToolResult
from proctor.protocols.dialect import HostTool, record_schema
from proctor.protocols.lenient import Refusal

MOST = 50
"""Violations that are told in one text; how many more there are is said."""

VALUE = "value"
"""The argument that holds an answer which is no object by itself."""

_ANY_VALUE: Mapping[str, Any] = {
    "type": "object",
    "properties": {VALUE: {"description": "The answer."}},
    "required": [VALUE],
}
_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


class Desk(Protocol):
    """Where answers are handed in: what they have to fit, and what becomes of them."""

    @property
    def schema(self) -> Schema:
        """What an answer has to fit."""
        ...

    def submit(self, data: Any) -> Sequence[Violation]:
        """Take the data when nothing is wrong with it; what is wrong."""
        ...


Find = Callable[[], Desk | None]


@attrs.frozen
class _Counter:
    schema: Schema
    accept: Callable[[Any], object]

    def submit(self, data: Any) -> Sequence[Violation]:
        wrong = self.schema.violations(data)
        if not wrong:
            self.accept(self.schema.value(data))
        return wrong


def schema_tools(schema: Schema, accept: Callable[[Any], object]) -> tuple[Tool, Tool, Tool]:
    """`submit`, `validate` and `example` for one schema. `accept` is called with each valid value that is submitted,
    of the declared type; what it raises, the model reads."""
    return desk_tools(_Counter(schema, accept))


def desk_tools(desk: Desk) -> tuple[Tool, Tool, Tool]:
    """The tools for one desk: what they take is what its schema says."""
    return _tools(lambda: desk, *_shape(desk.schema))


def standing_tools(find: Find) -> tuple[Tool, Tool, Tool]:
    """The tools for whatever desk is open when they are called; None: no answer in a shape was asked for."""
    return _tools(find, _ANY_VALUE, wrapped=True)


def _shape(schema: Schema) -> tuple[Mapping[str, Any], bool]:
    if record_schema(schema.json) is not None:
        return schema.json, False
    inner = {key: part for key, part in schema.json.items() if key not in ("$defs", "$schema")}
    whole = {"type": "object", "properties": {VALUE: inner}, "required": [VALUE]}
    return {**whole, **{key: schema.json[key] for key in ("$defs",) if key in schema.json}}, True


def _tools(find: Find, shape: Mapping[str, Any], wrapped: bool) -> tuple[Tool, Tool, Tool]:
    where = f" It is the argument `{VALUE}`." if wrapped else " Its members are the arguments."
    return (
        _tool("submit", f"Hand in the answer that was asked for.{where}", shape, partial(_submit, find, wrapped)),
        _tool(
            "validate",
            f"Check an answer without handing it in: tells all that is wrong with it.{where}",
            shape,
            partial(_validate, find, wrapped),
        ),
        _tool("example", "Show an answer of the right shape; what it says means nothing.", _NOTHING,
              partial(_example, find)),
    )  # fmt: skip


def _tool(name: str, description: str, shape: Mapping[str, Any], function: partial[Any]) -> Tool:
    declared = HostTool(name=name, description=description, schema=shape)
    return Tool(declared=declared, function=function, parameters=None)


async def _submit(find: Find, wrapped: bool, arguments: Mapping[str, Any]) -> ToolResult:
    if (desk := find()) is None:
        return _unasked()
    if wrong := _absent(wrapped, arguments) or desk.submit(_given(desk, wrapped, arguments)):
        return ToolResult(f"Not accepted. {told(wrong)}", is_error=True)
    return ToolResult("Accepted. This is the answer; nothing more is needed.")


async def _validate(find: Find, wrapped: bool, arguments: Mapping[str, Any]) -> ToolResult:
    if (desk := find()) is None:
        return _unasked()
    wrong = _absent(wrapped, arguments) or desk.schema.violations(_given(desk, wrapped, arguments))
    return ToolResult(told(wrong) if wrong else "It fits. Hand it in with `submit`.")


async def _example(find: Find, arguments: Mapping[str, Any]) -> ToolResult:
    if (desk := find()) is None:
        return _unasked()
    try:
        example = desk.schema.example()
    except LookupError as error:
        return ToolResult(f"{error}; go by the schema: {desk.schema.text}", is_error=True)
    return ToolResult(msgspec.json.encode(example).decode())


def _absent(wrapped: bool, arguments: Mapping[str, Any]) -> Sequence[Violation]:
    if not wrapped or VALUE in arguments:
        return ()
    return (Violation("", f"the argument `{VALUE}`, which is the answer, is missing"),)


def _given(desk: Desk, wrapped: bool, arguments: Mapping[str, Any]) -> Any:
    """The answer; one that came as a text of JSON, where no text fits, is what the text says."""
    if not wrapped:
        return dict(arguments)
    given = arguments[VALUE]
    if isinstance(given, str) and desk.schema.violations(given):
        try:
            return msgspec.json.decode(given)
        except Refusal:
            return given
    return given


def _unasked() -> ToolResult:
    return ToolResult("Nothing is to be handed in now: answer in words.", is_error=True)


def told(wrong: Sequence[Violation]) -> str:
    """All that is wrong, a line each."""
    lines = [f"- {violation}" for violation in wrong[:MOST]]
    more = [f"- and {len(wrong) - MOST} more"] if len(wrong) > MOST else []
    return "\n".join([f"What is wrong with it ({len(wrong)}):", *lines, *more])
