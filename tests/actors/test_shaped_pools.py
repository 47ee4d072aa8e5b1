from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proctor.actors.errors import BadOption, UnsupportedPayload
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan
from proctor.actors.serving.pool import Pool, Pools, Warm
from proctor.actors.serving.sessions import Sessions
from proctor.actors.structured.payloads import BinaryPayload, FilePayload
from proctor.actors.structured.structured import Expected
from tests.actors.shaped import Talk, shaped_plan


class Bill(msgspec.Struct):
    number: int


SHAPE: Mapping[str, Any] = {"type": "object", "properties": {"number": {"type": "integer"}}}
NOTE = FilePayload("note.txt", "The sum is 4.")
GOOD = '{"number": 7}'


@asynccontextmanager
async def served(pool: Pool | Pools) -> AsyncGenerator[None]:
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.serve)
        await trio.sleep(0.01)
        await wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


def wordy(*says: str) -> tuple[Plan, Talk]:
    """An agent that can be told a schema by its prompt only."""
    return shaped_plan(*([{"say": said}] for said in says), lacking=("structured_output", "host_tools"))


@pytest.mark.parametrize("kind", [Pool, Pools])
async def test_a_pool_asks_for_an_answer_in_a_shape_until_it_fits(
    kind: Any, autojump_clock: MockClock
) -> None:
    plan, talk = wordy("seven", GOOD)
    pool = kind("claude") if kind is Pool else kind()
    answer = await pool.run(plan, "Read it.", schema=Bill)
    assert (answer.value, answer.attempts) == (Bill(7), 2)
    assert "It must match this JSON schema" in talk.prompts[0]


@pytest.mark.parametrize("kind", [Pool, Pools])
async def test_a_pool_gives_payloads_with_the_prompt(kind: Any, autojump_clock: MockClock) -> None:
    plan, talk = wordy("4")
    pool = kind("claude") if kind is Pool else kind()
    async with pool.stream(plan, "Read it.", payloads=[NOTE]) as live:
        assert (await live.finish()).ok
    assert "The sum is 4." in str(talk.prompts)


async def test_what_is_no_schema_or_no_payload_of_this_command_line_takes_no_place(
    autojump_clock: MockClock,
) -> None:
    plan, talk = wordy()
    pool = Pool("claude", limit=1)
    async with pool.slot():
        with pytest.raises(BadOption, match="cannot be used"):
            await pool.run(plan, "Read it.", schema={"type": "bill"})
        with pytest.raises(UnsupportedPayload):
            await pool.run(plan, "Read it.", payloads=[BinaryPayload(b"PK\x03\x00", "application/zip")])
    assert talk.prompts == []


async def test_a_process_kept_ready_is_asked_for_a_shape_where_a_new_one_would_be_asked_alike(
    autojump_clock: MockClock,
) -> None:
    plan, talk = wordy("seven", GOOD)
    pool = Pool("claude", limit=2, warm=[Warm(plan, 1)])
    async with served(pool), pool.stream(plan, "Read it.", schema=Bill, payloads=[NOTE]) as live:
        assert live.lent  # by the stock of those kept ready
        assert (await live.finish()).value == Bill(7)
    assert "The sum is 4." in str(talk.prompts[0])
    assert "does not match the schema" in talk.prompts[1]


async def test_one_that_has_to_be_told_at_its_launch_is_started_for_it(autojump_clock: MockClock) -> None:
    plan, talk = shaped_plan([{"shape": {"number": 7}}])
    pool = Pool("claude", limit=2, warm=[Warm(plan, 1)])
    async with served(pool), pool.stream(plan, "Read it.", schema=Bill) as live:
        assert (live.lent, pool.statistics().warm) == (False, 1)
        assert (await live.finish()).value == Bill(7)
    assert talk.prompts == ["Read it."]


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_session_runs_a_prompt_with_a_shape_and_payloads(
    pooled: bool, tmp_path: Path, autojump_clock: MockClock
) -> None:
    plan, talk = wordy("seven", GOOD)
    by: dict[str, Any] = {"by": Pools(limit=1).run} if pooled else {}
    async with Sessions(tmp_path) as sessions, sessions.hold("a") as session:
        answer = await session.run(
            plan, "Read it.", schema=Expected(SHAPE, attempts=2), payloads=[NOTE], **by
        )
    assert (answer.value, answer.attempts) == ({"number": 7}, 2)
    assert "The sum is 4." in str(talk.prompts[0])


async def test_a_runner_that_knows_of_no_shape_is_given_none_unless_there_is_one(tmp_path: Path) -> None:
    given: list[dict[str, Any]] = []

    async def by(plan: Plan, prompt: str, **options: Any) -> Answer:
        given.append(options)
        return Answer(agent="agent", outcome="ok")

    plan, _ = wordy()
    async with Sessions(tmp_path) as sessions, sessions.hold("a") as session:
        await session.run(plan, "hi", timeout=None, by=by)
        await session.run(plan, "hi", timeout=None, schema=Bill, payloads=[NOTE], by=by)
    assert given == [{"timeout": None}, {"timeout": None, "schema": Bill, "payloads": [NOTE]}]
