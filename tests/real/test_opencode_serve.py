from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Unpack

import pytest

import proctor
from proctor.actors.opencode_server.address import GetAddress
from proctor.actors.opencode_server.plan import served_plan
from proctor.actors.opencode_server.server import opencode_server
from proctor.actors.plan.options import AgentOptions
from proctor.actors.specs import Supervisor, agent_spec
from proctor.protocols import vocabulary as v
from proctor.runtime.spec import ChildSpec
from tests.fakes.model_api import ModelApi
from tests.fakes.steps import Hang, Text, Tool
from tests.real import plays
from tests.real.given import BAD, GIVEN, GOOD, Invoice, add, assert_right
from tests.real.homes import ClaudeHome

BOUND = 120.0
PROJECTS = {"a": "p1", "b": "p2"}


def agent(name: str, place: ClaudeHome, **options: Unpack[AgentOptions]) -> ChildSpec:
    chosen: AgentOptions = {"cwd": place.work, "model": "fake/m1", "silence": BOUND}
    chosen.update(options)
    return agent_spec(name, served_plan(name, chosen, server="hub"), {})


async def it_answers_with_text_and_counts(sup: Supervisor, api: ModelApi, home: ClaudeHome) -> None:
    api.play(Text("Hello from the fake.", chunk=6))
    answer = await sup.agent("a").ask("say hello", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.model) == ("ok", "Hello from the fake.", "fake/m1")
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (100, 20)


async def another_agent_has_a_session_of_its_own(sup: Supervisor, api: ModelApi, home: ClaudeHome) -> None:
    api.play(Text("Hello, you too."))
    answer = await sup.agent("b").ask("and me", timeout=BOUND)
    assert answer.text == "Hello, you too."
    assert "say hello" not in api.scripted[0].text
    assert answer.session_id != (await sup.agent("a").status()).session_id


async def a_denied_tool_does_not_run_and_the_model_goes_on(
    sup: Supervisor, api: ModelApi, home: ClaudeHome
) -> None:
    api.play(Tool("bash", {"command": "echo no > denied.txt", "description": "x"}), Text("as you wish"))
    answer = await sup.agent("a").ask("make it", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.denied_tools) == ("ok", "as you wish", ("bash",))
    assert not (home.work / "denied.txt").exists()


async def it_is_told_a_shape_with_the_prompt_and_the_next_answer_is_words_again(
    sup: Supervisor, api: ModelApi, home: ClaudeHome
) -> None:
    api.play(Tool("StructuredOutput", BAD), Tool("StructuredOutput", GOOD), Text("And in words."))
    answer = await sup.agent("a").ask("What is due?", schema=Invoice, timeout=BOUND)
    words = await sup.agent("a").ask("And in words?", timeout=BOUND)
    assert_right(answer, 2)
    assert (words.text, words.value) == ("And in words.", None)


async def each_has_its_own_tools_and_not_the_others(sup: Supervisor, api: ModelApi, home: ClaudeHome) -> None:
    for name, servers in (("a", ["host_add", "tiny_look"]), ("b", ["host_add"])):
        api.begin_anew()
        api.play(Text("which tools?"))
        await sup.agent(name).ask("hello", timeout=BOUND)
        names = [tool["function"]["name"] for tool in api.scripted[0].body["tools"]]
        offered = [each for each in names if each.endswith(("-host_add", "-tiny_look"))]
        assert sorted(each.rpartition("-")[2] for each in offered) == servers
        api.begin_anew()
        api.play(Tool(offered[0], {"a": 2, "b": 3}), Text("done"))
        async with sup.agent(name).stream("work") as turn:
            events = [event async for event in turn]
        assert [event.name for event in events if isinstance(event, v.ToolCall)] == ["host_add"]
        results = [event.text for event in events if isinstance(event, v.ToolResult)]
        assert (results, turn.answer.text) == ([f"5 for {PROJECTS[name]}"], "done")


async def a_broken_stream_is_told_when_it_is_tried_again(
    sup: Supervisor, api: ModelApi, home: ClaudeHome
) -> None:
    stage = plays.Stage(sup.agent("a"), api, home, plays.shell("bash"), "bash")
    await plays.a_broken_stream_is_told_when_it_is_tried_again(stage)


async def an_interrupt_ends_the_turn(sup: Supervisor, api: ModelApi, home: ClaudeHome) -> None:
    api.play(Hang(Text("never finished", chunk=5), after=1))
    async with sup.agent("a").stream("long") as turn:
        async for event in turn:
            if isinstance(event, v.TextDelta):
                assert await sup.agent("a").interrupt()
    assert turn.answer.outcome == "interrupted"
    api.play(Text("still here"))
    assert (await sup.agent("a").ask("on", timeout=BOUND)).text == "still here"


async def a_killed_server_is_followed_by_one_with_the_same_sessions(
    sup: Supervisor, api: ModelApi, home: ClaudeHome
) -> None:
    before = [(await sup.agent(name).status()).session_id for name in ("a", "b")]
    address = await sup.name("hub").call(GetAddress())
    api.play(Hang(Text("never finished", chunk=5), after=1))
    async with sup.agent("a").stream("cut") as turn:
        with pytest.raises(proctor.MaybeExecuted, match="server 'hub' cannot be reached"):
            await _killed_in_mid_turn(turn, address.pid)
    api.begin_anew()
    api.play(Text("a again"), Text("b again"))
    after = [await sup.agent(name).ask("on", timeout=BOUND) for name in ("a", "b")]
    assert [answer.text for answer in after] == ["a again", "b again"]
    assert [answer.session_id for answer in after] == before
    assert "say hello" in api.scripted[0].text
    assert "and me" in api.scripted[1].text
    assert await sup.name("hub").call(GetAddress()) != address


async def _killed_in_mid_turn(turn: proctor.Turn, pid: int) -> None:
    async for event in turn:
        if isinstance(event, v.TextDelta):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.covers("R161", "R164")
async def test_two_agents_on_one_server(
    opencode_cli: Path, completions_api: ModelApi, opencode_home: ClaudeHome
) -> None:
    api, home = completions_api, opencode_home
    server = opencode_server("hub", executable=opencode_cli, cwd=home.work, env=home.environment, start=BOUND)
    others: AgentOptions = {"host_tools": [add], "context": {"project": PROJECTS["b"]}}
    children = [server, agent("a", home, **GIVEN), agent("b", home, **others)]
    async with proctor.open_supervisor(children, intensity=5, period=60) as sup:
        for scene in (
            it_answers_with_text_and_counts,
            another_agent_has_a_session_of_its_own,
            a_denied_tool_does_not_run_and_the_model_goes_on,
            it_is_told_a_shape_with_the_prompt_and_the_next_answer_is_words_again,
            each_has_its_own_tools_and_not_the_others,
            a_broken_stream_is_told_when_it_is_tried_again,
            an_interrupt_ends_the_turn,
            a_killed_server_is_followed_by_one_with_the_same_sessions,
            each_has_its_own_tools_and_not_the_others,
        ):
            api.begin_anew()
            await scene(sup, api, home)
    assert home.leftovers() == []
