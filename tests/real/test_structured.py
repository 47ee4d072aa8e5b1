from __future__ import annotations

import json

import pytest

import proctor
from proctor.actors.plan.options import AgentMode, AgentOptions
from proctor.actors.plan.plan import claude_plan, codex_plan
from proctor.actors.runs import ask
from proctor.actors.specs import agent_spec
from tests.fakes.messages_api import MessagesApi
from tests.fakes.responses_api import ResponsesApi
from tests.fakes.steps import Text, Tool
from tests.real.conftest import CLAUDES, newest_claude
from tests.real.given import BAD, GOOD, Invoice, assert_right
from tests.real.homes import ClaudeHome

BOUND = 120.0


# -- Claude Code


@pytest.mark.parametrize(
    ("claude_cli", "mode"),
    [*((alias, "session") for alias in CLAUDES), (CLAUDES[-1], "oneshot")],
    indirect=["claude_cli"],
)
async def test_claude_is_told_the_schema_at_its_launch_and_asked_again_when_it_writes_prose(
    mode: AgentMode, claude_options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    messages_api.play(
        Text("It is two nuts."), Text("As I said."), Tool("StructuredOutput", GOOD), Text("done")
    )
    plan = claude_plan("a", {**claude_options, "mode": mode})
    answer = await ask(plan, "What is due?", schema=Invoice, timeout=BOUND)
    assert_right(answer, 2)
    offered = {offer.name for offer in messages_api.scripted[0].body.tools}
    assert "StructuredOutput" in offered
    assert claude_home.leftovers() == []


@newest_claude
async def test_a_held_claude_hands_its_answer_in_by_a_tool(
    claude_options: AgentOptions, messages_api: MessagesApi
) -> None:
    messages_api.play(
        Tool("mcp__host__submit", {"value": BAD}), Tool("mcp__host__submit", {"value": GOOD}), Text("done")
    )
    plan = claude_plan("a", {**claude_options, "schemas": True})
    async with proctor.open_supervisor([agent_spec("a", plan, {})]) as sup:
        answer = await sup.agent("a").ask("What is due?", schema=Invoice, timeout=BOUND)
    assert_right(answer, 2)
    assert '/due: "tomorrow" is not a "date"' in str(messages_api.scripted[1].body)
    assert answer.cost_usd


# -- Codex


@pytest.mark.parametrize("mode", ["session", "exec"])
async def test_codex_is_told_the_strict_form_and_asked_again_since_it_checks_nothing(
    mode: AgentMode, codex_options: AgentOptions, responses_api: ResponsesApi, codex_home: ClaudeHome
) -> None:
    responses_api.play(Text(json.dumps(BAD)), Text(json.dumps(GOOD)))
    plan = codex_plan("a", {**codex_options, "mode": mode})
    answer = await ask(plan, "What is due?", schema=Invoice, timeout=BOUND)
    assert_right(answer, 2)
    first, second = responses_api.requests
    for request in (first, second):
        told = request.body["text"]["format"]
        assert (told["type"], told["strict"]) == ("json_schema", True)
        assert told["schema"]["required"] == ["due", "lines", "note"]
        assert told["schema"]["additionalProperties"] is False
    assert "What is due?" in str(second.body)
    assert "is not a" in second.user_texts[-1]
    assert codex_home.leftovers() == []
