from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clis.not_run import NOT_RUN
from tests.durations import durations, read
from tests.house.tree import ROOT
from tests.tables import each_row

PASS = "def test_a() -> None: pass\n"
FAIL = "def test_a() -> None: assert False\n"
SKIP = "import pytest\n@pytest.mark.skip(reason={!r})\ndef test_a() -> None: ...\n"
NO_NPM = "NOT RUN: npm is not on PATH: install Node 20 or newer"

VERDICT = runpy.run_path(str(ROOT / ".ci" / "verdict.py"))
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
    status, said = judge({"house/test_a.py": PASS, "runtime/test_a.py": SKIP.format(NO_NPM)}, with_npm=False)
    told = f"skipped: tests.runtime.test_a.test_a: {NO_NPM}"
    assert (status, said) == (1, f"{told}\nno test of tests/runtime passed\n")


def test_a_skip_is_told_with_its_reason_and_is_bad_where_the_machine_lacks_nothing(judge: Judge) -> None:
    files = {"house/test_a.py": PASS, "real/test_a.py": PASS, "real/test_b.py": SKIP.format(NO_NPM)}
    told = f"tests.real.test_b.test_a: {NO_NPM}\n"
    assert judge(files) == (1, f"skipped without excuse: {told}")
    assert judge(files, with_npm=False) == (0, f"skipped: {told}")


ODD = (
    SKIP.format("I do not like it today"),
    "import pytest\n@pytest.mark.xfail(reason='it fails')\ndef test_a() -> None: assert False\n",
    "import pytest\npytest.skip('all of it', allow_module_level=True)\n",
    "import pytest\npytest.importorskip('nothing_of_that_name')\n",
    "import pytest\n@pytest.mark.parametrize('a', [])\ndef test_a(a: int) -> None: ...\n",
)


def test_any_other_skip_is_bad_wherever_it_is(judge: Judge) -> None:
    files = {f"house/test_{number}.py": source for number, source in enumerate(ODD)}
    status, said = judge({"house/test_a.py": PASS, **files}, with_npm=False)
    begins = [line.partition(":")[0] for line in said.splitlines()]
    assert (status, begins) == (1, ["skipped without excuse"] * len(ODD))
    assert all(f"tests.house.test_{number}" in said for number in range(len(ODD)))


@each_row(
    ("reason", "lack"),
    [
        ("only Linux tells", "Linux"),
        ("only root can give a file away", "root"),
        ("git is not installed", "git"),
        ("no user namespaces", "namespaces"),
        (NO_NPM, "npm"),
        ("NOT RUN: npm ci failed with exit 1: no network", None),
        ("NOT RUN: codex-0.169.0 is not pinned for this machine", None),
        ("unconditional skip", None),
        ("", None),
    ],
)
def test_a_reason_holds_on_a_machine_that_lacks_the_one_thing_and_on_no_other(
    reason: str, lack: str | None
) -> None:
    machines = [set[str](), *({each} for each in ("Linux", "root", "git", "namespaces", "npm"))]
    excused = [lacks for lacks in machines if VERDICT["is_excused"](reason, lacks)]
    assert excused == ([] if lack is None else [{lack}])


def test_what_a_machine_lacks_is_looked_up_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    own = {
        name for name, lacks in {"Linux": sys.platform != "linux", "root": os.geteuid() != 0}.items() if lacks
    }
    assert VERDICT["lacking"]() == {"git", "namespaces", "npm", *own}


def test_the_reasons_are_those_that_tests_give() -> None:
    sources = [path.read_text() for path in (ROOT / "tests").glob("*/*.py")]
    given = {found for source in sources for found in re.findall(r"skipif\(.*reason=\"(.*)\"\)", source)}
    assert given == {reason for reason in VERDICT["REASONS"] if not reason.startswith(NOT_RUN)}


def test_most_of_the_tests_whose_durations_are_known_are_there() -> None:
    files = [name.partition("::")[0] for name in durations()]
    assert len(files) > 100
    assert sum((ROOT / file).is_file() for file in files) > 0.9 * len(files), "make durations"


def test_a_report_becomes_the_slow_tests(tmp_path: Path) -> None:
    case = '<testcase classname="tests.gate.test_verdict{}" name="{}" time="{}"/>'
    cases = [
        case.format("", "test_a[1]", 0.3),
        case.format("", "test_a[2]", 3),
        case.format(".TestB", "test_b", 1),
    ]
    (tmp_path / "report.xml").write_text("<s>" + "".join([*cases, case.format("", "test_c", 0.05)]) + "</s>")
    here = "tests/gate/test_verdict.py"
    assert read(tmp_path / "report.xml") == {f"{here}::test_a": 3.0, f"{here}::TestB::test_b": 1.0}
