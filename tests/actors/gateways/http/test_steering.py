from __future__ import annotations

import attrs
import httpx2
import pytest
import trio

from proctor.runtime.spec import ChildSpec, Restart
from tests.actors.gateways.http.serving import Served, served, spoken


def child(restart: Restart = "permanent") -> ChildSpec:
    return attrs.evolve(spoken("a"), restart=restart)


async def say(server: Served, word: str, agent: str = "a") -> httpx2.Response:
    return await server.client.post(f"/agents/{agent}/{word}")


def kind(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["type"].removeprefix("urn:proctor:problem:")


@pytest.mark.covers("P09")
async def test_an_agent_is_stopped_and_stays_down_until_it_is_started() -> None:
    async with served(child(), spoken("b")) as server:
        stopped = (await say(server, "stop")).json()
        again = (await say(server, "stop")).json()
        refused = await server.ask("x")
        started = (await say(server, "start")).json()
        twice = await say(server, "start")
        answer = (await server.ask("x")).json()["answer"]
        other = (await server.client.get("/agents/b")).json()
    assert (stopped["state"], again["state"], refused.status_code) == ("stopped", "stopped", 503)
    assert (started["name"], started["state"], kind(twice)) == ("a", "idle", (409, "running"))
    assert (answer["text"], other["incarnation"]) == ("1: x", 1)


@pytest.mark.covers("P09")
async def test_a_restarted_agent_is_another_incarnation_and_what_ran_is_told() -> None:
    async with served(child()) as server, trio.open_nursery() as nursery:
        ends: list[httpx2.Response] = []

        async def ask() -> None:
            ends.append(await server.ask("hang"))

        async with server.follow("/agents/a/events?since=0") as found:
            nursery.start_soon(ask)
            async for frame in found:
                if frame.event == "notice" and frame.data["code"] == "sent":
                    break
            fresh = await say(server, "restart")
        answer = (await server.ask("x")).json()["answer"]
    assert (fresh.json()["state"], fresh.json()["incarnation"], answer["text"]) == ("idle", 2, "1: x")
    assert ends[0].json()["answer"]["outcome"] == "interrupted"


async def test_a_temporary_agent_is_not_stopped_for_a_restart_that_cannot_be_and_once_stopped_is_forgotten() -> (
    None
):
    async with served(child("temporary")) as server:
        assert kind(await say(server, "restart")) == (409, "temporary")
        assert (await server.client.get("/agents/a")).json()["state"] == "idle"
        await say(server, "stop")
        assert kind(await say(server, "start")) == (404, "forgotten")


async def test_what_cannot_be_steered_is_refused_and_nothing_is_started_at_the_end() -> None:
    async with served(hooks={"lifecycle": None}) as server:
        assert kind(await say(server, "stop")) == (422, "not-possible")
    async with served(child()) as server:
        assert kind(await say(server, "stop", "none")) == (404, "no-such-agent")
        await server.gateway.drain(0.0)
        assert kind(await say(server, "restart")) == (503, "no-new-work")
        assert (await say(server, "stop")).json()["state"] == "stopped"
