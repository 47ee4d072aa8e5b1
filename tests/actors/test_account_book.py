"""What a run takes is counted, and bounded by its budgets, however the run is made.

The table is WAYS x CELLS: each way to have a prompt carried out, and what has to hold for its money.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Unpack

import attrs
import pytest
import trio

import proctor
from proctor.actors.errors import AgentError, CompletionError
from proctor.actors.gateways.http import SessionTurns
from proctor.actors.limits.account_book import AccountBook
from proctor.actors.outcomes import Answer
from proctor.actors.plan.budgets import Budget
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan
from proctor.actors.serving.agent_tools import Terms, one_shot
from proctor.actors.serving.allowed_dirs import AllowedDirs
from proctor.actors.serving.completion import CompletionModel, CompletionRequest
from proctor.actors.serving.pool import Pools
from proctor.actors.serving.sessions import Sessions
from proctor.actors.serving.toolset import Call, Toolset
from proctor.actors.specs import agent_spec
from proctor.actors.transport.memory import PeerStreams, in_memory
from proctor.actors.transport.transport import Start, Transport
from proctor.protocols.vocabulary import Usage
from proctor.runtime.errors import ActorExited
from proctor.runtime.exits import DeliveryError
from tests.actors.gateways.http.serving import served
from tests.actors.spoken import COUNTED, spoken_plan
from tests.protocols.lines import INIT, assistant, ended, line, reply, text

HOUR = 3600.0
ONE_TURN = Budget(0.4, HOUR)
"""Less than one turn costs, which is 0.5."""
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Till:
    """A far end whose turns cost half a dollar each, reported as Claude Code does: the total of the conversation, which goes on
    in a process that resumes it. It says its prompt; to `crash` it says something and dies; where a shape is asked
    for, its first answer does not fit."""

    def __init__(self) -> None:
        self.total = 0.0
        self.prompts = 0

    def reach(self, start: Start) -> Transport:
        if not any("resume" in argument for argument in start.command.argv):
            self.total = 0.0
        return in_memory(self.live, name="till")(start)

    async def live(self, side: PeerStreams) -> int | None:
        async for frame_line in side.lines():
            frame: dict[str, Any] = json.loads(frame_line)
            if frame["type"] == "control_request":
                await side.send_all(reply(frame["request_id"], pid=1))
                if frame["request"]["subtype"] == "end_session":
                    return None
                continue
            if (status := await self._turn(side, frame["message"]["content"])) is not None:
                return status
        return None

    async def _turn(self, side: PeerStreams, prompt: str) -> int | None:
        self.prompts += 1
        await side.send_all(INIT)
        if "crash" in prompt:
            message = {"role": "assistant", "id": "m1", "content": [text("Half")], "usage": COUNTED}
            await side.send_all(line(type="assistant", session_id="s", message=message))
            return 3
        self.total += 0.5
        words = '{"n": 1}' if "does not match the schema" in prompt else prompt
        await side.send_all(assistant(text(words)))
        facts = {"subtype": "success", "is_error": False, "result": words, "usage": COUNTED}
        await side.send_all(ended(total_cost_usd=self.total, **facts))
        return None


def till_plan(till: Till, tmp_path: Path, **options: Unpack[AgentOptions]) -> Plan:
    chosen: AgentOptions = {"home": "user", "env": {"CLAUDE_CONFIG_DIR": str(tmp_path / "home")}, **options}
    return attrs.evolve(spoken_plan(**chosen), reach=till.reach)


@attrs.frozen
class Result:
    """What came of a call: its cost and attempts where there is an answer, or the text of the refusal."""

    cost_usd: float | None = None
    attempts: int = 0
    refusal: str = ""


class Ask(Protocol):
    async def __call__(self, prompt: str, schema: Any = None) -> Result: ...


def result_of(answer: Answer) -> Result:
    return Result(answer.cost_usd, answer.attempts)


async def _result_of(run: Callable[..., Any], prompt: str, schema: Any = None) -> Result:
    """By anything that takes a prompt and a shape, and gives an answer."""
    try:
        return result_of(await run(prompt, schema=schema))
    except (AgentError, ActorExited, DeliveryError) as error:
        return Result(refusal=str(error))


@asynccontextmanager
async def held(plan: Plan, tmp_path: Path) -> AsyncGenerator[Ask]:
    async with proctor.open_supervisor([agent_spec("agent", plan, {})], intensity=5) as sup:
        yield partial(_result_of, sup.agent("agent").ask)


@asynccontextmanager
async def session(plan: Plan, tmp_path: Path) -> AsyncGenerator[Ask]:
    async def run(prompt: str, *, schema: Any) -> Answer:
        async with sessions.hold("s") as one:
            return await one.run(plan, prompt, schema=schema)

    async with Sessions(tmp_path / "sessions") as sessions:
        yield partial(_result_of, run)


@asynccontextmanager
async def pool(plan: Plan, tmp_path: Path) -> AsyncGenerator[Ask]:
    yield partial(_result_of, partial(Pools(limit=2).run, plan))


@asynccontextmanager
async def ask(plan: Plan, tmp_path: Path) -> AsyncGenerator[Ask]:
    yield partial(_result_of, partial(proctor.ask, agent_spec("agent", plan, {})))


@asynccontextmanager
async def stream(plan: Plan, tmp_path: Path) -> AsyncGenerator[Ask]:
    async def run(prompt: str, *, schema: Any) -> Answer:
        async with proctor.stream(agent_spec("agent", plan, {}), prompt, schema=schema) as live:
            async for _ in live:
                pass
            return live.answer

    yield partial(_result_of, run)


@asynccontextmanager
async def completion(plan: Plan, tmp_path: Path) -> AsyncGenerator[Ask]:
    model = CompletionModel.make(agent_spec("agent", plan, {}))

    async def answer(prompt: str, schema: Any = None) -> Result:
        try:
            response = await model.completion(CompletionRequest(prompt=prompt, schema=schema))
        except CompletionError as error:
            return Result(refusal=str(error))
        return result_of(response.raw)

    yield answer


@asynccontextmanager
async def served_by_mcp(plan: Plan, tmp_path: Path) -> AsyncGenerator[Ask]:
    async with Sessions(tmp_path / "sessions") as sessions:
        terms = Terms(roots=AllowedDirs([tmp_path]), sessions=sessions)
        tools = Toolset([one_shot("till", "It costs.", lambda options: plan, terms)])

        async def answer(prompt: str, schema: Any = None) -> Result:
            more = {} if schema is None else {"schema": schema}
            result = await tools.call("till", {"prompt": prompt, "session_id": "s", **more}, Call())
            if result.is_error:
                return Result(refusal=result.text)
            facts: Mapping[str, Any] = result.facts
            return Result(facts["cost_usd"], facts.get("attempts", 1))

        yield answer


@asynccontextmanager
async def served_by_http(plan: Plan, tmp_path: Path) -> AsyncGenerator[Ask]:
    plan = attrs.evolve(plan, name="agent", shutdown=0.2)
    async with Sessions(tmp_path / "sessions") as sessions:
        session_turns = SessionTurns(sessions=sessions, plans={"agent": plan}, pools=Pools(limit=2))
        async with served(
            agent_spec("agent", plan, {"shutdown": 5.0}), hooks={"session_turns": session_turns}
        ) as server:

            async def answer(prompt: str, schema: Any = None) -> Result:
                more = {} if schema is None else {"schema": schema}
                response = await server.ask(prompt, "agent", session_id="s", **more)
                body = response.json()
                if response.status_code != 200:
                    return Result(refusal=body["detail"])
                return Result(body["answer"]["cost_usd"], body["answer"].get("attempts", 1))

            yield answer


Way = Callable[[Plan, Path], AbstractAsyncContextManager[Ask]]
WAYS: Mapping[str, Way] = {
    "held": held,
    "session": session,
    "pool": pool,
    "ask": ask,
    "stream": stream,
    "completion": completion,
    "MCP": served_by_mcp,
    "HTTP": served_by_http,
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@ways
async def test_the_first_and_the_second_call_cost_what_each_of_them_costs(way: Way, tmp_path: Path) -> None:
    with AccountBook() as book:
        async with way(till_plan(Till(), tmp_path), tmp_path) as answer:
            costs = [(await answer(prompt)).cost_usd for prompt in ("one", "two")]
    assert costs == [0.5, 0.5]
    expense = book.expenses["agent"]
    assert (expense.turns, expense.unpriced, expense.cost_usd) == (2, 0, 1.0)
    assert expense.usage == Usage(6, 10)
    assert expense.lines >= 4


@ways
async def test_a_second_call_is_refused_when_the_first_has_spent_the_budget(way: Way, tmp_path: Path) -> None:
    till = Till()
    with AccountBook(), trio.fail_after(30):
        async with way(till_plan(till, tmp_path, budget=ONE_TURN), tmp_path) as answer:
            first = await answer("one")
            with trio.move_on_after(1):  # a held agent is parked
                assert "has spent $0.5 of $0.4 in 3600 s" in (await answer("two")).refusal
    assert first.cost_usd == 0.5
    assert till.prompts == 1


@ways
async def test_the_budget_of_the_program_bounds_every_call(way: Way, tmp_path: Path) -> None:
    till = Till()
    with AccountBook(budget=ONE_TURN), trio.fail_after(30):
        async with way(till_plan(till, tmp_path), tmp_path) as answer:
            await answer("one")
            with trio.move_on_after(1):
                assert "the program has spent $0.5 of $0.4" in (await answer("two")).refusal
    assert till.prompts == 1


@ways
async def test_the_attempts_at_a_shape_are_summed(way: Way, tmp_path: Path) -> None:
    with AccountBook() as book:
        async with way(till_plan(Till(), tmp_path), tmp_path) as answer:
            result = await answer("one", NUMBER)
    assert (result.cost_usd, result.attempts) == (1.0, 2)
    assert book.expenses["agent"].cost_usd == 1.0


@ways
async def test_a_turn_whose_process_died_counts_with_what_was_reported_of_it(
    way: Way, tmp_path: Path
) -> None:
    with AccountBook() as book:
        async with way(till_plan(Till(), tmp_path), tmp_path) as answer:
            await answer("crash")
    expense = book.expenses["agent"]
    assert (expense.turns, expense.unpriced, expense.usage) == (1, 1, Usage(3, 5, 0, 0))


@pytest.mark.parametrize("way", [ask, stream])
async def test_a_budget_that_nothing_would_remember_is_refused_before_anything_starts(
    way: Way, tmp_path: Path
) -> None:
    till = Till()
    async with way(till_plan(till, tmp_path, budget=ONE_TURN), tmp_path) as answer:
        result = await answer("one")
    assert result.refusal.startswith(
        "budget of 'agent': a single run does not remember what earlier runs spent"
    )
    assert till.prompts == 0


@pytest.mark.parametrize("way", [session, pool, completion, served_by_mcp])
async def test_what_has_a_life_of_its_own_keeps_a_budget_without_any_tree(way: Way, tmp_path: Path) -> None:
    till = Till()
    async with way(till_plan(till, tmp_path, budget=ONE_TURN), tmp_path) as answer:
        first, second = await answer("one"), await answer("two")
    assert (first.cost_usd, till.prompts) == (0.5, 1)
    assert "has spent $0.5 of $0.4" in second.refusal
