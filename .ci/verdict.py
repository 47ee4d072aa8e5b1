"""Did the tests really run? `verdict.py REPORT LEAST` reads pytest's JUnit report and says each thing that is wrong.

Wrong is: no report, a failure, fewer than LEAST tests that passed, a folder of tests/ with tests of which none passed,
and a test of a real command line that was skipped although npm is at hand. Exit status 0 when nothing is.
"""

from __future__ import annotations

import shutil
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path


def complaints(report: Path, least: int, folders: set[str], npm: bool) -> Iterator[str]:
    """Each thing that is wrong, in a line."""
    if not report.is_file():
        yield f"nothing ran: pytest wrote no {report}"
        return
    cases = list(ET.parse(report).iter("testcase"))
    ends = {
        outcome: [_name(c) for c in cases if _outcome(c) == outcome]
        for outcome in ("passed", "failed", "skipped")
    }
    yield from (f"failed: {name}" for name in ends["failed"])
    if len(ends["passed"]) < least:
        yield f"only {len(ends['passed'])} tests passed, at least {least} are known to exist"
    for folder in sorted(folders - {_folder(name) for name in ends["passed"]}):
        yield f"no test of tests/{folder} passed"
    yield from (
        f"skipped although npm is at hand: {n}" for n in ends["skipped"] if npm and _folder(n) == "real"
    )


def _outcome(case: ET.Element) -> str:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


def _name(case: ET.Element) -> str:
    """`tests.house.test_a.test_b`; of a file that could not be collected there is only the name."""
    return f"{case.get('classname')}.{case.get('name')}".lstrip(".")


def _folder(name: str) -> str:
    return name.split(".")[1]


def folders_with_tests(tests: Path) -> set[str]:
    """The folders of tests/ that hold a test file."""
    return {
        path.relative_to(tests).parts[0]
        for path in tests.glob("*/**/test_*.py")
        if "node_modules" not in path.parts
    }


def main(report: str, least: str) -> int:
    """Print the complaints; 1 when there is one."""
    tests = Path(__file__).resolve().parents[1] / "tests"
    found = list(
        complaints(Path(report), int(least), folders_with_tests(tests), shutil.which("npm") is not None)
    )
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
