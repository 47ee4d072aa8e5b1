from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from pathlib import Path

import pytest

import proctor
from proctor.actors.handle import Agent
from proctor.actors.plan import AgentOptions, opencode_plan
from proctor.actors.runs import run
from proctor.actors.trees import agent_spec
from tests.clis.not_run import NOT_RUN
from tests.fakes.model_api import COMPLETIONS, ModelApi, Unfinished, open_model_api
from tests.fakes.steps import Drop, Hang, Repeat, Status, Text, Tool
from tests.real.agents import by_word, opencode_home
from tests.real.homes import ClaudeHome, until

BOUND = 120.0
FOREVER = "tail -f /dev/null"


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
def options(installed_clis: Mapping[str, Path], home: ClaudeHome) -> AgentOptions:
    if "opencode-1.18.33" not in installed_clis:
        pytest.skip(f"{NOT_RUN}OpenCode is only pinned for Linux on x86-64")
    return {
        "executable": installed_clis["opencode-1.18.33"],
        "cwd": home.work,
        "env": home.environment,
        "model": "fake/m1",
        "greeting": BOUND,
    }


def bash(command: str) -> Tool:
    return Tool("bash", {"command": command, "description": "x"})


async def it_answers_with_text_and_counts(agent: Agent, api: ModelApi, home: ClaudeHome) -> None:
    api.play(Text("Hello from the fake.", chunk=6))
    answer = await agent.ask("say hello", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.model) == ("ok", "Hello from the fake.", "fake/m1")
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (100, 20)


async def it_remembers_the_turn_before(agent: Agent, api: ModelApi, home: ClaudeHome) -> None:
    api.play(Text("again"))
    answer = await agent.ask("and again", timeout=BOUND)
    assert answer.text == "again"
    assert "say hello" in api.scripted[0].text
    assert "Hello from the fake." in api.scripted[0].text


async def an_allowed_tool_runs(agent: Agent, api: ModelApi, home: ClaudeHome) -> None:
    api.play(bash("echo yes > allowed.txt"), Text("made"))
    answer = await agent.ask("make it", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.denied_tools) == ("ok", "made", ())
    assert (home.work / "allowed.txt").read_text() == "yes\n"


async def a_denied_tool_does_not_run_and_the_model_is_told(
    agent: Agent, api: ModelApi, home: ClaudeHome
) -> None:
    api.play(bash("touch denied.txt"), Text("then not"))
    answer = await agent.ask("make it", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.denied_tools) == ("ok", "then not", ("bash",))
    assert not (home.work / "denied.txt").exists()


async def a_question_that_nobody_answers_is_denied(
    agent: Agent, api: ModelApi, home: ClaudeHome
) -> None:  # L39
    api.play(bash("touch unanswered.txt"), Text("nobody was there"))
    answer = await agent.ask("make it", timeout=BOUND)
    assert (answer.outcome, answer.denied_tools) == ("ok", ("bash",))
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
    api.play(Status(401, "Incorrect API key provided: sk-fake."), Text("let in"))
    answer = await agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.ending) == ("authentication", "authentication")
    assert (await agent.ask("hi again", timeout=BOUND)).text == "let in"


async def a_refused_request_is_told_with_its_cause(agent: Agent, api: ModelApi, home: ClaudeHome) -> None:
    api.play(Repeat(Status(400, "Bad request from the fake.")))
    answer = await agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.ending) == ("failed", "invalid_request")
    assert "Bad request from the fake." in (answer.error or "")


async def faults_that_pass_are_got_over(agent: Agent, api: ModelApi, home: ClaudeHome) -> None:
    at_once = {"retry-after": "0"}
    api.play(Status(429, "slow down", headers=at_once), Status(500, "oh", headers=at_once), Text("well"))
    answer = await agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.text) == ("ok", "well")
    assert len(api.scripted) == 3


async def what_a_broken_stream_had_said_is_no_part_of_the_answer(
    agent: Agent, api: ModelApi, home: ClaudeHome
) -> None:
    api.play(Drop(Text("never finished", chunk=2), after=3), Text("whole"))
    answer = await agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.text) == ("ok", "whole")


async def model_calls_without_end_are_ended(agent: Agent, api: ModelApi, home: ClaudeHome) -> None:
    api.play(*[Unfinished(Text("partial "))] * 60)
    answer = await agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.ending, answer.detail) == ("failed", "api_error", "endless")
    assert len(api.scripted) < 40


async def killed_in_mid_turn_the_conversation_goes_on_in_the_same_session(
    agent: Agent, api: ModelApi, home: ClaudeHome
) -> None:
    before = await agent.status()
    api.play(Hang(Text("never finished", chunk=2), after=3), Text("after"))
    lost = list[str]()
    async with agent.stream("second") as turn:
        try:
            async for event in turn:
                if isinstance(event, proctor.TextDelta):
                    os.killpg(os.getpgid((await agent.status()).pid or 0), signal.SIGKILL)
        except proctor.MaybeExecuted as error:
            lost.append(error.outcome)
    assert lost == ["killed_by_system"]
    answer = await agent.ask("third", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.session_id) == ("ok", "after", before.session_id)
    assert (await agent.status()).incarnation == 2
    assert "say hello" in api.scripted[-1].text


Scene = Callable[[Agent, ModelApi, ClaudeHome], Awaitable[None]]
SCENES: tuple[Scene, ...] = (
    it_answers_with_text_and_counts,
    it_remembers_the_turn_before,
    an_allowed_tool_runs,
    a_denied_tool_does_not_run_and_the_model_is_told,
    a_question_that_nobody_answers_is_denied,
    an_interrupt_ends_the_turn_and_keeps_the_session,
    a_wrong_key_is_told_apart_and_the_next_request_tries_again,
    a_refused_request_is_told_with_its_cause,
    faults_that_pass_are_got_over,
    what_a_broken_stream_had_said_is_no_part_of_the_answer,
    model_calls_without_end_are_ended,
    killed_in_mid_turn_the_conversation_goes_on_in_the_same_session,
)
"""A start costs ten seconds of processor time, so all scenes share one agent. The last one has cost a process."""


async def test_a_session_goes_through_every_scene_and_leaves_nothing_behind(
    options: AgentOptions, api: ModelApi, home: ClaudeHome
) -> None:
    policy = by_word({"allowed": True, FOREVER: True, "denied": False})
    plan = opencode_plan("a", {**options, "permission": policy, "approval_deadline": 0.5})
    async with proctor.open_supervisor([agent_spec("a", plan, {})], intensity=1, period=600) as sup:
        agent = sup.agent("a")
        for scene in SCENES:
            api.begin_anew()
            await scene(agent, api, home)
            assert api.unexpected == [], scene
        api.begin_anew()
        api.play(bash(FOREVER), Text("not wanted any more"))
        async with agent.stream("work") as turn:
            async for event in turn:
                if isinstance(event, proctor.ToolCall):
                    await until(lambda: any("tail" in each.argv for each in home.leftovers()))
                    break
            await sup.stop()
    assert home.leftovers() == []


async def test_one_process_for_each_prompt(options: AgentOptions, api: ModelApi, home: ClaudeHome) -> None:
    plan = opencode_plan("a", {**options, "mode": "run"})
    api.play(bash("touch made.txt"), Text("as told"))
    answer = await run(plan, "-x $HOME `id`", timeout=BOUND)
    assert (answer.outcome, answer.text) == ("ok", "as told")
    assert answer.usage is not None
    assert answer.usage.input_tokens == 200
    assert "-x $HOME `id`" in api.scripted[0].text
    assert not (home.work / "made.txt").exists()  # nobody can be asked, so it is rejected
    assert home.leftovers() == []
