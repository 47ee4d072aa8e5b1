"""Which tests carry which numbers, read from their source without running anything.

A test carries `S14` when its name has it (`test_..._S14_X1`), when an `id` in its decorators is or has it, or when a
comment names it from right above the decorators down to the end of the signature. Only functions that pytest would
collect count. A number of the form of ours that nobody has defined is `unknown`, so that a slip cannot hide.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

IN_NAME = re.compile(r"_([SMTXDRPCL]\d+)(?=_|$)")
IN_TEXT = re.compile(r"\b[SMTXDRPCL]\d+\b")
DEVIATIONS = frozenset(f"D{n}" for n in range(1, 12))

Function = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen
class Carrier:
    """One test function: `file` relative to the root, `name` with its class, and the numbers it carries."""

    file: str
    name: str
    numbers: tuple[str, ...]

    @property
    def id(self) -> str:
        """The node id of pytest, without the parameters."""
        return f"{self.file}::{self.name}"


def carriers(root: Path, folder: str = "tests") -> list[Carrier]:
    """Every test below `folder` that carries a number, in the order of files and lines."""
    files = (path for path in sorted((root / folder).rglob("test_*.py")) if "node_modules" not in path.parts)
    return [carrier for path in files for carrier in _in_file(path, path.relative_to(root).as_posix())]


def _in_file(path: Path, name: str) -> Iterator[Carrier]:
    source = path.read_text(encoding="utf-8")
    comments = _comments(source)
    for test, function in _tests(ast.parse(source), ()):
        numbers = tuple(dict.fromkeys(_numbers(function, comments)))
        if numbers:
            yield Carrier(name, test, numbers)


def _comments(source: str) -> Mapping[int, tuple[str, bool]]:
    """Of each line with a comment: the comment, and whether it has the line to itself."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: (token.string, token.line.lstrip().startswith("#"))
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def _tests(node: ast.Module | ast.ClassDef, outer: tuple[str, ...]) -> Iterator[tuple[str, Function]]:
    for child in node.body:
        if isinstance(child, Function) and child.name.startswith("test"):
            yield "::".join((*outer, child.name)), child
        elif isinstance(child, ast.ClassDef) and child.name.startswith("Test"):
            yield from _tests(child, (*outer, child.name))


def _numbers(function: Function, comments: Mapping[int, tuple[str, bool]]) -> Iterator[str]:
    yield from IN_NAME.findall(function.name)
    for decorator in function.decorator_list:
        for text in _ids(decorator):
            yield from IN_TEXT.findall(text)
    first = min(node.lineno for node in (function, *function.decorator_list))
    while comments.get(first - 1, ("", False))[1]:
        first -= 1
    for line in range(first, function.body[0].lineno):
        yield from IN_TEXT.findall(comments.get(line, ("", False))[0])


def _ids(decorator: ast.expr) -> Iterator[str]:
    for node in ast.walk(decorator):
        if isinstance(node, ast.keyword) and node.arg in ("id", "ids"):
            constants = (part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant))
            yield from (value for value in constants if isinstance(value, str))


def by_number(found: Sequence[Carrier]) -> dict[str, list[Carrier]]:
    """The tests of each number."""
    table: dict[str, list[Carrier]] = {}
    for carrier in found:
        for number in carrier.numbers:
            table.setdefault(number, []).append(carrier)
    return table


def unknown(found: Sequence[Carrier], known: frozenset[str]) -> list[str]:
    """The numbers that stand on a test and mean nothing, each with the test."""
    return [
        f"{number} on {carrier.id}"
        for carrier in found
        for number in carrier.numbers
        if number not in known | DEVIATIONS
    ]
