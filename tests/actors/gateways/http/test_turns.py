from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from tests.actors.gateways.http.serving import served, spoken


async def test_a_turn_is_asked_for_and_answered_as_json() -> None:
    async with served() as server:
        response = await server.ask("hello")
        record = response.json()
        listed = (await server.client.get("/agents/a/turns")).json()["turns"]
        found = await server.client.get(record["url"])
    assert response.status_code == 200
    assert (record["state"], record["answer"]["ok"], record["answer"]["text"]) == ("ended", True, "1: hello")
    assert response.headers["location"] == record["url"]
    assert listed == [record] == [found.json()]


@pytest.mark.covers("R092")
async def test_events_reach_the_client_in_order_and_the_last_is_the_end() -> None:
    async with served() as server:
        async with server.follow("/agents/a/turns", method="POST", body={"prompt": "hello"}) as found:
            got = [frame async for frame in found]
        logged = await server.read("/agents/a/events?since=0&follow=false")
    ids = [frame.id for frame in got if frame.id is not None]
    assert found.headers["content-type"].startswith("text/event-stream")
    assert (got[0].event, got[-1].event) == ("turn", "end")
    assert ids == list(range(ids[0], ids[-1] + 1))
    assert got[1:-1] == [frame for frame in logged if frame.id in ids]
    assert got[-2].event == "turn_ended"
    assert got[-1].data["turn"]["answer"]["text"] == "1: hello"


@pytest.mark.covers("R179")
async def test_the_end_of_a_stream_is_told_with_its_duration() -> None:
    async with served() as server:
        async with server.follow("/agents/a/turns", method="POST", body={"prompt": "hang"}) as found:
            await anext(found)
            await trio.sleep(0.05)
            await server.client.post("/agents/a/interrupt")
            last = [frame async for frame in found][-1]
        await server.until_told(2)
    told = dict(server.told)
    assert told["stream ended"]["agent"] == "a"
    assert told["stream ended"]["why"] == "the turn has ended"
    assert 0.05 <= told["stream ended"]["seconds"] < 10
    assert 0.05 <= last.data["duration"] < 10
    assert (told["turn ended"]["outcome"], told["turn ended"]["turn"]) == (
        "interrupted",
        last.data["turn"]["id"],
    )


async def test_a_turn_that_was_asked_for_without_waiting_goes_on_and_is_read_at_its_address() -> None:
    async with served() as server:
        body = {"prompt": "hello"}
        response = await server.client.post("/agents/a/turns", json=body, headers={"prefer": "respond-async"})
        record = response.json()
        got = await server.read(record["url"])
        seen = got[2].id
        rest = await server.read(record["url"], headers={"last-event-id": str(seen)})
    assert (response.status_code, response.headers["preference-applied"]) == (202, "respond-async")
    assert (record["state"], record["answer"]) == ("waiting", None)
    assert got[-1].data["turn"]["answer"]["text"] == "1: hello"
    assert [frame.id for frame in rest[1:-1]] == [
        frame.id for frame in got[1:-1] if (frame.id or 0) > (seen or 0)
    ]


async def test_turns_wait_for_each_other_and_each_stream_ends_with_its_own() -> None:
    async with (
        served() as server,
        server.follow("/agents/a/turns", method="POST", body={"prompt": "hang"}) as first,
        server.follow("/agents/a/turns", method="POST", body={"prompt": "after"}) as second,
    ):
        assert (await anext(second)).data["state"] == "waiting"
        await server.until_running()
        await server.client.post("/agents/a/interrupt")
        one = [frame async for frame in first]
        two = [frame async for frame in second]
    assert one[-1].data["turn"]["answer"]["outcome"] == "interrupted"
    assert two[-1].data["turn"]["answer"]["text"] == "2: after"
    for got in (one, two):
        ids = [frame.id for frame in got if frame.id is not None]
        assert ids == list(range(ids[0], ids[-1] + 1))
        assert [frame.event for frame in got].count("end") == 1


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_client_that_leaves_withdraws_the_turn_it_waits_for(accept: str) -> None:
    answers: list[str] = []
    async with served() as server, trio.open_nursery() as nursery:

        async def ask() -> None:
            headers = {"accept": accept}
            await server.client.post("/agents/a/turns", json={"prompt": "hang"}, headers=headers)

        nursery.start_soon(ask)
        await server.until_running()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(10):
            while not [facts for what, facts in server.told if what == "turn ended"]:
                await server.telling.park()
            answers.append((await server.ask("next")).json()["answer"]["text"])
    assert answers == ["2: next"]


async def test_a_turn_can_be_withdrawn_at_its_address() -> None:
    async with served() as server:
        headers = {"prefer": "respond-async"}
        begun = await server.client.post("/agents/a/turns", json={"prompt": "hang"}, headers=headers)
        await server.until_running()
        gone = await server.client.delete(begun.json()["url"])
        assert (await server.ask("next")).json()["answer"]["text"] == "2: next"
    assert (gone.status_code, gone.json()["state"]) == (200, "ended")
    assert gone.json()["problem"]["type"] == "urn:proctor:problem:withdrawn"


@pytest.mark.parametrize(
    ("prompt", "more", "status", "name"),
    [
        ("hang", {"timeout": 0.05}, 504, "deadline"),
        ("crash", {}, 502, "maybe-executed"),
    ],
)
async def test_a_turn_without_an_answer_is_a_problem_that_says_what_to_do(
    prompt: str, more: dict[str, Any], status: int, name: str
) -> None:
    async with served() as server:
        response = await server.ask(prompt, **more)
    problem = response.json()
    assert (response.status_code, problem["type"]) == (status, f"urn:proctor:problem:{name}")
    assert problem["remedy"]


async def test_the_stream_of_a_turn_that_crashes_ends_with_its_problem_behind_the_exit() -> None:
    body = {"prompt": "crash"}
    async with served() as server, server.follow("/agents/a/turns", method="POST", body=body) as found:
        got = [frame async for frame in found]
    assert (got[-2].event, got[-1].event) == ("exited", "end")
    assert got[-1].data["turn"]["problem"]["type"] == "urn:proctor:problem:maybe-executed"
    assert "out of luck" in got[-1].data["turn"]["problem"]["detail"]


GOOD = b'{"prompt": "x"}'
WRONG: Sequence[tuple[bytes, str, int, str]] = (
    (b"{", "application/json", 400, ""),
    (b"\xff", "application/json", 400, ""),
    (b'{"prompt": "\\ud800"}', "application/json", 400, ""),
    (b"[" * 100_000, "application/json", 400, ""),
    (b"[]", "application/json", 422, ""),
    (b"{}", "application/json", 422, ""),
    (b'{"prompt": ""}', "application/json", 422, "/prompt"),
    (b'{"prompt": 1}', "application/json", 422, "/prompt"),
    (b'{"prompt": "x", "timeout": -1}', "application/json", 422, "/timeout"),
    (b'{"prompt": "x", "timeout": 1e400}', "application/json", 400, ""),
    (b'{"prompt": "x", "prmopt": "y"}', "application/json", 422, ""),
    (b'{"prompt": "x", "schema": {"type": "nothing"}}', "application/json", 422, ""),
    (b'{"prompt": "x", "schema": {"$ref": "http://example.org/x"}}', "application/json", 422, ""),
    (GOOD, "text/plain", 415, "Content-Type"),
    (GOOD, "", 415, "Content-Type"),
    (b'{"prompt": "' + b"x" * 200_000 + b'"}', "application/json", 413, ""),
)
"""Body, content type, status, place."""


async def test_a_body_that_is_wrong_is_refused_with_its_place() -> None:
    async with served(limit=150_000) as server:
        for content, kind, status, where in WRONG:
            headers = {"content-type": kind} if kind else {}
            response = await server.client.post("/agents/a/turns", content=content, headers=headers)
            problem = response.json()
            assert (response.status_code, problem.get("where", "")) == (status, where), problem
            assert problem["remedy"]
        assert (await server.ask("hello")).json()["answer"]["text"] == "1: hello"


async def test_all_that_is_wrong_with_a_body_is_told_at_once() -> None:
    async with served() as server:
        body: dict[str, Any] = {"prompt": "", "timeout": 0, "schema": []}
        problem = (await server.client.post("/agents/a/turns", json=body)).json()
    assert {violation["where"] for violation in problem["violations"]} == {"/prompt", "/timeout", "/schema"}


async def test_agents_are_listed_and_shown_with_what_they_do() -> None:
    async with served(spoken("a"), spoken("b")) as server:
        await server.ask("hello", agent="b")
        listed = (await server.client.get("/agents")).json()["agents"]
        shown = (await server.client.get("/agents/b")).json()
        await server.sup.terminate_child("a")
        gone = (await server.client.get("/agents/a")).json()
        missing = await server.client.get("/agents/c")
        asked = await server.ask("hello", agent="a")
    assert [(record["name"], record["state"], record["turns"]) for record in listed] == [
        ("a", "idle", 0),
        ("b", "idle", 1),
    ]
    assert shown["cost_usd"] == 0.5
    assert gone["state"] == "stopped"
    assert (missing.status_code, missing.json()["where"]) == (404, "name")
    assert (asked.status_code, asked.headers["retry-after"]) == (503, "2")


async def test_what_is_said_beside_prompts_has_a_receipt() -> None:
    async with served() as server:
        idle = await server.client.post("/agents/a/interrupt")
        steered = await server.client.post("/agents/a/steer", json={"text": "left", "timeout": 0.1})
        queued = await server.client.post("/agents/a/queue", json={"prompt": "later"})
        answer = await server.ask("after it")
    assert (idle.status_code, idle.json()["fate"]) == (200, "refused")
    assert steered.json()["fate"] == "refused"
    assert (queued.status_code, queued.json()["fate"]) == (202, "queued")
    assert answer.json()["answer"]["text"] == "2: after it"


async def test_a_path_or_a_method_that_is_not_there_is_a_problem_too() -> None:
    async with served() as server:
        path = await server.client.get("/nothing")
        method = await server.client.put("/agents/a/turns")
        head = await server.client.head("/agents/a/events")
    assert (path.status_code, path.json()["type"]) == (404, "urn:proctor:problem:not-found")
    assert (method.status_code, set(method.headers["allow"].split(", "))) == (405, {"GET", "HEAD", "POST"})
    assert (head.status_code, head.content) == (200, b"")
