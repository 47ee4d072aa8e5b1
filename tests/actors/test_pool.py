from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proctor.actors.agent.request import Request
from proctor.actors.errors import (
    AskInterrupted,
    BadOption,
    GreetingTimeout,
    PoolClosed,
    PoolFull,
    PoolTimeout,
    StartRefused,
)
from proctor.actors.outcomes import Answer
from proctor.actors.plan.plan import Plan
from proctor.actors.runs import open_run
from proctor.actors.serving.pool import Pool, Pools, Warm, pool_spec
from proctor.actors.serving.slots import Slots
from proctor.actors.serving.warm_pool import WarmPool, WarmProcess
from proctor.actors.specs import open_supervisor
from proctor.actors.transport.memory import MemoryTransport, Peer, PeerStreams, in_memory
from proctor.actors.transport.transport import Start, Transport
from proctor.protocols.vocabulary import Text, TurnEnded
from proctor.runtime.processes.process_errors import SpawnFailed, StdinClosed
from proctor.runtime.processes.procfs import stat_of
from tests.actors.far_end import plan_of
from tests.actors.spoken import Speaker, deaf, saying, speaks, spoken_plan
from tests.protocols.lines import delta


class House:
    """Counts the far ends that live, and can end or silence them."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.alive = self.most = self.born = 0
        self.greeting = self.most_greeting = 0
        self.seconds = seconds
        self.fire = trio.Event()

    async def live(self, side: PeerStreams) -> int | None:
        self.alive += 1
        self.born += 1
        self.most = max(self.most, self.alive)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._burn, nursery.cancel_scope)
                await self._start()
                await Speaker(side).live()
                nursery.cancel_scope.cancel()
        finally:
            self.alive -= 1
        return None

    async def _start(self) -> None:
        self.greeting += 1
        self.most_greeting = max(self.most_greeting, self.greeting)
        await trio.sleep(self.seconds)
        self.greeting -= 1

    async def _burn(self, scope: trio.CancelScope) -> None:
        await self.fire.wait()
        scope.cancel()


def capacity(pool: Pool) -> tuple[int, int]:
    told = pool.statistics()
    return told.limit - told.used, told.waiting


@asynccontextmanager
async def served(pool: Pool | Pools) -> AsyncGenerator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.serve)
        yield nursery
        nursery.cancel_scope.cancel()


async def settle() -> None:
    """Everything that can happen without time passing has happened, the greetings included."""
    await trio.sleep(0.01)
    await wait_all_tasks_blocked()


# -- places


@pytest.mark.covers("R121")
async def test_never_more_processes_than_places(autojump_clock: MockClock) -> None:
    house, pool, texts = House(1.0), Pool("claude", limit=3), list[str]()
    plan = spoken_plan(house.live)

    async def one(number: int) -> None:
        texts.append((await pool.run(plan, f"no {number}")).text)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(one, number)
    assert (house.most, house.born, house.alive) == (3, 20, 0)
    assert sorted(texts) == sorted(f"1: no {number}" for number in range(20))
    assert capacity(pool) == (3, 0)


@pytest.mark.covers("R121")
async def test_a_pool_has_at_most_ten_places_by_default() -> None:
    assert 1 <= Pool("claude").statistics().limit <= 10
    assert Pool("claude", limit=40).statistics().limit == 40


@pytest.mark.covers("R122")
async def test_the_depth_of_the_line_is_told_at_each_step(autojump_clock: MockClock) -> None:
    pool, depth = Pool("claude", limit=1), list[int]()

    async def hold(until: trio.Event) -> None:
        async with pool.slot():
            await until.wait()

    async with trio.open_nursery() as nursery:
        ends = [trio.Event() for _ in range(3)]
        for end in ends:
            nursery.start_soon(hold, end)
            await wait_all_tasks_blocked()
            depth.append(pool.statistics().waiting)
        for end in ends:
            end.set()
            await wait_all_tasks_blocked()
            depth.append(pool.statistics().waiting)
    assert depth == [0, 1, 2, 1, 0, 0]


@pytest.mark.covers("R123")
async def test_ten_that_leave_the_line_take_no_place_with_them(autojump_clock: MockClock) -> None:
    pool = Pool("claude", limit=3)

    async def hold() -> None:
        async with pool.slot():
            await trio.sleep_forever()

    async with trio.open_nursery() as holders:
        for _ in range(3):
            holders.start_soon(hold)
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as line:
            for _ in range(10):
                line.start_soon(hold)
            await wait_all_tasks_blocked()
            assert capacity(pool) == (0, 10)
            line.cancel_scope.cancel()
        assert capacity(pool) == (0, 0)
        with pytest.raises(
            PoolTimeout,
            match=r"pool 'claude' did not take the request: timed out after 2 s .* slot; 0 requests were ahead",
        ):
            async with pool.slot(timeout=2.0):
                pass
        with pytest.raises(PoolTimeout, match=r"timed out after 3 s"):
            await pool.run(spoken_plan(), "hi", timeout=3.0)
        holders.cancel_scope.cancel()
    assert capacity(pool) == (3, 0)


@pytest.mark.covers("R123")
async def test_one_that_leaves_in_the_instant_its_place_comes_takes_none_with_it(
    autojump_clock: MockClock,
) -> None:
    pool = Pool("claude", limit=1)
    async with trio.open_nursery() as nursery:
        async with pool.slot():
            nursery.start_soon(_slot, pool)
            await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()  # the place is the other one's already, and it has not run since
    assert capacity(pool) == (1, 0)


async def _slot(pool: Pool) -> None:
    async with pool.slot():
        await trio.sleep_forever()


async def test_a_line_that_is_full_refuses_at_once(autojump_clock: MockClock) -> None:
    pool = Pool("claude", limit=1, queue=0)
    async with pool.slot():
        with pytest.raises(PoolFull, match="its queue is full: 0 requests wait"):
            await pool.run(spoken_plan(), "hi")
    assert (await pool.run(spoken_plan(), "hi")).ok


async def _seconds_to_answer(pool: Pool | Pools, plan: Plan) -> float:
    began = trio.current_time()
    async with pool.stream(plan, "hi") as live:
        async for event in live:
            if isinstance(event, TurnEnded):
                assert event.text == "1: hi"
                return trio.current_time() - began
    raise AssertionError("there was no answer")


def _codex(plan: Plan) -> Plan:
    return attrs.evolve(plan, dialect=attrs.evolve(plan.dialect, name="codex"))


@pytest.mark.covers("R124")
async def test_a_full_pool_delays_no_other_command_line(autojump_clock: MockClock) -> None:
    pools, plan = Pools(limits={"codex": 1}), spoken_plan()
    async with pools.of(_codex(plan)).slot():
        with pytest.raises(PoolTimeout):
            await pools.run(_codex(plan), "hi", timeout=1.0)
        assert await _seconds_to_answer(pools, plan) < 0.1
    assert [told.name for told in pools.statistics()] == ["codex", "claude"]


async def _left_early(pool: Pool) -> None:
    async with pool.stream(spoken_plan(), "hang") as live:
        await anext(live)


async def _failing(pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError):
        async with pool.stream(spoken_plan(), "hang"):
            raise ZeroDivisionError


async def _refused(side: PeerStreams) -> int | None:
    return 1


def _no_spawn(start: Start) -> Transport:
    raise SpawnFailed("did not start: no memory", stage="spawn", argv0="claude")


Way = Callable[[Pool], Awaitable[object]]


def raising(kind: type[Exception], **changes: Any) -> Way:
    async def way(pool: Pool) -> None:
        with pytest.raises(kind):
            await pool.run(attrs.evolve(spoken_plan(greeting=1.0), **changes), "hi")

    return way


def cancelled_after(seconds: float) -> Way:
    async def way(pool: Pool) -> None:
        with trio.move_on_after(seconds):
            await pool.run(spoken_plan(House(1.0).live), "hang")

    return way


async def _too_late(pool: Pool) -> None:
    with pytest.raises(AskInterrupted):
        await pool.run(spoken_plan(), "hang", timeout=5.0)


WAYS: Mapping[str, Way] = {
    "no spawn": raising(SpawnFailed, reach=_no_spawn),
    "refused": raising(StartRefused, reach=in_memory(_refused)),
    "no greeting": raising(GreetingTimeout, reach=in_memory(deaf)),
    "crash": lambda pool: pool.run(spoken_plan(), "crash"),
    "deadline": _too_late,
    "silence": lambda pool: pool.run(spoken_plan(silence=1.0), "hang"),
    "cancelled at once": cancelled_after(0.0),
    "cancelled in its start": cancelled_after(0.5),
    "cancelled in its turn": cancelled_after(1.5),
    "left early": _left_early,
    "the caller fails": _failing,
}


@pytest.mark.covers("R125")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("warm", [0, 1])
async def test_a_place_is_given_back_on_every_path(way: Way, warm: int, autojump_clock: MockClock) -> None:
    pool = Pool("claude", limit=2, warm=[Warm(spoken_plan(), warm)] if warm else ())
    async with served(pool):
        await settle()
        for _ in range(3):
            await way(pool)
        await settle()
        assert capacity(pool) == (2 - warm, 0)
        async with pool.slot(timeout=1.0), pool.slot(timeout=30.0):
            pass
    assert capacity(pool) == (2, 0)


async def test_no_more_start_at_once_than_is_allowed_Q10(autojump_clock: MockClock) -> None:
    house, pool = House(1.0), Pool("claude", limit=9, starts=trio.CapacityLimiter(2))
    async with trio.open_nursery() as nursery:
        for _ in range(9):
            nursery.start_soon(pool.run, spoken_plan(house.live), "hi")
    assert (house.most_greeting, house.born) == (2, 9)


# -- processes kept ready


@pytest.mark.covers("R126", "L14")
async def test_a_process_kept_ready_answers_without_a_start_and_only_once(
    autojump_clock: MockClock,
) -> None:
    house = House(5.0)
    plan = spoken_plan(house.live)
    async with served(pool := Pool("claude", limit=3, warm=[Warm(plan, 1)])):
        await trio.sleep(6)
        assert pool.statistics().warm == 1
        assert await _seconds_to_answer(pool, plan) < 0.1
        assert await _seconds_to_answer(pool, plan) > 4.9  # the next one was not ready yet
        await trio.sleep(6)
        assert await _seconds_to_answer(pool, plan) < 0.1
        assert (await pool.run(spoken_plan(), "other")).text == "1: other"
    assert (house.alive, capacity(pool)) == (0, (3, 0))


@pytest.mark.covers("R126", "L14")
async def test_a_process_that_died_is_not_handed_out(autojump_clock: MockClock) -> None:
    house = House()
    plan = spoken_plan(house.live)
    async with served(pool := Pool("claude", limit=3, warm=[Warm(plan, 2)])):
        await settle()
        assert pool.statistics().warm == 2
        house.fire.set()
        house.fire = trio.Event()
        await wait_all_tasks_blocked()
        assert (pool.statistics().warm, house.alive) == (0, 0)
        answers = [await pool.run(plan, "hi") for _ in range(3)]
        assert [answer.text for answer in answers] == ["1: hi"] * 3
        await trio.sleep(1)
        assert (pool.statistics().warm, house.alive) == (2, 2)


async def test_one_kept_ready_for_others_makes_room_Q10(autojump_clock: MockClock) -> None:
    house = House()
    plan = spoken_plan(house.live)
    async with served(pool := Pool("claude", limit=2, warm=[Warm(plan, 2)])):
        await settle()
        assert capacity(pool) == (0, 0)
        assert (await pool.run(spoken_plan(), "other", timeout=30.0)).ok
        async with pool.slot(timeout=30.0), pool.slot(timeout=30.0):
            assert house.alive == 0
        await settle()
        assert (house.alive, capacity(pool)) == (2, (0, 0))


async def test_one_that_was_still_starting_makes_room_too_Q10(autojump_clock: MockClock) -> None:
    house = House(5.0)
    pool = Pool("claude", limit=1, warm=[Warm(spoken_plan(house.live), 1)])
    async with served(pool):
        await trio.sleep(1)
        assert (await pool.run(spoken_plan(), "other", timeout=30.0)).ok
        await trio.sleep(6)
        assert (house.alive, pool.statistics().warm) == (1, 1)


@pytest.mark.covers("L13")
async def test_a_program_that_never_gets_ready_is_tried_ever_less_often_and_told_of_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[float] = []

    async def broken(side: PeerStreams) -> int | None:
        starts.append(trio.current_time())
        side.complain(b"cannot find module")
        return 1

    with caplog.at_level(logging.DEBUG, "proctor"):
        async with served(Pool("claude", limit=2, warm=[Warm(spoken_plan(broken), 1)])):
            await trio.sleep(600)
    pauses = [round(b - a, 1) for a, b in pairwise(starts)]
    assert pauses[:10] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert set(pauses[10:]) == {30.0}
    told = [record for record in caplog.records if record.name == "proctor"]  # beside each life and its end
    assert [record.levelname for record in told] == ["INFO", "ERROR"]
    assert "10 times in a row" in told[1].getMessage()
    assert "cannot find module" in told[1].getMessage()


@pytest.mark.covers("L13")
async def test_one_that_does_not_wait_for_its_prompt_is_not_started_again_and_again(
    autojump_clock: MockClock,
) -> None:
    house = House()
    async with served(Pool("claude", limit=2, warm=[Warm(spoken_plan(_impatient(house)), 1)])):
        await trio.sleep(300)
    assert house.born < 20


def _impatient(house: House) -> Callable[[PeerStreams], Awaitable[int | None]]:
    async def live(side: PeerStreams) -> int | None:
        house.born += 1
        with trio.move_on_after(3.0):
            return await speaks(side)
        return 0

    return live


async def test_more_kept_ready_than_there_are_places_is_refused() -> None:
    with pytest.raises(BadOption, match="warm keeps more processes than the 1 slots of pool 'claude'"):
        Pool("claude", limit=1, warm=[Warm(spoken_plan(), 2)])
    with pytest.raises(BadOption, match="limit must be a number of 1 or more, got 0"):
        Pool("claude", limit=0)


class Unseen(MemoryTransport):
    """Dead without a sign of it: it only takes no prompt."""

    async def write(self, data: bytes) -> None:
        if b'"user"' in data:
            raise StdinClosed("it is gone", stage="stdin", argv0="claude", pid=None, elapsed=0.0)
        await super().write(data)


@pytest.mark.covers("R126")
async def test_the_prompt_that_a_dead_process_did_not_take_goes_to_the_next_one(
    autojump_clock: MockClock,
) -> None:
    kinds: list[type[MemoryTransport]] = [Unseen, Unseen]

    def reach(start: Start) -> Transport:
        kind = kinds.pop() if kinds else MemoryTransport
        return kind(_speaker, "speaker", start)

    plan = attrs.evolve(spoken_plan(), reach=reach)
    async with served(pool := Pool("claude", limit=3, warm=[Warm(plan, 2)])):
        await settle()
        assert (await pool.run(plan, "hi")).text == "1: hi"
        assert kinds == []


@asynccontextmanager
async def _speaker() -> AsyncGenerator[Peer]:
    yield speaks


@pytest.mark.covers("R126")
async def test_one_that_is_known_to_be_dead_is_passed_over(autojump_clock: MockClock) -> None:
    plan = spoken_plan()
    stock = WarmPool(plan, 1, Slots("places", 1, 1), trio.CapacityLimiter(1))
    async with open_run(plan) as dead, open_run(plan) as alive:
        await alive.ready.wait()
        await dead.ready.wait()
        dead.kill()
        await dead.over.wait()
        stock.idle.extend([WarmProcess(dead), WarmProcess(alive)])
        ready = stock.take()
        assert ready is not None
        assert ready.live is alive
        assert stock.take() is None


def _until_gone(*pids: int) -> None:
    """Nothing of ours runs meanwhile, so that nobody notices."""
    while any(stat is not None and stat.state != "Z" for stat in map(stat_of, pids)):
        time.sleep(0.01)


@pytest.mark.covers("R126", "L14")
async def test_one_that_died_unseen_takes_no_prompt(tmp_path: Path) -> None:
    places = Slots("places", 2, 10)
    stock = WarmPool(plan_of(tmp_path), 1, places, trio.CapacityLimiter(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stock.serve)
        with trio.fail_after(30):
            while not stock.idle:  # noqa: ASYNC110  # it is a process
                await trio.sleep(0.01)
        process = stock.idle[0].live.incarnation.process
        os.kill(process.leader_pid, signal.SIGKILL)
        _until_gone(process.leader_pid, process.pid)
        ready = stock.take()
        assert ready is not None  # as far as can be seen it is alive
        ready.live.begin(Request.make("hi"))
        assert not await ready.live.taken()
        await ready.give_back()
        nursery.cancel_scope.cancel()
    assert places.used == 0


# -- its end


@pytest.mark.covers("R125")
async def test_a_tree_that_stops_a_pool_tells_who_waits_and_stops_what_runs(
    autojump_clock: MockClock,
) -> None:
    house, told = House(), list[object]()
    plan = spoken_plan(house.live)
    pool = Pool("claude", limit=2, warm=[Warm(plan, 1)])

    async def ask() -> None:
        try:
            told.append((await pool.run(plan, "hang")).outcome)
        except PoolClosed as error:
            told.append(str(error))

    async with trio.open_nursery() as callers, open_supervisor([pool_spec("pool", pool)]) as sup:
        await settle()
        for _ in range(3):
            callers.start_soon(ask)
            await settle()
        assert capacity(pool) == (0, 1)
        await sup.terminate_child("pool")
        assert (house.alive, capacity(pool)) == (0, (2, 0))
        with pytest.raises(PoolClosed, match="it was closed"):
            await pool.run(plan, "hi")
        await sup.restart_child("pool")
        assert (await pool.run(plan, "hi")).ok
    closed = "pool 'claude' did not take the request: it was closed"
    assert sorted(map(str, told)) == ["interrupted", "interrupted", closed]
    assert house.alive == 0


async def test_a_pool_that_ends_waits_for_a_process_whose_caller_has_left_it(
    autojump_clock: MockClock,
) -> None:
    alive, left = [0], trio.Event()

    async def lingers(side: PeerStreams) -> int | None:
        alive[0] += 1
        try:
            await saying(delta("so far"))(side)
            return await trio.sleep_forever()  # until it is killed
        finally:
            alive[0] -= 1

    async def leave() -> None:
        async with pool.stream(spoken_plan(lingers), "hi"):
            await settle()
            left.set()

    pool = Pool("claude", limit=2)
    async with trio.open_nursery() as callers, open_supervisor([pool_spec("pool", pool)]) as sup:
        callers.start_soon(leave)
        await left.wait()
        await settle()
        assert alive == [1]
        await sup.terminate_child("pool")
        assert alive == [0]


@pytest.mark.covers("R126")
async def test_what_a_process_kept_ready_said_is_read_to_its_end_after_the_pool_has_gone(
    autojump_clock: MockClock,
) -> None:
    plan, events = spoken_plan(), list[object]()
    async with trio.open_nursery() as nursery:
        pool = Pool("claude", limit=1, warm=[Warm(plan, 1)])
        await nursery.start(pool.serve)
        await settle()
        async with pool.stream(plan, "hi") as live:
            await trio.sleep(5)
            nursery.cancel_scope.shield = True
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
                events = [event async for event in live]
                assert live.answer.text == "1: hi"
    assert any(isinstance(event, TurnEnded | Text) for event in events)


async def test_pools_are_served_together_also_those_that_come_later(autojump_clock: MockClock) -> None:
    house, plan = House(), spoken_plan()
    first = spoken_plan(house.live)
    pools = Pools(limit=2, warm=[Warm(first, 1)])
    async with trio.open_nursery() as callers:
        async with served(pools):
            await settle()
            assert house.alive == 1
            callers.start_soon(_hanging, pools, _codex(plan))
            await settle()
        await settle()
        assert [told.used for told in pools.statistics()] == [0, 0]
    with pytest.raises(PoolClosed):
        await pools.run(attrs.evolve(plan, dialect=attrs.evolve(plan.dialect, name="third")), "hi")


async def _hanging(pools: Pools, plan: Plan) -> None:
    answer: Answer = await pools.run(plan, "hang")
    assert answer.outcome == "interrupted"


async def test_a_pool_tells_what_its_processes_hold(autojump_clock: MockClock) -> None:
    async with Pool("claude").stream(spoken_plan(), "hi") as live:
        assert Pool("claude").memory() is None
        await live.finish()
