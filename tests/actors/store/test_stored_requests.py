from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

import proctor
from proctor.actors.agent.stored_requests import TODAY, KeyReused
from proctor.actors.errors import AskInterrupted, AskNotSent, BadOption, MaybeExecuted, NotExecuted
from proctor.actors.outcomes import Answer
from proctor.actors.plan.options import AgentOptions
from proctor.actors.specs import agent_spec
from proctor.actors.store.backend import StoreBackend, StoreError
from proctor.actors.store.memory import MemoryStore
from proctor.actors.store.records import StoredEnd
from proctor.protocols.vocabulary import Notice
from proctor.runtime.exits import NoProc
from proctor.runtime.spec import ChildSpec
from proctor.runtime.supervision import supervisor_spec
from tests.actors.spoken import saying, spoken_plan
from tests.actors.store.peers import Counting, DyingStore, spec_with_home


class Sum(msgspec.Struct):
    total: int


def sending(peer: Any, **options: Unpack[AgentOptions]) -> list[ChildSpec]:
    return [spec_with_home(peer, **options)]


async def test_a_key_is_asked_once_and_answered_always(autojump_clock: MockClock) -> None:
    peer, store = Counting(), MemoryStore()
    async with proctor.open_supervisor(sending(peer), store=store) as sup:
        first = await sup.agent("agent").ask("hello", key="k")
        assert (first.text, first.cost_usd) == ("1: hello", 0.5)
        assert await sup.agent("agent").ask("hello", key="k") == first
    async with proctor.open_supervisor(sending(peer), store=store) as sup:
        assert await sup.agent("agent").ask("hello", key="k", timeout=5) == first
        assert (await sup.agent("agent").ask("hello", key="other")).text == "1: hello"
        assert (await sup.agent("agent").ask("hello")).text == "2: hello"
    assert peer.prompts == {"hello": 3}


async def test_a_hundred_callers_of_one_key_get_one_answer(autojump_clock: MockClock) -> None:
    peer, answers = Counting(), list[Answer]()
    async with proctor.open_supervisor(sending(peer), store=MemoryStore()) as sup:

        async def ask() -> None:
            answers.append(await sup.agent("agent").ask("hello", key="k"))

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(ask)
    assert peer.prompts == {"hello": 1}
    assert len(answers) == 100
    assert answers == [answers[0]] * 100


async def test_a_key_that_was_used_for_something_else_is_refused(autojump_clock: MockClock) -> None:
    peer = Counting()
    async with proctor.open_supervisor(sending(peer), store=MemoryStore()) as sup:
        agent = sup.agent("agent")
        await agent.ask("hello", key="k")
        for changed in (
            lambda: agent.ask("another", key="k"),
            lambda: agent.ask("hello", key="k", schema=Sum),
            lambda: agent.ask("hello", key="k", payloads=[proctor.JsonPayload({})]),
        ):
            with pytest.raises(KeyReused, match="key 'k' of agent 'agent' was used for another"):
                await changed()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.ask, "hang")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(lambda: agent.ask("later", key="k2"))
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(KeyReused):
                await agent.ask("sooner", key="k2")
            nursery.cancel_scope.cancel()
    assert peer.prompts["another"] == peer.prompts["sooner"] == 0


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", 7])
async def test_what_is_no_key_is_refused(key: Any, autojump_clock: MockClock) -> None:
    async with proctor.open_supervisor(sending(Counting()), store=MemoryStore()) as sup:
        with pytest.raises(BadOption, match="accepted: 1 to 200 printable characters"):
            await sup.agent("agent").ask("hello", key=key)


async def test_a_tree_without_a_store_has_no_keys(autojump_clock: MockClock) -> None:
    async with proctor.open_supervisor(sending(Counting())) as sup:
        with pytest.raises(
            BadOption, match="key 'k': the tree of agent keeps no requests; open it with store="
        ):
            await sup.agent("agent").ask("hello", key="k")
        with pytest.raises(NoProc):
            await sup.agent("nobody").ask("hello", key="k")


async def test_a_request_with_a_key_goes_on_when_its_caller_leaves(autojump_clock: MockClock) -> None:
    peer, store = Counting(), MemoryStore()
    async with proctor.open_supervisor(sending(peer), store=store) as sup:
        agent = sup.agent("agent")
        with trio.move_on_after(0):
            await agent.ask("hello", key="k")
        assert (await agent.ask("hello", key="k")).text == "1: hello"
        receipt = await agent.queue("queued", key="k2")
        assert (receipt.fate, (await agent.ask("queued", key="k2")).text) == ("queued", "2: queued")
        assert (await receipt.answer()).text == "2: queued"
    assert peer.prompts == {"hello": 1, "queued": 1}


async def test_a_deadline_is_kept_as_the_end_of_what_was_sent(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with proctor.open_supervisor(sending(Counting()), store=store) as sup:
        agent = sup.agent("agent")
        with pytest.raises(AskInterrupted) as first:
            await agent.ask("hang", key="k", timeout=5)
        with pytest.raises(AskInterrupted) as again:
            await agent.ask("hang", key="k", timeout=5)
    assert str(again.value) == str(first.value)
    assert again.value.delivery is not None
    assert again.value.delivery.sent == "yes"


async def test_what_was_never_sent_is_sent_anew_under_its_key(autojump_clock: MockClock) -> None:
    peer, store = Counting(), MemoryStore()
    async with proctor.open_supervisor(sending(peer), store=store) as sup:
        agent = sup.agent("agent")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.ask, "hang")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(AskNotSent):
                await agent.ask("hello", key="k", timeout=1)
            nursery.cancel_scope.cancel()
        assert (await agent.ask("hello", key="k")).text == "2: hello"
    assert [one.end is not None and one.end.sent for one in await store.requests()] == ["no", "yes"]
    assert peer.prompts["hello"] == 1


async def test_a_crash_in_mid_turn_is_kept_and_not_repeated(autojump_clock: MockClock) -> None:
    peer, store = Counting(), MemoryStore()
    for _ in range(2):
        async with proctor.open_supervisor(sending(peer), store=store, intensity=5) as sup:
            for _ in range(2):
                with pytest.raises(MaybeExecuted, match="the request may have been carried out") as caught:
                    await sup.agent("agent").ask("crash", key="k")
                assert caught.value.outcome == "crashed"
    assert peer.prompts == {"crash": 1}


async def test_a_request_that_crashes_its_agent_until_it_is_given_up_is_not_sent_to_the_next_one(
    autojump_clock: MockClock,
) -> None:
    peer, store = Counting(), MemoryStore()
    specs, flags = sending(peer, on_crash="retry"), {"intensity": 2, "give_up": "child"}
    async with proctor.open_supervisor(specs, store=store, **flags) as sup:  # type: ignore[arg-type]
        with pytest.raises(MaybeExecuted):
            await sup.agent("agent").ask("crash", key="k")
        await sup.restart_child("agent")
        assert (await sup.agent("agent").ask("hello", key="k2")).ok
        with pytest.raises(MaybeExecuted):
            await sup.agent("agent").ask("crash", key="k")
    assert peer.prompts == {"crash": 3, "hello": 1}
    assert [request.end is not None for request in await store.requests()] == [True, True]


async def test_a_value_is_read_by_the_schema_of_each_caller(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    peer = saying(subtype="success", is_error=False, result="{}", structured_output={"total": 4})
    async with proctor.open_supervisor(sending(peer), store=store) as sup:
        assert (await sup.agent("agent").ask("2 + 2?", key="k", schema=Sum)).value == Sum(4)
    async with proctor.open_supervisor(sending(peer), store=store) as sup:
        again = await sup.agent("agent").ask("2 + 2?", key="k", schema=Sum)
        assert (again.value, again.structured_output) == (Sum(4), {"total": 4})


async def test_a_request_of_an_agent_that_was_stopped_is_served_when_it_is_back(
    autojump_clock: MockClock,
) -> None:
    peer, store = Counting(), MemoryStore()
    async with proctor.open_supervisor(sending(peer), store=store) as sup:
        agent = sup.agent("agent")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_hang_until_stopped, agent)
            await trio.testing.wait_all_tasks_blocked()
            receipt = await agent.queue("first", key="k1")
            await agent.queue("second", key="k2")
            await sup.terminate_child("agent")
            with pytest.raises(
                NotExecuted, match="kept under the key 'k1', and is sent when the agent runs again"
            ):
                await receipt.answer()
        assert [one.end for one in await store.requests()] == [None, None]
        await sup.restart_child("agent")
        assert (await agent.ask("first", key="k1")).text == "1: first"
        assert (await agent.ask("second", key="k2")).text == "2: second"
    assert (peer.prompts["first"], peer.prompts["second"]) == (1, 1)


async def _hang_until_stopped(agent: proctor.Agent) -> None:
    assert (await agent.ask("hang")).outcome == "interrupted"


async def test_what_a_host_did_not_begin_is_begun_by_the_next_in_its_order(autojump_clock: MockClock) -> None:
    peer, store = Counting(), MemoryStore()
    async with proctor.open_supervisor(sending(peer), store=store) as sup:
        agent = sup.agent("agent")
        await agent.queue("hang", key="k0")
        for n in range(1, 6):
            await agent.queue(f"p{n}", key=f"k{n}")
    async with proctor.open_supervisor(sending(peer), store=store) as sup:
        agent = sup.agent("agent")
        assert (await agent.ask("hang", key="k0")).outcome == "interrupted"
        answers = [(await agent.ask(f"p{n}", key=f"k{n}")).text for n in range(1, 6)]
    assert answers == [f"{n}: p{n}" for n in range(1, 6)]
    assert peer.prompts == {"hang": 1, **{f"p{n}": 1 for n in range(1, 6)}}


async def test_an_agent_goes_on_in_its_conversation(autojump_clock: MockClock) -> None:
    store, resumed, sessions = MemoryStore(), list[str | None](), list[str | None]()
    for _ in range(2):
        async with proctor.open_supervisor(sending(Counting()), store=store) as sup:
            async with sup.agent("agent").events(0) as log:
                await sup.agent("agent").ask("hello")
                notices = [event for event in await log.batch() if isinstance(event, Notice)]
            resumed.append(next((str(n.data["session"]) for n in notices if n.code == "resumed"), None))
            sessions.append((await sup.agent("agent").status()).session_id)
    assert resumed == [None, sessions[0]]


async def test_a_turn_after_the_host_has_changed_costs_what_it_costs_alone(tmp_path: Path) -> None:
    store, script = MemoryStore(), tmp_path / "script.ndjson"
    script.write_text('{"reply": "done", "cost": 0.01}')
    costs = list[float | None]()
    for prompt in ("one", "two"):
        async with proctor.open_supervisor([proctor.scripted("agent", script)], store=store) as sup:
            costs += [(await sup.agent("agent").ask(f"{prompt} {n}")).cost_usd for n in range(2)]
    assert costs == pytest.approx([0.01] * 4)


class SlowStore(MemoryStore):
    """Takes an hour to keep a fact, and notes when it was given which."""

    def __init__(self) -> None:
        super().__init__()
        self.given = list[tuple[float, str]]()

    async def put(self, agent: str, name: str, value: str | None) -> None:
        self.given.append((trio.current_time(), name))
        await trio.sleep(3600)
        await super().put(agent, name, value)


async def test_a_conversation_and_its_cost_are_kept_in_one_write(autojump_clock: MockClock) -> None:
    store = SlowStore()
    async with proctor.open_supervisor(sending(Counting()), store=store) as sup:
        await sup.agent("agent").queue("hang")
        await trio.sleep(1)
        assert sorted(name for _, name in store.given) == ["session", "total_cost_usd"]
        assert len({at for at, _ in store.given}) == 1


async def conversations(store: StoreBackend) -> dict[str, dict[str, str]]:
    """The facts of each agent, without what it has spent today."""
    facts = await store.facts()
    return {
        agent: {name: value for name, value in kept.items() if name != TODAY} for agent, kept in facts.items()
    }


async def test_agents_with_one_id_have_a_conversation_each(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    children = [
        supervisor_spec(
            name,
            [
                agent_spec(
                    "agent",
                    spoken_plan(Counting(), home="user", env={"HOME": f"/{name}"}),
                    {"name": f"{name}'s"},
                )
            ],
        )
        for name in ("one", "two")
    ]
    async with proctor.open_supervisor(children, store=store, name="any") as sup:
        for name in ("one", "two"):
            await sup.agent(f"{name}'s").ask("hello")
    kept = {"session": "s", "total_cost_usd": "s 0.5"}
    assert await conversations(store) == {"one/agent": kept, "two/agent": kept}


async def test_a_store_that_cannot_be_written_refuses_before_anything_is_sent(
    autojump_clock: MockClock,
) -> None:
    peer = Counting()
    for at in (1, 2):  # to accept it, and to mark it as sent
        store = DyingStore(MemoryStore(), at, "before")
        store.release()
        async with proctor.open_supervisor(sending(peer), store=store) as sup:
            if at == 1:
                with pytest.raises(StoreError, match="is gone with its host"):
                    await sup.agent("agent").ask("hello", key="k")
            else:
                answer = await sup.agent("agent").ask("hello", key="k")
                assert (answer.outcome, answer.delivery and answer.delivery.sent) == ("configuration", "no")
                assert "is gone with its host" in (answer.error or "")
    assert peer.prompts == {}


class FullDisk(MemoryStore):
    """Keeps no end and no fact as long as it is full."""

    full = True

    async def end(self, id: str, end: StoredEnd) -> None:
        self._write()
        await super().end(id, end)

    async def put(self, agent: str, name: str, value: str | None) -> None:
        self._write()
        await super().put(agent, name, value)

    def _write(self) -> None:
        if self.full:
            raise StoreError("store", "is full")


async def test_an_answer_is_given_though_its_end_cannot_be_kept_and_kept_when_it_can(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    peer, store = Counting(), FullDisk()
    async with proctor.open_supervisor(sending(peer), store=store) as sup:
        agent = sup.agent("agent")
        first = await agent.ask("hello", key="k")
        assert await agent.ask("hello", key="k") == first
        await trio.sleep(60)
        store.full = False
        await trio.sleep(10)
        [kept] = await store.requests()
        assert kept.end is not None
    [record] = [record for record in caplog.records if "cannot be kept yet" in record.getMessage()]
    assert "is full" in record.getMessage()
    assert peer.prompts == {"hello": 1}


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
async def test_an_error_of_the_block_leaves_bare(error: BaseException, autojump_clock: MockClock) -> None:
    async def leave() -> None:
        async with proctor.open_supervisor(sending(Counting()), store=MemoryStore()) as sup:
            await sup.agent("agent").queue("hang", key="k")
            raise error

    with pytest.raises(type(error)) as caught:
        await leave()
    assert caught.value is error


async def test_a_tree_that_is_cancelled_keeps_what_its_requests_came_to(autojump_clock: MockClock) -> None:
    peer, store = Counting(), MemoryStore()
    with trio.move_on_after(5) as scope:
        async with proctor.open_supervisor(sending(peer), store=store) as sup:
            await sup.agent("agent").queue("hang", key="k1")
            await sup.agent("agent").queue("later", key="k2")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert [one.end and one.end.outcome for one in await store.requests()] == ["interrupted", None]


async def test_a_conversation_and_its_cost_are_kept_when_the_disk_has_room_again(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    store = FullDisk()
    async with proctor.open_supervisor(sending(Counting()), store=store) as sup:
        await sup.agent("agent").ask("hello")
        await trio.sleep(60)
        assert await store.facts() == {}
        store.full = False
        await trio.sleep(2)
        assert await conversations(store) == {"agent": {"session": "s", "total_cost_usd": "s 0.5"}}
    warnings = [record.getMessage() for record in caplog.records if "is not yet kept" in record.getMessage()]
    assert sorted(warnings) == [
        "the expense_today of agent agent is not yet kept for its next life: the store 'store' is full",
        "the session of agent agent is not yet kept for its next life: the store 'store' is full",
        "the total_cost_usd of agent agent is not yet kept for its next life: the store 'store' is full",
    ]


async def test_a_tree_ends_though_its_store_stays_full(autojump_clock: MockClock) -> None:
    store = FullDisk()
    with trio.fail_after(30):
        async with proctor.open_supervisor(sending(Counting()), store=store) as sup:
            await sup.agent("agent").ask("hello")
    assert await store.facts() == {}
