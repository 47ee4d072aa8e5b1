"""The requests and the past runs of a fleet over HTTP."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

import proctor
from proctor.actors.agent.stored_requests import current_requests
from proctor.actors.gateways.http.history import PAGE, PROMPT
from proctor.actors.operations.restarts import KEPT, RestartHistory
from proctor.actors.store.backend import opened
from proctor.actors.store.memory import MemoryStore
from proctor.protocols import vocabulary as v
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision import supervisor_spec
from tests.actors.gateways.http.serving import Served, served, spoken


def at_home(name: str = "a", **options: Any) -> ChildSpec:
    """An agent at home in a place of this process's own: two agents of one home must not run one conversation, in whatever process."""
    return spoken(name, home="user", env={"HOME": f"/{os.getpid()}/{name}"}, **options)


async def requests(server: Served, query: str = "") -> list[dict[str, Any]]:
    response = await server.client.get(f"/requests{query}")
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["requests"]
    return found


async def ask(server: Served, prompt: str, agent: str = "a", key: str | None = None) -> None:
    headers = {} if key is None else {"idempotency-key": key}
    answer = await server.client.post(f"/agents/{agent}/turns", json={"prompt": prompt}, headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize("store", [None, "memory"])
async def test_a_request_is_listed_from_its_acceptance_to_its_end(store: str | None) -> None:
    async with served(at_home(), store=MemoryStore() if store else None) as server:
        began = time.time()
        for prompt in ("hang", "second " + "x" * 300):
            await server.client.post("/agents/a/queue", json={"prompt": prompt})
        await server.until_running()
        waiting, running = await requests(server)
        only = await requests(server, "?state=running&agent=a")
        await server.client.post("/agents/a/interrupt")
        while (await server.client.get("/fleet")).json()["agents"][0]["turns"] < 2:  # noqa: ASYNC110
            await trio.sleep(0.01)
        ended = await requests(server)
    assert [one["prompt"] for one in (running, waiting)] == ["hang", ("second " + "x" * 300)[:PROMPT]]
    assert [one["state"] for one in (running, waiting)] == ["running", "waiting"]
    assert [one["id"] for one in only] == [running["id"]]
    assert -1 < running["accepted"] - began < 20
    if store:
        assert running["sent"] >= running["accepted"]
        assert [(one["state"], one["outcome"]) for one in ended] == [
            ("ended", "ok"),
            ("ended", "interrupted"),
        ]
        assert [one["cost_usd"] for one in ended] == [0.0, 0.5]
        assert all(one["session_id"] == "s" and one["ended"] >= one["sent"] for one in ended)
    else:
        assert ended == []


async def test_requests_of_an_earlier_host_are_listed_by_key_agent_and_state() -> None:
    store = MemoryStore()
    async with served(at_home("a"), at_home("b"), store=store) as server:
        await ask(server, "one", "a", key="order-1")
        await ask(server, "two", "b", key="order-2")
    async with served(at_home("a"), at_home("b"), store=store) as server:
        everything = await requests(server)
        of_b = await requests(server, "?agent=b")
        none = await requests(server, "?state=waiting")
        newest = await requests(server, "?limit=1")
        wrong = [await server.client.get(f"/requests?{query}") for query in ("state=odd", "limit=x")]
    assert [(one["agent"], one["key"], one["state"]) for one in everything] == [
        ("b", "order-2", "ended"),
        ("a", "order-1", "ended"),
    ]
    assert (of_b, none, newest) == (everything[:1], [], everything[:1])
    assert [(one.status_code, one.json()["where"]) for one in wrong] == [(400, "state"), (400, "limit")]


async def test_past_runs_of_the_fleet_are_listed_and_shown_with_their_events(tmp_path: Path) -> None:
    for prompt in ("one", "two"):
        async with served(at_home("a", record=tmp_path), at_home("b", record=tmp_path)) as server:
            await ask(server, prompt)
    async with served(at_home("a", record=tmp_path)) as server:
        runs = (await server.client.get("/runs")).json()["runs"]
        newest = (await server.client.get("/runs?limit=1")).json()["runs"]
        # by their ends: two runs that begin in the same second have no order
        by_text = {run["text"]: run for run in runs}
        current, first, second = by_text[""], by_text["1: one"], by_text["1: two"]
        shown = (await server.client.get(f"/runs/{second['id']}")).json()
        events = (await server.client.get(f"/runs/{second['id']}/events")).json()
        later = (await server.client.get(f"/runs/{second['id']}/events?since=2")).json()
        gone = [await server.client.get(f"/runs/x{rest}") for rest in ("", "/events")]
    assert [run["agent"] for run in runs] == ["a"] * 3
    assert newest == runs[:1]
    assert (current["is_running"], second["is_running"]) == (True, False)
    assert (second["outcome"], second["turns"], second["cost_usd"]) == ("ok", 1, 0.5)
    assert first["begun"] <= second["begun"] <= current["begun"]
    assert shown == second
    assert events["next"] is None
    kinds = {event["type"] for event in events["events"]}
    assert kinds >= {"started", "turn_started", "turn_ended", "exited"}
    assert later["events"] == events["events"][2:]
    assert [response.json()["type"] for response in gone] == ["urn:proctor:problem:no-such-run"] * 2


async def test_the_events_of_a_long_run_come_in_pages(tmp_path: Path) -> None:
    async with served(at_home("a", record=tmp_path)) as server:
        [run] = (await server.client.get("/runs")).json()["runs"]
        state = server.sup.agent("a").kept_state()
        assert state is not None
        before = state.log.end
        state.log.append([v.Text(number, None, f"{number}") for number in range(PAGE + 5)])
        first = (await server.client.get(f"/runs/{run['id']}/events?since={before}")).json()
        second = (await server.client.get(f"/runs/{run['id']}/events?since={first['next']}")).json()
    assert (len(first["events"]), first["next"]) == (PAGE, before + PAGE)
    assert [event["text"] for event in second["events"][:5]] == [str(PAGE + number) for number in range(5)]
    assert second["next"] is None


async def test_restarts_and_the_cost_of_the_day_outlive_the_host() -> None:
    store, costs = MemoryStore(), list[tuple[float | None, float | None]]()
    for number in (1, 2):
        async with served(at_home(), at_home("b"), store=store, intensity=9) as server:
            fleet = (await server.client.get("/fleet")).json()
            costs.append((fleet["agents"][0]["cost_today_usd"], fleet["cost_today_usd"]))
            await ask(server, "hello")
            await server.client.post("/agents/a/kill")
            while len(found := await restarts(server)) < number:  # noqa: ASYNC110
                await trio.sleep(0.01)
            other, one = await restarts(server, "?agent=b"), await restarts(server, "?limit=1")
    assert [one["agent"] for one in found] == ["a", "a"]
    assert [one["cause"] for one in found] == ["killed", "killed"]
    assert found[0]["at"] >= found[1]["at"] > time.time() - 60
    assert (other, one) == ([], found[:1])
    assert costs == [(None, None), (0.5, 0.5)]


async def restarts(server: Served, query: str = "") -> list[dict[str, Any]]:
    response = await server.client.get(f"/restarts{query}")
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["restarts"]
    return found


async def test_a_restart_of_a_supervisor_counts_for_what_is_below_it_and_the_last_are_kept() -> None:
    store = MemoryStore()
    async with opened(store):
        await store.put("a", "restarts", "not JSON")
        many = [{"at": float(number), "cause": "x"} for number in range(KEPT)]
        await store.put("b", "restarts", msgspec.json.encode(many).decode())
    below = supervisor_spec("below", [at_home("c")], restart="permanent")
    async with proctor.open_supervisor([at_home("a"), at_home("b"), below], store=store, intensity=9) as sup:
        history = RestartHistory(sup, current_requests())
        async with trio.open_nursery() as nursery:
            await nursery.start(history.follow)
            assert (history.of("a"), len(history.of("b"))) == ([], KEPT)
            for place in ("b", "below"):
                sup.child(place).kill()
                while not history.of(place) or history.of(place)[0].cause == "x":  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert [restart.cause for restart in history.of("below/c")] == ["killed"]
            newest = history.of("b")
            assert (len(newest), newest[0].cause, newest[-1].at) == (KEPT, "killed", 1.0)
            nursery.cancel_scope.cancel()
