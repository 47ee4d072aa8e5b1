"""What any store must do: run against each that there is, over the same place opened again and again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

from proctor.actors.store.backend import StoreBackend
from proctor.actors.store.memory import MemoryStore
from proctor.actors.store.records import (
    SendMark,
    StoredAnswer,
    StoredEnd,
    StoredError,
    StoredRequest,
    digest_of,
)
from proctor.actors.store.sqlite import Store
from proctor.protocols.attachment import Attachment

Opened = Callable[[], AbstractAsyncContextManager[StoreBackend]]

PICTURE = Attachment("binary", "a.png", "image/png", data=b"\x89PNG\x00\xff")
ANSWERED = StoredEnd(
    ended=20.0,
    outcome="ok",
    sent="yes",
    text="4",
    cost_usd=0.5,
    answer=StoredAnswer(agent="a", outcome="ok", text="4"),
)
UNSENT = StoredEnd(
    ended=20.0, outcome="NotExecuted", sent="no", error=StoredError(kind="NotExecuted", text="it is away")
)


def request(
    id: str, *, agent: str = "a", key: str = "k", prompt: str = "2 + 2?", accepted: float = 1.0
) -> StoredRequest:
    return StoredRequest(
        id=id, agent=agent, key=key, digest=digest_of(prompt, None, ()), prompt=prompt, accepted=accepted
    )


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens the same place each time."""
    memory = MemoryStore()

    @asynccontextmanager
    async def open_store() -> AsyncGenerator[StoreBackend]:
        store: StoreBackend = memory if request.param == "memory" else Store(tmp_path / "folder" / "fleet.db")
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    return open_store


async def test_a_request_is_found_again_with_all_that_was_asked(opened: Opened) -> None:
    asked = StoredRequest(
        id="1",
        agent="a",
        key="order-17",
        digest="d",
        prompt="naïve 日本\n\x00 'quoted'",
        accepted=1.5,
        timeout=3.0,
        schema={"type": "object", "properties": {"n": {"type": "integer"}}},
        attachments=(PICTURE, Attachment("json", "x.json", "application/json", text="{}")),
    )
    async with opened() as store:
        assert await store.accept(asked) == asked
    async with opened() as store:
        assert await store.requests() == [asked]


async def test_a_key_has_one_request_for_each_agent(opened: Opened) -> None:
    first, second = request("1"), request("2", prompt="another")
    async with opened() as store:
        assert await store.accept(first) == first
        assert await store.accept(second) == first
        assert (await store.accept(request("3", agent="b"))).id == "3"
        assert (await store.accept(request("4", key="other"))).id == "4"
        assert [kept.id for kept in await store.requests()] == ["1", "3", "4"]
        assert [kept.id for kept in await store.requests(agent="a")] == ["1", "4"]
        assert [kept.id for kept in await store.requests(agent="a", key="k")] == ["1"]


async def test_a_hundred_callers_with_one_key_are_given_one_request(opened: Opened) -> None:
    found = set[str]()
    async with opened() as store, trio.open_nursery() as nursery:

        async def accept(id: str) -> None:
            found.add((await store.accept(request(id))).id)

        for n in range(100):
            nursery.start_soon(accept, str(n))
    assert len(found) == 1
    async with opened() as store:
        assert {kept.id for kept in await store.requests()} == found


async def test_the_first_end_of_a_request_stays(opened: Opened) -> None:
    async with opened() as store:
        await store.accept(request("1"))
        await store.end("1", ANSWERED)
        await store.end("1", UNSENT)
        await store.end("unknown", UNSENT)
    async with opened() as store:
        [kept] = await store.requests()
        assert kept.end == ANSWERED
        assert await store.requests(open_only=True) == []
        assert (await store.accept(request("2"))).end == ANSWERED


async def test_what_was_never_sent_gives_its_key_back(opened: Opened) -> None:
    async with opened() as store:
        await store.accept(request("1"))
        await store.end("1", UNSENT)
        assert (await store.accept(request("2"))).id == "2"
        assert [(kept.id, kept.end is None) for kept in await store.requests()] == [("1", False), ("2", True)]


async def test_a_mark_is_changed_until_the_end(opened: Opened) -> None:
    mark = SendMark(at=5.0, on_crash="resume", session_id="s", recording="/runs/1")
    begun = SendMark(at=5.0, on_crash="resume", session_id="s", recording="/runs/1", started=True)
    async with opened() as store:
        await store.accept(request("1"))
        await store.send("1", mark)
        assert [kept.sent for kept in await store.requests(open_only=True)] == [mark]
        await store.send("1", begun)
        await store.send("unknown", begun)
    async with opened() as store:
        assert [kept.sent for kept in await store.requests()] == [begun]
        await store.end("1", ANSWERED)
        await store.send("1", mark)
        assert [kept.sent for kept in await store.requests()] == [begun]


async def test_requests_come_in_the_order_in_which_they_were_accepted(opened: Opened) -> None:
    async with opened() as store:
        for n in (3, 1, 2):
            await store.accept(request(str(n), key=f"k{n}", accepted=float(n)))
        assert [kept.id for kept in await store.requests()] == ["3", "1", "2"]


async def test_a_fact_is_replaced_and_removed(opened: Opened) -> None:
    async with opened() as store:
        await store.put("a", "session", "s1")
        await store.put("a", "session", "s2")
        await store.put("b", "session", "s3")
        await store.put("b", "model", "m")
        await store.put("b", "session", None)
        await store.put("c", "session", None)
    async with opened() as store:
        assert await store.facts() == {"a": {"session": "s2"}, "b": {"model": "m"}}


async def test_only_what_has_ended_before_is_pruned(opened: Opened) -> None:
    async with opened() as store:
        for id in ("old", "new", "open"):
            await store.accept(request(id, key=id))
        await store.end("old", ANSWERED)
        await store.end("new", StoredEnd(ended=30.0, outcome="ok", sent="yes"))
        assert await store.prune(25.0) == 1
        assert await store.prune(25.0) == 0
    async with opened() as store:
        assert [kept.id for kept in await store.requests()] == ["new", "open"]
        assert (await store.accept(request("again", key="old"))).id == "again"


async def test_a_call_that_is_cancelled_is_done_or_not_and_the_store_goes_on(opened: Opened) -> None:
    async with opened() as store:
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.accept(request("1"))
        assert scope.cancelled_caught
        assert (await store.accept(request("2"))).id in ("1", "2")
        assert len(await store.requests()) == 1
