"""The web page in a real Chromium."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.browser.install import ALIAS, CHROMIUM
from tests.browser.names import SCENARIOS
from tests.clis.install import InstallError
from tests.clis.not_run import not_run

ROOT = Path(__file__).parents[2]
Play = Callable[[str], None]


@pytest.fixture(scope="module")
def chromium() -> Path:
    """The executable of the browser, installed now when needed."""
    try:
        return CHROMIUM.install()[ALIAS]
    except InstallError as error:
        not_run(str(error))
    except KeyError:
        not_run(f"{ALIAS} is not pinned for this machine")


@pytest.fixture(scope="module")
def play(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Play]:
    """Plays a scenario in the one browser of this module."""
    folder = tmp_path_factory.mktemp("browser")
    command = [sys.executable, "-m", "tests.browser.runner", str(chromium), str(folder)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes) as process:
        names, answers = process.stdin, process.stdout
        assert names is not None
        assert answers is not None

        def run(name: str) -> None:
            names.write(f"{name}\n")
            names.flush()
            answer = answers.readline()
            assert answer, "the browser's process has ended"
            if problem := json.loads(answer)["problem"]:
                pytest.fail(problem, pytrace=False)

        try:
            yield run
            names.close()
            assert process.wait(30) == 0
        finally:
            # all of them: the browser, and the driver of playwright
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.real
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_page(scenario: str, play: Play) -> None:
    play(scenario)
