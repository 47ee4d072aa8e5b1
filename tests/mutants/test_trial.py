from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.trial import ROOT, Copy, Target, check

NORMAL = Target("runtime/exits.py", own=("tests/runtime/test_exits.py",))


def test_a_trial_notices_what_a_test_notices_and_leaves_the_tree_alone(tmp_path: Path) -> None:
    source = (ROOT / NORMAL.module).read_text(encoding="utf-8")
    copy = Copy(tmp_path / "copy")
    check(copy, NORMAL)
    assert copy.notices(NORMAL, source.replace('return "killed"', 'return "kissed"'))
    assert (ROOT / NORMAL.module).read_text(encoding="utf-8") == source


def test_tests_that_do_not_read_the_module_are_no_trial(tmp_path: Path) -> None:
    blind = Target("runtime/processes/guard.py", own=("tests/runtime/test_exits.py",))
    with pytest.raises(
        RuntimeError, match=r"the tests of runtime/processes/guard\.py do not import the copy"
    ):
        check(Copy(tmp_path / "copy"), blind)
