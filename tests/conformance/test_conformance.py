"""What reads the numbers off the tests, writes the pages and judges a whole run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.carriers import carriers, unknown
from tests.conformance.page import CONFORMANCE, PAGES, REQUIREMENTS, Result, page, status

ROOT = Path(__file__).parents[2]
CONFTEST = """\
from tests.conformance.outcomes import Outcomes, pytest_addoption

def pytest_configure(config):
    config.pluginmanager.register(Outcomes(config.rootpath))
"""
SENTENCES = '[statements]\nS1 = "One."\nM2 = "Two."\n[left_out]\nX9 = "No."\n'
ASKED = '[statements]\nR001 = "One."\nC02 = "Two."\nL03 = "Three."\n'
REASON, OWED = '[reasons]\nC02 = "No."\n', '[owed]\nL03 = "the others"\n'
BOTH = """\
import pytest

@pytest.mark.covers("S1")
def test_one(): pass

@pytest.mark.covers("M2")
@pytest.mark.parametrize("n", [1, 2])
def test_two(n): pass

@pytest.mark.covers("R001")
def test_three(): pass
"""

TWO = '@pytest.mark.covers("S1")\ndef test_a(): ...\n@pytest.mark.covers("S1")\ndef test_b(): ...\n'

STALE = "is not what this run would write: make conformance"

Whole = Callable[..., tuple[int, str]]


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ('@pytest.mark.covers("S1", "M2")\ndef test_a(): ...', ("S1", "M2")),
        ('@pytest.mark.slow\n@pytest.mark.covers("X11")\nasync def test_a(): ...', ("X11",)),
        ('@pytest.mark.covers("S1")\n@pytest.mark.covers("S1", "T4")\ndef test_a(): ...', ("S1", "T4")),
        ("# S1\ndef test_a_S2(): ...  # mark.covers(", ()),
        ('class TestIt:\n    @pytest.mark.covers("S1")\n    def test_a(self): ...', ("S1",)),
        ('class Other:\n    @pytest.mark.covers("S1")\n    def test_a(self): ...', ()),
        ('@pytest.mark.covers("S1")\ndef helps(): ...', ()),
    ],
)
def test_a_number_stands_in_a_mark(source: str, numbers: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(source + "\n")
    assert sorted(n for carrier in carriers(tmp_path) for n in carrier.numbers) == sorted(numbers)


def test_a_test_is_named_as_pytest_names_it(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(
        'class TestIt:\n    @pytest.mark.covers("S99")\n    def test_a(self): ...\n'
    )
    [carrier] = carriers(tmp_path)
    assert carrier.id == "tests/test_a.py::TestIt::test_a"
    assert unknown([carrier], frozenset({"S1"})) == ["S99 on tests/test_a.py::TestIt::test_a"]


def test_a_number_is_proved_when_each_of_its_tests_ran_and_passed(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(TWO)
    found = carriers(tmp_path)
    first, second = (carrier.id for carrier in found)
    assert status([], {}) == "no test"
    assert status(found, {first: Result(1, 1), second: Result(3, 3)}) == "proved"
    assert status(found, {first: Result(1, 1), second: Result(3, 2)}) == "not proved: test_b"
    assert status(found, {second: Result(1, 1)}) == "not proved: test_a"


def test_what_this_machine_cannot_run_proves_nothing_and_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(TWO)
    found = carriers(tmp_path)
    first, second = (carrier.id for carrier in found)
    absent = Result(cases=2, not_run=2)
    assert status(found, {first: absent, second: Result(1, 1)}) == "proved"
    assert status(found, {first: absent, second: absent}) == "not run"
    assert status(found, {first: Result(cases=3, passed=1, not_run=1), second: Result(1, 1)}) == (
        "not proved: test_a"
    )


@pytest.fixture
def whole(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Whole:
    """Runs pytest on a made-up tree whose page says that all is proved: the exit status and what was said."""
    tmp_path = pytester.path
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for folder in ("tests/house", "tests/conformance", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\ntestpaths = tests\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / CONFORMANCE.source).write_text(SENTENCES)
    (tmp_path / REQUIREMENTS.source).write_text(ASKED + REASON + OWED)
    (tmp_path / "tests/house/test_a.py").write_text(BOTH)
    passed = {
        "tests/house/test_a.py::test_one": Result(1, 1),
        "tests/house/test_a.py::test_two": Result(2, 2),
        "tests/house/test_a.py::test_three": Result(1, 1),
    }
    for on in PAGES:
        (tmp_path / on.path).write_text(page(tmp_path, on, carriers(tmp_path), passed))

    def run(*options: str, files: dict[str, str] | None = None) -> tuple[int, str]:
        for name, text in (files or {}).items():
            (tmp_path / name).write_text(text)
        several = "--workers" in options  # they are forks, which are not to be of this process
        start = pytester.runpytest_subprocess if several else pytester.runpytest_inprocess
        done = start("-p", "no:cacheprovider", *options)
        return int(done.ret), done.stdout.str() + done.stderr.str()

    return run


def test_a_whole_run_that_proves_the_page_is_good(whole: Whole) -> None:
    status, said = whole()
    assert (status, "conformance" in said) == (0, False)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (BOTH.replace("n): pass", "n): pytest.skip()"), "M2: not proved: test_two"),
        (BOTH.replace("n): pass", "n): pytest.xfail()"), "M2: not proved: test_two"),
        (BOTH.replace("n): pass", "n): assert n == 1"), "M2: not proved: test_two"),
        (BOTH.replace('covers("S1")', "covers()"), "S1: no test"),
        (BOTH.replace('covers("R001")', "covers()"), "R001: no test"),
        (BOTH.replace("three(): pass", "three(): pytest.skip('NOT RUN: no npm')"), "R001: not run"),
        (BOTH + '\n@pytest.mark.covers("S1")\ndef test_four(): pass\n', f"{CONFORMANCE.path} {STALE}"),
        (BOTH.replace('"R001"', '"R001", "L03"'), f"{REQUIREMENTS.path} {STALE}"),
    ],
    ids=[
        "skipped",
        "expected to fail",
        "failed in one case",
        "without a test",
        "asked for and without a test",
        "only tested elsewhere",
        "proved by one test more",
        "owed and has a test",
    ],
)
def test_a_whole_run_fails_when_a_number_is(source: str, complaint: str, whole: Whole) -> None:
    status, said = whole(files={"tests/house/test_a.py": source})
    assert status == 1
    assert complaint in said.splitlines()


def test_a_whole_run_writes_the_pages_when_asked_to_and_a_part_does_not(
    whole: Whole, pytester: pytest.Pytester
) -> None:
    stale = {on.path: "stale\n" for on in PAGES}
    assert whole("--write-pages", "-k", "one", files=stale)[0] == 0
    assert (pytester.path / CONFORMANCE.path).read_text() == "stale\n"
    status, said = whole("--write-pages", files=stale)
    assert (status, "conformance" in said) == (0, False)
    assert "| 1 | proved |" in (pytester.path / CONFORMANCE.path).read_text()
    assert "| C02 | Two. No. | | no test |\n" in (pytester.path / REQUIREMENTS.path).read_text()
    assert "| L03 | Three. |  | owed |\n" in (pytester.path / REQUIREMENTS.path).read_text()


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [(ASKED + REASON, "L03: no test"), (ASKED + OWED, "C02: no test")],
    ids=["nor owed", "nor a reason"],
)
def test_a_whole_run_fails_when_a_number_has_neither_test(rows: str, complaint: str, whole: Whole) -> None:
    status, said = whole(files={REQUIREMENTS.source: rows})
    assert status == 1
    assert complaint in said.splitlines()


def test_a_test_that_fails_after_its_body_proves_nothing(whole: Whole) -> None:
    fixture = "@pytest.fixture(autouse=True)\ndef late():\n    yield\n    raise ValueError\n"
    status, said = whole(files={"tests/house/test_a.py": BOTH + fixture})
    assert status == 1
    assert "S1: not proved: test_one" in said.splitlines()


@pytest.mark.parametrize(
    "options",
    [
        ("-k", "one"),
        ("tests/house",),
        ("--deselect", "tests/house/test_a.py::test_one"),
        ("--collect-only",),
    ],
    ids=" ".join,
)
def test_a_part_of_the_suite_is_not_judged(options: tuple[str, ...], whole: Whole) -> None:
    status, said = whole(*options, files={CONFORMANCE.path: "stale\n"})
    assert (status, "not what this run" in said) == (0, False)


def test_a_run_that_stopped_early_or_fails_anyhow_keeps_its_own_status(whole: Whole) -> None:
    broken = {"tests/house/test_a.py": BOTH + "\ndef test_last(): assert False\n"}
    status, said = whole("-x", files=broken | {CONFORMANCE.path: "stale\n"})
    assert (status, "not what this run" in said) == (1, False)
    assert whole("--no-such-option")[0] == pytest.ExitCode.USAGE_ERROR


def test_several_workers_are_judged_as_one_run(whole: Whole) -> None:
    workers = ("-p", "tests.workers", "--workers", "2")
    status, said = whole(*workers)
    assert (status, "conformance" in said) == (0, False)
    skipped = BOTH.replace("n): pass", "n): pytest.skip()")
    status, said = whole(*workers, files={"tests/house/test_a.py": skipped})
    assert (status, said.splitlines().count("M2: not proved: test_two")) == (1, 1)
