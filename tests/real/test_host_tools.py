"""Tools of the host and a server of MCP, called by the real command lines that have no host tools on their wire.

Those of OpenCode are called where it runs anyway: `test_opencode`, `test_opencode_serve`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import acp_plan, claude_plan, codex_plan
from tests.fakes.messages_api import MessagesApi
from tests.fakes.model_api import CONTENT, open_model_api
from tests.fakes.responses_api import ResponsesApi
from tests.fakes.steps import Text, Tool
from tests.real.agents import gemini_home
from tests.real.conftest import newest_claude
from tests.real.given import BAD, GIVEN, GOOD, MARKED, SEEN, Invoice, assert_right, worked
from tests.real.homes import ClaudeHome

BOUND = 120.0
ADDED = {"a": 2, "b": 3}


@pytest.mark.covers("R161", "R149")
async def test_gemini_calls_both_and_hands_in_its_answer_without_a_question(
    installed_clis: Mapping[str, Path], tmp_path: Path
) -> None:
    async with open_model_api(CONTENT) as api:
        home = gemini_home(tmp_path, api.url)
        trusting = {**home.environment, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        options: AgentOptions = {**GIVEN, "cwd": home.work, "env": trusting, "greeting": BOUND}
        argv = [str(installed_clis["gemini-0.61.0"])]
        plan = acp_plan("a", argv, {**options, "model": "gemini-2.5-pro"}, profile="gemini")
        ordered = {"wait_for_previous": True}  # which it has added to the arguments of every tool
        api.play(Tool("mcp_host_add", {**ADDED, **ordered}), Tool("mcp_tiny_look", {}))
        api.play(Tool("mcp_host_submit", BAD), Tool("mcp_host_submit", {**GOOD, **ordered}), Text("done"))
        done = await worked(plan, schema=Invoice)
        assert_right(done.answer, 1)  # it looks at arguments by itself, so what is wrong never gets here
        assert done.asked == ["add", "submit"]
        assert [result.is_error for result in done.results] == [False, False, True, False]
        assert done.results[2].text == 'params/due must match format "date"'
        assert SEEN in str(api.scripted[-1].body).replace('\\\\"', '"')
        assert "5 for p1" in str(api.scripted[-1].body)
        home.sweep()


@pytest.mark.covers("R161", "R165")
async def test_a_codex_run_calls_both(
    codex_options: AgentOptions, responses_api: ResponsesApi, codex_home: ClaudeHome
) -> None:
    responses_api.play(Tool("mcp__host__add", ADDED), Tool("mcp__tiny__look", {}), Text("done"))
    done = await worked(codex_plan("a", {**codex_options, **GIVEN, "mode": "exec"}))
    added, looked = done.results
    assert (done.asked, added.text, looked.text) == (["add"], "5 for p1", SEEN)
    assert looked.metadata == MARKED
    assert codex_home.leftovers() == []


@pytest.mark.covers("R161", "R165")
async def test_a_codex_thread_calls_a_server(
    codex_options: AgentOptions, responses_api: ResponsesApi, codex_home: ClaudeHome
) -> None:
    responses_api.play(Tool("mcp__tiny__look", {}), Text("done"))
    done = await worked(codex_plan("a", {**codex_options, **GIVEN}))
    [looked] = done.results
    assert looked.text == SEEN
    assert looked.metadata == MARKED
    assert codex_home.leftovers() == []


@pytest.mark.covers("R161", "R165")
@newest_claude
async def test_one_shot_claude_code_calls_both(
    claude_options: AgentOptions, claude_home: ClaudeHome, messages_api: MessagesApi
) -> None:
    options: AgentOptions = {**GIVEN, **claude_options, "mode": "oneshot"}
    messages_api.play(Tool("mcp__host__add", ADDED), Tool("mcp__tiny__look", {}), Text("done"))
    done = await worked(claude_plan("a", options))
    added, looked = done.results
    assert (done.asked, added.text) == (["add"], "5 for p1")
    # the structured content stands in for the text, also for the model
    assert (looked.text, looked.metadata) == ('{"seen":2}', MARKED)
    assert claude_home.leftovers() == []
