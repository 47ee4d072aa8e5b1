"""What could not be run, as a count of its own in pytest's last line and a section that names each.

A plugin of the whole run: a run that fails to collect `tests/real` reports too.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

NOT_RUN = "NOT RUN: "
REQUIRED = os.environ.get("PROCTOR_REQUIRE_REAL") == "1"


def not_run(why: str) -> NoReturn:
    """End a test whose program cannot be had here, as not run; as failed where it has to run."""
    if REQUIRED:
        pytest.fail(f"PROCTOR_REQUIRE_REAL=1, but a program under test is missing: {why}", pytrace=False)
    pytest.skip(f"{NOT_RUN}{why}")


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A skip of this kind is `not run`."""
    return ("not run", "N", "NOT RUN") if is_not_run(report) else None


def is_not_run(report: pytest.TestReport) -> bool:
    """Whether this machine could not run it."""
    return report.skipped and _reason(report).startswith(NOT_RUN)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each, with the cure."""
    reports = terminalreporter.getreports("not run")
    if not reports:
        return
    terminalreporter.section("REAL CLI TESTS NOT RUN", sep="=", yellow=True, bold=True)
    for report in reports:
        terminalreporter.write_line(f"{report.nodeid}: {_reason(report).removeprefix(NOT_RUN)}")
    terminalreporter.write_line("PROCTOR_REQUIRE_REAL=1 makes this a failure")


def _reason(report: pytest.TestReport) -> str:
    longrepr = report.longrepr
    return longrepr[2].removeprefix("Skipped: ") if isinstance(longrepr, tuple) else ""
