"""What type checkers know of an answer: this file is checked by mypy and pyright, strict, and run by nobody's agent."""

from __future__ import annotations

import inspect
from typing import Any, TypedDict, assert_type

import msgspec
from trio.testing import MockClock

import proctor
from proctor.actors.outcomes import Answer
from tests.actors.spoken import GOOD, saying, spec_of


class Invoice(msgspec.Struct):
    total: int


class Parts(TypedDict):
    total: int


async def known_of_an_agent(agent: proctor.Agent) -> None:
    """Never awaited: the checkers read it."""
    invoice = await agent.ask("x", schema=Invoice, timeout=5)
    assert_type(invoice, Answer[Invoice])
    assert_type(invoice.value, Invoice)
    assert_type((await agent.ask("x", schema=Parts)).value, Parts)
    assert_type((await agent.ask("x", schema=list[Invoice])).value, list[Invoice])
    assert_type((await agent.ask("x")).value, Any)
    assert_type((await agent.ask("x", schema={"type": "object"})).value, Any)


async def known_of_a_run(spec: proctor.ChildSpec, pool: proctor.Pool, session: proctor.Session) -> None:
    """Never awaited: the checkers read it."""
    assert_type(await proctor.ask(spec, "x", schema=Invoice), Answer[Invoice])
    assert_type(await pool.run(spec, "x", schema=Invoice), Answer[Invoice])
    assert_type(await session.run(spec, "x", schema=Invoice), Answer[Invoice])
    assert_type((await proctor.ask(spec, "x")).value, Any)


async def test_an_answer_in_a_shape_is_of_the_type_that_was_asked_for(autojump_clock: MockClock) -> None:
    answer = await proctor.ask(spec_of(saying(**GOOD, structured_output={"total": 4})), "x", schema=Invoice)
    total: int = answer.value.total
    assert (answer.ok, total) == (True, 4)
    assert all(map(inspect.iscoroutinefunction, (known_of_an_agent, known_of_a_run)))
