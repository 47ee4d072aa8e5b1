from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from proctor.actors.gateways.http import SessionTurns
from proctor.actors.gateways.http.turns import LOGS
from proctor.actors.plan.plan import plan_of
from proctor.actors.serving.pool import Pools
from proctor.actors.serving.sessions import Sessions
from tests.actors.gateways.http.serving import Served, served, spoken


@asynccontextmanager
async def roomy(tmp_path: Path, limit: int = 2) -> AsyncGenerator[Served]:
    specs = (spoken("a"), spoken("b"), spoken("c"))
    plans = {spec.id: plan_of(spec) for spec in specs[:2]}
    async with Sessions(tmp_path / "sessions") as sessions:
        session_turns = SessionTurns(sessions=sessions, plans=plans, pools=Pools(limit=limit), prefix="here/")
        async with served(*specs, hooks={"session_turns": session_turns}) as server:
            yield server


async def listed(server: Served, agent: str = "a") -> dict[str, int]:
    said = (await server.client.get(f"/agents/{agent}/sessions")).json()
    return {session["id"]: session["in_use"] for session in said["sessions"]}


async def in_session(server: Served, prompt: str, session: str, agent: str = "a") -> httpx2.Response:
    return await server.ask(prompt, agent, session_id=session)


@pytest.mark.covers("R128")
async def test_a_turn_within_a_session_leaves_the_agent_alone_and_its_folder_is_found_again(
    tmp_path: Path,
) -> None:
    async with roomy(tmp_path) as server:
        first = (await in_session(server, "one", "s-1")).json()
        second = (await in_session(server, "two", "s-1")).json()
        plain = (await server.ask("three")).json()
        await in_session(server, "four", "s-1", "b")
        here, there = await listed(server), await listed(server, "b")
        folders = [*(tmp_path / "sessions").iterdir()]
    assert (first["answer"]["text"], second["answer"]["text"]) == ("1: one", "1: two")  # a process each
    assert (first["session_id"], plain["session_id"]) == ("s-1", None)
    assert plain["answer"]["text"] == "1: three"
    assert (here, there, len(folders)) == ({"s-1": 0}, {"s-1": 0}, 2)


@pytest.mark.covers("R092")
async def test_the_events_of_a_sessions_turn_are_told_as_any_others_and_later_again(
    tmp_path: Path,
) -> None:
    body = {"prompt": "hello", "session_id": "s"}
    async with roomy(tmp_path) as server:
        got = await server.read("/agents/a/turns", method="POST", body=body)
        url = got[-1].data["turn"]["url"]
        again = await server.read(url)
        rest = await server.read(url, headers={"last-event-id": str(got[2].id)})
        for _ in range(LOGS):
            await in_session(server, "more", "s")
        late = await server.read(url)
    ids = [frame.id for frame in got[1:-1]]
    assert ids == list(range(len(ids)))
    assert got[-1].data["turn"]["answer"]["text"] == "1: hello"
    assert "turn_ended" in [frame.event for frame in got]
    assert [frame.event for frame in again[1:-1]] == [frame.event for frame in got[1:-1]]
    assert rest[1:-1] == got[3:-1]
    assert [frame.event for frame in late] == ["turn", "end"]


async def test_turns_of_one_session_take_turns_and_one_in_use_cannot_be_removed(tmp_path: Path) -> None:
    async with roomy(tmp_path) as server:
        hanging = await server.client.post(
            "/agents/a/turns", json={"prompt": "hang", "session_id": "s"}, headers={"prefer": "respond-async"}
        )
        waiting = await server.client.post(
            "/agents/a/turns", json={"prompt": "next", "session_id": "s"}, headers={"prefer": "respond-async"}
        )
        await until_running(server, hanging.json()["url"])
        used = await listed(server)
        state = (await server.client.get(waiting.json()["url"])).json()["state"]
        busy = await server.client.delete("/agents/a/sessions/s")
        withdrawn = (await server.client.delete(hanging.json()["url"])).json()
        done = await server.read(waiting.json()["url"])
        gone = await server.client.delete("/agents/a/sessions/s")
        again = await server.client.delete("/agents/a/sessions/s")
        left = [*(tmp_path / "sessions").iterdir()]
    assert (used, state) == ({"s": 2}, "waiting")
    assert (busy.status_code, busy.json()["type"]) == (409, "urn:proctor:problem:in-use")
    assert withdrawn["problem"]["type"] == "urn:proctor:problem:withdrawn"
    assert done[-1].data["turn"]["answer"]["text"] == "1: next"
    assert (gone.status_code, again.status_code, left) == (204, 404, [])


async def until_running(server: Served, url: str) -> None:
    async with server.follow(url) as found:
        async for frame in found:
            if frame.id is not None:
                return


@pytest.mark.parametrize(
    ("agent", "more", "status", "kind"),
    [
        ("c", {"session_id": "s"}, 422, "no-sessions"),
        ("a", {"session_id": "../s"}, 422, "invalid-body"),
        ("a", {"session_id": ""}, 422, "invalid-body"),
    ],
)
async def test_a_session_that_cannot_be_is_refused(
    agent: str, more: dict[str, Any], status: int, kind: str, tmp_path: Path
) -> None:
    async with roomy(tmp_path) as server:
        response = await server.ask("x", agent, **more)
    assert (response.status_code, response.json()["type"]) == (status, f"urn:proctor:problem:{kind}")


@pytest.mark.covers("R183")
async def test_at_the_end_a_sessions_turn_is_interrupted_as_any_other(tmp_path: Path) -> None:
    body = {"prompt": "hang", "session_id": "s"}
    async with (
        roomy(tmp_path) as server,
        server.follow("/agents/a/turns", method="POST", body=body) as found,
    ):
        async for frame in found:
            if frame.id is not None:
                break
        await server.gateway.drain(0.1)
        with trio.fail_after(30):
            last = [frame async for frame in found][-1]
    assert last.data["turn"]["problem"]["type"] == "urn:proctor:problem:stopping"
