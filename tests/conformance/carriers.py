"""Which tests carry which numbers, read from their source without running anything.

A test carries `S14` when a decorator says so: `@pytest.mark.covers("S14", "X1")`. Only functions that pytest would
collect count. A number of the form of ours that nobody has defined is `unknown`, so that a slip cannot hide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

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
    if "mark.covers(" not in source:
        return
    for test, function in _tests(ast.parse(source), ()):
        numbers = tuple(dict.fromkeys(_numbers(function)))
        if numbers:
            yield Carrier(name, test, numbers)


def _tests(node: ast.Module | ast.ClassDef, outer: tuple[str, ...]) -> Iterator[tuple[str, Function]]:
    for child in node.body:
        if isinstance(child, Function) and child.name.startswith("test"):
            yield "::".join((*outer, child.name)), child
        elif isinstance(child, ast.ClassDef) and child.name.startswith("Test"):
            yield from _tests(child, (*outer, child.name))


def _numbers(function: Function) -> Iterator[str]:
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr="covers"), args=numbers):
                yield from (ast.literal_eval(number) for number in numbers)
            case _:
                pass


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
