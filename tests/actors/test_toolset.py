from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from proctor.actors.errors import BadOption
from proctor.actors.serving.toolset import HEARTBEAT, KEPT, PERIOD, Call, Counts, ServedTool, Toolset
from proctor.actors.structured.schemas import schema_of
from proctor.actors.structured.submit import schema_tools
from proctor.actors.tools.tools import ToolResult, tool

ANYTHING: Mapping[str, Any] = {"type": "object"}


@tool
async def add(a: int, b: int = 0) -> int:
    "Add two numbers."
    return a + b


async def sleeps(arguments: Mapping[str, Any], call: Call) -> ToolResult:
    await trio.sleep(arguments.get("seconds", 1))
    return ToolResult("slept")


async def breaks(arguments: Mapping[str, Any], call: Call) -> ToolResult:
    raise LookupError("no such thing")


def served(name: str, function: Any, schema: Mapping[str, Any] = ANYTHING) -> ServedTool:
    return ServedTool(name=name, description=f"It {name}.", schema=schema, function=function)


async def test_any_typed_function_is_a_tool() -> None:
    tools = Toolset([add])
    assert await tools.call("add", {"a": 2, "b": 3}, Call()) == ToolResult("5")
    assert tools.tools[0].schema == add.declared.schema


async def test_all_that_is_wrong_with_the_arguments_is_told_with_its_place_and_the_function_not_called() -> (
    None
):
    schema = {
        "type": "object",
        "properties": {"to": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer"}},
        "required": ["n", "prompt"],
        "additionalProperties": False,
    }
    result = await Toolset([served("breaks", breaks, schema)]).call(
        "breaks", {"to": ["a", 1, 2], "x": 1}, Call()
    )
    assert result.is_error
    for wrong in (
        "/to/1: 1 is not",
        "/to/2: 2 is not",
        '"n" is a required',
        '"prompt" is a required',
        "'x' was unexpected",
    ):
        assert wrong in result.text


@pytest.mark.covers("R157")
async def test_an_unknown_tool_is_an_error_that_names_those_there_are() -> None:
    result = await Toolset([add, served("sleeps", sleeps)]).call("ad", {}, Call())
    assert result == ToolResult(
        "there is no tool 'ad' (did you mean 'add'?); there are: add, sleeps", is_error=True
    )
    assert (await Toolset([]).call("ad", {}, Call())).text == "there is no tool 'ad'; there are: none"


@pytest.mark.covers("L18")
async def test_an_error_of_a_function_is_a_result() -> None:
    result = await Toolset([served("breaks", breaks)]).call("breaks", {}, Call())
    assert result == ToolResult("LookupError: no such thing", is_error=True)


@pytest.mark.covers("R151")
async def test_tools_that_judge_their_own_arguments_are_asked() -> None:
    schema = schema_of({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    accepted = list[Any]()
    tools = Toolset([add, *schema_tools(schema, accepted.append)])
    assert [each.name for each in tools.tools] == ["add", "submit", "validate", "example"]
    assert not (await tools.call("validate", {"n": "x"}, Call())).is_error  # a finding is no failure
    assert (await tools.call("submit", {"n": "x"}, Call())).is_error
    assert not (await tools.call("submit", {"n": 1}, Call())).is_error
    assert accepted == [{"n": 1}]


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ((add, add), "two tools are named 'add'"),
        ((served("x", sleeps, {"type": "string"}),), "must be one of an object"),
        ((served("x", sleeps, {"type": "object", "properties": {"a": {"type": "strin"}}}),), "'x'"),
        ((served("x", sleeps, {"type": "object", "properties": {"a": {"$ref": "http://h/s"}}}),), "http://h"),
    ],
)
def test_a_set_that_cannot_be_served_is_refused(tools: tuple[Any, ...], text: str) -> None:
    with pytest.raises(BadOption, match=text):
        Toolset(tools)


@pytest.mark.covers("R158")
async def test_every_call_is_counted_whatever_its_end(autojump_clock: trio.testing.MockClock) -> None:
    tools = Toolset([served("sleeps", sleeps), served("breaks", breaks)])
    await tools.call("sleeps", {"seconds": 2}, Call())
    with trio.move_on_after(3):
        await tools.call("sleeps", {"seconds": 100}, Call())
    await tools.call("breaks", {}, Call())
    assert tools.counts == {
        "sleeps": Counts(calls=2, running=0, errors=0, cancelled=1, seconds=5.0),
        "breaks": Counts(calls=1, running=0, errors=1, cancelled=0, seconds=0.0),
    }


async def heard(call: Call, seconds: float) -> list[tuple[float, str]]:
    told = list[tuple[float, str]]()

    async def send(so_far: float, text: str) -> None:
        told.append((so_far, text))

    with trio.move_on_after(seconds):
        await call.follow(send)
    return told


async def test_progress_is_joined_and_told_no_more_often_than_every_period(
    autojump_clock: trio.testing.MockClock,
) -> None:
    call = Call()

    async def talk() -> None:
        for number in range(100):
            call.write(f"{number} ")
            await trio.sleep(PERIOD / 10)
        call.tell("done")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk)
        told = await heard(call, 4)
    times = [at for at, _ in told]
    assert all(later - earlier >= PERIOD - 1e-9 for earlier, later in itertools.pairwise(times))
    assert 9 <= len(told) <= 12
    assert "".join(text for _, text in told) == "".join(f"{n} " for n in range(100)) + "\ndone"


async def test_a_silent_call_says_that_it_goes_on(autojump_clock: trio.testing.MockClock) -> None:
    told = await heard(Call(), HEARTBEAT * 2.5)
    assert [text for _, text in told] == ["nothing new after 15 s", "nothing new after 30 s"]


async def test_what_is_not_taken_is_bounded_and_the_newest_stays(
    autojump_clock: trio.testing.MockClock,
) -> None:
    call = Call()
    for number in range(10_000):
        call.tell(f"line {number}")
    [(_, text)] = await heard(call, 1)
    assert len(text) <= KEPT
    assert text.endswith("line 9999")
