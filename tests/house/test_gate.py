from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import LONGEST
from tests.house.tree import ROOT

PASS = "def test_a() -> None: pass\n"
FAIL = "def test_a() -> None: assert False\n"
SKIP = "import pytest\n@pytest.mark.skip\ndef test_a() -> None: ...\n"

Judge = Callable[..., tuple[int, str]]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Runs pytest on a made-up tests/ and gives the gate's verdict on its report."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "verdict.py", tmp_path / ".ci")
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.touch(mode=0o755)

    def run(
        files: dict[str, str], *, least: int = 1, with_npm: bool = True, with_report: bool = True
    ) -> tuple[int, str]:
        for name, source in files.items():
            (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "tests" / name).write_text(source)
        if with_report:
            pytest_in(tmp_path)
        argv = [sys.executable, ".ci/verdict.py", "report.xml", str(least)]
        env = {"PATH": str(npm.parent) if with_npm else ""}
        done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def pytest_in(folder: Path) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=report.xml"]
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    subprocess.run(
        argv, cwd=folder, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, capture_output=True, check=False
    )


def test_a_run_in_which_every_folder_passed_is_good(judge: Judge) -> None:
    assert judge({"house/test_a.py": PASS, "real/test_a.py": PASS}) == (0, "")


def test_a_failed_test_is_bad(judge: Judge) -> None:
    status, said = judge({"house/test_a.py": PASS, "house/test_b.py": FAIL})
    assert (status, said) == (1, "failed: tests.house.test_b.test_a\n")


def test_a_file_that_does_not_import_is_bad(judge: Judge) -> None:
    status, said = judge({"house/test_a.py": PASS, "real/test_a.py": "import nothing_of_that_name\n"})
    assert status == 1
    assert "failed: " in said


def test_no_report_is_bad(judge: Judge) -> None:
    assert judge({"house/test_a.py": PASS}, with_report=False) == (
        1,
        "nothing ran: pytest wrote no report.xml\n",
    )


def test_too_few_tests_are_bad(judge: Judge) -> None:
    status, said = judge({"house/test_a.py": PASS}, least=2)
    assert (status, said) == (1, "only 1 tests passed, at least 2 are known to exist\n")


def test_a_folder_in_which_nothing_passed_is_bad(judge: Judge) -> None:
    status, said = judge({"house/test_a.py": PASS, "runtime/test_a.py": SKIP})
    assert (status, said) == (1, "no test of tests/runtime passed\n")


def test_a_real_command_line_may_be_left_out_only_where_there_is_no_npm(judge: Judge) -> None:
    files = {"house/test_a.py": PASS, "real/test_a.py": PASS, "real/test_b.py": SKIP}
    assert judge(files) == (1, "skipped although npm is at hand: tests.real.test_b.test_a\n")
    assert judge(files, with_npm=False) == (0, "")


def test_the_files_that_workers_begin_with_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []
