from __future__ import annotations

import json

import msgspec
import pytest

import proctor
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import opencode_plan
from proctor.actors.specs import agent_spec
from tests.fakes.model_api import ModelApi, Unfinished
from tests.fakes.steps import Text, Tool
from tests.real import plays
from tests.real.agents import by_word
from tests.real.given import (
    BAD,
    ENCODED,
    GIVEN,
    GOOD,
    NOTE,
    PICTURE,
    SAID,
    SEEN,
    Invoice,
    assert_right,
    worked,
)
from tests.real.homes import ClaudeHome
from tests.real.memory import HERE, ROOT, repository, seen
from tests.real.plays import BOUND, Stage


async def asked_for_a_shape_it_is_told_so_in_the_prompt_and_read_by_its_text(stage: Stage) -> None:
    stage.api.play(Text("Two nuts."), Text(f"Here:\n```json\n{json.dumps(GOOD)}\n```"))
    answer = await stage.agent.ask("What is due?", schema=Invoice, timeout=BOUND)
    assert_right(answer, 2)
    assert "the answer is not JSON" in stage.api.scripted[1].text


async def model_calls_without_end_are_ended(stage: Stage) -> None:
    assert isinstance(stage.api, ModelApi)
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
    asked_for_a_shape_it_is_told_so_in_the_prompt_and_read_by_its_text,
    plays.an_interrupt_ends_the_turn_and_keeps_the_session,
    plays.a_wrong_key_is_told_apart_and_the_next_request_tries_again,
    plays.a_refused_request_is_told_with_its_cause,
    plays.faults_that_pass_are_got_over,
    plays.a_broken_stream_is_told_when_it_is_tried_again,
    model_calls_without_end_are_ended,
    plays.killed_in_mid_turn_the_conversation_goes_on_in_the_same_session,
)


async def test_a_session_goes_through_every_scene_and_leaves_nothing_behind(
    opencode_options: AgentOptions, completions_api: ModelApi, opencode_home: ClaudeHome
) -> None:
    asking: AgentOptions = {"permission": by_word(plays.WORDS), "approval_deadline": 0.5}
    plan = opencode_plan("a", {**opencode_options, **asking})
    async with proctor.open_supervisor([agent_spec("a", plan, {})], intensity=1, period=600) as sup:
        stage = Stage(sup.agent("a"), completions_api, opencode_home, plays.shell("bash"), "bash")
        await plays.play_all(stage, SCENES)
        assert (await stage.agent.status()).model == "fake/m1"
        await plays.stopped_while_a_tool_runs(stage, sup)
    assert opencode_home.leftovers() == []


@pytest.mark.covers("R161", "R149", "R150")
async def test_a_process_for_one_request_reads_the_memory_of_its_project_and_hands_in_its_answer_by_a_tool(
    opencode_options: AgentOptions, completions_api: ModelApi, opencode_home: ClaudeHome
) -> None:
    folder = await repository(opencode_home, "AGENTS.md")
    plan = opencode_plan("a", {**opencode_options, **GIVEN, "cwd": folder})
    completions_api.play(Tool("host_add", {"a": 2, "b": 3}), Tool("tiny_look", {}))
    completions_api.play(Tool("host_example", {}), Tool("host_validate", BAD), Tool("host_submit", BAD))
    completions_api.play(Tool("host_submit", GOOD), Text("done"))
    done = await worked(plan, "What is due?", schema=Invoice)
    assert_right(done.answer, 2)
    assert done.asked == ["add", "example", "validate", "submit", "submit"]
    added, looked, example, wrong, refused, accepted = done.results
    assert (added.text, looked.text.startswith(SEEN)) == ("5 for p1", True)
    assert msgspec.json.decode(example.text, type=Invoice).lines
    for each in (wrong, refused):
        assert '/due: "tomorrow" is not a "date"' in each.text
    assert accepted.text.startswith("Accepted.")
    assert seen(completions_api.scripted[0].text) == {ROOT, HERE}
    assert opencode_home.leftovers() == []


@pytest.mark.covers("R145", "R161")
async def test_a_process_for_each_prompt_is_given_files_tools_and_the_memory_of_its_project(
    opencode_options: AgentOptions, completions_api: ModelApi, opencode_home: ClaudeHome
) -> None:
    folder = await repository(opencode_home, "AGENTS.md")
    plan = opencode_plan("a", {**opencode_options, **GIVEN, "cwd": folder, "mode": "run"})
    completions_api.play(Tool("bash", {"command": "touch made.txt", "description": "x"}))
    completions_api.play(Tool("host_add", {"a": 2, "b": 3}), Tool("tiny_look", {}), Text("done"))
    done = await worked(plan, "-x $HOME `id`", payloads=(NOTE, PICTURE))
    _, added, looked = done.results
    assert (done.asked, added.text, looked.text.startswith(SEEN)) == (["add"], "5 for p1", True)
    assert done.answer.usage is not None
    assert done.answer.usage.input_tokens == 400
    for part in ("-x $HOME `id`", ENCODED, SAID):
        assert part in completions_api.scripted[0].text
    assert seen(completions_api.scripted[0].text) == {ROOT, HERE}
    assert not (folder / "made.txt").exists()  # nobody can be asked, so it is rejected
    assert opencode_home.leftovers() == []
