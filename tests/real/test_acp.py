from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path

import pytest

import proctor
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, acp_plan
from proctor.actors.specs import agent_spec
from tests.fakes.model_api import CONTENT, ModelApi, open_model_api
from tests.fakes.steps import Drop, Text
from tests.real import plays
from tests.real.agents import gemini_home
from tests.real.homes import ClaudeHome
from tests.real.plays import BOUND, Stage


@pytest.fixture
async def api() -> AsyncGenerator[ModelApi]:
    async with open_model_api(CONTENT) as fake:
        yield fake


@pytest.fixture
def home(tmp_path: Path, api: ModelApi) -> Generator[ClaudeHome]:
    made = gemini_home(tmp_path, api.url)
    yield made
    made.sweep()


@pytest.fixture
def plan(installed_clis: Mapping[str, Path], home: ClaudeHome) -> Plan:
    options: AgentOptions = {**plays.options_in(home), "model": "gemini-2.5-pro"}
    argv = [str(installed_clis["gemini-0.61.0"])]
    return acp_plan("a", argv, options, profile="gemini")


async def a_broken_stream_is_not_tried_again_but_told_as_a_fault_of_the_api(stage: Stage) -> None:
    stage.api.play(Drop(Text("never finished", chunk=2), after=3), Text("on"))
    answer = await stage.agent.ask("hi", timeout=BOUND)
    assert (answer.outcome, answer.ending, answer.error) == ("failed", "api_error", "terminated")
    assert (await stage.agent.ask("and now", timeout=BOUND)).text == "on"


SCENES: tuple[plays.Scene, ...] = (
    plays.it_answers_with_text_and_counts,
    plays.killed_between_two_turns_it_comes_back_and_answers,
    plays.an_allowed_tool_runs,
    plays.a_denied_tool_does_not_run_and_the_model_is_told,
    plays.a_question_that_nobody_answers_is_denied,
    plays.an_interrupt_ends_the_turn_and_keeps_the_session,
    plays.a_wrong_key_is_told_apart_and_the_next_request_tries_again,
    plays.a_refused_request_is_told_with_its_cause,
    plays.faults_that_pass_are_got_over,
    a_broken_stream_is_not_tried_again_but_told_as_a_fault_of_the_api,
)
"""Gemini CLI 0.61.0 deletes most sessions of a process that was killed when it starts next, so what comes then may be a
new session, with a notice."""


async def test_gemini_goes_through_every_scene_and_leaves_nothing_behind(
    plan: Plan, api: ModelApi, home: ClaudeHome
) -> None:
    async with proctor.open_supervisor([agent_spec("a", plan, {})], intensity=1, period=600) as sup:
        stage = Stage(sup.agent("a"), api, home, plays.shell("run_shell_command"), "run_shell_command")
        await plays.play_all(stage, SCENES)
        assert (await stage.agent.status()).model == "gemini-2.5-pro"
        await plays.stopped_while_a_tool_runs(stage, sup)
    assert home.leftovers() == []
