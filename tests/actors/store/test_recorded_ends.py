"""What the recording of a dead host says of a request that its store has as sent."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.plan.options import OnCrash
from proctor.actors.recording.recorded_turn import read_turn
from proctor.actors.store.memory import MemoryStore
from proctor.protocols.vocabulary import Notice
from tests.actors.store.peers import Counting, DyingStore, LimitedOnce, spec_with_home


async def die(store: MemoryStore, peer: object, folder: Path, at: int, on_crash: OnCrash) -> None:
    """A host asks, and dies before the call of that number of its store."""
    dying = DyingStore(store, at, "before")
    with trio.CancelScope() as scope:
        spec = spec_with_home(peer, record=folder, on_crash=on_crash)  # type: ignore[arg-type]
        async with proctor.open_supervisor([spec], store=dying) as sup:
            await sup.agent("agent").queue("hello", key="k")
            await dying.died.wait()
            scope.cancel()
            dying.release()


@pytest.mark.parametrize("on_crash", ["fail", "resume", "retry"])
async def test_an_end_that_only_the_recording_has_is_the_end(tmp_path: Path, on_crash: OnCrash) -> None:
    store, peer = MemoryStore(), Counting()
    # accepted, sent, its conversation, ended
    await die(store, peer, tmp_path, 4, on_crash)
    [left] = await store.requests()
    assert (left.sent is not None, left.end) == (True, None)
    async with proctor.open_supervisor([spec_with_home(peer, record=tmp_path)], store=store) as sup:
        answer = await sup.agent("agent").ask("hello", key="k")
    assert (answer.outcome, answer.text, answer.cost_usd) == ("ok", "1: hello", 0.5)
    assert peer.prompts == {"hello": 1}


async def parked(agent: proctor.Agent) -> None:
    async with agent.events(since=0) as events:
        async for event in events:
            if isinstance(event, Notice) and event.code == "parked":
                return


async def test_an_attempt_that_a_usage_limit_refused_is_not_the_end_of_its_request(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store, peer = MemoryStore(), LimitedOnce()
    async with proctor.open_supervisor([spec_with_home(peer, record=tmp_path)], store=store) as sup:
        agent = sup.agent("agent")
        await agent.queue("hello", key="k")
        await parked(agent)
        [left] = await store.requests()
        assert left.sent is not None
        assert left.sent.recording is not None
        folder = Path(left.sent.recording)
        found = read_turn(folder, left.id)
        assert found is not None
        assert found.end is None
        assert (await agent.ask("hello", key="k")).text == "1: hello"
        found = read_turn(folder, left.id)
        assert found is not None
        assert found.end is not None


async def test_what_a_usage_limit_holds_back_is_sent_by_the_next_host(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store, peer = MemoryStore(), LimitedOnce()
    async with proctor.open_supervisor([spec_with_home(peer)], store=store) as sup:
        await sup.agent("agent").queue("hello", key="k")
        await parked(sup.agent("agent"))
    async with proctor.open_supervisor([spec_with_home(peer)], store=store) as sup:
        answer = await sup.agent("agent").ask("hello", key="k")
    assert (answer.outcome, peer.prompts) == ("ok", {"hello": 2})
    [stored] = await store.requests()
    assert stored.end is not None
