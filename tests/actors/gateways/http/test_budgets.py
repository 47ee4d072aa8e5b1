"""Budgets that are changed while a fleet runs, and what of limits and budgets outlives its host."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.store.memory import MemoryStore
from proctor.runtime.spec import ChildSpec
from tests.actors.gateways.http.serving import Served, served, spoken
from tests.actors.spoken import saying
from tests.protocols.lines import line

DAY = 86400.0


async def state_of(server: Served, name: str = "a") -> str:
    [record] = [one for one in (await server.client.get("/fleet")).json()["agents"] if one["name"] == name]
    return str(record["state"])


async def until_state(server: Served, state: str, name: str = "a") -> None:
    while await state_of(server, name) != state:  # noqa: ASYNC110
        await trio.sleep(0.01)


async def put(server: Served, path: str, **body: Any) -> dict[str, Any]:
    response = await server.client.put(path, json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


def spends(name: str = "a", **options: Any) -> ChildSpec:
    """An agent whose first turn costs half a dollar, at home in a place of this process's own: two agents of one home must not run
    one conversation, in whatever process."""
    return spoken(name, home="user", env={"HOME": f"/{os.getpid()}/{name}"}, **options)


async def test_a_cap_that_is_raised_lets_an_agent_go_on_and_one_that_is_lowered_parks_the_next() -> None:
    async with served(spends(budget=proctor.Budget(0.4, 3600))) as server:
        await server.ask("one")
        await server.client.post("/agents/a/queue", json={"prompt": "two"})
        await until_state(server, "parked")
        before = (await server.client.get("/agents/a/budget")).json()
        raised = await put(server, "/agents/a/budget", usd=5.0)
        await until_state(server, "idle")
        lowered = await put(server, "/agents/a/budget", usd=0.25, per=DAY)
        await server.client.post("/agents/a/queue", json={"prompt": "three"})
        await until_state(server, "parked")
    assert (before["agent"], before["usd"], before["per"], before["then"]) == ("a", 0.4, 3600.0, "park")
    assert (before["spent_usd"], before["unknown_turns"]) == (0.5, 0)
    assert 3500 < before["until"] - time.time() <= 3600
    assert (raised["usd"], raised["per"], raised["until"]) == (5.0, 3600.0, None)
    assert (lowered["usd"], lowered["per"]) == (0.25, DAY)


async def test_an_agent_and_a_fleet_without_a_budget_are_given_one() -> None:
    async with served(spends("a"), spends("b")) as server:
        none = [(await server.client.get(path)).json() for path in ("/budget", "/agents/a/budget")]
        await server.ask("one")
        fleet = await put(server, "/budget", usd=0.2)
        await server.client.post("/agents/b/queue", json={"prompt": "one"})
        # what was spent before there was a budget is not in its window
        await until_state(server, "idle", "b")
        await server.client.post("/agents/a/queue", json={"prompt": "two"})
        await until_state(server, "parked", "a")
        own = await put(server, "/agents/a/budget", usd=1.0)
        await put(server, "/budget", usd=9.0)
        await until_state(server, "idle", "a")
        spent = (await server.client.get("/budget")).json()
        cap = (await server.client.get("/fleet")).json()["cost_cap_usd"]
    assert [(one["usd"], one["spent_usd"]) for one in none] == [(None, None)] * 2
    assert (fleet["agent"], fleet["usd"], fleet["per"]) == (None, 0.2, DAY)
    assert (own["agent"], own["usd"]) == ("a", 1.0)
    assert (spent["spent_usd"], cap) == (0.5, 9.0)


async def test_a_budget_that_is_removed_lets_agents_go_on_and_a_later_one_counts_anew() -> None:
    store = MemoryStore()
    written = proctor.Budget(0.4, 3600)
    async with served(spends(budget=written), store=store) as server:
        await put(server, "/budget", usd=0.4)
        await server.ask("one")
        await server.client.post("/agents/a/queue", json={"prompt": "two"})
        await until_state(server, "parked")
        for path in ("/agents/a/budget", "/budget"):
            removed = await server.client.delete(path)
            assert (removed.status_code, removed.json()["usd"], removed.json()["spent_usd"]) == (
                200,
                None,
                None,
            )
        await until_state(server, "idle")
        fleet = (await server.client.get("/fleet")).json()
        assert (fleet["cost_cap_usd"], fleet["limits"]) == (None, [])
        assert (await server.client.delete("/budget")).status_code == 200
    async with served(spends(budget=written), store=store) as server:
        kept = (await server.client.get("/agents/a/budget")).json()
        anew = await put(server, "/agents/a/budget", usd=0.6)
        await server.ask("three")
    assert (kept["usd"], anew["spent_usd"]) == (None, 0)


async def test_a_budget_that_is_removed_in_the_midst_of_a_turn_holds_nothing_of_a_later_one() -> None:
    async with served(spends(budget=proctor.Budget(5, 3600))) as server:
        await server.client.post("/agents/a/queue", json={"prompt": "hang"})
        await until_state(server, "working")
        await server.client.delete("/agents/a/budget")
        await put(server, "/agents/a/budget", usd=0.6)
        await server.client.post("/agents/a/interrupt")
        await until_state(server, "idle")
        await server.ask("next")


async def test_a_budget_that_cannot_be_is_refused() -> None:
    async with served(spends(), hooks={"lifecycle": None}) as server:
        alone = await server.client.get("/budget")
    async with served(spends()) as server:
        wrong = [
            await server.client.put("/budget", json=body) for body in ({"usd": 0}, {"usd": 1, "per": 0}, {})
        ]
        missing = await server.client.put("/agents/b/budget", json={"usd": 1})
    assert (alone.status_code, alone.json()["type"]) == (422, "urn:proctor:problem:not-possible")
    assert [response.status_code for response in wrong] == [422] * 3
    assert missing.status_code == 404


async def test_a_changed_budget_outlives_its_host_until_another_is_written() -> None:
    store = MemoryStore()
    written = proctor.Budget(0.4, 3600)
    async with served(spends(budget=written), store=store) as server:
        await put(server, "/agents/a/budget", usd=7.0, per=60)
        await put(server, "/budget", usd=8.0)
    async with served(spends(budget=written), store=store) as server:
        kept = [(await server.client.get(path)).json() for path in ("/agents/a/budget", "/budget")]
    async with served(spends(budget=proctor.Budget(0.5, 3600)), store=store) as server:
        anew = (await server.client.get("/agents/a/budget")).json()
    assert [(one["usd"], one["per"]) for one in kept] == [(7.0, 60.0), (8.0, DAY)]
    assert (anew["usd"], anew["per"]) == (0.5, 3600.0)


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"usd": "x"}'])
async def test_a_changed_budget_that_cannot_be_read_costs_no_more_than_itself(text: str) -> None:
    store = MemoryStore()
    await store.put("a", "budget", text)
    await store.put("", "reset:team", text)
    async with served(spends(budget=proctor.Budget(0.4, 3600)), store=store) as server:
        budget = (await server.client.get("/agents/a/budget")).json()
        assert (await server.ask("one")).json()["answer"]["ok"]
    assert budget["usd"] == 0.4


def limited_until(resets_at: float) -> ChildSpec:
    info = {"status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour"}
    rejected = line(type="rate_limit_event", rate_limit_info=info)
    failed: dict[str, Any] = {"subtype": "success", "is_error": True, "terminal_reason": "api_error"}
    return spends(far_end=saying(rejected, result="Limit", **failed), account="team")


async def until_parked(sup: proctor.Supervisor) -> proctor.Status:
    while (status := await sup.agent("a").status()).state != "parked":  # noqa: ASYNC110
        await trio.sleep(0.1)
    return status


async def test_a_usage_limit_that_a_host_has_met_holds_for_the_next(autojump_clock: MockClock) -> None:
    store, resets_at = MemoryStore(), time.time() + 3600
    for spec in (limited_until(resets_at), spends("a", account="team")):
        async with proctor.open_supervisor([spec], store=store) as sup:
            await sup.agent("a").queue("go", key=f"{spec!r:.20}")
            status = await until_parked(sup)
            assert "usage limit of the account team" in status.evidence
            assert status.until is not None
            assert abs(status.until - resets_at) < 60
    async with proctor.open_supervisor([spends("a", account="other")], store=store) as sup:
        assert (await sup.agent("a").ask("go")).ok
