"""`python -m tests.conformance`: run the tests that carry a number and write the page. Exit status 1 if one is unproved."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conformance.carriers import carriers
from tests.conformance.outcomes import Outcomes, complaints
from tests.conformance.page import PAGE, page

ROOT = Path(__file__).parents[2]


def main(*options: str) -> int:
    """Run, write, and say what is not proved."""
    outcomes = Outcomes(ROOT, judges=False)
    files = sorted({carrier.file for carrier in carriers(ROOT)})
    status = int(pytest.main(["-q", f"--rootdir={ROOT}", *options, *files], plugins=[outcomes]))
    (ROOT / PAGE).write_text(page(ROOT, outcomes.results()), encoding="utf-8")
    unproved = complaints(ROOT, outcomes.results())
    sys.stdout.writelines(f"{line}\n" for line in unproved)
    return status or int(bool(unproved))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
