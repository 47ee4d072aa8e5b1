"""Tools that run in the host, made of typed async functions.

    @tool
    async def add(a: int, b: int = 0) -> int:
        "Add two numbers."
        return a + b

The JSON schema of the parameters is made once, when the function is decorated; a call decodes its arguments into the types
of the parameters, and arguments that do not match never reach the function. Every call ends in a result: a wrong argument, an
error of the function and a timeout are results marked as errors, which the model can read. `Cancelled` passes through.

Not here: the calls of a CLI (`host_calls`).
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, overload

import attrs
import msgspec
import trio

from proctor.actors.errors import BadOption
from proctor.protocols.dialect import HostTool

Function = Callable[..., Awaitable[object]]

DEADLINE = 600.0
"""Seconds that one call of a tool may take."""

_PARTS = "#/$defs/"
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@attrs.frozen
class ToolResult:
    """The result of a call: its text, and whether it is an error. `data` is the same as a JSON value for programs, None if
    there is none; `facts` are facts about the call for programs."""

    text: str
    is_error: bool = False
    data: object = None
    facts: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(kw_only=True)
class ToolContext:
    """The caller of a tool. A parameter of this type comes from the host, not from the model, and is in no schema.

    `values` is the agent's option `context`; `prompts` are the ids of the requests that the turn answers, `call` is the
    id of this call in the log.
    """

    agent: str = ""
    values: Mapping[str, str] = attrs.field(factory=dict[str, str])
    session_id: str | None = None
    turn: str | None = None
    prompts: tuple[str, ...] = ()
    call: str = ""


NO_CONTEXT = ToolContext()


@attrs.frozen(kw_only=True)
class Tool:
    """One tool of the host: `declared` is its declaration for a CLI, `parameters` the record of its arguments (None: the
    function takes them as one mapping and checks them itself).

    `timeout` is in seconds, `takes_context` names the parameters for a `ToolContext`. Calling a tool calls its function.
    """

    declared: HostTool
    function: Function
    parameters: type[msgspec.Struct] | None
    timeout: float = DEADLINE
    takes_context: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name by which the model calls it, after the CLI's prefix."""
        return self.declared.name

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[object]:
        return self.function(*args, **kwargs)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext = NO_CONTEXT) -> ToolResult:
        """Carry out one call. Raises no `Exception`."""
        try:
            call = self._call(arguments, context)
        except msgspec.ValidationError as error:
            return ToolResult(f"wrong arguments for {self.name!r}: {error}", is_error=True)
        with trio.move_on_after(self.timeout):
            return await self._called(call)
        return ToolResult(f"{self.name!r} gave no result within {self.timeout:g} s", is_error=True)

    def _call(self, arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Awaitable[object]]:
        if self.parameters is None:
            return partial(self.function, arguments)
        given = msgspec.convert(dict(arguments), self.parameters, str_keys=True)
        values = {name: getattr(given, name) for name in given.__struct_fields__}
        return partial(self.function, **values, **dict.fromkeys(self.takes_context, context))

    async def _called(self, call: Callable[[], Awaitable[object]]) -> ToolResult:
        try:
            result = await call()
            if isinstance(result, ToolResult):
                return result
            return ToolResult(result if isinstance(result, str) else msgspec.json.encode(result).decode())
        except Exception as error:  # noqa: BLE001  # the user's own function: its error is a result for the model
            return ToolResult(f"{type(error).__name__}: {error}", is_error=True)


@overload
def tool(
    function: Function, *, name: str | None = None, description: str | None = None, timeout: float = DEADLINE
) -> Tool: ...


@overload
def tool(
    function: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = DEADLINE,
) -> Callable[[Function], Tool]: ...


def tool(
    function: Function | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = DEADLINE,
) -> Tool | Callable[[Function], Tool]:
    """Make a typed async function a `Tool`, bare or with options.

    The name is the function's, the description its docstring, unless given. Each parameter needs a type that msgspec
    can decode; `Annotated[int, msgspec.Meta(ge=0, description="…")]` says more. A string or a `ToolResult` that is
    returned is the result as it is, anything else as JSON. A parameter of the type `ToolContext` gets the caller.
    Raises `BadOption` for a function that cannot be a tool.
    """

    def made(function: Function) -> Tool:
        called = name or str(getattr(function, "__name__", ""))
        if not inspect.iscoroutinefunction(function):
            raise BadOption(f"tool {called!r} is made of an async function, got {function!r}")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadOption(f"the timeout of tool {called!r} must be above 0 seconds, got {timeout!r}")
        parameters, contexts = _record(called, function)
        text = inspect.cleandoc(function.__doc__ or "") if description is None else description
        declared = HostTool(name=called, description=text, schema=_schema(called, parameters))
        return Tool(
            declared=declared,
            function=function,
            parameters=parameters,
            timeout=timeout,
            takes_context=contexts,
        )

    return made if function is None else made(function)


def _record(name: str, function: Function) -> tuple[type[msgspec.Struct], tuple[str, ...]]:
    """The record of what the model gives, and the parameters that the host gives."""
    try:
        types = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadOption(f"tool {name!r} has a parameter whose type is not known here: {error}") from error
    parameters = inspect.signature(function).parameters.values()
    contexts = tuple(each.name for each in parameters if types.get(each.name) is ToolContext)
    fields = [_field(name, parameter, types) for parameter in parameters if parameter.name not in contexts]
    try:
        # Unknown arguments are refused: a misspelt one would be left out without a word.
        record = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise BadOption(f"the parameters of tool {name!r} make no record: {error}") from error
    return record, contexts


def _field(name: str, parameter: inspect.Parameter, types: Mapping[str, Any]) -> tuple[str, Any, Any]:
    if parameter.kind not in _NAMED or parameter.name not in types:
        raise BadOption(
            f"parameter {parameter.name!r} of tool {name!r} must have a type and be given by name"
        )
    given = parameter.default is not parameter.empty
    default = msgspec.field(default=parameter.default) if given else msgspec.field()
    return parameter.name, types[parameter.name], default


def _schema(name: str, parameters: type[msgspec.Struct]) -> dict[str, Any]:
    try:
        (whole,), parts = msgspec.json.schema_components([parameters], ref_template=f"{_PARTS}{{name}}")
    except (TypeError, NameError) as error:  # msgspec looks for the names of a class's own fields, too
        raise BadOption(f"tool {name!r} has a parameter that JSON cannot carry: {error}") from error
    schema = parts.pop(whole["$ref"].removeprefix(_PARTS))
    del schema["title"]
    return {**schema, "$defs": parts} if parts else schema
