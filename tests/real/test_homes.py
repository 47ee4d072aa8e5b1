from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.real.homes import NotLoopback, make_home


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com",
        "http://localhost:80",
        "http://10.0.0.1:80",
        "http://127.0.0.1.example.com",
        "",
        "x",
    ],
)
def test_a_home_is_refused_for_an_api_that_is_not_loopback(tmp_path: Path, url: str) -> None:
    with pytest.raises(NotLoopback, match="expected a loopback address"):
        make_home(tmp_path, url)


def test_nothing_of_the_users_environment_is_left_in_these_tests(tmp_path: Path) -> None:
    home = make_home(tmp_path, "http://127.0.0.1:9")
    assert not {"HOME", "ANTHROPIC_API_KEY", "CLAUDECODE", "PATH"} & set(os.environ)
    assert home.environment["HOME"].startswith(str(tmp_path))


def test_a_process_of_a_home_is_a_leftover_until_it_is_swept(tmp_path: Path) -> None:
    home, other = (make_home(tmp_path / name, "http://127.0.0.1:9") for name in ("one", "other"))
    with subprocess.Popen(
        ["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE, env=home.environment
    ) as process:
        assert [each.pid for each in home.leftovers()] == [process.pid]
        assert other.leftovers() == []
        home.sweep()
        assert process.wait() == -signal.SIGKILL
    assert home.leftovers() == []
