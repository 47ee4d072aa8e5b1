from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path

import attrs
import pytest

import proctor
from proctor.actors.plan.plan import Plan, acp_plan
from proctor.actors.specs import agent_spec
from tests.fakes.responses_api import ResponsesApi, escalated, open_responses_api
from tests.real import plays
from tests.real.homes import MINIMAL_PATH, ClaudeHome, make_home
from tests.real.plays import Stage

MODEL = "gpt-5.5"


@pytest.fixture
async def api() -> AsyncGenerator[ResponsesApi]:
    async with open_responses_api(model=MODEL) as fake:
        yield fake


@pytest.fixture
def home(tmp_path: Path, api: ResponsesApi, installed_clis: Mapping[str, Path]) -> Generator[ClaudeHome]:
    folders = make_home(tmp_path, api.url)
    provider = {"name": "fake", "base_url": api.url, "wire_api": "responses", "env_key": "FAKE_KEY"}
    environment = {
        "HOME": str(folders.home),
        "PATH": MINIMAL_PATH,
        "LANG": "C.UTF-8",
        "FAKE_KEY": "sk-test-not-a-real-key",
        "NO_PROXY": "127.0.0.1,localhost",
        "CODEX_PATH": str(installed_clis["codex-0.169.0"]),
        "CODEX_CONFIG": json.dumps(
            {"model": MODEL, "model_provider": "fake", "model_providers": {"fake": provider}}
        ),
        "MODEL_PROVIDER": "fake",
    }
    made = attrs.evolve(folders, environment=environment)
    yield made
    made.sweep()


@pytest.fixture
def plan(installed_clis: Mapping[str, Path], home: ClaudeHome) -> Plan:
    return acp_plan("a", [str(installed_clis["codex-acp-2.6.0"])], plays.options_in(home), profile="codex")


async def a_denied_tool_does_not_run_and_ends_the_turn(stage: Stage) -> None:
    assert (await plays.refused(stage, "denied.txt")).outcome == "interrupted"


async def a_question_that_nobody_answers_is_denied_and_ends_the_turn(stage: Stage) -> None:  # L39
    assert (await plays.refused(stage, "unanswered.txt")).outcome == "interrupted"


SCENES: tuple[plays.Scene, ...] = (
    plays.it_answers_with_text_and_counts,
    plays.it_remembers_the_turn_before,
    plays.an_allowed_tool_runs,
    a_denied_tool_does_not_run_and_ends_the_turn,
    a_question_that_nobody_answers_is_denied_and_ends_the_turn,
    plays.an_interrupt_ends_the_turn_and_keeps_the_session,
    plays.a_refused_request_is_told_with_its_cause,
    plays.faults_that_pass_are_got_over,
    plays.what_a_broken_stream_had_said_is_no_part_of_the_answer,
    plays.killed_in_mid_turn_the_conversation_goes_on_in_the_same_session,
)
"""codex-acp has Codex end the turn where the user says no."""


async def test_the_adapter_over_codex_goes_through_every_scene_and_leaves_nothing_behind(
    plan: Plan, api: ResponsesApi, home: ClaudeHome
) -> None:
    async with proctor.open_supervisor([agent_spec("a", plan, {})], intensity=1, period=600) as sup:
        stage = Stage(sup.agent("a"), api, home, escalated, "execute")
        await plays.play_all(stage, SCENES)
        await plays.stopped_while_a_tool_runs(stage, sup)
    assert home.leftovers() == []
