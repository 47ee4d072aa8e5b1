"""Every small way to break a module of decisions, made from its syntax tree.

A break replaces one piece of source by another: a cell of a table by each other value of that table, a comparison by its
neighbours, `and` by `or` and each side alone, a condition by its opposite, a bound, a number or a text by the next one, an
answer by `True` and `False`, a call that does something by nothing. What only describes (annotations, docstrings, types) is
left alone. Breaks come in the order of the source, each text once.

Not here: whether a break is noticed (`trial`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

COMPARISONS: Mapping[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.Pow: "*",
}
TWINS = {"any": "all", "all": "any", "min": "max", "max": "min"}
PLAIN = {"reversed", "sorted"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Swap = tuple[ast.expr | ast.stmt, str]


@attrs.frozen
class Break:
    """A module's source with one piece replaced; `before` and `after` are the lines concerned, stripped."""

    where: str
    before: str
    after: str
    source: str = attrs.field(repr=False)

    @property
    def place(self) -> tuple[str, str, str]:
        """What tells it from the others, wherever it stands in the file."""
        return self.where, self.before, self.after


def breaks(source: str) -> list[Break]:
    """All of them. Those that do not compile, or change nothing, are none."""
    found: dict[str, Break] = {}
    for where, (node, text) in _swaps(ast.parse(source), "<module>"):
        broken = _replaced(source, where, node, text)
        if broken.source != source and broken.source not in found:
            found[broken.source] = broken
    return list(found.values())


def _replaced(source: str, where: str, node: ast.expr | ast.stmt, text: str) -> Break:
    lines = source.splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    old = "".join(lines[first : last + 1])
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset or 0 :].decode()
    new = f"{head}{text}{tail}"
    return Break(where, old.strip(), new.strip(), "".join([*lines[:first], new, *lines[last + 1 :]]))


def _swaps(node: ast.AST, where: str) -> Iterator[tuple[str, Swap]]:
    for child in ast.iter_child_nodes(node):
        if _only_describes(child, node):
            continue
        inside = where
        if isinstance(child, Function | ast.ClassDef):
            inside = child.name if where == "<module>" else f"{where}.{child.name}"
        for swaps in SWAPS:
            yield from ((inside, swap) for swap in swaps(child))
        yield from _swaps(child, inside)


def _only_describes(node: ast.AST, parent: ast.AST) -> bool:
    match parent:
        case ast.AnnAssign(annotation=annotation) if node is annotation or _names_a_type(annotation):
            return True
        case ast.arg() | ast.JoinedStr() | ast.Call(func=ast.Name(id="TypeVar")):
            return True
        case ast.Dict(keys=keys) if node in keys or _is_text(node):
            return True
        case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns) if node is returns:
            return True
        case _:
            pass
    return isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and _is_text(node.value)
    )


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _names_a_type(annotation: ast.expr) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "TypeAlias"


def _cells(node: ast.AST) -> Iterator[Swap]:
    if isinstance(node, ast.Dict):
        values = list(dict.fromkeys(ast.unparse(value) for value in node.values))
        for cell in node.values:
            yield from ((cell, value) for value in values if value != ast.unparse(cell))


def _comparison(node: ast.AST) -> Iterator[Swap]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        yield from ((node, f"{left} {other} {right}") for other in COMPARISONS[type(node.ops[0])])


def _chain(node: ast.AST) -> Iterator[Swap]:
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        for at, op in enumerate(node.ops):
            for other in COMPARISONS[type(op)]:
                yield node, _unparsed_chain(node, at, other)


def _unparsed_chain(node: ast.Compare, at: int, other: str) -> str:
    own = [ast.unparse(ast.Compare(ast.Name(""), [op], [ast.Name("")])).strip() for op in node.ops]
    words = [other if n == at else op for n, op in enumerate(own)]
    parts = [f"{word} {ast.unparse(side)}" for word, side in zip(words, node.comparators, strict=True)]
    return " ".join([ast.unparse(node.left), *parts])


def _boolean(node: ast.AST) -> Iterator[Swap]:
    if isinstance(node, ast.BoolOp):
        sides = [f"({ast.unparse(value)})" for value in node.values]
        yield node, f"({(' or ' if isinstance(node.op, ast.And) else ' and ').join(sides)})"
        yield from ((node, side) for side in sides)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"({ast.unparse(node.operand)})"


def _condition(node: ast.AST) -> Iterator[Swap]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            yield test, f"not ({ast.unparse(test)})"
        case ast.While(test=test):
            yield test, "False"
        case ast.comprehension(ifs=ifs):
            yield from ((test, text) for test in ifs for text in (f"not ({ast.unparse(test)})", "True"))
        case _:
            pass


def _constant(node: ast.AST) -> Iterator[Swap]:
    match node:
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from ((node, repr(value + step)) for step in (1, -1))
        case ast.Constant(value=str(value)):
            yield node, repr(f"not {value}")
        case _:
            pass


def _bound(node: ast.AST) -> Iterator[Swap]:
    if isinstance(node, ast.Slice):
        lower, upper, _ = (
            None if part is None else ast.unparse(part) for part in (node.lower, node.upper, node.step)
        )
        for other in ((None, upper), (lower, None), (_next(lower), upper), (lower, _next(upper))):
            yield node, ":".join(part or "" for part in other)


def _next(bound: str | None) -> str | None:
    return bound and f"({bound}) + 1"


def _call(node: ast.AST) -> Iterator[Swap]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=args) if name in TWINS:
            yield node, f"{TWINS[name]}({', '.join(map(ast.unparse, args))})"
        case ast.Call(func=ast.Name(id=name), args=[argument]) if name in PLAIN:
            yield node, f"({ast.unparse(argument)})"
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "pass"
        case ast.AugAssign():
            yield node, "pass"
        case _:
            pass


def _arithmetic(node: ast.AST) -> Iterator[Swap]:
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        left, right = ast.unparse(node.left), ast.unparse(node.right)
        yield node, f"({left}) {ARITHMETIC[type(node.op)]} ({right})"


def _answer(node: ast.AST) -> Iterator[Swap]:
    if isinstance(node, Function) and isinstance(node.returns, ast.Name) and node.returns.id == "bool":
        answers = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
        yield from ((value, text) for value in answers if value for text in ("True", "False"))


SWAPS: Iterable[Callable[[ast.AST], Iterator[Swap]]] = (
    _cells,
    _comparison,
    _chain,
    _boolean,
    _condition,
    _constant,
    _bound,
    _call,
    _arithmetic,
    _answer,
)
