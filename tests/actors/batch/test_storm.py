"""A hundred tasks through a usage window that is far too small for them, with refusals and crashes between: on a virtual clock."""

from __future__ import annotations

import time
from collections import Counter
from random import Random

import attrs
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.serving.retry import RETRY
from proctor.actors.transport.memory import PeerStreams
from tests.actors.batch.test_batch import agent, collected, tasks
from tests.actors.spoken import Speaker
from tests.protocols.lines import INIT, line

TASKS, WINDOW, PERIOD = 100, 12, 3600.0


class Account:
    """An account that takes `WINDOW` prompts in each hour. Some prompts are answered with a fault of its servers at no cost, and some kill the command line that sent them before any
    token is paid."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.answered = Counter[str]()
        self.refused = self.faults = self.crashes = 0
        self._taken = 0
        self._window = 0.0

    def admits(self) -> bool:
        now = trio.current_time()
        if now >= self._window + PERIOD:
            self._window, self._taken = now, 0
        self._taken += self._taken < WINDOW + 1
        return self._taken <= WINDOW

    @property
    def reset(self) -> float:
        """In Unix seconds."""
        return time.time() + self._window + PERIOD - trio.current_time()

    async def __call__(self, side: PeerStreams) -> int | None:
        return await _Client(side, self).live()


class _Client(Speaker):
    def __init__(self, side: PeerStreams, account: Account) -> None:
        super().__init__(side)
        self._account = account

    async def _prompt(self, text: str) -> int | None:
        account = self._account
        await trio.sleep(account.random.uniform(1, 60))
        await self._side.send_all(INIT)
        chance = account.random.random()
        if chance < 0.05:
            account.crashes += 1
            return 3
        if not account.admits():
            account.refused += 1
            info = {"status": "rejected", "resetsAt": round(account.reset) + 1, "rateLimitType": "five_hour"}
            await self._side.send_all(line(type="rate_limit_event", rate_limit_info=info))
            await self._end(subtype="success", is_error=True, terminal_reason="api_error", result="Limit")
        elif chance < 0.1:
            account.faults += 1
            facts = {
                "terminal_reason": "api_error",
                "api_error_status": 529,
                "result": "API Error: 529 Overloaded",
            }
            await self._end(subtype="success", is_error=True, **facts)
        else:
            account.answered[text] += 1
            await self._end(subtype="success", is_error=False, result=text)
        return None


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_hundred_tasks_get_through_a_small_usage_window_and_none_is_paid_for_twice(
    seed: int, autojump_clock: MockClock
) -> None:
    account = Account(seed)
    found = await collected(
        proctor.batch(
            tasks(*(f"p{n}" for n in range(TASKS))),
            agent("a", account, silence=600.0),
            limit=8,
            retry=attrs.evolve(RETRY, attempts=10),
            seed=seed,
        )
    )
    assert len({result.key for result in found}) == TASKS
    assert Counter(result.cause for result in found) == {None: TASKS}
    # each was paid for once: what was refused, failed or crashed was asked again
    assert account.answered == dict.fromkeys((f"p{n}" for n in range(TASKS)), 1)
    assert account.refused > 0
    assert account.crashes > 0
    hours = trio.current_time() / PERIOD
    assert TASKS / WINDOW - 2 <= hours <= TASKS / WINDOW + 4
    # eight at a time meet the limit, then one tries for all
    assert account.refused <= 8 * (hours + 1) * 2
    worked = [result.times.working for result in found if result.times.working is not None]
    assert max(worked) <= 60 * 8
    assert sum(result.times.waiting for result in found) > PERIOD
