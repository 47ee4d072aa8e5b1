"""The tools `submit`, `validate` and `example`, by which an agent gives a structured answer.

Only valid data is accepted; anything else comes back with all its errors and their places, and the agent may go on.
Made for one schema (`schema_tools`) the tools take the answer as their arguments, so that the CLI shows the model the
schema. Made for an agent with many requests (`standing_tools`) they take it as `value`, for the request that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import msgspec

from proctor.actors.structured.schemas import Schema, Violation
from proctor.actors.tools.tools import Tool, ToolResult
from proctor.protocols.dialect import HostTool, record_schema
from proctor.protocols.lenient import Refusal

LISTED = 50
"""Violations that are listed in one text, with the number of the others."""

VALUE = "value"
"""The argument that holds an answer which is no object by itself."""

_ANY_VALUE: Mapping[str, Any] = {
    "type": "object",
    "properties": {VALUE: {"description": "The answer."}},
    "required": [VALUE],
}
_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


class Submission(Protocol):
    """A request that takes answers while a turn runs."""

    @property
    def schema(self) -> Schema:
        """The schema of the answer."""
        ...

    def submit(self, data: Any) -> Sequence[Violation]:
        """Accept the data when it is valid. The violations."""
        ...


Find = Callable[[], Submission | None]
_Function = Callable[[Submission, Mapping[str, Any]], ToolResult]


@attrs.frozen
class _SchemaSubmission:
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
    return submission_tools(_SchemaSubmission(schema, accept))


def submission_tools(submission: Submission) -> tuple[Tool, Tool, Tool]:
    """The tools for one submission: their parameters are its schema."""
    return _tools(lambda: submission, *_shape(submission.schema))


def standing_tools(find: Find) -> tuple[Tool, Tool, Tool]:
    """The tools for the submission that is open when they are called; None: no structured answer is expected."""
    return _tools(find, _ANY_VALUE, wrapped=True)


def _shape(schema: Schema) -> tuple[Mapping[str, Any], bool]:
    if record_schema(schema.json) is not None:
        return schema.json, False
    # references start at the root of the document, so the definitions stay there when the schema moves
    # inwards
    inner = {key: part for key, part in schema.json.items() if key not in ("$defs", "$schema")}
    whole = {"type": "object", "properties": {VALUE: inner}, "required": [VALUE]}
    return {**whole, **{key: schema.json[key] for key in ("$defs",) if key in schema.json}}, True


def _tools(find: Find, shape: Mapping[str, Any], wrapped: bool) -> tuple[Tool, Tool, Tool]:
    def tool(name: str, description: str, shape: Mapping[str, Any], function: _Function) -> Tool:
        async def called(arguments: Mapping[str, Any]) -> ToolResult:
            if (submission := find()) is None:
                return ToolResult("No structured answer is expected now: answer in text.", is_error=True)
            return function(submission, arguments)

        declared = HostTool(name=name, description=description, schema=shape)
        return Tool(declared=declared, function=called, parameters=None)

    def submit(submission: Submission, arguments: Mapping[str, Any]) -> ToolResult:
        if wrong := _check(submission, submission.submit, wrapped, arguments):
            return ToolResult(f"Not accepted. {format_violations(wrong)}", is_error=True)
        return ToolResult("Accepted. The answer is complete.")

    def validate(submission: Submission, arguments: Mapping[str, Any]) -> ToolResult:
        if wrong := _check(submission, submission.schema.violations, wrapped, arguments):
            return ToolResult(format_violations(wrong))
        return ToolResult("The answer matches the schema. Submit it with `submit`.")

    where = f" It is the argument `{VALUE}`." if wrapped else " Its members are the arguments."
    check = f"Check an answer without submitting it: lists all errors.{where}"
    sample = "Show a sample answer that matches the schema; its values mean nothing."
    return (
        tool("submit", f"Submit the answer.{where}", shape, submit),
        tool("validate", check, shape, validate),
        tool("example", sample, _NOTHING, _example),
    )


def _example(submission: Submission, arguments: Mapping[str, Any]) -> ToolResult:
    try:
        example = submission.schema.example()
    except LookupError as error:
        return ToolResult(f"{error}; follow the schema: {submission.schema.text}", is_error=True)
    return ToolResult(msgspec.json.encode(example).decode())


def _check(
    submission: Submission,
    check: Callable[[Any], Sequence[Violation]],
    wrapped: bool,
    arguments: Mapping[str, Any],
) -> Sequence[Violation]:
    if wrapped and VALUE not in arguments:
        return (Violation("", f"the argument `{VALUE}`, the answer, is missing"),)
    return check(_answer_in(submission, wrapped, arguments))


def _answer_in(submission: Submission, wrapped: bool, arguments: Mapping[str, Any]) -> Any:
    """The answer; one that came as a text of JSON, where no text fits, is what the text says."""
    if not wrapped:
        return dict(arguments)
    value = arguments[VALUE]
    if isinstance(value, str) and submission.schema.violations(value):
        try:
            # some models pass the value as a text of JSON; taken as such only where the text itself breaks
            # the schema
            return msgspec.json.decode(value)
        except Refusal:
            return value
    return value


def format_violations(wrong: Sequence[Violation]) -> str:
    """The violations as text, one line each."""
    lines = [f"- {violation}" for violation in wrong[:LISTED]]
    more = [f"- and {len(wrong) - LISTED} more"] if len(wrong) > LISTED else []
    return "\n".join([f"Errors ({len(wrong)}):", *lines, *more])
