"""What an operator decides about agents: held back, stopped, killed, started again; and what of that the next host keeps."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.agent.states import State
from proctor.actors.gateways.http import Lifecycle
from proctor.actors.limits.overrides import HOLD, STOPPED
from proctor.actors.store.backend import StoreBackend, StoreError
from proctor.actors.store.memory import MemoryStore
from proctor.runtime.exits import NoProc
from proctor.runtime.spec import ChildSpec, GiveUp
from proctor.runtime.supervision import supervisor_spec
from tests.actors.gateways.http.serving import served, spoken
from tests.actors.store.peers import Counting, spec_with_home


@attrs.frozen
class Fleet:
    """A running tree with the agent `agent`, and an operator of it."""

    sup: proctor.Supervisor
    operator: Lifecycle

    @property
    def agent(self) -> proctor.Agent:
        return self.sup.agent("agent")

    async def until(self, state: State) -> proctor.Status:
        while (status := await self.agent.status()).state != state:  # noqa: ASYNC110
            await trio.sleep(0.01)
        return status


@asynccontextmanager
async def fleet(
    *specs: ChildSpec, path: str = "agent", store: StoreBackend | None = None, give_up: GiveUp = "supervisor"
) -> AsyncGenerator[Fleet]:
    async with proctor.open_supervisor(specs, store=store, give_up=give_up) as sup:
        yield Fleet(sup, Lifecycle(sup, {"agent": path}))


async def test_an_agent_that_is_held_back_ends_its_turn_and_begins_no_other(
    autojump_clock: MockClock,
) -> None:
    peer = Counting()
    async with fleet(spec_with_home(peer)) as running, trio.open_nursery() as nursery:
        nursery.start_soon(running.agent.ask, "hang")
        await running.until("working")
        await running.operator.park("agent", reason="wait for Monday", until=None)
        assert (await running.agent.status()).state == "working"
        receipt = await running.agent.queue("later")
        await running.agent.interrupt()
        held = await running.until("parked")
        assert held.evidence == "by the operator: wait for Monday"
        assert peer.prompts == {"hang": 1}
        await running.operator.unpark("agent")
        assert (await receipt.answer()).text == "2: later"
        assert (await running.agent.status()).state == "idle"


async def test_an_idle_agent_that_is_held_back_is_shown_as_parked_until_its_time(
    autojump_clock: MockClock,
) -> None:
    async with fleet(spec_with_home(Counting())) as running:
        before = await running.agent.status()
        await trio.sleep(5)
        until = time.time() + 3600
        await running.operator.park("agent", reason="", until=until)
        held = await running.agent.status()
        assert (held.state, held.evidence, held.until) == ("parked", "by the operator", until)
        assert held.since - before.since == pytest.approx(5)
        await running.operator.park("agent", reason="", until=time.time() - 1)
        assert (await running.agent.ask("hello")).text == "1: hello"
        await running.operator.unpark("agent")
        await running.operator.unpark("agent")
        assert (await running.agent.status()).state == "idle"


async def test_the_next_host_holds_back_and_keeps_down_what_an_operator_decided(
    autojump_clock: MockClock,
) -> None:
    peer, store = Counting(), MemoryStore()
    for spec, path in ((spec_with_home(peer), "agent"), (nested(spec_with_home(peer)), "below/agent")):
        async with fleet(spec, path=path, store=store) as running:
            await running.operator.park("agent", reason="costs too much", until=None)
            await running.agent.queue("kept", key=path)
        async with fleet(spec, path=path, store=store) as running:
            assert (await running.until("parked")).evidence == "by the operator: costs too much"
            await running.operator.stop("agent")
            await running.operator.unpark("agent")
        async with fleet(spec, path=path, store=store) as running:
            with pytest.raises(NoProc):
                await running.agent.status()
            await running.operator.start("agent")
            assert (await running.agent.ask("kept", key=path)).ok
        assert {HOLD, STOPPED}.isdisjoint((await store.facts())[path])
    assert peer.prompts == {"kept": 2}


def nested(child: ChildSpec, **flags: Any) -> ChildSpec:
    return supervisor_spec("below", [child], **flags)


async def test_an_agent_that_was_stopped_stays_down_when_its_supervisor_is_restarted(
    autojump_clock: MockClock,
) -> None:
    async with fleet(nested(spec_with_home(Counting())), path="below/agent") as running:
        await running.operator.stop("agent")
        running.sup.child("below").kill()
        await running.sup.supervisor("below").wait_ready()
        assert running.operator.is_stopped("agent")
        with pytest.raises(NoProc):
            await running.agent.status()
        await running.operator.restart("agent")
        assert (await running.agent.status()).state == "idle"


async def test_a_killed_agent_is_restarted_by_its_supervisor_and_one_that_is_down_is_not_killed(
    autojump_clock: MockClock,
) -> None:
    async with fleet(spec_with_home(Counting())) as running:
        await running.operator.kill("agent")
        assert (await running.until("idle")).incarnation == 2
        await running.operator.stop("agent")
        with pytest.raises(NoProc):
            await running.operator.kill("agent")


async def test_a_killed_agent_says_so_until_it_is_back(autojump_clock: MockClock) -> None:
    spec = attrs.evolve(spec_with_home(Counting()), backoff=proctor.Backoff(min_delay=60, jitter=0))
    async with fleet(spec) as running, trio.open_nursery() as nursery:
        nursery.start_soon(fails, running.agent)
        await running.until("working")
        await running.operator.kill("agent")
        down = await running.agent.status()
        assert (down.state, down.evidence) == ("backoff", "killed by hand")
        assert down.since == trio.current_time()
        assert (await running.until("idle")).evidence != "killed by hand"


async def fails(agent: proctor.Agent) -> None:
    with pytest.raises(proctor.MaybeExecuted):
        await agent.ask("hang")


async def test_a_request_that_is_held_back_at_the_head_of_the_queue_counts_as_waiting(
    autojump_clock: MockClock,
) -> None:
    async with fleet(spec_with_home(Counting())) as running:
        await running.operator.park("agent", reason="", until=None)
        for prompt in ("one", "two"):
            await running.agent.queue(prompt)
        assert (await running.until("parked")).queued == 2
        await running.operator.unpark("agent")
        assert (await running.until("idle")).queued == 0


def crashing(**fields: Any) -> ChildSpec:
    return attrs.evolve(spec_with_home(Counting()), **fields)


SOON = proctor.Backoff(min_delay=0.1, max_delay=0.1)


@pytest.mark.parametrize(
    ("spec", "path"),
    [(crashing(backoff=SOON), "agent"), (nested(crashing(backoff=SOON), intensity=0), "below/agent")],
)
async def test_an_agent_that_was_given_up_is_started_again_and_its_restarts_are_counted_anew(
    spec: ChildSpec, path: str, autojump_clock: MockClock
) -> None:
    async with fleet(spec, path=path, give_up="child") as running:
        while running.sup.tree().children[0].state != "down":
            with pytest.raises((proctor.AgentError, NoProc)):
                await running.agent.ask("crash")
            await trio.sleep(0.1)
        await running.operator.reset("agent")
        assert (await running.agent.ask("hello")).ok
        assert running.sup.tree().children[0].restarts == 0


async def test_an_agent_that_waits_for_its_restart_or_has_failed_is_started_at_once(
    autojump_clock: MockClock,
) -> None:
    backoff = proctor.Backoff(min_delay=1e6, max_delay=1e6)
    async with fleet(crashing(backoff=backoff)) as running:
        with pytest.raises(proctor.MaybeExecuted):
            await running.agent.ask("crash")
        while running.sup.tree().children[0].state != "restarting":  # noqa: ASYNC110  # by its supervisor, too
            await trio.sleep(0.01)
        assert (await running.agent.status()).state == "backoff"
        began = trio.current_time()
        await running.operator.reset("agent")
        assert (await running.until("idle")).incarnation == 2
        assert trio.current_time() - began < 1e6
        await running.operator.reset("agent")  # one that works is left alone
        assert (await running.agent.status()).incarnation == 2
        state = running.agent.kept_state()
        assert state is not None
        state.transition("refused", "its login is over")
        await running.operator.reset("agent")
        assert (await running.until("idle")).incarnation == 3


class Full(MemoryStore):
    """Keeps no fact."""

    async def put(self, agent: str, name: str, value: str | None) -> None:
        raise StoreError("store", "is full")


async def test_a_decision_that_cannot_be_kept_holds_and_is_an_error(autojump_clock: MockClock) -> None:
    async with fleet(spec_with_home(Counting()), store=Full()) as running:
        with pytest.raises(StoreError, match="is full"):
            await running.operator.park("agent", reason="", until=None)
        assert (await running.agent.status()).state == "parked"
        with pytest.raises(StoreError, match="is full"):
            await running.operator.stop("agent")
        with pytest.raises(NoProc):
            await running.agent.status()


async def test_a_hold_whose_record_is_corrupt_still_holds(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    await store.put("agent", HOLD, "{")
    async with fleet(spec_with_home(Counting()), store=store) as running:
        assert (
            await running.agent.status()
        ).evidence == "by the operator: its record in the store cannot be read"
        hold = running.sup.overrides.hold_of("agent")
        assert (hold and hold.seconds) == math.inf
        await running.operator.unpark("agent")
        assert HOLD not in (await store.facts()).get("agent", {})
        assert STOPPED not in (await store.facts()).get("agent", {})


async def test_the_routes_of_an_operator_and_what_the_fleet_shows_of_them() -> None:
    async with served(spoken(), intensity=5) as server:

        async def post(word: str, **body: Any) -> tuple[str, str]:
            answer = (await server.client.post(f"/agents/a/{word}", json=body or None)).json()
            return answer["state"], answer["evidence"]

        async def shown() -> dict[str, Any]:
            [agent] = (await server.client.get("/fleet")).json()["agents"]
            return dict(agent)

        assert await post("park", reason="wait") == ("parked", "by the operator: wait")
        assert ((await shown())["state"], (await shown())["until"]) == ("parked", None)
        assert (await post("unpark"))[0] == "idle"
        await server.client.post("/agents/a/kill")
        while (await shown())["state"] != "idle":  # noqa: ASYNC110
            await trio.sleep(0.01)
        assert (await shown())["restarts"] == 1
        assert (await post("reset"))[0] == "idle"
        assert (await shown())["restarts"] == 0
        await post("stop")
        stopped = await shown()
        assert (stopped["state"], stopped["evidence"]) == ("stopped", "by the operator")
        assert stopped["stopped_by"] == "operator"
        await post("start")
        assert (await shown())["stopped_by"] == ""
        assert [what for what, _ in server.told] == [
            f"agent {word}" for word in ("parked", "unparked", "killed", "reset", "stopped", "started")
        ]
