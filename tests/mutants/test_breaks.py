from __future__ import annotations

import ast

import pytest

from tests.mutants.breaks import breaks
from tests.mutants.targets import TARGETS, gone
from tests.mutants.trial import ROOT, Target
from tests.tables import each_row


def afters(source: str) -> set[str]:
    return {broken.after for broken in breaks(source)}


@each_row(
    ("source", "expected"),
    [
        (
            "T = {'a': 'x', 'b': 'y', 'c': 'x'}",
            {"T = {'a': 'y', 'b': 'y', 'c': 'x'}", "T = {'a': 'x', 'b': 'x', 'c': 'x'}"},
        ),
        ("x = a < b", {"x = a <= b", "x = a >= b"}),
        ("x = a not in b", {"x = a in b"}),
        ("x = 0 < a <= 2", {"x = 0 <= a <= 2", "x = 0 < a < 2", "x = 0 < a <= 3", "x = 1 < a <= 2"}),
        ("x = a and b", {"x = ((a) or (b))", "x = (a)", "x = (b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = 5.0", {"x = 6.0", "x = 4.0"}),
        ("x = True", {"x = False"}),
        ("x = f('a')", {"x = f('not a')"}),
        ("x = a[b:c]", {"x = a[:c]", "x = a[b:]", "x = a[(b) + 1:c]", "x = a[b:(c) + 1]"}),
        ("x = reversed(a)", {"x = (a)"}),
        ("x = min(a, b)", {"x = max(a, b)"}),
        ("x = a * b", {"x = (a) / (b)"}),
        ("x = [a for a in b if a]", {"x = [a for a in b if not (a)]", "x = [a for a in b if True]"}),
        ("f(a)", {"pass"}),
        ("x += a", {"pass"}),
        ("if a: pass", {"if not (a): pass"}),
        ("while a: pass", {"while False: pass"}),
    ],
)
def test_each_small_way_to_break_is_found(source: str, expected: set[str]) -> None:
    assert expected <= afters(source)


def test_an_answer_is_both() -> None:
    assert {"return True", "return False"} <= afters("def f(a) -> bool:\n    return g(a)\n")


@each_row(
    "source",
    [
        '"""A module."""',
        "def f(a: Literal['x'] = b) -> Literal['y']:\n    '''Words.'''\n",
        "A: TypeAlias = Literal['x', 'y']",
        "a: Mapping[str, 'X'] = b",
        "from __future__ import annotations",
        "x = f'{a!r:>{b}} words'",
        "T = {'a': 'x'}",
    ],
)
def test_what_only_describes_is_left_alone(source: str) -> None:
    assert breaks(source) == []


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.module)
def test_every_break_is_another_module_that_compiles(target: Target) -> None:
    source = (ROOT / target.module).read_text(encoding="utf-8")
    found = breaks(source)
    assert len(found) > 20
    assert len({broken.source for broken in found} - {source}) == len(found)
    for broken in found:
        ast.parse(broken.source)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.module)
def test_what_is_listed_as_equivalent_is_still_there(target: Target) -> None:
    assert gone(target) == []
