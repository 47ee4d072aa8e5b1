"""What a type checker makes of a program on each face; mypy and pyright read it, and it runs for a moment, too."""

from __future__ import annotations

import asyncio
from typing import assert_type

import attrs
import pytest

import proctor
from proctor import aio, sync
from proctor.actors.scripted.script import ScriptError


@attrs.frozen
class Bill:
    total: float


async def in_asyncio() -> proctor.Answer[Bill]:
    """A function that returns from within a block: leaving it swallows nothing, so nothing more is to be returned."""
    async with aio.open_supervisor([aio.scripted("a", "nothing.ndjson")]) as sup:
        assert_type(sup, aio.Supervisor)
        agent = sup.agent("a")
        async with agent.stream("hi") as turn:
            assert_type(turn, aio.Turn)
            async for event in turn:
                assert_type(event, proctor.AnyEvent)
        assert_type(await agent.queue("hi"), aio.Receipt)
        async with agent.approvals() as approvals:
            async for approval in approvals:
                assert_type(approval, aio.Approval)
                assert_type(await approval.allow(), bool)
        return assert_type(await agent.ask("hi", schema=Bill), proctor.Answer[Bill])


def in_plain() -> proctor.Answer[Bill]:
    with sync.open_supervisor([sync.scripted("a", "nothing.ndjson")]) as sup:
        assert_type(sup, sync.Supervisor)
        agent = sup.agent("a")
        with agent.stream("hi") as turn:
            assert_type(turn, sync.Turn)
            for event in turn:
                assert_type(event, proctor.AnyEvent)
        assert_type(agent.queue("hi"), sync.Receipt)
        with agent.approvals() as approvals:
            for approval in approvals:
                assert_type(approval, sync.Approval)
                assert_type(approval.allow(), bool)
        return assert_type(agent.ask("hi", schema=Bill), proctor.Answer[Bill])


@aio.tool
async def add(a: int, b: int) -> int:
    return a + b


@sync.tool(name="plus")
def plus(a: int, b: int) -> int:
    return a + b


def test_tools_have_the_type_that_agents_take() -> None:
    assert_type(add, proctor.Tool)
    assert_type(plus, proctor.Tool)
    assert (add.name, plus.name) == ("add", "plus")
    assert proctor.claude("a", host_tools=(add, plus)).id == "a"


def test_a_script_that_is_not_there_is_refused_by_each() -> None:
    with pytest.raises(ScriptError, match="cannot be read") as in_the_loop:
        asyncio.run(in_asyncio())
    with pytest.raises(ScriptError) as at_once:
        in_plain()
    assert str(in_the_loop.value) == str(at_once.value)
