from __future__ import annotations

from typing import Any

import httpx2
import msgspec
import pytest
import trio

import proctor
from proctor.actors.gateways.http import Probes
from proctor.actors.gateways.openai import routes
from proctor.actors.serving.completion import CompletionModel
from proctor.actors.serving.in_flight import InFlight
from proctor.actors.transport.memory import Peer, PeerStreams
from tests.actors.gateways.http.serving import Frame, Served, served, spoken
from tests.actors.spoken import GOOD, saying, spec_of
from tests.protocols.lines import delta


@pytest.mark.covers("R183")
async def test_at_its_end_no_work_is_taken_and_what_runs_has_its_grace() -> None:
    async with served() as server, trio.open_nursery() as nursery:
        ends: list[Frame] = []
        nursery.start_soon(follow_turn, server, ends)
        await server.until_running()
        nursery.start_soon(server.gateway.drain, 600.0)
        await trio.testing.wait_all_tasks_blocked()
        refused = await server.ask("more")
        ready = await server.client.get("/readyz")
        await server.client.post("/agents/a/interrupt")  # the turn ends within the grace
        with trio.fail_after(30):
            await server.until_told(2)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    assert refused.json()["detail"] == "the server is stopping"
    assert (ready.status_code, ready.json()["why"]) == (503, "the server is stopping")
    assert ends[-1].data["turn"]["answer"]["outcome"] == "interrupted"


async def follow_turn(server: Served, ends: list[Frame]) -> None:
    async with server.follow("/agents/a/turns", method="POST", body={"prompt": "hang"}) as found:
        ends.extend([frame async for frame in found])


@pytest.mark.covers("R183")
async def test_what_outlives_the_grace_is_interrupted_and_every_client_is_told_why() -> None:
    async with served() as server, trio.open_nursery() as nursery:
        ends: list[Frame] = []
        answers: list[Any] = []
        logs: list[Frame] = []

        async def follow_log() -> None:
            logs.extend(await server.read("/agents/a/events?since=0"))

        async def ask() -> None:
            answers.append(await server.ask("waits"))

        nursery.start_soon(follow_turn, server, ends)
        nursery.start_soon(follow_log)
        await server.until_running()
        nursery.start_soon(ask)
        while len([*server.gateway.turns.of("a")]) < 2:
            await trio.testing.wait_all_tasks_blocked(0.01)
        with trio.fail_after(30):
            await server.gateway.drain(0.2)
    problem = ends[-1].data["turn"]["problem"]
    assert ends[-1].event == logs[-1].event == "end"
    assert problem["type"] == "urn:proctor:problem:stopping"
    assert "grace period of 0.2 s" in problem["detail"]
    assert logs[-1].data["why"] == "the server is stopping"
    assert (answers[0].status_code, answers[0].json()["type"]) == (503, "urn:proctor:problem:stopping")


@pytest.mark.covers("R183")
async def test_a_turn_that_waits_for_a_limit_beyond_the_grace_does_not_hold_up_the_end() -> None:
    spec = spoken("a", budget=proctor.Budget(0.1, 3600.0))
    async with served(spec, seconds=10.0) as server, trio.open_nursery() as nursery:
        assert (await server.ask("hello")).status_code == 200
        answers: list[httpx2.Response] = []

        async def ask() -> None:
            answers.append(await server.ask("again"))

        for _ in range(2):  # one is parked, one stands behind it
            nursery.start_soon(ask)
        while len(server.gateway.turns.running) < 2:  # noqa: ASYNC110
            await trio.sleep(0.01)
        while (await server.sup.agent("a").status()).state != "parked":  # noqa: ASYNC110
            await trio.sleep(0.01)
        await server.gateway.drain(600.0)
    assert [answer.status_code for answer in answers] == [503, 503]
    problem = answers[0].json()
    assert problem["type"] == "urn:proctor:problem:stopping"
    assert "a is parked for " in problem["detail"]


def chat(far_end: Peer) -> dict[str, Any]:
    visits = InFlight()
    return {"routes": routes({"m": CompletionModel.make(spec_of(far_end))}, visits), "visits": visits}


def completion(stream: bool) -> dict[str, Any]:
    return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hang"}]}


@pytest.mark.covers("R183")
@pytest.mark.parametrize("stream", [True, False])
async def test_what_was_begun_over_the_chat_api_has_the_grace_too_and_is_told_when_it_is_cut_short(
    stream: bool,
) -> None:
    begun, answers = trio.Event(), list[httpx2.Response]()

    async def far_end(side: PeerStreams) -> int | None:
        begun.set()
        return await saying(delta("so far"))(side)

    async def ask() -> None:
        answers.append(await server.client.post("/v1/chat/completions", json=completion(stream)))

    async with served(hooks=chat(far_end)) as server, trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await begun.wait()
        await trio.sleep(0.05)
        nursery.start_soon(server.gateway.drain, 3.0)
        await trio.testing.wait_all_tasks_blocked()
        refused = await server.client.post("/v1/chat/completions", json=completion(stream))
        early = len(answers)
        with trio.fail_after(30):
            await server.gateway.hooks.visits.wait_empty()
    assert (early, refused.status_code, refused.headers["retry-after"]) == (0, 503, "1")
    assert refused.json()["error"]["code"] == "stopping"
    [cut] = answers
    if stream:
        *pieces, last, done = cut.text.split("\n\n")[:-1]
        assert (len(pieces) >= 1, done) == (True, "data: [DONE]")
        error = msgspec.json.decode(last.removeprefix("data: "))["error"]
    else:
        assert (cut.status_code, "retry-after" in cut.headers) == (503, False)
        error = cut.json()["error"]
    assert error["code"] == "stopping"
    assert "grace period of 3 s" in error["message"]


@pytest.mark.covers("R183")
async def test_a_chat_that_ends_within_the_grace_is_whole() -> None:
    begun, go, answers = trio.Event(), trio.Event(), list[httpx2.Response]()

    async def far_end(side: PeerStreams) -> int | None:
        begun.set()
        await go.wait()
        return await saying(**GOOD)(side)

    async def ask() -> None:
        answers.append(await server.client.post("/v1/chat/completions", json=completion(stream=False)))

    async with served(hooks=chat(far_end)) as server, trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await begun.wait()
        async with trio.open_nursery() as draining:
            draining.start_soon(server.gateway.drain, 20.0)
            await trio.testing.wait_all_tasks_blocked()
            go.set()
    assert (answers[0].status_code, answers[0].json()["choices"][0]["message"]["content"]) == (
        200,
        "It is 4.",
    )


@pytest.mark.covers("R182")
async def test_readiness_names_each_check_that_fails() -> None:
    wrong: dict[str, str | None] = {"claude": None, "codex": None}

    async def claude() -> str | None:
        return wrong["claude"]

    async def codex() -> str | None:
        return wrong["codex"]

    async with served(hooks={"checks": {"claude": claude, "codex": codex}}) as server:
        good = await server.client.get("/readyz")
        wrong["codex"] = "codex is not installed"
        bad = await server.client.get("/readyz")
        alive = await server.client.get("/healthz")
        wrong["claude"] = "claude is broken"
        worst = await server.client.get("/readyz")
        server.gateway.probes.not_ready = "the agents start"
        early = await server.client.get("/readyz")
    assert (good.status_code, good.json()["ready"]) == (200, True)
    assert (bad.status_code, bad.json()["why"]) == (503, "not working: codex")
    assert bad.json()["checks"] == {"claude": None, "codex": "codex is not installed"}
    assert (good.json()["grade"], bad.json()["grade"], worst.json()["grade"]) == (
        "ok",
        "degraded",
        "degraded",
    )
    assert worst.json()["agents"] == good.json()["agents"] == {"a": None}  # it runs, and needs neither
    assert (alive.status_code, early.json()["why"]) == (200, "the agents start")
    assert (alive.json()["grade"], alive.json()["why"]) == ("degraded", "not working: codex")


async def test_readiness_is_down_only_when_no_agent_can_answer_and_says_which_can() -> None:
    async def broken() -> str | None:
        return "codex is not installed"

    absent = {"c": "could not start: no such program"}
    needs = {"coder": "codex", "c": "codex"}
    async with served(hooks={"checks": {"codex": broken}, "needs": needs, "absent": absent}) as server:
        some = await server.client.get("/readyz")
        absent["a"] = "was given up: more than 2 restarts in 60 s"
        none = await server.client.get("/readyz")
        alive = await server.client.get("/healthz")
    assert (some.status_code, some.json()["grade"], some.json()["why"]) == (
        503,
        "degraded",
        "not working: codex",
    )
    assert some.json()["agents"] == {"a": None, "c": absent["c"], "coder": "codex is not installed"}
    assert (none.status_code, none.json()["grade"]) == (503, "down")
    assert none.json()["agents"] == {**absent, "coder": "codex is not installed"}
    assert (alive.json()["grade"], alive.json()["agents"]) == ("down", {})  # reasons need the token


async def test_a_server_whose_agents_come_up_during_its_checks_is_ready_at_the_next_probe() -> None:
    probes: list[Probes] = []

    async def slow() -> str | None:
        probes[0].not_ready = None
        return None

    async with served(hooks={"checks": {"slow": slow}}) as server:
        probes.append(server.gateway.probes)
        probes[0].not_ready = "agents are starting"
        early, late = [(await server.client.get("/readyz")).json() for _ in range(2)]
    assert (early["ready"], early["why"]) == (False, "agents are starting")
    assert (late["ready"], late["why"]) == (True, "")


async def test_a_server_all_of_whose_agents_were_stopped_is_not_ready() -> None:
    async with served() as server:
        before = (await server.client.get("/readyz")).json()
        await server.sup.stop()
        after = await server.client.get("/readyz")
    assert (before["ready"], before["grade"], before["agents"]) == (True, "ok", {"a": None})
    assert (after.status_code, after.json()["grade"]) == (503, "down")
    assert (after.json()["why"], after.json()["agents"]) == (
        "no agent can answer",
        {"a": "it does not run"},
    )


@pytest.mark.covers("R182")
async def test_life_is_answered_at_once_however_long_a_check_takes_and_one_look_is_under_way() -> None:
    looks, go = list[int](), trio.Event()

    async def slow() -> str | None:
        looks.append(1)
        await go.wait()
        return "codex is not installed"

    async with served(hooks={"checks": {"codex": slow}}) as server:
        early = [(await server.client.get("/healthz")).json() for _ in range(3)]
        asked = len(looks)
        go.set()
        await trio.testing.wait_all_tasks_blocked(0.01)
        late = (await server.client.get("/healthz")).json()
    assert [said["grade"] for said in early] == ["ok"] * 3
    assert (asked, late["grade"], late["why"]) == (1, "degraded", "not working: codex")
    assert late["checks"] == {}  # the reasons, with paths in them, need the token


async def metrics() -> bytes:
    return b"# HELP x y\n# TYPE x counter\nx_total 1.0\n"


@pytest.mark.covers("R181")
async def test_metrics_are_what_the_hook_gives() -> None:
    async with served(hooks={"metrics": metrics}) as server:
        response = await server.client.get("/metrics")
    async with served() as server:
        without = await server.client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert response.text.endswith("x_total 1.0\n")
    assert without.status_code == 404


async def test_a_fault_of_ours_is_a_problem_without_its_text() -> None:
    async def broken() -> bytes:
        raise RuntimeError("secret of the house")

    async with served(hooks={"metrics": broken}) as server:
        response = await server.client.get("/metrics")
        assert (await server.client.get("/agents")).status_code == 200
    assert response.status_code == 500
    assert "secret" not in response.text
    assert response.json()["type"] == "urn:proctor:problem:internal"
