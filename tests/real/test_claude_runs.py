from __future__ import annotations

from pathlib import Path

import pytest

from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan, claude_plan
from proctor.actors.runs import ask, stream
from proctor.protocols import vocabulary as v
from tests.actors.far_end import silent
from tests.fakes.messages_api import MessagesApi
from tests.fakes.steps import Repeat, Status, Text, Tool
from tests.real.conftest import Cli, newest_claude
from tests.real.homes import ClaudeHome, until

BOUND = 60.0
MEGABYTE = 1_000_000


@pytest.fixture
def options(claude_options: AgentOptions) -> AgentOptions:
    return {**claude_options, "retries": 2}


def plan_with(options: AgentOptions, more: AgentOptions) -> Plan:
    return claude_plan("a", {**options, **more})


async def test_a_text_answer(
    options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    messages_api.play(Text("Hello from the fake."))
    answer = await ask(claude_plan("a", options), "say hi", timeout=BOUND)
    assert (answer.outcome, answer.text, answer.error) == ("ok", "Hello from the fake.", None)
    assert answer.usage is not None
    assert answer.cost_usd
    assert messages_api.scripted[0].last_user_text == "say hi"
    assert claude_home.leftovers() == []


@newest_claude
@pytest.mark.covers("R187")
@pytest.mark.parametrize("mode", ["session", "oneshot"])
async def test_a_prompt_with_a_leading_dash_arrives_verbatim(
    mode: str, options: AgentOptions, messages_api: MessagesApi
) -> None:
    prompt = "-p --model $HOME `id`\n- and more"
    messages_api.play(Text("as told"))
    answer = await ask(
        plan_with(options, {"mode": "oneshot" if mode == "oneshot" else "session"}), prompt, timeout=BOUND
    )
    assert (answer.outcome, answer.text) == ("ok", "as told")
    assert messages_api.scripted[0].last_user_text == prompt


@newest_claude
@pytest.mark.covers("C06")
async def test_a_prompt_of_a_megabyte_arrives_whole(options: AgentOptions, messages_api: MessagesApi) -> None:
    prompt = "line of the prompt\n" * (MEGABYTE // 19)
    messages_api.play(Text("read"))
    answer = await ask(claude_plan("a", options), prompt, timeout=BOUND)
    assert answer.outcome == "ok"
    assert len(messages_api.scripted[0].last_user_text) == len(prompt)


async def test_a_prompt_of_five_megabytes_arrives_or_is_refused_in_so_many_words(
    claude_cli: Cli, options: AgentOptions, messages_api: MessagesApi
) -> None:
    prompt = "line of the prompt\n" * (5 * MEGABYTE // 19)
    messages_api.play(Text("read"))
    answer = await ask(claude_plan("a", options), prompt, timeout=BOUND)
    if claude_cli.version == "2.1.197":
        assert (answer.outcome, len(messages_api.scripted[0].last_user_text)) == ("ok", len(prompt))
    else:  # the CLI's own check comes before the API
        assert (answer.outcome, answer.ending) == ("failed", "prompt_too_long")
        assert "too long" in (answer.error or "").lower()


@pytest.mark.parametrize(("policy", "made"), [("allow", True), ("deny", False)])
async def test_a_tool_call_is_allowed_or_denied_by_policy(
    policy: str, made: bool, options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    messages_api.play(Tool("Bash", {"command": "touch made.txt", "description": "x"}), Text("done"))
    plan = plan_with(options, {"permission": "allow" if policy == "allow" else "deny"})
    async with stream(plan, "make it", timeout=BOUND) as live:
        events = [event async for event in live]
    assert live.answer.outcome == "ok"
    assert (claude_home.work / "made.txt").exists() == made
    [call] = [e for e in events if isinstance(e, v.ToolCall)]
    [result] = [e for e in events if isinstance(e, v.ToolResult)]
    assert (call.name, call.input["command"], result.id) == ("Bash", "touch made.txt", call.id)
    assert result.is_error != made
    assert live.answer.denied_tools == (() if made else ("Bash",))


@newest_claude
@pytest.mark.covers("L39")
async def test_an_approval_that_nobody_answers_is_denied(
    options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    messages_api.play(Tool("Bash", {"command": "touch made.txt", "description": "x"}), Text("done"))
    plan = plan_with(options, {"permission": silent, "approval_deadline": 0.3})
    answer = await ask(plan, "make it", timeout=BOUND)
    assert (answer.outcome, answer.denied_tools) == ("ok", ("Bash",))
    assert not (claude_home.work / "made.txt").exists()


@newest_claude
@pytest.mark.parametrize(("status", "outcome"), [(401, "authentication"), (500, "failed")])
async def test_refusals_of_the_api_end_after_a_bounded_number_of_retries(
    status: int, outcome: str, options: AgentOptions, messages_api: MessagesApi
) -> None:
    messages_api.play(Repeat(Status(status)))
    async with stream(claude_plan("a", options), "hi", timeout=BOUND) as live:
        events = [event async for event in live]
    assert (live.answer.outcome, live.answer.exit is not None) == (outcome, True)
    assert len([e for e in events if isinstance(e, v.Retrying)]) == 2
    assert live.answer.error is not None
    assert len(messages_api.scripted) == 3


@newest_claude
async def test_an_answer_of_twenty_megabytes_arrives_whole(
    options: AgentOptions, messages_api: MessagesApi
) -> None:
    text = Text(size=20 * MEGABYTE)
    messages_api.play(text)
    answer = await ask(claude_plan("a", options), "write a book", timeout=120)
    assert answer.outcome == "ok"
    assert answer.text == text.whole()


async def test_a_large_answer_of_a_one_shot_run_is_whole_or_no_answer_never_cut(
    claude_cli: Cli, options: AgentOptions, messages_api: MessagesApi
) -> None:
    text = Text(size=3 * MEGABYTE)
    messages_api.play(text)
    answer = await ask(plan_with(options, {"mode": "oneshot"}), "write", timeout=BOUND)
    # 2.1.197 leaves with status 0 before its pipe has taken the end of a long answer; the newer one waits
    expected = ("ok", "no_answer") if claude_cli.version == "2.1.197" else ("ok",)
    assert answer.outcome in expected
    assert answer.text == (text.whole() if answer.ok else "")


async def test_leaving_while_a_tool_runs_leaves_nothing_behind(
    options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome
) -> None:
    command = "(trap '' TERM; sleep 300) & sleep 300"
    messages_api.play(Tool("Bash", {"command": command, "description": "x"}))
    async with stream(plan_with(options, {"permission": "allow"}), "work", timeout=BOUND) as live:
        async for event in live:
            if isinstance(event, v.ToolCall):
                await until(lambda: any("sleep" in p.argv for p in claude_home.leftovers()))
                break
    assert claude_home.leftovers() == []


@newest_claude
@pytest.mark.covers("R021")
async def test_the_model_that_answered_is_recorded(options: AgentOptions, messages_api: MessagesApi) -> None:
    messages_api.play(Text("hi"))
    answer = await ask(plan_with(options, {"model": "claude-haiku-4-5"}), "hi", timeout=BOUND)
    assert answer.model is not None
    assert "haiku" in answer.model
    assert messages_api.scripted[0].model == "claude-haiku-4-5"


@newest_claude
async def test_a_run_is_recorded_as_a_transcript(
    options: AgentOptions, messages_api: MessagesApi, claude_home: ClaudeHome, tmp_path: Path
) -> None:
    messages_api.play(Text("hi"))
    plan = plan_with(options, {"record": tmp_path / "runs"})
    async with stream(plan, "hi", timeout=BOUND) as live:
        await live.finish()
    folder = live.directory / "1"
    assert {p.name for p in folder.iterdir()} == {"stdout.ndjson", "stdin.ndjson", "stderr.txt", "meta.json"}
    secret = claude_home.environment["ANTHROPIC_API_KEY"].encode()
    assert not [p for p in live.directory.rglob("*") if p.is_file() and secret in p.read_bytes()]  # R185
