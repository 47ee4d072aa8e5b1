from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.tree import dotted, everywhere, imports, listed
from tests.tables import each_row

MUTABLE = {
    "list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict", "ChainMap", "count", "cycle",
    "Event", "Lock", "RLock", "Condition", "Semaphore", "CapacityLimiter", "Queue", "SimpleQueue", "AsyncValue",
    "open_memory_channel", "AsyncBool", "RepeatedEvent", "WeakValueDictionary", "WeakKeyDictionary", "WeakSet", "Random",
    "StringIO", "BytesIO",
}  # fmt: skip
DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
READ_ONLY = {"Mapping", "Sequence", "Set", "Collection", "AbstractSet"}


def state(tree: ast.Module) -> Iterator[str]:
    """What a module or a class body holds that one user could change under another."""
    copies = any(name.startswith("msgspec.") or name == "msgspec" for _, name in imports(tree))
    yield from _in_body(tree.body)
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(body=body, bases=bases):
                fields = copies and bool(bases)
                yield from _in_body([s for s in body if not (fields and _is_empty_default(s))])
            case ast.Global(names=names):
                yield f"line {node.lineno}: global {', '.join(names)}"
            case ast.FunctionDef(decorator_list=decorators) if any(map(_remembers_all, decorators)):
                yield f"line {node.lineno}: {node.name} remembers without a bound"
            case _:
                pass


def _is_empty_default(statement: ast.stmt) -> bool:
    """The default of a msgspec field: msgspec gives each instance its own, and refuses one that is not empty."""
    match statement:
        case ast.AnnAssign(value=ast.List(elts=[]) | ast.Dict(keys=[])):
            return True
        case _:
            return False


def _remembers_all(decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(func=func, keywords=[ast.keyword(value=ast.Constant(value=None))]):
            return dotted(func).endswith("lru_cache")
        case _:
            return dotted(decorator) in {"cache", "functools.cache"}


def _in_body(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__" | "__match_args__")]):
                pass
            case ast.Assign(value=value) if _is_mutable(value):
                yield f"line {statement.lineno}: {ast.unparse(statement.targets[0])}"
            case ast.AnnAssign(value=ast.expr() as value, annotation=annotation) if _is_mutable(value):
                if not _is_read_only(annotation):
                    yield f"line {statement.lineno}: {ast.unparse(statement.target)}"
            case ast.If() | ast.Try():
                yield from _in_body([*statement.body, *statement.orelse])
            case _:
                pass


def _is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        called = value.func.value if isinstance(value.func, ast.Subscript) else value.func
        return dotted(called).rpartition(".")[2] in MUTABLE
    return isinstance(value, DISPLAYS)


def _is_read_only(annotation: ast.expr) -> bool:
    """The annotation gives the checkers the right to refuse a change."""
    if isinstance(annotation, ast.Subscript):
        name = dotted(annotation.value).rpartition(".")[2]
        return name in READ_ONLY or (name in {"Final", "ClassVar"} and _is_read_only(annotation.slice))
    return False


@pytest.mark.covers("R006")
def test_the_library_has_no_process_wide_state() -> None:
    places = everywhere(state)
    assert places == [], listed(places)


@each_row(
    ("source", "places"),
    [
        ("SEEN: Final = {}", 1),
        ("TABLE: Final[Mapping[str, int]] = {'a': 1}", 0),
        ("__all__ = ['a']", 0),
        ("send, receive = trio.open_memory_channel[int](1)", 1),
        ("class A:\n    seen = []", 1),
        ("def f():\n    global seen\n    seen = 1", 1),
        ("@lru_cache(maxsize=None)\ndef f(a): return a", 1),
        ("import msgspec\nclass A(Wire):\n    seen: list[int] = []", 0),
        ("import msgspec\nclass A(Wire):\n    seen: list[int] = [1]", 1),
        ("class A(Record):\n    seen: list[int] = []", 1),
        ("@lru_cache(maxsize=10)\ndef f(a): return a", 0),
    ],
)
def test_the_search_finds(source: str, places: int) -> None:
    assert len(list(state(ast.parse(source)))) == places
