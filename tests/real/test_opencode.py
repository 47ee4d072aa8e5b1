from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

import proctor
from proctor.actors.plan import AgentOptions, opencode_plan
from proctor.actors.runs import run
from proctor.actors.trees import agent_spec
from tests.fakes.model_api import COMPLETIONS, ModelApi, Unfinished, open_model_api
from tests.fakes.steps import Text, Tool
from tests.real import plays
from tests.real.agents import by_word, opencode_home
from tests.real.homes import ClaudeHome
from tests.real.plays import BOUND, Stage


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
def options(opencode_cli: Path, home: ClaudeHome) -> AgentOptions:
    return {
        "executable": opencode_cli,
        "cwd": home.work,
        "env": home.environment,
        "model": "fake/m1",
        "greeting": BOUND,
    }


async def model_calls_without_end_are_ended(stage: Stage) -> None:
    stage.api.play(*[Unfinished(Text("partial "))] * 60)
    answer = await stage.agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.ending, answer.detail) == ("failed", "api_error", "endless")
    assert len(stage.api.scripted) < 40


SCENES: tuple[plays.Scene, ...] = (
    plays.it_answers_with_text_and_counts,
    plays.it_remembers_the_turn_before,
    plays.an_allowed_tool_runs,
    plays.a_denied_tool_does_not_run_and_the_model_is_told,
    plays.a_question_that_nobody_answers_is_denied,
    plays.an_interrupt_ends_the_turn_and_keeps_the_session,
    plays.a_wrong_key_is_told_apart_and_the_next_request_tries_again,
    plays.a_refused_request_is_told_with_its_cause,
    plays.faults_that_pass_are_got_over,
    plays.what_a_broken_stream_had_said_is_no_part_of_the_answer,
    model_calls_without_end_are_ended,
    plays.killed_in_mid_turn_the_conversation_goes_on_in_the_same_session,
)


async def test_a_session_goes_through_every_scene_and_leaves_nothing_behind(
    options: AgentOptions, api: ModelApi, home: ClaudeHome
) -> None:
    plan = opencode_plan("a", {**options, "permission": by_word(plays.WORDS), "approval_deadline": 0.5})
    async with proctor.open_supervisor([agent_spec("a", plan, {})], intensity=1, period=600) as sup:
        stage = Stage(sup.agent("a"), api, home, "bash")
        await plays.play_all(stage, SCENES)
        assert (await stage.agent.status()).model == "fake/m1"
        await plays.stopped_while_a_tool_runs(stage, sup)
    assert home.leftovers() == []


async def test_one_process_for_each_prompt(options: AgentOptions, api: ModelApi, home: ClaudeHome) -> None:
    plan = opencode_plan("a", {**options, "mode": "run"})
    api.play(Tool("bash", {"command": "touch made.txt", "description": "x"}), Text("as told"))
    answer = await run(plan, "-x $HOME `id`", timeout=BOUND)
    assert (answer.outcome, answer.text) == ("ok", "as told")
    assert answer.usage is not None
    assert answer.usage.input_tokens == 200
    assert "-x $HOME `id`" in api.scripted[0].text
    assert not (home.work / "made.txt").exists()  # nobody can be asked, so it is rejected
    assert home.leftovers() == []
