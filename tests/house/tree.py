"""The source tree as data: which files are ours, and their syntax."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALONE = ("runtime/processes/guard.py", "actors/tools/stdio_proxy.py", "actors/tools/exec_file.py")

FLOORS = ("runtime", "actors", "protocols")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> list[Path]:
    """The Python files of the library: the floors and the face, each once, sorted."""
    face = ROOT / "src" / "proctor"
    own = [path for path in _python_files(face) if path.relative_to(face).parts[0] not in FLOORS]
    return sorted([*own, *(path for floor in FLOORS for path in _python_files(ROOT / floor))])


def floor(name: str) -> list[Path]:
    """The Python files of one floor, sorted."""
    return sorted(_python_files(ROOT / name))


def programs() -> list[Path]:
    """What runs by its path, as a program of its own: the guard, the relay, the starter, and the scripted agent without its launching side."""
    scripted = _python_files(ROOT / "actors" / "scripted")
    played = sorted(path for path in scripted if path.name not in {"__init__.py", "launch.py"})
    alone = [ROOT / path for path in ALONE]
    return [*alone, *played]


def _python_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.py"):
        if not {"node_modules", "__pycache__"} & set(path.parts):
            yield path


def name_of(path: Path) -> str:
    """The path as the documents write it: `runtime/supervision/child.py`."""
    return path.relative_to(ROOT).as_posix()


@lru_cache(maxsize=1000)
def syntax(path: Path) -> ast.Module:
    """The file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def everywhere(
    search: Callable[[ast.Module], Iterable[object]], paths: Iterable[Path] | None = None
) -> list[str]:
    """What a search of one syntax tree finds in all of them (default: the library's), each with its file."""
    files = sources() if paths is None else paths
    return [f"{name_of(path)}: {place}" for path in files for place in search(syntax(path))]


def listed(places: Iterable[str]) -> str:
    """One place per line, for the message of a failed assertion (pytest shortens lists, not messages)."""
    return "\n" + "\n".join(places)


def functions(tree: ast.Module) -> list[tuple[str, Function]]:
    """Every function of a module, nested ones too, under its qualified name."""
    return list(_functions(tree, ()))


def _functions(node: ast.AST, outer: tuple[str, ...]) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield ".".join((*outer, child.name)), child
        inner = (*outer, child.name) if isinstance(child, Function | ast.ClassDef) else outer
        yield from _functions(child, inner)


def enclosing(tree: ast.Module, wanted: ast.AST) -> str:
    """The qualified name of the innermost function or class around a node, or `<module>`."""
    return _path_to(tree, wanted, ()) or "<module>"


def _path_to(node: ast.AST, wanted: ast.AST, outer: tuple[str, ...]) -> str | None:
    if node is wanted:
        return ".".join(outer)
    for child in ast.iter_child_nodes(node):
        inner = (*outer, child.name) if isinstance(child, Function | ast.ClassDef) else outer
        found = _path_to(child, wanted, inner)
        if found is not None:
            return found
    return None


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or an attribute chain; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (left := dotted(node.value)):
        return f"{left}.{node.attr}"
    return ""


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Every import anywhere in the module: the statement and `package.module` or `package.module.name`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node, alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from ((node, f"{module}.{alias.name}") for alias in names)
            case _:
                pass
