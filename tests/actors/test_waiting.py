from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proctor.actors.delivery import Delivery
from proctor.actors.errors import AskInterrupted, AskNotSent, PoolTimeout, SessionTimeout, StartRefused
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan
from proctor.actors.serving.pool import Pool
from proctor.actors.serving.sessions import Sessions
from tests.actors.spoken import spoken_plan


async def _busy(sessions: Sessions, seconds: float) -> None:
    async with sessions.hold("a"):
        await trio.sleep(seconds)


async def test_the_wait_for_a_session_counts_against_the_time_of_the_call(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with Sessions(tmp_path) as sessions, trio.open_nursery() as nursery:
        nursery.start_soon(_busy, sessions, 40.0)
        await trio.sleep(1)
        began = trio.current_time()
        async with sessions.hold("a", timeout=60) as session:
            assert trio.current_time() - began == pytest.approx(39.0)
            with pytest.raises(AskInterrupted):
                await session.run(spoken_plan(silence=1000.0), "hang", timeout=300)
        assert trio.current_time() - began == pytest.approx(60.0, abs=5.0)


async def test_a_call_whose_time_is_up_in_the_line_says_what_it_waited_for(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with Sessions(tmp_path) as sessions, trio.open_nursery() as nursery:
        nursery.start_soon(_busy, sessions, 40.0)
        await trio.sleep(1)
        nursery.start_soon(_busy, sessions, 1.0)
        await trio.sleep(1)
        began = trio.current_time()
        text = "session 'a' did not take the request: timed out after 5 s waiting for the session; 2 requests were ahead"
        with pytest.raises(SessionTimeout, match=f"^{text}$") as caught:
            async with sessions.hold("a", timeout=5):
                pass
        assert trio.current_time() - began == pytest.approx(5.0)
        assert caught.value.delivery == Delivery(sent="no", stage="queued", elapsed=5.0)
        assert [facts.users for facts in sessions.facts()] == [2]  # it has left the line
        async with sessions.hold("a"):
            assert trio.current_time() - began == pytest.approx(39.0)


async def test_who_gets_the_session_in_time_has_it_for_as_long_as_it_takes(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with Sessions(tmp_path) as sessions:
        async with sessions.hold("a", timeout=5) as session:
            await trio.sleep(100)
            assert session.path.exists()
            with pytest.raises(AskNotSent):
                await session.run(spoken_plan(), "hi")  # but what is run in it then has no time left
        async with sessions.hold("a") as session:
            assert (await session.run(spoken_plan(), "hi")).ok


async def test_one_deadline_is_over_the_line_of_the_session_and_that_of_the_pool(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    pool = Pool("claude", limit=1)
    async with Sessions(tmp_path) as sessions, trio.open_nursery() as nursery:
        nursery.start_soon(_busy, sessions, 40.0)
        nursery.start_soon(pool.run, spoken_plan(silence=1000.0), "hang")
        await trio.sleep(1)
        began = trio.current_time()
        with pytest.raises(
            PoolTimeout, match="pool 'claude' did not take the request: timed out after 21 s waiting"
        ):
            async with sessions.hold("a", timeout=60) as session:
                await session.run(spoken_plan(), "hi", by=pool.run)
        assert trio.current_time() - began == pytest.approx(60.0)
        nursery.cancel_scope.cancel()


async def test_the_second_try_of_a_lost_conversation_has_what_is_left_of_the_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    given: list[float | None] = []

    async def slow(plan: Plan, prompt: str, *, timeout: float | None) -> Answer:
        given.append(timeout)
        await trio.sleep(10)
        if plan.launch.resume is not None:
            raise StartRefused("agent", "no such conversation", resumed=plan.launch.resume)
        return Answer(agent="agent", outcome="ok", session_id="new")

    plan = spoken_plan(home="user")
    async with Sessions(tmp_path) as sessions, sessions.hold("a", timeout=60) as session:
        session.remember(plan, Answer(agent="x", outcome="ok", session_id="old"))
        await session.run(plan, "hi", by=slow)
        await session.run(plan, "hi", timeout=None, by=slow)
    assert given == pytest.approx([60.0, 50.0, 40.0, 30.0])


async def test_a_slot_tells_what_is_left_of_the_time_it_was_waited_for(autojump_clock: MockClock) -> None:
    pool = Pool("claude", limit=1)
    left: list[Any] = []

    async def one(timeout: float | None) -> None:
        async with pool.slot(timeout=timeout) as seconds:
            left.append(seconds)
            await trio.sleep(4)

    async with trio.open_nursery() as nursery:
        for timeout in (10.0, 10.0, None):
            nursery.start_soon(one, timeout)
            await wait_all_tasks_blocked()
    assert left == [10.0, 6.0, None]
