from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from proctor.actors.limits.admission import MARGIN, SPREAD, STEP, Admission, TreeLimits, UsageLimit
from proctor.actors.limits.spend_limits import SpendLimits
from proctor.actors.plan.account_id import account_of, session_key
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import claude_plan

NAMES = ("a", "b", "c", "d")


def limited(seconds: float = 10.0) -> UsageLimit:
    account = UsageLimit("it", Random(1))
    account.limited(seconds, 0.0)
    return account


def test_an_account_without_a_limit_lets_everybody_go() -> None:
    account = UsageLimit("it", Random(1))
    assert [account.enter(name, 0.0) for name in NAMES] == [0.0] * 4


def test_until_the_reset_nobody_goes_and_chance_spreads_who_asks_first() -> None:
    waits = [limited().enter(name, 0.0) for name in NAMES]
    account = limited()
    spread = [account.enter(name, 0.0) for name in NAMES]
    assert all(10 + MARGIN <= wait <= 10 + MARGIN + SPREAD for wait in waits + spread)
    assert len(set(spread)) == 4
    assert waits == [waits[0]] * 4  # the same seed, the same chance


def test_after_the_reset_one_tries_and_the_others_wait_for_its_word() -> None:
    account = limited()
    assert [account.enter(name, 11.0) for name in NAMES] == [0.0, math.inf, math.inf, math.inf]
    assert account.enter("a", 12.0) == 0.0
    assert not account.passed("b", 12.0)  # an old turn of another proves nothing
    assert account.passed("a", 12.0)


def test_once_one_has_passed_the_rest_go_on_in_steps_and_then_all_is_as_before() -> None:
    account = limited()
    account.enter("a", 11.0)
    account.passed("a", 11.0)
    waits = [account.enter(name, 11.0) for name in "bcd"]
    steps = [later - sooner for sooner, later in zip([0.0, *waits], waits, strict=False)]
    assert all(STEP * 0.5 <= step <= STEP * 1.5 for step in steps)
    assert [account.enter(name, 11.0 + wait) for name, wait in zip("bcd", waits, strict=True)] == [0.0] * 3
    assert [account.enter(name, 30.0) for name in NAMES] == [0.0] * 4


def test_who_runs_into_the_limit_again_closes_it_again() -> None:
    account = limited()
    account.enter("a", 11.0)
    account.limited(100.0, 12.0)
    assert account.enter("a", 12.0) >= 100 + MARGIN
    assert account.enter("b", 12.0) >= 100 + MARGIN
    account.limited(1.0, 13.0)  # an earlier reset that is heard of later takes nothing back
    assert account.enter("b", 50.0) > 60


def test_when_the_one_that_tries_leaves_another_one_tries() -> None:
    account = limited()
    account.enter("a", 11.0)
    assert account.enter("b", 11.0) == math.inf
    assert not account.left("b")
    assert account.left("a")
    assert account.enter("b", 11.0) == 0.0


@pytest.mark.covers("L38")
async def test_agents_of_one_account_wake_one_by_one_on_the_clock(autojump_clock: MockClock) -> None:
    fellows = TreeLimits(seed=3)
    account = fellows.account("it")
    gates = {
        name: Admission(name, fellows, account, SpendLimits(fellows.book, (), name), waits=True)
        for name in NAMES
    }
    account.limited(60.0, trio.current_time())
    went: list[tuple[str, float]] = []

    async def go(name: str) -> None:
        while (hold := gates[name].admit(again=True)) is not None:
            await gates[name].wait(hold)
        went.append((name, trio.current_time()))
        await trio.sleep(5)
        gates[name].passed()

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for name in NAMES:
            nursery.start_soon(go, name)
    times = [at - began for _, at in went]
    assert 61 <= times[0] <= 62
    assert times[1] >= times[0] + 5  # nobody before the first has passed
    assert all(0.5 <= later - sooner <= 1.5 for sooner, later in pairwise(times[1:]))


def test_an_account_is_a_cli_its_home_and_its_keys() -> None:
    def account(**options: object) -> str:
        given: AgentOptions = {**options}  # type: ignore[typeddict-item]
        return account_of(claude_plan("a", given), {"HOME": "/home/user"})

    plain = account()
    keyed = account(env={"ANTHROPIC_API_KEY": "one"})
    assert account(model="other") == plain
    assert len({plain, keyed, account(env={"ANTHROPIC_API_KEY": "two"}), account(home="private")}) == 4
    assert "one" not in keyed
    assert account(account="ours") == "ours"
    assert account(env={"CLAUDE_CONFIG_DIR": "elsewhere"}) != plain


def test_a_session_is_told_apart_within_one_home_only(tmp_path: Path) -> None:
    def key(session: str, **options: object) -> str:
        given: AgentOptions = {**options}  # type: ignore[typeddict-item]
        return session_key(claude_plan("a", given), session)

    assert key("s") == key("s", model="other")
    assert len({key("s"), key("t"), key("s", home="private"), key("s", env={"HOME": "other"})}) == 4


@pytest.mark.parametrize("held", [True, False])
def test_an_agent_that_does_not_wait_out_limits_is_not_held_by_anothers(held: bool, tmp_path: Path) -> None:
    async def main() -> None:
        fellows = TreeLimits()
        account = fellows.account("it")
        account.limited(60.0, trio.current_time())
        gate = Admission("a", fellows, account, SpendLimits(fellows.book, (), "a"), waits=held)
        assert (gate.admit(again=True) is not None) == held

    trio.run(main)
