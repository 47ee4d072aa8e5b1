from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import httpx2
import pytest
import trio

from proctor import Budget
from proctor.actors.gateways.http import SessionTurns
from proctor.actors.plan.budgets import Alarm
from proctor.actors.plan.plan import plan_of
from proctor.actors.serving.pool import Pools
from proctor.actors.serving.sessions import Sessions
from proctor.actors.transport.memory import Peer, PeerStreams
from proctor.protocols.vocabulary import Notice
from tests.actors.gateways.http.serving import Served, served, spoken
from tests.actors.spoken import GOOD, Speaker, saying, speaks

HOUR = 3600.0
ONE_TURN = Budget(0.4, HOUR)
"""Less than a turn of a spoken agent costs, which is 0.5."""


@asynccontextmanager
async def spending(
    tmp_path: Path,
    *,
    tree: Budget | None = None,
    own: Budget | None = None,
    far_end: Peer = speaks,
    limit: int = 2,
) -> AsyncGenerator[Served]:
    spec = spoken("a", far_end, budget=own)
    async with Sessions(tmp_path) as sessions:
        session_turns = SessionTurns(sessions=sessions, plans={"a": plan_of(spec)}, pools=Pools(limit=limit))
        async with served(spec, hooks={"session_turns": session_turns}, budget=tree) as server:
            yield server


def refused(response: httpx2.Response, whose: str) -> None:
    said = response.json()
    assert (response.status_code, said["type"]) == (429, "urn:proctor:problem:budget-spent")
    assert said["detail"].startswith(f"{whose} has spent $0.5 of $0.4 in 3600 s")
    assert 0 < int(response.headers["retry-after"]) <= HOUR


async def test_a_turn_in_a_session_is_refused_when_an_agent_has_spent_what_the_tree_may(
    tmp_path: Path,
) -> None:
    async with spending(tmp_path, tree=ONE_TURN) as server:
        plain = await server.ask("one")
        in_session = await server.ask("two", session_id="s")
    assert plain.status_code == 200
    refused(in_session, "the tree")


async def test_what_a_session_spends_holds_back_the_agents_of_the_tree(tmp_path: Path) -> None:
    async with spending(tmp_path, tree=ONE_TURN) as server:
        in_session = await server.ask("one", session_id="s")
        aside = {"prefer": "respond-async"}
        await server.client.post("/agents/a/turns", json={"prompt": "two"}, headers=aside)
        async with server.sup.agent("a").events(since=0) as events:
            told = ""
            while not told.startswith("the tree has spent $0.5 of $0.4 in 3600 s"):
                event = await anext(events)
                told = event.text if isinstance(event, Notice) and event.code == "parked" else ""
    assert in_session.status_code == 200


async def test_the_budget_of_an_agent_bounds_all_its_sessions_and_they_not_the_agent(tmp_path: Path) -> None:
    async with spending(tmp_path, own=ONE_TURN) as server:
        first = await server.ask("one", session_id="s")
        same, other = [await server.ask("two", session_id=id) for id in ("s", "t")]
        plain = await server.ask("three")
    assert (first.status_code, plain.status_code) == (200, 200)
    refused(same, "sessions of a")
    refused(other, "sessions of a")


async def test_one_that_waits_for_a_place_is_refused_when_it_has_one(tmp_path: Path) -> None:
    go = trio.Event()

    class Patient(Speaker):
        async def _prompt(self, text: str) -> int | None:
            await go.wait()
            return await super()._prompt(text)

    async def patient(side: PeerStreams) -> int | None:
        return await Patient(side).live()

    aside = {"prefer": "respond-async"}
    async with spending(tmp_path, tree=ONE_TURN, far_end=patient, limit=1) as server:
        urls: list[str] = []
        for id in ("s", "t"):
            body = {"prompt": "x", "session_id": id}
            urls.append((await server.client.post("/agents/a/turns", json=body, headers=aside)).json()["url"])
        go.set()
        ends = [(await server.read(url))[-1].data["turn"] for url in urls]
    answered = [turn for turn in ends if turn.get("answer")]
    problems = [turn["problem"]["type"] for turn in ends if turn.get("problem")]
    assert [turn["answer"]["text"] for turn in answered] == ["1: x"]
    assert problems == ["urn:proctor:problem:budget-spent"]


@pytest.mark.parametrize(
    ("budget", "far_end", "alarm"),
    [
        (Budget(0.4, HOUR, then="warn"), speaks, "budget_exceeded"),
        (Budget(0.6, HOUR), speaks, "budget_near"),
        (ONE_TURN, saying(**GOOD), "cost_unknown"),
    ],
    ids=["only warned of", "near", "of unknown cost"],
)
async def test_what_a_budget_has_to_say_is_said_once(
    budget: Budget, far_end: Peer, alarm: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with spending(tmp_path, tree=budget, far_end=far_end) as server:
        first = await server.ask("one", session_id="s")
        events = [(r.levelno, vars(r).get("event")) for r in caplog.records if r.name == "proctor"]
        again = await server.ask("two", session_id="s")
    alarms = [event for event in events if event[1] in get_args(Alarm)]
    assert (first.status_code, again.status_code) == (200, 200)
    assert alarms == [(logging.WARNING, alarm)]
