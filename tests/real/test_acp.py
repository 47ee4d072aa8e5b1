from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from pathlib import Path

import pytest
import trio

import proctor
from proctor.actors.handle import Agent
from proctor.actors.plan import AgentOptions, Plan, acp_plan
from proctor.actors.trees import agent_spec
from tests.fakes.model_api import CONTENT, ModelApi, open_model_api
from tests.fakes.steps import Hang, Repeat, Status, Text, Tool
from tests.real.agents import by_word, gemini_home
from tests.real.homes import ClaudeHome, until

BOUND = 120.0
FOREVER = "tail -f /dev/null"


@pytest.fixture
async def api() -> AsyncGenerator[ModelApi]:
    async with open_model_api(CONTENT) as fake:
        yield fake


@pytest.fixture
def home(tmp_path: Path, api: ModelApi) -> Generator[ClaudeHome]:
    made = gemini_home(tmp_path, api)
    yield made
    made.sweep()


@pytest.fixture
def plan(installed_clis: Mapping[str, Path], home: ClaudeHome) -> Plan:
    options: AgentOptions = {
        "cwd": home.work,
        "env": home.environment,
        "model": "gemini-2.5-pro",
        "permission": by_word({"allowed": True, FOREVER: True, "denied": False}),
        "approval_deadline": 0.5,
        "greeting": BOUND,
    }
    argv = [str(installed_clis["gemini-0.61.0"])]
    return acp_plan("a", argv, options, profile="gemini")


def shell(command: str) -> Tool:
    return Tool("run_shell_command", {"command": command, "description": "x"})


async def it_answers_with_text_and_counts(agent: Agent, api: ModelApi, home: ClaudeHome) -> None:
    api.play(Text("Hello from the fake.", chunk=6))
    answer = await agent.ask("say hello", timeout=BOUND)
    assert (answer.outcome, answer.text) == ("ok", "Hello from the fake.")
    assert answer.model == "gemini-2.5-pro"
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (100, 20)


async def an_allowed_tool_runs(agent: Agent, api: ModelApi, home: ClaudeHome) -> None:
    api.play(shell("echo yes > allowed.txt"), Text("made"))
    answer = await agent.ask("make it", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.denied_tools) == ("ok", "made", ())
    assert (home.work / "allowed.txt").read_text() == "yes\n"


async def a_denied_tool_does_not_run_and_the_model_is_told(
    agent: Agent, api: ModelApi, home: ClaudeHome
) -> None:
    api.play(shell("touch denied.txt"), Text("then not"))
    answer = await agent.ask("make it", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.denied_tools) == ("ok", "then not", ("run_shell_command",))
    assert not (home.work / "denied.txt").exists()


async def a_question_that_nobody_answers_is_denied(
    agent: Agent, api: ModelApi, home: ClaudeHome
) -> None:  # L39
    api.play(shell("touch unanswered.txt"), Text("nobody was there"))
    answer = await agent.ask("make it", timeout=BOUND)
    assert (answer.outcome, answer.denied_tools) == ("ok", ("run_shell_command",))
    assert not (home.work / "unanswered.txt").exists()


async def an_interrupt_ends_the_turn_and_keeps_the_session(
    agent: Agent, api: ModelApi, home: ClaudeHome
) -> None:
    api.play(Hang(Text("never finished", chunk=2), after=3), Text("on it"))
    async with agent.stream("one") as turn:
        async for event in turn:
            if isinstance(event, proctor.TextDelta):
                await agent.interrupt()
    assert turn.answer.outcome == "interrupted"
    answer = await agent.ask("two", timeout=BOUND)
    assert (answer.text, answer.session_id) == ("on it", turn.answer.session_id)


async def a_wrong_key_is_told_apart_and_the_next_request_tries_again(
    agent: Agent, api: ModelApi, home: ClaudeHome
) -> None:
    api.play(Status(401, "API key not valid."), Text("let in"))
    answer = await agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.ending) == ("authentication", "authentication")
    assert (await agent.ask("hi again", timeout=BOUND)).text == "let in"


async def a_refused_request_is_told_with_its_cause(agent: Agent, api: ModelApi, home: ClaudeHome) -> None:
    api.play(Repeat(Status(400, "Bad request from the fake.")))
    answer = await agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.ending) == ("failed", "invalid_request")
    assert "Bad request from the fake." in (answer.error or "")


async def killed_between_two_turns_it_comes_back_and_answers(
    agent: Agent, api: ModelApi, home: ClaudeHome
) -> None:
    before = await agent.status()
    os.killpg(os.getpgid(before.pid or 0), signal.SIGKILL)
    await until(lambda: not Path(f"/proc/{before.pid}").exists())
    await trio.sleep(0.5)  # the agent is told of the death after the guard has swept
    api.play(Text("after"))
    answer = await agent.ask("third", timeout=BOUND)
    assert (answer.outcome, answer.text) == ("ok", "after")
    assert (await agent.status()).incarnation == 2


Scene = Callable[[Agent, ModelApi, ClaudeHome], Awaitable[None]]
SCENES: tuple[Scene, ...] = (
    it_answers_with_text_and_counts,
    killed_between_two_turns_it_comes_back_and_answers,
    an_allowed_tool_runs,
    a_denied_tool_does_not_run_and_the_model_is_told,
    a_question_that_nobody_answers_is_denied,
    an_interrupt_ends_the_turn_and_keeps_the_session,
    a_wrong_key_is_told_apart_and_the_next_request_tries_again,
    a_refused_request_is_told_with_its_cause,
)
"""Gemini CLI 0.61.0 deletes most sessions of a process that was killed when it starts next, so what comes then may be a
new session, with a notice."""


async def test_gemini_goes_through_every_scene_and_leaves_nothing_behind(
    plan: Plan, api: ModelApi, home: ClaudeHome
) -> None:
    async with proctor.open_supervisor([agent_spec("a", plan, {})], intensity=1, period=600) as sup:
        agent = sup.agent("a")
        for scene in SCENES:
            api.begin_anew()
            await scene(agent, api, home)
            assert api.unexpected == [], scene
        api.begin_anew()
        api.play(shell(FOREVER), Text("not wanted any more"))
        async with agent.stream("work") as turn:
            async for event in turn:
                if isinstance(event, proctor.ToolCall):
                    await until(lambda: any("tail" in each.argv for each in home.leftovers()))
                    break
            await sup.stop()
    assert home.leftovers() == []
