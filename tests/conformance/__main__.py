"""`python -m tests.conformance`: run the tests that carry a number and write the pages. Exit status 1 if one is unproved.

`--expected` writes them as a run in which every test passes would, and runs none: for who has added or renamed a test.
The next run of the whole suite judges.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conformance.carriers import carriers
from tests.conformance.outcomes import Outcomes, complaints, write
from tests.conformance.page import PAGES, Result, statements

ROOT = Path(__file__).parents[2]


def main(*options: str) -> int:
    """Run, write, and say what is not proved and what is owed."""
    if options == ("--expected",):
        write(ROOT, {carrier.id: Result(1, 1) for carrier in carriers(ROOT)})
        return 0
    outcomes = Outcomes(ROOT, judges=False)
    ids = (carrier.id for carrier in carriers(ROOT))
    status = int(pytest.main(["-q", f"--rootdir={ROOT}", *options, *ids], plugins=[outcomes]))
    write(ROOT, outcomes.results())
    owed = [f"{number}: owed: {by}" for on in PAGES for number, by in statements(ROOT, on).owed.items()]
    unproved = complaints(ROOT, outcomes.results())
    sys.stdout.writelines(f"{line}\n" for line in (*owed, *unproved))
    return status or int(bool(unproved))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
