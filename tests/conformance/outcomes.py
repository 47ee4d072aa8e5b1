"""A pytest plugin that judges a run of the whole suite by its numbers.

Guarantees: a run counts as whole when nothing was left out by an argument, a mark, a name or an option, it came to its
end, and the tree is a checkout (an archive lacks tests/house); another run is not judged. A whole run fails when a
number has no test, when a test that carries one has a case that failed or was skipped, and when a page of conformance
is not what the run would write.

With `--write-pages` a whole run writes the pages before it judges.

A case is good when none of its set-up, body and tear-down did other than pass. One that this machine cannot run (a real
command line that is not installed) is told apart: it fails no number that another test proves, and proves none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.clis.not_run import is_not_run
from tests.conformance.carriers import Carrier, by_number, carriers
from tests.conformance.page import PAGES, Page, Result, page, statements, status

HOUSE = "tests/house"
NARROWING = (
    "keyword",
    "markexpr",
    "ignore",
    "ignore_glob",
    "deselect",
    "collectonly",
    "lf",
    "stepwise",
    "quick",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """To be had by a conftest at the top."""
    parser.addoption(
        "--write-pages",
        action="store_true",
        help="a run of everything writes docs/conformance.md and docs/requirements.md",
    )


class Outcomes:
    """Notes what became of each case. `judges`: whether it fails a whole run."""

    def __init__(self, root: Path, judges: bool = True) -> None:
        self.root, self.judges = root, judges
        self.complaints: list[str] = []
        self._good: dict[str, bool] = {}
        self._not_run: set[str] = set()

    def results(self) -> dict[str, Result]:
        """The cases of each test function so far, by its node id without parameters."""
        found: dict[str, Result] = {}
        for case, good in self._good.items():
            name = case.split("[", 1)[0]
            before = found.get(name, Result())
            not_run = case in self._not_run
            found[name] = Result(before.cases + 1, before.passed + good, before.not_run + not_run)
        return found

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one case is over."""
        self._good[report.nodeid] = self._good.get(report.nodeid, True) and report.outcome == "passed"
        if is_not_run(report):
            self._not_run.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge, if this was all of it."""
        if not self.judges or not is_whole(session):
            return
        if session.config.getoption("write_pages", default=False):
            write(self.root, self.results())
        self.complaints = list(complaints(self.root, self.results()))
        if self.complaints and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was wrong."""
        if self.complaints:
            terminalreporter.section("conformance", red=True)
            for line in self.complaints:
                terminalreporter.line(line)


def is_whole(session: pytest.Session) -> bool:
    """Whether every test of the tree was to run here, and the run was not cut short."""
    config = session.config
    narrowed = any(config.getoption(option, None) for option in NARROWING)
    complete = config.args_source is not pytest.Config.ArgsSource.ARGS and (config.rootpath / HOUSE).is_dir()
    return complete and not narrowed and not session.shouldstop and not session.shouldfail


def write(root: Path, results: dict[str, Result]) -> None:
    """The pages, as these results have it."""
    tests = carriers(root)
    for on in PAGES:
        (root / on.path).write_text(page(root, on, tests, results), encoding="utf-8")


def complaints(root: Path, results: dict[str, Result]) -> Sequence[str]:
    """What a whole run with these results leaves to be wished, in lines."""
    tests = carriers(root)
    return [line for on in PAGES for line in _complaints(root, on, tests, results)]


def _complaints(root: Path, on: Page, tests: Sequence[Carrier], results: dict[str, Result]) -> Sequence[str]:
    table = by_number(tests)
    states = {number: status(table.get(number, []), results) for number in statements(root, on).tested}
    found = [f"{number}: {state}" for number, state in states.items() if state != "proved"]
    if not found and (root / on.path).read_text(encoding="utf-8") != page(root, on, tests, results):
        found.append(f"{on.path} is not what this run would write: make conformance")
    return found
