"""What is broken on purpose, and the breaks that change nothing anybody could see."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutants.breaks import breaks
from tests.mutants.trial import ROOT, Target

TARGETS = (
    Target(
        "runtime/supervision/decide.py",
        own=("tests/runtime/test_decide.py",),
        afar=(
            "tests/runtime/test_grid.py",
            "tests/runtime/test_supervisor_restart.py",
            "tests/runtime/test_supervisor_stop.py",
        ),
    ),
    Target("runtime/supervision/backoff.py", own=("tests/runtime/test_backoff.py",), afar=()),
)

# module, function, the lines before and after: why nobody can tell
EQUIVALENT: Mapping[tuple[str, str, str, str], str] = {}


def gone(target: Target) -> list[tuple[str, str, str]]:
    """The places listed as equivalent in which the module has no such break any more."""
    possible = {broken.place for broken in breaks((ROOT / target.module).read_text(encoding="utf-8"))}
    listed = [place for module, *place in EQUIVALENT if module == target.module]
    return [
        (where, before, after) for where, before, after in listed if (where, before, after) not in possible
    ]
