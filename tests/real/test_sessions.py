"""A session id, a pool and a process kept ready, with the real command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, claude_plan
from proctor.actors.process.memory import memory_of
from proctor.actors.serving.pool import Pool, Warm
from proctor.actors.serving.sessions import Sessions
from proctor.protocols.vocabulary import TurnEnded
from tests.fakes.messages_api import MessagesApi
from tests.fakes.steps import Repeat, Text
from tests.real.conftest import newest_claude
from tests.real.homes import ClaudeHome

BOUND = 60.0
MIB = 2**20


@pytest.fixture
def options(claude_options: AgentOptions) -> AgentOptions:
    return {**claude_options, "retries": 2}


async def two_sessions(plan: Plan, messages_api: MessagesApi, root: Path) -> None:
    """The next call of a session knows what was said in it, another session does not."""
    async with Sessions(root) as sessions:
        for id, prompt in (("one", "my colour is blue"), ("one", "which colour?"), ("two", "which colour?")):
            async with sessions.hold(id) as session:
                assert (await session.run(plan, prompt, timeout=BOUND)).ok
    lengths = [len(request.body.messages) for request in messages_api.scripted]
    assert lengths[1] > lengths[0]
    assert lengths[2] == lengths[0]
    assert os.listdir(root) == []


@pytest.mark.covers("R126", "R129", "R133", "R049", "L14")
@newest_claude
async def test_sessions_keep_their_conversations_while_a_process_waits_for_a_prompt(
    options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome, tmp_path: Path
) -> None:
    messages_api.play(Text("Noted."), Text("Blue."), Text("What?"), Repeat(Text("Here.")))
    plan = claude_plan("a", options)
    pool = Pool("claude", limit=2, warm=[Warm(plan, 1)])
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.serve)
        with trio.fail_after(BOUND):
            while not pool.statistics().warm:  # noqa: ASYNC110  # it is a process
                await trio.sleep(0.05)
        ready = trio.current_time()
        await two_sessions(plan, messages_api, tmp_path / "root")
        await trio.sleep_until(ready + 4)  # longer than a one-shot run would wait for its prompt
        held = pool.memory()
        assert held is not None
        assert 50 * MIB < held.resident < 1500 * MIB
        async with pool.stream(plan, "are you there?", timeout=BOUND) as live:
            ended = [event async for event in live if isinstance(event, TurnEnded)]
            assert live.answer.text == "Here."
        assert len(ended) == 1
        nursery.cancel_scope.cancel()
    assert (pool.statistics().used, claude_home.leftovers()) == (0, [])
    assert memory_of(live.incarnation.pid) is None
