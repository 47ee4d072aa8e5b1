from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proctor.actors.plan.plan import Plan
from proctor.actors.serving.pool import Pool, Warm
from proctor.actors.transport.memory import MemoryTransport, Peer
from proctor.actors.transport.transport import Start, Transport
from tests.actors.spoken import speaks, spoken_plan


@attrs.define
class Story:
    """What was done to far ends, in order, each with the time."""

    told: list[tuple[str, float]] = attrs.field(factory=list[tuple[str, float]])

    def tell(self, what: str) -> None:
        self.told.append((what, trio.current_time()))

    @property
    def order(self) -> list[str]:
        return [what for what, _ in self.told]

    def times(self, what: str) -> list[float]:
        return [when for told, when in self.told if told == what]


class Watched(MemoryTransport):
    """Tells when its process is started and when it is asked."""

    story: Story

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[None]:
        self.story.tell("started")
        async with super().connect():
            yield

    async def write(self, data: bytes) -> None:
        if b'"user"' in data:
            self.story.tell("asked")
        await super().write(data)


@asynccontextmanager
async def _speaker() -> AsyncGenerator[Peer]:
    yield speaks


def reached(story: Story) -> Callable[[Start], Transport]:
    def reach(start: Start) -> Transport:
        transport = Watched(_speaker, "speaker", start)
        transport.story = story
        return transport

    return reach


@asynccontextmanager
async def kept(story: Story, count: int, limit: int) -> AsyncGenerator[tuple[Pool, Plan]]:
    plan = attrs.evolve(spoken_plan(), reach=reached(story))
    pool = Pool("claude", limit=limit, warm=[Warm(plan, count)])
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.serve)
        await trio.sleep(1)
        await wait_all_tasks_blocked()
        story.told.clear()
        yield pool, plan
        nursery.cancel_scope.cancel()


@pytest.mark.covers("R126", "L14")
async def test_nothing_is_started_while_a_process_kept_ready_is_handed_out(
    autojump_clock: MockClock,
) -> None:
    story = Story()
    async with kept(story, 1, 3) as (pool, plan), pool.stream(plan, "hi") as live:
        story.tell("handed out")
        assert (await live.finish()).text == "1: hi"
        await trio.sleep(1)
        assert story.order == ["asked", "handed out", "started"]
        assert pool.statistics().warm == 1


@pytest.mark.covers("L14")
async def test_one_that_is_started_in_the_place_of_another_lets_that_one_begin(
    autojump_clock: MockClock,
) -> None:
    story = Story()
    async with kept(story, 2, 4) as (pool, plan), pool.stream(plan, "wait"), pool.stream(plan, "wait"):
        asked = story.times("asked")
        await trio.sleep(5)
        started = story.times("started")
        assert [round(b - a, 3) for a, b in zip(asked, started, strict=True)] == [0.1, 0.1]
        assert pool.statistics().warm == 2


async def test_the_place_of_one_that_was_used_at_once_is_filled_at_once(autojump_clock: MockClock) -> None:
    story = Story()
    async with kept(story, 1, 1) as (pool, plan):
        assert (await pool.run(plan, "crash")).outcome == "crashed"
        ended = trio.current_time()
        await trio.sleep(1)
        assert story.order == ["asked", "started"]
        assert story.times("started")[0] - ended < 0.01
        assert pool.statistics().warm == 1
