"""Turns over HTTP with an `Idempotency-Key`, in a tree that keeps requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from proctor.actors.store.memory import MemoryStore
from tests.actors.gateways.http.serving import Served, served, spoken
from tests.actors.store.peers import Counting

TURNS = "/agents/a/turns"
KEYED: Mapping[str, str] = {"idempotency-key": "order-17"}


async def post(server: Served, path: str, headers: Mapping[str, str] = KEYED, **body: Any) -> Any:
    return await server.client.post(path, json={"prompt": "hello", **body}, headers=dict(headers))


async def test_a_turn_with_a_key_is_carried_out_once_and_answered_by_the_next_host_too() -> None:
    store, peer = MemoryStore(), Counting()
    async with served(spoken(far_end=peer), store=store) as server:
        first, second = await post(server, TURNS), await post(server, TURNS)
    async with served(spoken(far_end=peer), store=store) as server:
        third = await post(server, TURNS)
    assert [response.status_code for response in (first, second, third)] == [200] * 3
    answers = [response.json()["answer"] for response in (first, second, third)]
    assert answers[0]["text"] == "1: hello"
    assert answers == answers[:1] * 3
    assert peer.prompts == {"hello": 1}


async def test_a_turn_with_a_key_goes_on_when_its_client_leaves() -> None:
    store, peer = MemoryStore(), Counting()
    async with served(spoken(far_end=peer), store=store) as server:
        accepted = await post(server, TURNS, {**KEYED, "prefer": "respond-async"})
        withdrawn = await server.client.delete(accepted.json()["url"])
        again = await post(server, TURNS)
    assert (accepted.status_code, withdrawn.status_code) == (202, 200)
    assert again.json()["answer"]["text"] == "1: hello"
    assert peer.prompts == {"hello": 1}


async def test_a_key_that_was_used_for_another_prompt_is_refused() -> None:
    async with served(spoken(far_end=Counting()), store=MemoryStore()) as server:
        await post(server, TURNS)
        refused = await post(server, TURNS, prompt="other")
    assert refused.status_code == 409
    assert refused.json()["type"].endswith(":key-reused")


@pytest.mark.parametrize(
    ("headers", "body", "kind"),
    [
        ({**KEYED, "accept": "text/event-stream"}, {}, "no-events"),
        (KEYED, {"session_id": "s"}, "no-key"),
        ({"idempotency-key": "k" * 201}, {}, "not-possible"),
    ],
)
async def test_a_key_that_cannot_be_is_refused(
    headers: Mapping[str, str], body: Mapping[str, Any], kind: str
) -> None:
    peer = Counting()
    async with served(spoken(far_end=peer), store=MemoryStore()) as server:
        refused = await post(server, TURNS, headers, **body)
    assert refused.status_code == 422
    assert refused.json()["type"].endswith(f":{kind}")
    assert peer.prompts == {}


async def test_a_key_needs_a_tree_that_keeps_requests() -> None:
    async with served() as server:
        refused = await post(server, TURNS)
        queued = await post(server, "/agents/a/queue", {})
    assert (refused.status_code, "keeps no requests" in refused.json()["detail"]) == (422, True)
    assert queued.status_code == 202


@pytest.mark.parametrize("headers", [KEYED, {}])
async def test_what_was_queued_is_on_disk_when_its_receipt_comes(headers: Mapping[str, str]) -> None:
    store, peer = MemoryStore(), Counting()
    async with served(spoken(far_end=peer), store=store) as server:
        await server.client.post(TURNS, json={"prompt": "hang"}, headers={"prefer": "respond-async"})
        receipt = await post(server, "/agents/a/queue", headers)
        [kept] = await store.requests()
        assert (receipt.status_code, kept.prompt, kept.id) == (202, "hello", receipt.json()["request"])
    async with served(spoken(far_end=peer), store=store) as server:
        assert (await server.sup.agent("a").ask("hello", key=kept.key)).text == "1: hello"
    assert peer.prompts == {"hang": 1, "hello": 1}
