from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import Function, functions, listed, name_of, sources, syntax

LONG_FILE = 600
LONGEST_BODY = 60
DEEPEST = 3

# file: why it is longer than LONG_FILE
LONGER: dict[str, str] = {
    "runtime/supervision/loop.py": "one inbox and all that is done in its turn, on the same slots; the reasons beside the lines",
}

BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.Match)


def body_of(function: Function) -> list[ast.stmt]:
    body = function.body
    return body[1:] if ast.get_docstring(function, clean=False) is not None else body


def is_declaration(function: Function) -> bool:
    """Only a signature: an overload, a protocol's method."""
    return all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in body_of(function))


def length(function: Function) -> int:
    body = body_of(function)
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def depth(statements: list[ast.stmt]) -> int:
    return max((_depth(statement) for statement in statements), default=0)


def _depth(statement: ast.stmt) -> int:
    if not isinstance(statement, BLOCKS):
        return 0
    if isinstance(statement, ast.If) and _is_elif(statement.orelse):
        return max(1 + depth(statement.body), _depth(statement.orelse[0]))
    return 1 + max(depth(part) for part in _parts(statement))


def _is_elif(orelse: list[ast.stmt]) -> bool:
    return len(orelse) == 1 and isinstance(orelse[0], ast.If)


def _parts(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for name in ("handlers", "cases"):
        yield from (part.body for part in getattr(statement, name, []))


def measured() -> list[tuple[str, Function]]:
    return [
        (f"{name_of(path)}:{function.lineno} {name}", function)
        for path in sources()
        for name, function in functions(syntax(path))
        if not is_declaration(function)
    ]


def test_no_function_body_is_longer_than_a_screen() -> None:
    places = [f"{name}: {length(f)} lines" for name, f in measured() if length(f) > LONGEST_BODY]
    assert places == [], listed(places)


def test_nothing_nests_deeper_than_three() -> None:
    places = [f"{name}: {depth(f.body)} levels" for name, f in measured() if depth(f.body) > DEEPEST]
    assert places == [], listed(places)


def test_a_long_file_says_why() -> None:
    long = {name_of(path) for path in sources() if lines_of(path) > LONG_FILE}
    assert long == set(LONGER), listed(sorted(long ^ set(LONGER)))


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def one(source: str) -> Function:
    [(_, function)] = functions(ast.parse(textwrap.dedent(source)))
    return function


@pytest.mark.parametrize(
    ("source", "lines", "levels"),
    [
        ('def f(\n    a: int,\n) -> int:\n    """One.\n\n    Two."""\n    return a\n', 1, 0),
        ("def f(a):\n    if a: pass\n    elif a > 1: pass\n    elif a > 2: pass\n", 3, 1),
        ("def f(a):\n    if a: pass\n    else:\n        for b in a:\n            if b: pass\n", 4, 3),
        ("def f(a):\n    match a:\n        case 1:\n            try: pass\n            except E:\n                if a: pass\n", 5, 3),
    ],
)  # fmt: skip
def test_the_measures_of_a_body(source: str, lines: int, levels: int) -> None:
    assert (length(one(source)), depth(one(source).body)) == (lines, levels)
