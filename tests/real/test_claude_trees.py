from __future__ import annotations

import os
import signal

import pytest

import proctor
from tests.fakes.messages_api import MessagesApi
from tests.fakes.steps import Hang, Text
from tests.real.conftest import Cli, newest_claude
from tests.real.homes import ClaudeHome, until
from tests.real.scenes import ENDLESS_TOOL


@pytest.fixture
def options(claude_cli: Cli, claude_home: ClaudeHome) -> proctor.SpecOptions:
    return {
        "executable": claude_cli.path,
        "cwd": claude_home.work,
        "env": claude_home.environment,
        "retries": 2,
        "permission": "allow",
    }


def written(home: ClaudeHome) -> bytes:
    """All session files of the CLI so far."""
    return b"".join(path.read_bytes() for path in (home.home / ".claude" / "projects").rglob("*.jsonl"))


@newest_claude
async def test_two_turns_in_one_session(
    options: proctor.SpecOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    messages_api.play(Text("one"), Text("two"))
    async with proctor.open_supervisor([proctor.claude("a", **options)]) as sup:
        agent = sup.agent("a")
        first = await agent.ask("first", timeout=60)
        second = await agent.ask("second", timeout=60)
        status = await agent.status()
    assert [first.text, second.text] == ["one", "two"]
    assert first.session_id == second.session_id == status.session_id
    assert messages_api.scripted[1].n_messages > messages_api.scripted[0].n_messages
    assert (status.turns, status.incarnation) == (2, 1)
    assert first.cost_usd is not None
    assert second.cost_usd is not None
    assert status.cost_usd == pytest.approx(first.cost_usd + second.cost_usd)
    assert claude_home.leftovers() == []


@pytest.mark.parametrize("on_crash", ["fail", "resume"])
async def test_killed_in_mid_turn_the_conversation_goes_on_in_the_same_session(
    on_crash: str, options: proctor.SpecOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    messages_api.play(Text("before"), Hang(Text("never finished"), after=1), Text("after"))
    choice: proctor.SpecOptions = {**options, "on_crash": "resume" if on_crash == "resume" else "fail"}
    spec = proctor.claude("a", **choice)
    async with proctor.open_supervisor([spec], intensity=1, period=60) as sup:
        agent = sup.agent("a")
        before = await agent.ask("first", timeout=60)
        lost = list[str]()
        async with agent.stream("second") as turn:
            try:
                async for event in turn:
                    if isinstance(event, proctor.TextDelta) and len(messages_api.scripted) == 2:
                        # 2.1.197 writes its session file late: killed before that, it has nothing to resume
                        await until(lambda: b"second" in written(claude_home))
                        os.killpg(os.getpgid((await agent.status()).pid or 0), signal.SIGKILL)
            except proctor.MaybeExecuted as error:
                lost.append(error.outcome)
        if on_crash == "fail":
            assert lost == ["killed_by_system"]
            after = await agent.ask("third", timeout=60)
        else:
            after = turn.answer
        status = await agent.status()
    assert (after.outcome, after.text) == ("ok", "after")
    assert after.session_id == before.session_id
    assert status.incarnation == 2
    assert messages_api.scripted[-1].n_messages > messages_api.scripted[0].n_messages
    assert claude_home.leftovers() == []


async def test_stopping_the_tree_while_a_tool_runs_leaves_nothing_behind(
    options: proctor.SpecOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    messages_api.play(ENDLESS_TOOL, Text("not wanted any more"))
    spec = proctor.claude("a", **options)
    async with proctor.open_supervisor([spec]) as sup, sup.agent("a").stream("work") as turn:
        async for event in turn:
            if isinstance(event, proctor.ToolCall):
                await until(lambda: any("tail" in p.argv for p in claude_home.leftovers()))
                break
        await sup.stop()
    assert claude_home.leftovers() == []


async def test_interrupt_ends_the_turn_and_keeps_the_session(
    options: proctor.SpecOptions, messages_api: MessagesApi
) -> None:
    messages_api.play(Hang(Text("never finished"), after=1), Text("again"))
    async with proctor.open_supervisor([proctor.claude("a", **options)]) as sup:
        agent = sup.agent("a")
        async with agent.stream("one") as turn:
            async for event in turn:
                if isinstance(event, proctor.TextDelta):
                    assert await agent.interrupt()
        assert turn.answer.outcome == "interrupted"
        answer = await agent.ask("two", timeout=60)
    assert (answer.outcome, answer.text) == ("ok", "again")
    assert answer.session_id == turn.answer.session_id
