from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from proctor.actors.plan.options import AgentMode, AgentOptions
from proctor.actors.plan.plan import Plan, acp_plan, claude_plan, codex_plan
from proctor.actors.runs import stream
from proctor.protocols.vocabulary import Notice
from tests.fakes.messages_api import MessagesApi
from tests.fakes.model_api import CONTENT, open_model_api
from tests.fakes.responses_api import ResponsesApi
from tests.fakes.steps import Text
from tests.real import plays
from tests.real.agents import gemini_home
from tests.real.conftest import newest_claude
from tests.real.homes import ClaudeHome
from tests.real.memory import HERE, PERSONAL, ROOT, repository, seen

BOUND = 120.0


async def notices_of(plan: Plan) -> dict[str, Notice]:
    async with stream(plan, "go", timeout=BOUND) as live:
        events = [event async for event in live]
    assert (live.answer.outcome, live.answer.text) == ("ok", "done")
    return {event.code: event for event in events if isinstance(event, Notice)}


@pytest.fixture
async def claude_project(claude_home: ClaudeHome) -> Path:
    folder = await repository(claude_home, "CLAUDE.md")
    user = claude_home.home / ".claude"
    user.mkdir(exist_ok=True)
    (user / "CLAUDE.md").write_text(PERSONAL)
    return folder


@newest_claude
@pytest.mark.parametrize("mode", ["session", "oneshot"])
async def test_claude_reads_the_memory_of_its_project_and_runs_no_hook_of_it(
    mode: AgentMode,
    claude_project: Path,
    claude_options: AgentOptions,
    claude_home: ClaudeHome,
    messages_api: MessagesApi,
) -> None:
    messages_api.play(Text("done"))
    notices = await notices_of(claude_plan("a", {**claude_options, "cwd": claude_project, "mode": mode}))
    assert seen(messages_api.scripted[0].body) == {ROOT, HERE}
    assert not (claude_home.work / "hook-ran").exists()
    left_out = notices["settings_left_out"].data["files"]
    settings = [folder / ".claude" / "settings.json" for folder in (claude_home.work, claude_project)]
    assert {*left_out} == {*map(str, settings), str(claude_home.home / ".claude" / "CLAUDE.md")}


@newest_claude
@pytest.mark.parametrize(
    ("options", "memories", "hook_ran"),
    [
        ({"project_memory": False}, set[str](), False),
        ({"project_memory": False, "user_settings": True}, set[str](), True),
        ({"user_settings": True}, {ROOT, HERE, PERSONAL}, True),
        ({"user_settings": False}, {ROOT, HERE}, False),
    ],
    ids=["no memory", "settings without memory", "settings", "no settings on purpose"],
)
async def test_claudes_memory_and_settings_are_chosen_apart(
    options: AgentOptions,
    memories: set[str],
    hook_ran: bool,
    claude_project: Path,
    claude_options: AgentOptions,
    claude_home: ClaudeHome,
    messages_api: MessagesApi,
) -> None:
    messages_api.play(Text("done"))
    notices = await notices_of(claude_plan("a", {**claude_options, "cwd": claude_project, **options}))
    assert seen(messages_api.scripted[0].body) == memories
    assert (claude_home.work / "hook-ran").exists() == hook_ran
    assert ("settings_left_out" in notices) == ("user_settings" not in options)


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("mode", ["session", "exec"])
async def test_codex_reads_the_memory_of_its_project(
    mode: AgentMode,
    read: bool,
    codex_options: AgentOptions,
    codex_home: ClaudeHome,
    responses_api: ResponsesApi,
) -> None:
    folder = await repository(codex_home, "AGENTS.md")
    responses_api.play(Text("done"))
    options: AgentOptions = {**codex_options, "cwd": folder, "mode": mode, "project_memory": read}
    notices = await notices_of(codex_plan("a", options))
    assert seen(responses_api.requests[0].body) == ({ROOT, HERE} if read else set())
    assert "option_ignored" not in notices


@pytest.mark.parametrize("trusted", [True, False])
async def test_gemini_reads_the_memory_of_a_project_that_its_user_trusts(
    trusted: bool, installed_clis: Mapping[str, Path], tmp_path: Path
) -> None:
    async with open_model_api(CONTENT) as api:
        home = gemini_home(tmp_path, api.url)
        folder = await repository(home, "GEMINI.md")
        api.play(Text("done"))
        env = {**home.environment, **({"GEMINI_CLI_TRUST_WORKSPACE": "true"} if trusted else {})}
        options: AgentOptions = {
            **plays.options_in(home),
            "model": "gemini-2.5-pro",
            "cwd": folder,
            "env": env,
        }
        await notices_of(acp_plan("a", [str(installed_clis["gemini-0.61.0"])], options, profile="gemini"))
        assert seen(api.scripted[0].text) == ({ROOT, HERE} if trusted else set())
        home.sweep()
