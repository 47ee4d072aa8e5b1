from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from tests.durations import groups
from tests.house.tree import ROOT

HEAD = """\
import os, time, warnings
from pathlib import Path
import pytest
"""
MEETS = """
def test_it_meets_the_other(tmp_path):
    place = tmp_path.parents[1]
    (place / "%s").touch()
    limit = time.monotonic() + 60
    while not (place / "%s").exists():
        assert time.monotonic() < limit
        time.sleep(0.01)
"""
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs made-up tests in workers, by the names of their files."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(*options: str, **files: str) -> pytest.RunResult:
        pytester.makepyfile(**{name: HEAD + source for name, source in files.items()})
        words = ("-p", "no:cacheprovider", "-p", "tests.workers", *options)
        return pytester.runpytest_subprocess(*words)

    return run


def test_what_workers_report_is_one_run(run: Run, pytester: pytest.Pytester) -> None:
    ends = "\ndef test_fails(): print('said'); assert 1 == 2\n@pytest.mark.skip\ndef test_skips(): ...\n"
    warns = "\ndef test_warns(): warnings.warn('beware', UserWarning)\n"
    files = {"test_a": MEETS % ("a", "b") + ends, "test_b": MEETS % ("b", "a") + warns}
    done = run("--workers", "2", "--junitxml=report.xml", **files)
    done.assert_outcomes(passed=3, failed=1, skipped=1, warnings=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines_random(
        ["*assert 1 == 2*", "*Captured stdout call*", "said", "*UserWarning: beware"]
    )
    assert len([*ET.parse(pytester.path / "report.xml").iter("testcase")]) == 5


def test_what_a_module_kept_of_a_stream_as_it_was_collected_is_open_in_a_worker(run: Run) -> None:
    kept = """
import sys
KEPT = sys.stderr
def test_it_writes(): print("once", file=KEPT)
def test_it_fails(): print("again", file=KEPT); assert 0
"""
    done = run("--workers", "2", test_a=kept)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*Captured stderr call*", "again"])
    assert "once" not in done.stdout.str()


def test_a_worker_that_dies_fails_the_test_that_it_was_at_and_the_others_run(run: Run) -> None:
    dies = "\ndef test_first(): ...\ndef test_dies(): os._exit(3)\ndef test_last(): ...\n"
    done = run("--workers", "1", test_a=dies, test_b="\ndef test_other(): ...\n")
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(["*_ test_dies _*", "the worker ended with status 3 in this test"])


def test_the_first_failure_ends_the_run_if_that_is_asked_for(run: Run) -> None:
    done = run("--workers", "1", "-x", test_a="\ndef test_a(): assert 0\ndef test_b(): ...\n")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*stopping after 1 failures*"])


def test_fixtures_of_a_session_last_as_long_as_their_worker_and_those_of_a_module_as_its_group(
    run: Run,
) -> None:
    fixtures = """
@pytest.fixture(scope="session")
def session(): yield object(); assert 0, "it fails as it ends"
@pytest.fixture(scope="module")
def module(): return object()
"""
    uses = """
def test_one(session, module): pytest.made = [*getattr(pytest, "made", []), (session, module)]
def test_two(session, module): assert pytest.made[-1] == (session, module)
def test_three(session): assert {made[0] for made in pytest.made} == {session}
def test_four(): assert len({made[1] for made in pytest.made}) == len(pytest.made)
"""
    done = run("--workers", "1", conftest=fixtures, test_a=uses, test_b=uses)
    done.assert_outcomes(passed=8)
    assert done.ret != pytest.ExitCode.OK
    done.stderr.fnmatch_lines(["*it fails as it ends*"])
    done.stdout.fnmatch_lines(["*a worker ended with status 1*"])


def test_what_takes_longest_comes_first_and_fast_tests_come_together(pytester: pytest.Pytester) -> None:
    items = pytester.getitems("".join(f"def test_{n}(): ...\n" for n in range(10)))
    found = groups(items, lambda item: 5.0 if item is items[6] else 0.5)
    assert found == [[6], [0, 1, 2, 3], [7, 8, 9], [4, 5]]
