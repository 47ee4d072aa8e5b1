from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Unpack

import attrs
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.batch.batch import Batch
from proctor.actors.errors import BadOption, BudgetExceeded
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan
from proctor.actors.transport.memory import Peer, PeerStreams
from tests.actors.spoken import Speaker, spoken_plan
from tests.actors.store.peers import LimitedOnce


def agent(name: str, peer: Peer, **options: Unpack[AgentOptions]) -> Plan:
    return attrs.evolve(spoken_plan(peer, **options), name=name)


def tasks(*prompts: str, **fields: Any) -> list[proctor.BatchTask]:
    return [proctor.BatchTask(id=f"t{n}", prompt=prompt, **fields) for n, prompt in enumerate(prompts, 1)]


class Slow:
    """A peer whose turns take `seconds`; it counts how many run at once, and what it was asked."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self.running = self.most = 0
        self.prompts = Counter[str]()

    async def __call__(self, side: PeerStreams) -> int | None:
        return await _Slow(side, self).live()


class _Slow(Speaker):
    def __init__(self, side: PeerStreams, peer: Slow) -> None:
        super().__init__(side)
        self._peer = peer

    async def _prompt(self, text: str) -> int | None:
        peer = self._peer
        peer.prompts[text] += 1
        peer.running += 1
        peer.most = max(peer.most, peer.running)
        try:
            await trio.sleep(peer.seconds)
        finally:
            peer.running -= 1
        return await super()._prompt(text)


async def collected(batch: Batch) -> list[proctor.BatchResult]:
    return [result async for result in batch]


async def test_every_task_is_given_to_every_agent_as_often_as_asked(autojump_clock: MockClock) -> None:
    one, two = Slow(), Slow(20)
    batch = proctor.batch(tasks("a", "b"), [agent("one", one), agent("two", two)], limit=3, repeat=2)
    found = await collected(batch)
    assert sorted(result.key for result in found) == sorted(
        (task, name, n) for task in ("t1", "t2") for name in ("one", "two") for n in (1, 2)
    )
    assert {result.agent: result.times.working for result in found} == {"one": 10.0, "two": 20.0}
    assert {(result.score, result.ok, result.cost_usd, len(result.tries)) for result in found} == {
        (1, True, 0.5, 1)
    }
    assert found[0].text.startswith("1: ")
    assert one.prompts == two.prompts == {"a": 2, "b": 2}
    assert batch.progress == proctor.BatchProgress(done=8, kept=0, running=0, cost_usd=4.0)


async def test_no_more_attempts_run_at_once_than_the_limit(autojump_clock: MockClock) -> None:
    peer = Slow()
    found = await collected(proctor.batch(tasks(*"abcdefgh"), agent("a", peer), limit=3))
    assert (len(found), peer.most) == (8, 3)


async def test_tasks_are_taken_when_there_is_a_place_for_them(autojump_clock: MockClock) -> None:
    taken = list[str]()

    def source() -> Iterator[proctor.BatchTask]:
        for task in tasks(*"abcdefgh"):
            taken.append(task.id)
            yield task

    async with proctor.batch(source(), agent("a", Slow()), limit=2) as results:
        await anext(results)
        assert len(taken) <= 4


@pytest.mark.parametrize("with_block", [True, False])
async def test_leaving_the_loop_stops_what_runs(with_block: bool, autojump_clock: MockClock) -> None:
    peer = Slow()
    batch = proctor.batch(tasks(*"abcdef"), agent("a", peer), limit=2)
    if with_block:
        async with batch as results:
            async for _ in results:
                break
    else:
        async for _ in batch:
            break
        del batch
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(30)
    assert peer.running == 0
    assert sum(peer.prompts.values()) <= 4


async def test_a_loop_without_a_block_ends_what_runs_before_the_program_does(
    autojump_clock: MockClock,
) -> None:
    peer = Slow()

    async def first() -> str:
        async for result in proctor.batch(tasks(*"abcdef"), agent("a", peer), limit=2):
            return result.task
        return ""

    assert await first() in ("t1", "t2")
    await trio.sleep(20)
    assert peer.running == 0
    assert 2 <= peer.prompts.total() <= 4


async def test_a_wait_for_a_usage_limit_is_no_working_time(autojump_clock: MockClock) -> None:
    peer = LimitedOnce()
    [result] = await collected(proctor.batch(tasks("hello", timeout=60.0), agent("a", peer)))
    assert (result.ok, result.score, peer.prompts["hello"]) == (True, 1.0, 2)
    assert result.times.working == pytest.approx(0, abs=1)
    assert result.times.waiting == pytest.approx(3600, abs=10)


async def test_the_time_limit_of_a_task_ends_its_turn(autojump_clock: MockClock) -> None:
    [result] = await collected(proctor.batch(tasks("hang", timeout=15.0), agent("a", Slow(0.0))))
    assert (result.score, result.ok, result.cause) == (0.0, False, "deadline")
    assert result.error == "it worked longer than 15 s"
    assert result.times.working == pytest.approx(15, abs=2)
    assert result.cost_usd == 0.5


async def test_a_crash_is_tried_again_and_each_try_is_kept(autojump_clock: MockClock) -> None:
    class Once(Slow):
        async def __call__(self, side: PeerStreams) -> int | None:
            return await (Crashing(side) if not self.prompts else _Slow(side, self)).live()

    peer = Once(1)

    class Crashing(Speaker):
        async def _prompt(self, text: str) -> int | None:
            peer.prompts[text] += 1
            return 3

    [result] = await collected(proctor.batch(tasks("hello"), agent("a", peer)))
    assert ([one.outcome for one in result.tries], result.ok) == (["crashed", "ok"], True)
    assert result.times.waiting > 0


async def test_what_fails_each_time_is_a_failed_attempt(autojump_clock: MockClock) -> None:
    found = await collected(proctor.batch(tasks("crash", "hello"), agent("a", Slow(1)), limit=1))
    assert [(one.task, one.cause, one.score, len(one.tries)) for one in found] == [
        ("t1", "crashed", 0.0, 3),
        ("t2", None, 1.0, 1),
    ]


async def test_a_spent_budget_begins_nothing_and_is_raised_behind_the_results(
    autojump_clock: MockClock,
) -> None:
    found, peer = list[proctor.BatchResult](), Slow()

    async def collect() -> None:
        async for result in proctor.batch(tasks(*"abcdefgh"), agent("a", peer), limit=4, budget=2.0):
            found.append(result)

    with pytest.raises(BudgetExceeded, match=r"the batch has spent \$2 of \$2"):
        await collect()
    assert (len(found), peer.prompts.total()) == (4, 4)


async def test_a_budget_is_exceeded_by_one_turn_at_most_where_turns_cost_the_same(
    autojump_clock: MockClock,
) -> None:
    peer = Slow()
    with pytest.raises(BudgetExceeded):
        await collected(proctor.batch(tasks(*"abcdefgh"), agent("a", peer), limit=8, budget=1.2))
    assert peer.prompts.total() == 3  # 0.5 each: 1.5 of 1.2


async def test_stop_lets_the_running_attempts_end(autojump_clock: MockClock) -> None:
    batch = proctor.batch(tasks(*"abcdefgh"), agent("a", Slow()), limit=2)
    first = await anext(batch)
    batch.stop()
    rest = await collected(batch)
    assert first.ok
    assert 1 <= len(rest) <= 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"limit": 0}, "limit must be an integer from 1 on, got 0"),
        ({"repeat": 0}, "repeat must be an integer from 1 on, got 0"),
        ({"budget": -1}, "budget must be a number of US dollars above 0, got -1"),
        ({"keep": "some"}, "keep 'some' is not a choice; accepted: none, failed, all"),
        ({"results": ""}, "results must be a path, not empty, got ''"),
    ],
)
def test_wrong_options_of_a_batch_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadOption, match=text):
        proctor.batch(tasks("a"), agent("a", Slow()), **options)


def test_agents_need_names_of_their_own() -> None:
    with pytest.raises(BadOption, match="agents: two are named 'a'"):
        proctor.batch([], [agent("a", Slow()), agent("a", Slow())])
    with pytest.raises(BadOption, match="agents: name at least one"):
        proctor.batch([], [])


async def test_two_tasks_of_one_id_are_refused(autojump_clock: MockClock) -> None:
    with pytest.raises(BadOption, match="two tasks have the id 't1'"):
        await collected(proctor.batch([*tasks("a"), *tasks("b")], agent("a", Slow())))


async def test_a_batch_begins_once(autojump_clock: MockClock) -> None:
    batch = proctor.batch(tasks("a"), agent("a", Slow()))
    async with batch:
        with pytest.raises(RuntimeError, match="has begun already"):
            await batch.__aenter__()


async def test_kill_ends_what_runs_at_once(autojump_clock: MockClock) -> None:
    peer = Slow(1000)
    batch = proctor.batch(tasks(*"abcd"), agent("a", peer, silence=2000.0), limit=2)
    async with batch as results, trio.open_nursery() as nursery:
        nursery.start_soon(collected, results)
        await trio.sleep(10)
        assert peer.running == 2
        results.kill()
    assert peer.running == 0
    assert trio.current_time() < 20
