"""Did the tests really run? `verdict.py REPORT LEAST` reads pytest's JUnit report and says each thing that is wrong.

Wrong is: no report, a failure, fewer than LEAST tests that passed, a folder of tests/ with tests of which none passed,
and a test that was skipped for a reason that is not in `REASONS`, or is not so on this machine. Exit status 0 when
nothing is. Every test that was skipped is named with its reason, whether that is wrong or not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

REASONS: Mapping[str, str] = {
    "only Linux tells": "Linux",
    "only root can give a file away": "root",
    "git is not installed": "git",
    "no user namespaces": "namespaces",
    "NOT RUN: npm is not on PATH": "npm",
}
"""How the reason of a skip may begin → what the machine lacks then."""


ELSEWHERE = frozenset({"harnesses"})
"""Folders of tests that the gate does not run, because other programs are needed: `make harnesses`."""


def lacking() -> set[str]:
    """What this machine does not have, of what a test may need."""
    has = {"Linux": sys.platform == "linux", "root": os.geteuid() == 0}
    has["namespaces"] = _has_namespaces()
    has |= {name: shutil.which(name) is not None for name in ("git", "npm")}
    return {name for name, there in has.items() if not there}


def _has_namespaces() -> bool:
    """Whether a process may have namespaces of its own here."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return False
    spaces = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc")
    command = (*spaces, "sh", "-c", "mount -o remount,ro,bind /")
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def is_excused(reason: str, lacks: set[str]) -> bool:
    """Whether a test may be skipped for this reason on a machine that lacks these things."""
    return any(reason.startswith(start) and lack in lacks for start, lack in REASONS.items())


def read(report: Path) -> Sequence[ET.Element]:
    """The tests in a report, none where there is no report."""
    return list(ET.parse(report).iter("testcase")) if report.is_file() else []


def skips(cases: Sequence[ET.Element], lacks: set[str]) -> Iterator[tuple[bool, str]]:
    """For each test that was skipped: is it excused, and the line that names it with its reason."""
    for case in cases:
        for skipped in case.findall("skipped"):
            reason = skipped.get("message", "")
            excused = is_excused(reason, lacks)
            yield excused, f"skipped{'' if excused else ' without excuse'}: {_name(case)}: {reason}"


def complaints(report: Path, least: int, folders: set[str], cases: Sequence[ET.Element]) -> Iterator[str]:
    """Each other thing that is wrong, in a line."""
    if not report.is_file():
        yield f"nothing ran: pytest wrote no {report}"
        return
    ends = {outcome: [_name(c) for c in cases if _outcome(c) == outcome] for outcome in ("passed", "failed")}
    yield from (f"failed: {name}" for name in ends["failed"])
    if len(ends["passed"]) < least:
        yield f"only {len(ends['passed'])} tests passed, at least {least} are known to exist"
    for folder in sorted(folders - {_folder(name) for name in ends["passed"]}):
        yield f"no test of tests/{folder} passed"


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
    """The folders of tests/ that hold a test file for the gate."""
    return {
        path.relative_to(tests).parts[0]
        for path in tests.glob("*/**/test_*.py")
        if "node_modules" not in path.parts
    } - ELSEWHERE


def main(report: str, least: str) -> int:
    """Print the skips and the complaints; 1 when one of them is wrong."""
    cases = read(Path(report))
    tests = Path(__file__).resolve().parents[1] / "tests"
    left_out = [*skips(cases, lacking())]
    found = [*complaints(Path(report), int(least), folders_with_tests(tests), cases)]
    for line in (*(line for _, line in left_out), *found):
        print(line)
    return int(bool(found) or not all(excused for excused, _ in left_out))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
