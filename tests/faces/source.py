"""Reads signatures and first lines of docstrings from the source of `proctor`, and where the names in them come from."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any

import attrs

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = ("AbstractAsyncContextManager",)


@lru_cache(maxsize=200)
def tree_of(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


@lru_cache(maxsize=200)
def imports_of(module: str) -> dict[str, str]:
    """Each name that a module imports or defines → the statement that imports it."""
    found: dict[str, str] = {}
    for node in ast.walk(tree_of(module)):
        match node:
            case ast.ImportFrom(module=str(source), names=names):
                for each in names:
                    alias = "" if each.asname is None else f" as {each.asname}"
                    found[each.asname or each.name] = f"from {source} import {each.name}{alias}"
            case ast.Import(names=names):
                for each in names:
                    found[each.asname or each.name] = f"import {each.name}"
            case _:
                pass
    for statement in tree_of(module).body:
        targets = [statement.name] if isinstance(statement, ast.ClassDef | Function) else []
        if isinstance(statement, ast.Assign):
            targets = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            targets = [statement.target.id]
        for target in targets:
            found[target] = f"from {module} import {target}"
    return found


@attrs.frozen(kw_only=True)
class Member:
    """A function or an attribute. `module` is where its names are looked up; `overloads` come before it."""

    name: str
    module: str
    node: Function
    overloads: tuple[Function, ...] = ()

    @property
    def decorators(self) -> set[str]:
        return {ast.unparse(decorator) for decorator in self.node.decorator_list}

    @property
    def line(self) -> str:
        """The first sentence of its docstring."""
        return sentence(ast.get_docstring(self.node) or "")

    @property
    def returns(self) -> str:
        return "None" if self.node.returns is None else ast.unparse(self.node.returns)

    @property
    def given(self) -> str:
        """What its block gives, for a function that is one; else nothing."""
        if "asynccontextmanager" in self.decorators or self.returns.startswith(BLOCKS):
            inner = ast.parse(self.returns, mode="eval").body
            assert isinstance(inner, ast.Subscript)
            return ast.unparse(inner.slice)
        return ""

    @property
    def is_async(self) -> bool:
        return isinstance(self.node, ast.AsyncFunctionDef)


def function_of(value: Any) -> Member:
    """A public function."""
    value = inspect.unwrap(value)
    return next(_functions(value.__module__, tree_of(value.__module__).body, value.__name__))


def _functions(module: str, body: list[ast.stmt], name: str | None = None) -> Iterator[Member]:
    overloads: list[Function] = []
    for node in body:
        if not isinstance(node, Function) or name not in (None, node.name):
            continue
        if any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list):
            overloads.append(node)
            continue
        copies = tuple(map(copy.deepcopy, overloads))  # the writer changes what it is given
        yield Member(name=node.name, module=module, node=copy.deepcopy(node), overloads=copies)
        overloads = []


def class_node(kind: type) -> ast.ClassDef:
    found = (node for node in tree_of(kind.__module__).body if isinstance(node, ast.ClassDef))
    return next(node for node in found if node.name == kind.__name__)


def members_of(kind: type) -> dict[str, Member]:
    """The functions of a class and of those that it inherits from, private ones too."""
    found: dict[str, Member] = {}
    for each in kind.__mro__:
        if each.__module__.startswith("proctor."):
            for member in _functions(each.__module__, class_node(each).body):
                found.setdefault(member.name, member)
    return found


def declared_of(kind: type) -> dict[str, tuple[str, str]]:
    """The attributes that a class of attrs declares: their type, and the module of that."""
    if not attrs.has(kind):
        return {}
    return {
        node.target.id: (ast.unparse(node.annotation), kind.__module__)
        for node in class_node(kind).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def first_line(kind: type) -> str:
    return sentence(inspect.getdoc(kind) or "")


def sentence(text: str) -> str:
    """The first sentence."""
    words = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", words)[0]


def constant(module: str, node: ast.expr) -> ast.expr:
    """A default; that of a name for a number or a text as the number or the text."""
    source: ModuleType = importlib.import_module(module)
    try:
        value = eval(ast.unparse(node), vars(source))
    except Exception:  # noqa: BLE001  # an expression that needs more than its module
        return node
    return ast.Constant(value) if isinstance(value, int | float | str) else node
