"""Real command lines that are stopped (SIGSTOP): one agent of each goes through all of it, as a start is what costs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

import pytest

import proctor
from proctor.actors.plan.options import AgentOptions
from proctor.actors.process.liveness import CHECK_INTERVAL
from proctor.runtime.processes.procfs import children_of, stat_of
from tests.actors.far_end import codes, log_of
from tests.fakes.messages_api import MessagesApi
from tests.fakes.responses_api import ResponsesApi, call
from tests.fakes.steps import Hang, Repeat, Text, Tool
from tests.real.conftest import newest_claude
from tests.real.homes import ClaudeHome, until
from tests.real.scenes import ENDLESS_TOOL

BOUND = 120.0
MIDWAY = Hang(Text("never finished", chunk=2), after=3)


async def stop(agent: proctor.Agent) -> None:
    """Stop the program below the guard."""
    [program] = children_of((await agent.status()).pid or 0)
    os.kill(program, signal.SIGSTOP)
    await until(lambda: (stat := stat_of(program)) is not None and stat.state == "T")


async def lost(agent: proctor.Agent, kind: type[proctor.AnyEvent], prepare: Callable[[], bool]) -> str:
    """The end of a turn whose CLI is stopped at the first event of this kind, once `prepare` holds."""
    async with agent.stream("work") as turn:
        async for event in turn:
            if isinstance(event, kind):
                await until(prepare)
                await stop(agent)
                break
        with pytest.raises(proctor.MaybeExecuted) as raised:
            await turn.finish()
    assert raised.value.outcome == "stalled"
    return str(raised.value)


async def go_through(
    agent: proctor.Agent, api: MessagesApi | ResponsesApi, home: ClaudeHome, tool: Tool
) -> None:
    """Stopped in mid-text, in mid-tool and idle: each turn ends with the evidence, the next is the conversation's."""
    api.play(Text("one"), MIDWAY, Text("two"), tool, Text("three"), Repeat(Text("four")))
    session = (await agent.ask("first", timeout=BOUND)).session_id
    said = await lost(agent, proctor.TextDelta, lambda: True)
    assert f"found stopped twice within {CHECK_INTERVAL:g} s: process stopped, guard running" in said
    answer = await agent.ask("second", timeout=BOUND)
    assert (answer.text, answer.session_id) == ("two", session)
    said = await lost(agent, proctor.ToolCall, lambda: any("tail" in each.argv for each in home.leftovers()))
    assert "found stopped" in said
    answer = await agent.ask("third", timeout=BOUND)
    assert (answer.text, answer.session_id) == ("three", session)
    await stop(agent)
    with suppress(proctor.MaybeExecuted):  # continued for the stop sequence, it may still answer
        await agent.ask("fourth", timeout=BOUND)
    answer = await agent.ask("fifth", timeout=BOUND)
    assert (answer.text, answer.session_id) == ("four", session)
    assert (await agent.status()).incarnation == 4
    assert codes(await log_of(agent)).count("stalled") == 3


@newest_claude
async def test_a_stopped_claude_code_ends_its_turn_and_its_conversation_goes_on(
    claude_options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    options: AgentOptions = {**claude_options, "permission": "allow"}
    spec = proctor.claude("a", **options)
    async with proctor.open_supervisor([spec], intensity=9) as sup:
        await go_through(sup.agent("a"), messages_api, claude_home, ENDLESS_TOOL)
    assert claude_home.leftovers() == []


async def test_a_stopped_codex_ends_its_turn_and_its_conversation_goes_on(
    codex_options: AgentOptions, responses_api: ResponsesApi, codex_home: ClaudeHome
) -> None:
    options: AgentOptions = {**codex_options, "sandbox": "danger-full-access", "permission_mode": "never"}
    spec = proctor.codex("a", **options)
    async with proctor.open_supervisor([spec], intensity=9) as sup:
        await go_through(sup.agent("a"), responses_api, codex_home, call("tail -f /dev/null"))
    assert codex_home.leftovers() == []
