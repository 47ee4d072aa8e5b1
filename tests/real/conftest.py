"""Fixtures for tests against the real CLIs.

A CLI that can not be had here (no npm, no package index) makes its tests NOT RUN (`tests.clis.not_run`). With
`PROCTOR_REQUIRE_REAL=1` they fail instead.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import NoReturn

import attrs
import pytest

from tests.clis.install import InstallError, install, pinned
from tests.clis.not_run import NOT_RUN
from tests.fakes.messages_api import MessagesApi, open_messages_api
from tests.real.homes import ClaudeHome, make_home

HERE = Path(__file__).parent
REQUIRED = os.environ.get("PROCTOR_REQUIRE_REAL") == "1"
KEPT = ("PYTEST_", "COV", "PYTHON")


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
        return install(say)
    except InstallError as error:
        _missing(str(error))


def _missing(why: str) -> NoReturn:
    if REQUIRED:
        pytest.fail(f"PROCTOR_REQUIRE_REAL=1, but a CLI under test is missing: {why}", pytrace=False)
    pytest.skip(f"{NOT_RUN}{why}")


@pytest.fixture
def opencode_cli(installed_clis: Mapping[str, Path]) -> Path:
    """The pinned OpenCode."""
    if "opencode-1.18.33" not in installed_clis:
        _missing("OpenCode is only pinned for Linux on x86-64")
    return installed_clis["opencode-1.18.33"]


@pytest.fixture(params=sorted(alias for alias in pinned() if alias.startswith("claude-")))
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
