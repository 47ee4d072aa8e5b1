"""Fixtures for tests against the real CLIs.

A CLI that can not be had here (no npm, no package index) makes its tests NOT RUN (`tests.clis.not_run`). With
`PROCTOR_REQUIRE_REAL=1` they fail instead.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from pathlib import Path

import attrs
import pytest

from proctor.actors.plan.options import AgentOptions
from tests.clis.install import CLIS, InstallError
from tests.clis.not_run import not_run
from tests.fakes.messages_api import MessagesApi, open_messages_api
from tests.fakes.model_api import ModelApi, open_completions_api
from tests.fakes.responses_api import ResponsesApi, open_responses_api
from tests.real import agents
from tests.real.homes import ClaudeHome, make_home

HERE = Path(__file__).parent
KEPT = ("PYTEST_", "COV", "PYTHON")
CLAUDES = sorted(alias for alias in CLIS.pinned() if alias.startswith("claude-"))
newest_claude = pytest.mark.parametrize("claude_cli", CLAUDES[-1:], indirect=True)
"""For a test in which it makes no difference which version runs."""


@attrs.frozen
class Cli:
    """One installed CLI: its alias in `tests/clis/package.json`, version and executable."""

    alias: str
    version: str
    path: Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("real")


@pytest.fixture(scope="session")
def installed_clis(request: pytest.FixtureRequest) -> Mapping[str, Path]:
    """The executable of each alias, installed now when needed. Tried once per run; a failure makes the users NOT RUN."""
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    say = reporter.write_line if isinstance(reporter, pytest.TerminalReporter) else None
    try:
        return CLIS.install(say)
    except InstallError as error:
        not_run(str(error))


@pytest.fixture
def program_of(installed_clis: Mapping[str, Path]) -> Callable[[str], Path]:
    """The executable of an alias; one that is not pinned for this machine is missing like one that cannot be had."""

    def found(alias: str) -> Path:
        if alias not in installed_clis:
            not_run(f"{alias} is not pinned for this machine")
        return installed_clis[alias]

    return found


@pytest.fixture
def opencode_cli(program_of: Callable[[str], Path]) -> Path:
    """The pinned OpenCode."""
    return program_of("opencode-1.18.33")


@pytest.fixture(params=CLAUDES)
def claude_cli(request: pytest.FixtureRequest, installed_clis: Mapping[str, Path]) -> Cli:
    """Each pinned version of Claude Code in turn."""
    alias: str = request.param
    return Cli(alias, alias.removeprefix("claude-"), installed_clis[alias])


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the user's environment, home and keys included, away from every test here."""
    for name in os.environ:
        if not name.startswith(KEPT):
            monkeypatch.delenv(name)


@pytest.fixture
async def messages_api() -> AsyncGenerator[MessagesApi]:
    """A fake Messages API with an empty script; a request beyond the script fails the test."""
    async with open_messages_api() as api:
        yield api
    assert not api.unexpected, f"{len(api.unexpected)} requests came after the last step of the script"


@pytest.fixture
def claude_home(
    tmp_path: Path, messages_api: MessagesApi, monkeypatch: pytest.MonkeyPatch
) -> Generator[ClaudeHome]:
    """Private folders and environment, pointed at this test's fake API; also the environment of this very process.

    So an engine that passes on what it finds in `os.environ` can not find the user's home or a key there. What a test
    leaves running is killed after it; that nothing is left is for the test to assert.
    """
    made = make_home(tmp_path, messages_api.url)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    made.sweep()


@pytest.fixture
def claude_options(claude_cli: Cli, claude_home: ClaudeHome) -> AgentOptions:
    """One version of Claude Code in that home."""
    return {"executable": claude_cli.path, "cwd": claude_home.work, "env": claude_home.environment}


@pytest.fixture
async def responses_api() -> AsyncGenerator[ResponsesApi]:
    """The same for the Responses API, which Codex speaks."""
    async with open_responses_api() as api:
        yield api
    assert not api.unexpected, f"{len(api.unexpected)} requests came after the last step of the script"


@pytest.fixture
def codex_home(tmp_path: Path, responses_api: ResponsesApi) -> Generator[ClaudeHome]:
    """A home of Codex, swept after the test."""
    made = agents.codex_home(tmp_path, responses_api.url)
    yield made
    made.sweep()


@pytest.fixture
def codex_options(
    installed_clis: Mapping[str, Path], codex_home: ClaudeHome, responses_api: ResponsesApi
) -> AgentOptions:
    """The pinned Codex in that home, which tries a failed request once more."""
    made = agents.codex_options(installed_clis["codex-0.169.0"], codex_home, responses_api.url)
    return {**made, "retries": 1}


@pytest.fixture
async def completions_api() -> AsyncGenerator[ModelApi]:
    """A fake of chat completions, which OpenCode speaks; what comes beyond the script is for the test to look at."""
    async with open_completions_api() as api:
        yield api


@pytest.fixture
def opencode_home(tmp_path: Path, completions_api: ModelApi) -> Generator[ClaudeHome]:
    """A home of OpenCode, swept after the test."""
    made = agents.opencode_home(tmp_path, completions_api.url)
    yield made
    made.sweep()


@pytest.fixture
def opencode_options(opencode_cli: Path, opencode_home: ClaudeHome) -> AgentOptions:
    """The pinned OpenCode in that home."""
    return {
        "executable": opencode_cli,
        "cwd": opencode_home.work,
        "env": opencode_home.environment,
        "model": "fake/m1",
        "greeting": 120.0,
    }
