from __future__ import annotations

import datetime
from typing import Annotated, Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from proctor.actors.errors import BadOption
from proctor.actors.tools.tools import ToolContext, ToolResult, tool
from tests.tables import each_row


class Unit:
    """What JSON cannot carry."""


class Point(msgspec.Struct):
    x: int
    y: int = 0


@tool
async def add(a: int, b: Annotated[int, msgspec.Meta(ge=0, description="not below 0")] = 1) -> int:
    """Add two numbers.

    The second is never negative.
    """
    return a + b


@tool(name="plot", description="Draw points.")
async def draw(points: list[Point], when: datetime.date | None = None) -> dict[str, Any]:
    return {"points": points, "when": when}


@tool(timeout=2.0)
async def think(seconds: float) -> str:
    await trio.sleep(seconds)
    return f"{seconds:g} s"


@tool
async def fail(how: str) -> None:
    raise OSError(how)


@tool
async def opaque() -> object:
    return object()


def test_a_tool_is_declared_by_its_signature() -> None:
    assert (add.name, add.declared.description) == (
        "add",
        "Add two numbers.\n\nThe second is never negative.",
    )
    assert add.declared.schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "integer", "minimum": 0, "description": "not below 0", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_types_of_parameters_come_with_the_schema() -> None:
    assert (draw.name, draw.declared.description) == ("plot", "Draw points.")
    schema = draw.declared.schema
    assert schema["properties"]["points"] == {"type": "array", "items": {"$ref": "#/$defs/Point"}}
    assert schema["$defs"]["Point"]["properties"]["x"] == {"type": "integer"}


@pytest.mark.covers("L20")
@pytest.mark.parametrize(
    ("called", "arguments", "result"),
    [
        (add, {"a": 2, "b": 3}, ToolResult("5")),
        (add, {"a": 2}, ToolResult("3")),
        (
            draw,
            {"points": [{"x": 1}], "when": "2031-02-03"},
            ToolResult('{"points":[{"x":1,"y":0}],"when":"2031-02-03"}'),
        ),
        (think, {"seconds": 1}, ToolResult("1 s")),
        (add, {}, ToolResult("wrong arguments for 'add': Object missing required field `a`", True)),
        (
            add,
            {"a": "2"},
            ToolResult("wrong arguments for 'add': Expected `int`, got `str` - at `$.a`", True),
        ),
        (
            add,
            {"a": 1, "b": -1},
            ToolResult("wrong arguments for 'add': Expected `int` >= 0 - at `$.b`", True),
        ),
        (
            add,
            {"a": 1, "c": 1},
            ToolResult("wrong arguments for 'add': Object contains unknown field `c`", True),
        ),
        (
            draw,
            {"points": [{"x": 1}, {"x": "1"}]},
            ToolResult("wrong arguments for 'plot': Expected `int`, got `str` - at `$.points[1].x`", True),
        ),
        (think, {"seconds": 3}, ToolResult("'think' gave no result within 2 s", True)),
        (fail, {"how": "disk full"}, ToolResult("OSError: disk full", True)),
        (
            opaque,
            {},
            ToolResult("TypeError: Encoding objects of type object is unsupported", True),
        ),
    ],
)
async def test_every_call_ends_in_a_result(
    called: Any, arguments: dict[str, Any], result: ToolResult, autojump_clock: MockClock
) -> None:
    assert await called.run(arguments) == result


async def test_a_tool_stays_the_function_it_was_made_of() -> None:
    assert await add(1, b=4) == 5


async def test_cancelling_a_call_is_no_result(autojump_clock: MockClock) -> None:
    with trio.move_on_after(1) as scope:
        await think.run({"seconds": 1.5})
    assert scope.cancelled_caught


async def two(*numbers: int) -> None: ...
async def untyped(a) -> None: ...  # type: ignore[no-untyped-def]  # pyright: ignore
async def positional(a: int, /) -> None: ...
async def unheard(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore
async def unread(a: Point | list[Unit]) -> None: ...
async def unsent(a: set[trio.Event]) -> None: ...
def plain(a: int) -> None: ...


IMPOSSIBLE: list[tuple[Any, str]] = [
    (two, "parameter 'numbers' of tool 'two' must have a type and be given by name"),
    (untyped, "parameter 'a' of tool 'untyped'"),
    (positional, "parameter 'a' of tool 'positional'"),
    (unheard, "whose type is not known here: name 'Nowhere'"),
    (unread, "tool 'unread' has a parameter that JSON cannot carry"),
    (unsent, "tool 'unsent' has a parameter that JSON cannot carry"),
    (plain, "tool 'plain' is made of an async function"),
]


@each_row(("function", "why"), IMPOSSIBLE)
def test_what_no_tool_can_be_made_of_is_refused_when_it_is_decorated(function: Any, why: str) -> None:
    with pytest.raises(BadOption, match=why):
        tool(function)


def test_a_deadline_is_above_zero() -> None:
    with pytest.raises(BadOption, match="above 0 seconds, got 0"):
        tool(timeout=0)(opaque.function)


@tool
async def whose(me: ToolContext, loud: bool = False) -> str:
    return f"{me.agent} for {me.values.get('project')}{'!' if loud else ''}"


@pytest.mark.covers("R164")
async def test_who_calls_is_told_by_the_host_and_asked_of_no_model() -> None:
    assert whose.declared.schema["properties"].keys() == {"loud"}
    caller = ToolContext(agent="a", values={"project": "p1"})
    assert await whose.run({"loud": True}, caller) == ToolResult("a for p1!")
    assert (await whose.run({"me": {"agent": "b"}}, caller)).is_error
    assert await whose.run({}) == ToolResult(" for None")
