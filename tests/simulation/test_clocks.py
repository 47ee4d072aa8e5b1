from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import pytest

from tests.house.tree import ROOT, Function, listed, name_of, syntax

VIRTUAL = {"autojump_clock", "mock_clock", "MockClock"}
STARTERS = {
    *("subprocess", "open_process", "run_process", "spawn", "posix_spawn", "fork", "Popen"),
    *("create_subprocess_exec", "create_subprocess_shell"),
}

IMPORTED = {"process", "open_agent", "open_tree"}  # too plain to be told from other names where they are used


def other_code() -> list[Path]:
    """The Python files that are not shipped as the library: tests and benchmarks, sorted."""
    paths = (path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in paths if "node_modules" not in path.parts)


def words(node: ast.AST) -> set[str]:
    """The names and attributes that a piece of code mentions, its parameters included."""
    found: set[str] = set()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word):
                found.add(word)
            case _:
                pass
    return found


def definitions(tree: ast.Module) -> Mapping[str, ast.stmt]:
    """The functions, classes and constants of a module."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node
            case _:
                pass
    return found


def imported(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """The names that a module takes from others: the name here, the module, the name there."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((alias.asname or alias.name, node.module, alias.name) for alias in node.names)


@lru_cache(maxsize=1000)
def starting(path: Path) -> frozenset[str]:
    """The names in a file of the tests whose use starts a process, however far away that happens."""
    tree = syntax(path)
    known = set(STARTERS)
    for here, module, there in imported(tree):
        source = ROOT / f"{module.replace('.', '/')}.py"
        helper = module.startswith("tests.") and source.is_file()
        if {module, there} & (STARTERS | IMPORTED) or (helper and there in starting(source)):
            known.add(here)
    own = {name: words(node) for name, node in definitions(tree).items()}
    while more := {name for name, used in own.items() if used & known} - known:
        known |= more
    return frozenset(known)


def mixed(path: Path) -> list[str]:
    """The tests of a file that have a virtual clock and start a process."""
    if not any(clock in path.read_text(encoding="utf-8") for clock in VIRTUAL):
        return []  # most files: their syntax need not be looked through
    own = definitions(syntax(path))
    clocks = {name for name, node in own.items() if isinstance(node, Function) and words(node) & VIRTUAL}
    return sorted(name for name in clocks if words(own[name]) & starting(path))


@pytest.mark.covers("T16")
def test_a_virtual_clock_and_a_real_process_never_meet_in_a_test() -> None:
    places = [f"{name_of(path)}: {name}" for path in other_code() for name in mixed(path)]
    assert places == [], listed(places)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("async def test_a(autojump_clock):\n    await trio.run_process(['true'])", 1),
        ("def f():\n    g()\ndef g():\n    subprocess.run([])\ndef test_a(mock_clock):\n    f()", 1),
        ("def fixture():\n    subprocess.run([])\ndef test_a(fixture, mock_clock): ...", 1),
        ("from subprocess import run as go\ndef test_a(mock_clock):\n    go([])", 1),
        ("from proctor.runtime import process\ndef test_a(mock_clock):\n    process(['true'])", 1),
        ("process = 1\ndef test_a(mock_clock):\n    process + 1", 0),
        ("from tests.runtime.programs import sh\ndef test_a(mock_clock):\n    sh('true')", 0),
    ],
)
def test_the_search_finds(source: str, found: int, tmp_path: Path) -> None:
    path = tmp_path / "test_a.py"
    path.write_text(source)
    assert len(mixed(path)) == found
