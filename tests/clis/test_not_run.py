from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = ("-p", "no:cacheprovider", "-p", "pytest_trio.plugin")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("clis", "conformance", "fakes", "real"):
        ignored = shutil.ignore_patterns("node_modules")
        shutil.copytree(ROOT / "tests" / name, tmp_path / "tests" / name, ignore=ignored)
    (tmp_path / "tests" / "runtime").mkdir()
    for name in ("conftest.py", "durations.py", "durations.txt", "workers.py", "runtime/belongings.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run_real_tests(checkout: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    test = "tests/real/test_fake_api_with_claude.py"
    return subprocess.run(
        [sys.executable, "-m", "pytest", test, *PLUGINS, *options],
        check=False,
        capture_output=True,
        text=True,
        cwd=checkout,
        env={"PATH": str(checkout / "nowhere"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
    )


@pytest.mark.covers("P11")
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_missing_cli_is_reported_as_not_run_test_by_test(checkout: Path, workers: str) -> None:
    done = run_real_tests(checkout, "--workers", workers)
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert "4 not run" in lines[-1]
    assert "passed" not in lines[-1]
    section = next(number for number, line in enumerate(lines) if "REAL CLI TESTS NOT RUN" in line)
    named = [
        line for line in lines[section:] if line.startswith("tests/real/") and "npm is not on PATH" in line
    ]
    assert len(named) == 4


def test_a_missing_cli_fails_the_run_where_the_real_ones_are_required(checkout: Path) -> None:
    done = run_real_tests(checkout, PROCTOR_REQUIRE_REAL="1")
    assert done.returncode == 1
    assert "PROCTOR_REQUIRE_REAL=1, but a program under test is missing: npm is not on PATH" in done.stdout
    assert "4 errors" in done.stdout.splitlines()[-1]
