from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.errors import BudgetExceeded
from proctor.actors.limits.admission import Admission, TreeLimits
from proctor.actors.limits.spend_limits import SpendLimits
from proctor.actors.plan.budgets import Budget
from proctor.actors.plan.options import AgentOptions
from proctor.protocols import vocabulary as v
from proctor.runtime.spec import ChildSpec
from tests.actors.far_end import Step, log_of, write_script

ONCE: Sequence[Step] = ({"fault": "limit:2@once=L"}, {"reply": "{prompt}"})
COSTLY: Sequence[Step] = (
    {"say": "{prompt}"},
    {"end": "completed", "cost": 1.0},
)


def agent_of(
    folder: Path, name: str = "a", steps: Sequence[Step] = COSTLY, **options: Unpack[AgentOptions]
) -> ChildSpec:
    chosen: AgentOptions = {"env": {"CLAUDE_CONFIG_DIR": str(folder / "state")}, **options}
    return proctor.scripted(name, write_script(folder, steps), shutdown=3, **chosen)


def notices(events: Sequence[v.AnyEvent], *codes: str) -> list[str]:
    return [event.code for event in events if isinstance(event, v.Notice) and event.code in codes]


async def test_one_agents_limit_parks_all_of_its_account_before_their_next_prompt(tmp_path: Path) -> None:
    specs = [
        agent_of(tmp_path, "a", ONCE, account="ours"),
        agent_of(tmp_path, "b", [{"reply": "{prompt}"}], account="ours"),
        agent_of(tmp_path, "c", [{"reply": "{prompt}"}]),
    ]
    async with proctor.open_supervisor(specs, intensity=0, seed=1) as sup, trio.open_nursery() as nursery:
        ends = list[str]()

        async def ask(name: str) -> None:
            ends.append((await sup.agent(name).ask(name)).text)

        async with sup.agent("a").stream("a") as turn:
            async for event in turn:
                if isinstance(event, v.TurnEnded):
                    break
            nursery.start_soon(ask, "b")
            assert (await sup.agent("c").ask("c")).text == "c"
            states = [await sup.agent(name).status() for name in "ab"]
            await turn.finish()
        assert ends == [] or ends == ["b"]
    assert [(status.state, status.until is not None) for status in states] == [("parked", True)] * 2
    assert all("usage limit of the account ours" in status.evidence for status in states)
    assert ends == ["b"]


async def test_an_agent_that_tries_first_and_dies_leaves_the_trying_to_another(tmp_path: Path) -> None:
    trying: Sequence[Step] = [{"fault": "limit:1@once=L"}, {"say": "begun"}, {"sleep": 60}, {"reply": "no"}]
    specs = [
        agent_of(tmp_path, "a", trying, account="ours"),
        agent_of(tmp_path, "b", [{"reply": "{prompt}"}], account="ours"),
    ]
    async with proctor.open_supervisor(specs, intensity=2) as sup:
        a, b = sup.agent("a"), sup.agent("b")
        async with a.stream("one") as turn:
            async for event in turn:
                if isinstance(event, v.Text):
                    break
            receipt = await b.queue("two")
            status = await b.status()
            os.killpg((await a.status()).pid or 0, signal.SIGKILL)
            with trio.fail_after(20):
                assert (await receipt.answer()).text == "two"
    assert (status.state, status.until) == ("parked", None)
    assert status.evidence.startswith("waiting for another agent to try the account")


async def test_a_spent_budget_parks_the_agent_until_its_window_frees(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, budget=Budget(2.0, 2.5, warn=0.4))
    async with proctor.open_supervisor([spec], intensity=0) as sup:
        agent = sup.agent("a")
        began = trio.current_time()
        for prompt in ("one", "two"):
            assert (await agent.ask(prompt)).ok
        receipt = await agent.queue("three")
        status = await agent.status()
        assert (await receipt.answer()).ok
        lasted = trio.current_time() - began
        seen = await log_of(agent)
    assert status.state == "parked"
    assert status.evidence.startswith("a has spent $2 of $2 in 2.5 s; until ")
    assert lasted >= 2.5
    told = notices(seen, "budget_near", "budget_exceeded", "cost_unknown")
    assert told[:2] == ["budget_near", "budget_exceeded"]


async def test_a_budget_of_the_tree_counts_what_all_of_it_spend(tmp_path: Path) -> None:
    specs = [agent_of(tmp_path, name) for name in "abc"]
    budget = Budget(2.0, 600.0)
    async with proctor.open_supervisor(specs, budget=budget) as sup:
        for name in "ab":
            assert (await sup.agent(name).ask("x")).ok
        async with sup.agent("c").stream("x") as turn:
            async for event in turn:
                if isinstance(event, v.Notice) and event.code == "parked":
                    break
        status = await sup.agent("b").status()
    assert status.state == "idle"


async def test_a_budget_that_escalates_ends_the_agent_and_at_last_its_tree(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, budget=Budget(1.0, 600.0, then="escalate"))
    with trio.fail_after(20), pytest.raises(proctor.MaxRestartsExceeded) as caught:
        await _asked_twice(spec)
    causes = [crash for crash in caught.value.exceptions if isinstance(crash, BudgetExceeded)]
    assert [str(cause) for cause in causes] == ["a is stopped: a has spent $1 of $1 in 600 s"] * 2


async def _asked_twice(spec: ChildSpec) -> None:
    async with proctor.open_supervisor([spec], intensity=1, period=600) as sup:
        assert (await sup.agent("a").ask("one")).ok
        await sup.agent("a").ask("two")


async def test_a_budget_that_only_warns_stops_nobody(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, budget=Budget(1.0, 600.0, then="warn"))
    async with proctor.open_supervisor([spec]) as sup:
        for prompt in ("one", "two"):
            assert (await sup.agent("a").ask(prompt)).ok
        seen = await log_of(sup.agent("a"))
    assert notices(seen, "budget_near", "budget_exceeded", "parked") == ["budget_exceeded"]


async def test_a_gate_asks_for_money_before_it_asks_the_account(autojump_clock: MockClock) -> None:
    fellows = TreeLimits(seed=1)
    account = fellows.account("it")
    limited = SpendLimits(fellows.book, (fellows.book.window("a", Budget(1.0, 100.0)),), "a")
    poor = Admission("poor", fellows, account, limited, waits=True)
    rich = Admission("rich", fellows, account, SpendLimits(fellows.book, (), "b"), waits=True)
    assert list(limited.spend(2.0)) == [("budget_exceeded", "a has spent $2 of $1 in 100 s")]
    account.limited(10.0, trio.current_time())
    await trio.sleep(12)
    hold = poor.admit(again=True)
    assert hold is not None
    assert hold.seconds == 88.0
    assert rich.admit(again=True) is None  # nobody tries the account in vain
    await poor.wait(hold)
    other = poor.admit(again=True)
    assert other is not None
    assert other.until is None
    rich.passed()  # told before anybody waits is told
    with trio.fail_after(1):
        await poor.wait(other)
    while (held := poor.admit(again=True)) is not None:
        await poor.wait(held)
