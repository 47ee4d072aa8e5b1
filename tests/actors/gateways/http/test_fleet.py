"""The routes of the whole fleet: its snapshot, what changes in it, its open approvals, its end."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import trio

from tests.actors.gateways.http.serving import Frame, Served, Stream, served, spoken
from tests.actors.gateways.http.test_approvals import asks


class Follower:
    """A client that takes a snapshot and applies what changes."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self.agents: dict[str, Any] = {}
        self.tree: Any = None
        self.sequence = 0
        self.snapshots = 0

    async def take(self) -> None:
        snapshot = (await self._server.client.get("/fleet")).json()
        self.agents = {record["name"]: record for record in snapshot["agents"]}
        self.tree, self.sequence = snapshot["tree"], snapshot["sequence"]
        self.snapshots += 1

    async def follow(self) -> None:
        async with self._server.follow(f"/fleet/changes?since={self.sequence}") as frames:
            async for frame in frames:
                await self.apply(frame)

    async def apply(self, frame: Frame) -> None:
        if frame.event == "end":
            return
        assert frame.id is not None
        assert frame.id >= self.sequence
        match frame.event:
            case "agent":
                self.agents[frame.data["name"]] = frame.data
            case "tree":
                self.tree = frame.data
            case "fleet":
                pass
            case "snapshot":
                await self.take()
            case other:
                raise AssertionError(other)
        self.sequence = frame.id


@pytest.mark.parametrize("seed", range(5))
async def test_a_client_that_follows_the_changes_has_what_a_fresh_snapshot_has(seed: int) -> None:
    chance = random.Random(seed)
    names = ("a", "b", "c")
    async with (
        served(*map(spoken, names), heartbeat=0.05, seconds=120.0, intensity=100) as server,
        trio.open_nursery() as nursery,
    ):
        follower = Follower(server)
        await follower.take()
        nursery.start_soon(follower.follow)
        for _ in range(30):
            await act(server, chance.choice(names), chance)
        for name in names:
            await server.client.post(f"/agents/{name}/start")
        fresh = Follower(server)
        while (fresh.agents, fresh.tree) != (follower.agents, follower.tree) or not fresh.agents:
            await fresh.take()
            await trio.sleep(0.01)
        assert follower.snapshots == 1
        assert follower.sequence <= fresh.sequence
        nursery.cancel_scope.cancel()


async def act(server: Served, name: str, chance: random.Random) -> None:
    deed = chance.choice(("queue", "queue", "hang", "interrupt", "stop", "start", "restart", "crash"))
    if deed in ("interrupt", "stop", "start", "restart"):
        await server.client.post(f"/agents/{name}/{deed}")
    else:
        await server.client.post(f"/agents/{name}/queue", json={"prompt": deed})


async def test_a_snapshot_has_each_agent_with_its_place_and_the_tree_above_them() -> None:
    async with served(spoken("a"), spoken("b")) as server:
        await server.ask("you", "b")
        snapshot = (await server.client.get("/fleet")).json()
        listed = (await server.client.get("/agents")).json()["agents"]
    first, second = snapshot["agents"]
    for record, own in zip(listed, (first, second), strict=True):
        del record["seconds"]
        assert {**own, **record} == own
    assert (first["path"], first["restarts"], first["approvals"], first["last_exit"]) == (
        "root/a",
        0,
        0,
        None,
    )
    assert (second["turns"], second["state"]) == (1, "idle")
    assert snapshot["pid"] == os.getpid()
    assert snapshot["tree"]["state"] == "running"
    assert [child["agent"] for child in snapshot["tree"]["children"]] == ["a", "b"]


async def test_a_restart_and_its_cause_are_in_the_record_of_the_agent() -> None:
    async with served(spoken("a")) as server:
        await server.ask("crash")
        while (record := (await server.client.get("/fleet")).json()["agents"][0])["restarts"] == 0:  # noqa: ASYNC110
            await trio.sleep(0.01)
    assert "exit status 3" in record["last_exit"]


@pytest.mark.parametrize("since", ["5", "999999999999999"])
async def test_a_number_of_another_host_gets_the_word_to_take_a_snapshot(since: str) -> None:
    async with served(spoken("a")) as server, server.follow(f"/fleet/changes?since={since}") as frames:
        first = await anext(frames)
        assert first.event == "snapshot"
        assert first.id == (await server.client.get("/fleet")).json()["sequence"]


async def next_agent(frames: Stream) -> Frame:
    while (frame := await anext(frames)).event != "agent":
        pass
    return frame


async def test_a_client_that_was_away_gets_each_agent_once_as_it_is_now() -> None:
    async with served(spoken("a"), spoken("b")) as server:
        sequence = (await server.client.get("/fleet")).json()["sequence"]
        for _ in range(3):
            await server.ask("you", "a")
            await server.client.get("/fleet")
        headers = {"last-event-id": str(sequence)}
        async with server.follow("/fleet/changes", headers=headers) as frames:
            first = await next_agent(frames)
            await server.ask("you", "b")
            second = await next_agent(frames)
    assert (first.event, first.data["name"], first.data["turns"]) == ("agent", "a", 3)
    assert second.data["name"] == "b"


async def test_a_stream_of_changes_ends_with_the_server_and_is_kept_alive_before() -> None:
    async with served(spoken("a"), heartbeat=0.02) as server, server.follow("/fleet/changes") as frames:
        last: list[Frame] = []

        async def read() -> None:
            last.extend([frame async for frame in frames])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            while frames.comments.count("ping") < 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
            await server.gateway.drain(0.0)
    assert (last[-1].event, last[-1].data["why"]) == ("end", "the server is stopping")


@pytest.mark.parametrize("since", ["-1", "x", "1" * 20])
async def test_what_is_no_number_of_a_change_is_refused(since: str) -> None:
    async with served(spoken("a")) as server:
        response = await server.client.get(f"/fleet/changes?since={since}")
    assert (response.status_code, response.json()["where"]) == (400, "since")


async def test_the_open_approvals_of_all_agents_are_in_one_list() -> None:
    async with served(
        spoken("a", asks, permission="ask"), spoken("b"), spoken("c", asks, permission="ask")
    ) as server:
        for name in ("a", "b", "c"):
            await server.client.post(f"/agents/{name}/queue", json={"prompt": "hang"})
        while len(found := (await server.client.get("/approvals")).json()["approvals"]) < 2:  # noqa: ASYNC110
            await trio.sleep(0.01)
        counts = [record["approvals"] for record in (await server.client.get("/fleet")).json()["agents"]]
    assert [(one["agent"], one["tool"], one["input"]) for one in found] == [
        ("a", "Bash", {"command": "touch x"}),
        ("c", "Bash", {"command": "touch x"}),
    ]
    assert counts == [1, 0, 1]


async def test_a_shutdown_takes_no_new_work_lets_turns_end_and_then_stops_the_host() -> None:
    stopped = trio.Event()
    async with served(spoken("a"), hooks={"shutdown": stopped.set}) as server:
        turn = (await server.client.post("/agents/a/turns", json={"prompt": "hang"}, headers=ASYNC)).json()
        await server.until_running()
        answer = await server.client.post("/shutdown", json={"grace": 600})
        refused = await server.ask("more")
        assert not stopped.is_set()
        await server.client.post("/agents/a/interrupt")
        await stopped.wait()
        ended = (await server.client.get(turn["url"])).json()
    assert (answer.status_code, answer.json()) == (202, {"pid": os.getpid()})
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:proctor:problem:no-new-work")
    assert ended["answer"]["outcome"] == "interrupted"


ASYNC = {"prefer": "respond-async"}


async def test_a_shutdown_without_a_grace_does_not_wait_for_turns() -> None:
    stopped = trio.Event()
    async with served(spoken("a"), hooks={"shutdown": stopped.set}) as server:
        await server.client.post("/agents/a/turns", json={"prompt": "hang"}, headers=ASYNC)
        await server.until_running()
        assert (await server.client.post("/shutdown", json={})).status_code == 202
        await stopped.wait()


async def test_a_server_within_a_program_is_not_stopped_by_a_request() -> None:
    async with served(spoken("a")) as server:
        response = await server.client.post("/shutdown", json={"grace": 1})
        assert (await server.ask("you")).status_code == 200
    assert (response.status_code, response.json()["type"]) == (422, "urn:proctor:problem:not-possible")


async def test_agents_without_a_supervisor_of_theirs_have_a_snapshot_too() -> None:
    async with served(spoken("a"), hooks={"lifecycle": None}) as server:
        snapshot = (await server.client.get("/fleet")).json()
    assert (snapshot["fleet"], snapshot["tree"]) == ("", None)
    assert [(record["name"], record["state"]) for record in snapshot["agents"]] == [("a", "idle")]


async def test_an_agent_that_is_left_out_has_its_reason() -> None:
    absent = {"a": "could not start: no such program"}
    async with served(spoken("a"), hooks={"absent": absent}) as server:
        [record] = (await server.client.get("/fleet")).json()["agents"]
    assert (record["state"], record["evidence"]) == ("failed", "could not start: no such program")
