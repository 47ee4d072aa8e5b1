from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Unpack

import pytest

import proctor
from proctor.actors.plan import AgentOptions
from proctor.actors.served import served_plan
from proctor.actors.server import Where, opencode_server
from proctor.actors.trees import Supervisor, agent_spec
from proctor.protocols import vocabulary as v
from proctor.runtime.spec import ChildSpec
from tests.fakes.model_api import COMPLETIONS, ModelApi, open_model_api
from tests.fakes.steps import Hang, Text, Tool
from tests.real.agents import opencode_home
from tests.real.homes import ClaudeHome

BOUND = 120.0


@pytest.fixture
async def api() -> AsyncGenerator[ModelApi]:
    async with open_model_api(COMPLETIONS) as fake:
        yield fake


@pytest.fixture
def home(tmp_path: Path, api: ModelApi) -> Generator[ClaudeHome]:
    made = opencode_home(tmp_path, api)
    yield made
    made.sweep()


@pytest.fixture
def server(opencode_cli: Path, home: ClaudeHome) -> ChildSpec:
    return opencode_server("hub", executable=opencode_cli, cwd=home.work, env=home.environment, start=BOUND)


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
    address = await sup.name("hub").call(Where())
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
    assert await sup.name("hub").call(Where()) != address


async def _killed_in_mid_turn(turn: proctor.Turn, pid: int) -> None:
    async for event in turn:
        if isinstance(event, v.TextDelta):
            os.kill(pid, signal.SIGKILL)


async def test_two_agents_on_one_server(server: ChildSpec, api: ModelApi, home: ClaudeHome) -> None:
    children = [server, agent("a", home), agent("b", home)]
    async with proctor.open_supervisor(children, intensity=5, period=60) as sup:
        for scene in (
            it_answers_with_text_and_counts,
            another_agent_has_a_session_of_its_own,
            a_denied_tool_does_not_run_and_the_model_goes_on,
            an_interrupt_ends_the_turn,
            a_killed_server_is_followed_by_one_with_the_same_sessions,
        ):
            api.begin_anew()
            await scene(sup, api, home)
    assert home.leftovers() == []
