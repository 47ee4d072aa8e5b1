"""Hosts that die at any call of their store: nothing is lost, nothing is sent twice, and each request has one end."""

from __future__ import annotations

from random import Random
from typing import Literal

import attrs
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.agent.handle import Agent
from proctor.actors.errors import AgentError
from proctor.actors.store.memory import MemoryStore
from proctor.actors.store.records import StoredEnd
from proctor.runtime.exits import NoProc
from tests.actors.store.peers import Counting, DyingStore, spec_with_home
from tests.simulation.search import SEED, share

CONTINUED = "Continue where you stopped."
PROMPTS = ("one", "two", "crash", "hang")


@attrs.frozen
class Program:
    """Hosts of one store, one after the other; each dies at a call of its store, the last one does not. `asked` are the
    prompts of each host, which are their keys as well; `prompt` `hang` is ended by its deadline."""

    on_crash: Literal["fail", "resume", "retry"]
    asked: tuple[tuple[str, ...], ...]
    deaths: tuple[tuple[int, Literal["before", "after"]], ...]


def random_program(random: Random) -> Program:
    hosts = random.randint(1, 3)
    return Program(
        on_crash=random.choice(("fail", "resume", "retry")),
        asked=tuple(tuple(random.sample(PROMPTS, random.randint(1, 4))) for _ in range(hosts + 1)),
        deaths=tuple((random.randint(1, 18), random.choice(("before", "after"))) for _ in range(hosts)),
    )


async def run_program(program: Program) -> list[str]:
    """What is wrong with what it has come to."""
    peer, memory, seen = Counting(), MemoryStore(), dict[str, set[object]]()
    for number, asked in enumerate(program.asked):
        store = DyingStore(memory, *program.deaths[number]) if number < len(program.deaths) else None
        await live(program, peer, memory if store is None else store, store, asked, seen)
    return [*judge_ends(await ends(memory), seen), *judge_prompts(program, peer)]


async def live(
    program: Program,
    peer: Counting,
    store: MemoryStore | DyingStore,
    dying: DyingStore | None,
    asked: tuple[str, ...],
    seen: dict[str, set[object]],
) -> None:
    """One host: all its callers at once, then those of the keys that are open."""
    spec = spec_with_home(peer, on_crash=program.on_crash, silence=300.0)
    # Around the tree: a host may die while its tree is ending, too.
    async with trio.open_nursery() as around:
        with trio.CancelScope() as scope:
            if dying is not None:
                around.start_soon(bury, dying, scope)
            async with proctor.open_supervisor([spec], store=store, intensity=100) as sup:
                await call(sup, asked, seen, dying)
        around.cancel_scope.cancel()


async def call(
    sup: proctor.Supervisor, asked: tuple[str, ...], seen: dict[str, set[object]], dying: DyingStore | None
) -> None:
    async with trio.open_nursery() as callers:
        for prompt in asked:
            callers.start_soon(ask, sup.agent("agent"), prompt, seen, dying)
    if dying is None:
        for prompt in PROMPTS:
            await ask(sup.agent("agent"), prompt, seen, None)


async def bury(dying: DyingStore, scope: trio.CancelScope) -> None:
    await dying.died.wait()
    scope.cancel()
    dying.release()


async def ask(agent: Agent, prompt: str, seen: dict[str, set[object]], dying: DyingStore | None) -> None:
    try:
        answer = await agent.ask(prompt, key=prompt, timeout=30)
        found: object = (answer.outcome, answer.text)
        sent = answer.delivery is None or answer.delivery.sent != "no"
    except (AgentError, NoProc) as error:
        delivery = getattr(error, "delivery", None)
        found, sent = str(error), delivery is not None and delivery.sent != "no"
    # What a caller gets counts up to the moment in which its host is buried, also when its store has died.
    if sent and not (dying is not None and dying.released):
        seen.setdefault(prompt, set()).add(found)


async def ends(memory: MemoryStore) -> dict[str, list[StoredEnd | None]]:
    found = dict[str, list[StoredEnd | None]]()
    for kept in await memory.requests():
        if kept.holds_key:
            found.setdefault(kept.key, []).append(kept.end)
    return found


def judge_ends(found: dict[str, list[StoredEnd | None]], seen: dict[str, set[object]]) -> list[str]:
    wrong = [f"{key}: {len(each)} requests hold it" for key, each in found.items() if len(each) != 1]
    wrong += [f"{key}: it has no end" for key, each in found.items() if None in each]
    wrong += [
        f"{key}: its callers got {len(each)} ends: {each}" for key, each in seen.items() if len(each) > 1
    ]
    return wrong


def judge_prompts(program: Program, peer: Counting) -> list[str]:
    # What crashes its process is sent again where that was asked for; within one host that is not the store's to count.
    repeated = {"fail": (), "resume": (CONTINUED, "crash"), "retry": (CONTINUED, *PROMPTS)}[program.on_crash]
    counts = peer.prompts.items()
    return [
        f"{prompt}: sent {count} times" for prompt, count in counts if count > 1 and prompt not in repeated
    ]


@pytest.mark.parametrize("on_crash", ["fail", "resume", "retry"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_host_that_dies_at_any_call_of_its_store_loses_nothing(
    on_crash: Literal["fail", "resume", "retry"], when: Literal["before", "after"], autojump_clock: MockClock
) -> None:
    wrong = list[str]()
    for at in range(1, 16):
        program = Program(on_crash, (PROMPTS, ()), ((at, when),))
        wrong += [f"call {at}: {one}" for one in await run_program(program)]
    assert wrong == []


async def test_hosts_that_die_one_after_the_other_lose_nothing(autojump_clock: MockClock) -> None:
    for number in range(share(600)):
        seed = SEED + number
        program = random_program(Random(seed))
        assert await run_program(program) == [], f"seed {seed}: {program}"
