from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LEAVES_A_PROCESS = """
import subprocess, sys
from tests.conftest import no_child_is_left

started = []

def test_that_leaves_one():
    started.append(subprocess.Popen(["sleep", "600"]))

def test_that_waits():
    started[0].kill()
    started[0].wait()
    subprocess.run(["true"], check=True)
"""


@pytest.mark.covers("R191", "P07")
def test_a_test_that_leaves_a_child_fails_and_the_next_does_not(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini(f"[pytest]\npythonpath = {ROOT}\n")
    pytester.makepyfile(LEAVES_A_PROCESS)
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(["*left behind*sleep 600*"])
