"""`python -m tests.conformance`: run the tests that carry a number and write the pages. Exit status 1 if one is unproved."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conformance.carriers import carriers
from tests.conformance.outcomes import Outcomes, complaints
from tests.conformance.page import PAGES, page, statements

ROOT = Path(__file__).parents[2]


def main(*options: str) -> int:
    """Run, write, and say what is not proved and what is owed."""
    outcomes = Outcomes(ROOT, judges=False)
    tests = carriers(ROOT)
    ids = (carrier.id for carrier in tests)
    status = int(pytest.main(["-q", f"--rootdir={ROOT}", *options, *ids], plugins=[outcomes]))
    for on in PAGES:
        (ROOT / on.path).write_text(page(ROOT, on, tests, outcomes.results()), encoding="utf-8")
        owed = statements(ROOT, on).owed
        sys.stdout.writelines(f"{number}: owed: {by}\n" for number, by in owed.items())
    unproved = complaints(ROOT, outcomes.results())
    sys.stdout.writelines(f"{line}\n" for line in unproved)
    return status or int(bool(unproved))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
