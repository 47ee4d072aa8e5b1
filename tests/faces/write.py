"""Writes the modules of `proctor.aio` and `proctor.sync`."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.faces import columns, templates
from tests.faces.columns import CLASSES, Proxied
from tests.faces.source import (
    Member,
    constant,
    declared_of,
    first_line,
    function_of,
    imports_of,
    members_of,
)

ROOT = Path(__file__).parents[2]
FACES = ("aio", "sync")
HOMES = {proxied.source: proxied for proxied in CLASSES}
NAMES = {proxied.source.__name__: proxied for proxied in CLASSES}
ITERATORS = ("Cursor", "AsyncIterator")
DUNDERS = {
    "__init__",
    "__aiter__",
    "__anext__",
    "__aenter__",
    "__aexit__",
    "__len__",
    "__contains__",
    "__bool__",
}
LEFT_OUT = {"T", "Self"}


class Module:
    """One generated module: its text and the imports that it needs."""

    def __init__(self, face: str, name: str) -> None:
        self.face = face
        self.name = name
        self.words = templates.WORDS[face]
        self.parts: list[str] = []
        self.imports: dict[str, str] = {}

    # -- types and defaults

    def use(self, alias: str, statement: str) -> None:
        known = self.imports.setdefault(alias, statement)
        if known != statement:
            assert _imported(known, alias) is _imported(statement, alias), (
                f"{self.name}: {known} and {statement}"
            )

    def use_all(self, statements: str) -> None:
        for line in statements.strip().splitlines():
            start, _, names = line.partition(" import ")
            for name in names.split(", "):
                self.use(name.split()[-1], f"{start} import {name}")

    def text(self, node: ast.expr, module: str) -> str:
        """A type or a default as it stands in the face, with its imports."""
        for each in ast.walk(node):
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value in NAMES:
                each.value = f"\N{NULL}{each.value}"  # a name in quotes stays in quotes
            if isinstance(each, ast.Name):
                self._need(each.id, module)
        return ast.unparse(node).replace("\N{NULL}", "")

    def type_of(self, text: str, module: str) -> str:
        return self.text(ast.parse(text, mode="eval").body, module)

    def _need(self, name: str, module: str) -> None:
        if name in LEFT_OUT or (hasattr(builtins, name) and name not in imports_of(module)):
            return
        if name in NAMES:
            home = NAMES[name].home
            if home != self.name:
                self.use(name, f"from proctor.{self.face}.{home} import {name}")
            return
        statement = imports_of(module).get(name)
        assert statement is not None, f"{module} does not say where {name} comes from"
        self.use(name, statement)

    # -- signatures

    def parameters(self, member: Member, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            key = (self.face, member.name, argument.arg)
            if (other := columns.RENAMED.get(key)) is not None:
                self.use_all(
                    "from collections.abc import Awaitable\nfrom collections.abc import Callable\nfrom proctor import Answer"
                )
                argument.annotation = ast.parse(other, mode="eval").body
            elif argument.annotation is not None:
                self.text(argument.annotation, member.module)
        for other_argument in (arguments.vararg, arguments.kwarg):
            if other_argument is not None and other_argument.annotation is not None:
                self.text(other_argument.annotation, member.module)
        arguments.defaults = [constant(member.module, each) for each in arguments.defaults]
        arguments.kw_defaults = [
            None if each is None else constant(member.module, each) for each in arguments.kw_defaults
        ]
        for default in (*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)):
            self.text(default, member.module)
        return ast.unparse(arguments)

    def passed(self, member: Member) -> str:
        """The arguments as they are passed on."""
        arguments, given = member.node.args, list[str]()
        positional = [*arguments.posonlyargs, *arguments.args]
        if positional and positional[0].arg in ("self", "cls"):
            positional = positional[1:]
        for argument in positional:
            given.append(self._hosted(member, argument.arg))
        if arguments.vararg is not None:
            given.append(f"*{arguments.vararg.arg}")
        for argument in arguments.kwonlyargs:
            given.append(f"{argument.arg}={self._hosted(member, argument.arg)}")
        if arguments.kwarg is not None:
            given.append(f"**{arguments.kwarg.arg}")
        return ", ".join(given)

    def _hosted(self, member: Member, name: str) -> str:
        if (member.name, name) in columns.HOSTED:
            self.face_import("hosted")
            return f"hosted({name})"
        return name

    def face_import(self, name: str) -> None:
        source = "asyncio_face" if self.face == "aio" else "sync_face"
        self.use(name, f"from proctor.bridge.{source} import {name}")

    # -- results

    def wrapped(self, returns: str, module: str) -> tuple[str, str]:
        """The type of a result in the face, and the function that makes it of Trio's: nothing for data."""
        node = ast.parse(returns, mode="eval").body
        match node:
            case ast.Constant(value=str(text)):
                return self.wrapped(text, module)
            case ast.Name(id=name) if name in NAMES:
                return self.text(node, module), f"{name}.around"
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[ast.Name(id=name), *_])) if (
                name in NAMES
            ):
                self._need(name, module)
                self.use("partial", "from functools import partial")
                self.use("each", "from proctor.bridge.adapters import each")
                return f"tuple[{name}, ...]", f"partial(each, {name})"
            case ast.Name(id="Cursor"):
                return self._stream("AnyEvent", module)
            case ast.Subscript(value=ast.Name(id="AsyncIterator"), slice=item):
                return self._stream(ast.unparse(item), module)
            case _:
                return self.text(node, module), ""

    def _stream(self, item: str, module: str) -> tuple[str, str]:
        if item == "AnyEvent":
            self.use("AnyEvent", "from proctor.protocols.vocabulary import AnyEvent")
        elif item in NAMES:
            self.face_import("Stream")
            return f"Stream[{item}]", f"{item}s.around"
        else:
            self._need(item, module)
        self.face_import("Stream")
        return f"Stream[{item}]", f"Stream[{item}].around"

    def callee(self, is_async: bool) -> str:
        name = "call" if is_async else "call_plain"
        self.face_import(name)
        return name

    # -- members

    def function(self, member: Member, target: str, thread: str, *, kind: str, indent: str = "") -> str:
        """A function or a method. `kind` is `call`, `plain`, `direct` or `block`."""
        self_ = "self" if indent else ""
        awaits = kind in ("call", "plain")
        lines = [self._overload(member, node, indent) for node in member.overloads]
        head = self.parameters(member, member.node)
        if kind == "block":
            self.face_import("Block")
            given, wrap = self.wrapped(member.given, member.module)
            if not wrap:
                self.use("as_is", "from proctor.bridge.adapters import as_is")
            arguments = ", ".join(filter(None, (thread, wrap or "as_is", target, self.passed(member))))
            body, returns = f"return Block({arguments})", f"Block[{given}]"
        else:
            returns, wrap = self.wrapped(member.returns, member.module)
            body = self._body(member, target, thread, kind, returns, wrap)
        word = self.words["async_"] if awaits else ""
        line = member.line or f"See `{member.name}` of `proctor`."
        doc = f'{indent}    """{line}"""\n'
        lines.append(
            f"{indent}{word}def {member.name}({head}) -> {returns}:\n{doc}{_indented(body, indent + '    ')}"
        )
        assert self_ or thread == "current_thread()" or kind == "block"
        return "\n\n".join(lines)

    def _overload(self, member: Member, node: ast.FunctionDef | ast.AsyncFunctionDef, indent: str) -> str:
        self.use("overload", "from typing import overload")
        head, returns = (
            self.parameters(member, node),
            self.text(node.returns or ast.Constant(None), member.module),
        )
        return f"{indent}@overload\n{indent}{self.words['async_']}def {member.name}({head}) -> {returns}: ..."

    def _body(self, member: Member, target: str, thread: str, kind: str, returns: str, wrap: str) -> str:
        if kind == "direct":
            made = f"{target}({self.passed(member)})"
            return f"return {wrap}({made}, {thread})" if wrap else f"return {made}"
        arguments = ", ".join(filter(None, (thread, target, self.passed(member))))
        made = f"{self.words['await_']}{self.callee(kind == 'call')}({arguments})"
        before = ""
        if member.name == "finish":
            before = f"{self.words['await_']}self._drained()\n"
        if returns == "None":
            return before + made
        if wrap:
            return f"{before}return {wrap}({made}, {thread})"
        return f"{before}result: {_any_of(returns, self)} = {made}\nreturn result"

    def klass(self, proxied: Proxied) -> str:
        name, source = proxied.source.__name__, proxied.source
        self.use(f"_{name}", f"from {home_of(source)} import {name} as _{name}")
        self.use_all(proxied.imports.replace("{result}", ""))
        members = members_of(source)
        hidden = {*proxied.hidden.split(), *re.findall(r"def (\w+)", proxied.extra)}
        base = self._base(proxied, members)
        parts = [f'class {name}({base}):\n    """{first_line(source)}"""']
        if proxied.made:
            parts.append(self._init(name, members))
        if proxied.items:
            parts.append(self._item(proxied))
        fields = {**{key: (text, "builtins") for key, text in proxied.fields.items()}, **declared_of(source)}
        if name == "Provider":
            fields = {key: one for key, one in fields.items() if key != "make"}
        for field, (text, module) in fields.items():
            if not field.startswith("_") and field not in hidden:
                text = text if module == "builtins" else self.type_of(text, module)
                parts.append(self._property(name, field, text))
        for member in members.values():
            if member.name.startswith("_") or member.name in hidden:
                continue
            if not (proxied.items and member.name == "batch"):
                parts.append(self._method(proxied, member))
        if proxied.extra:
            parts.append(self.extra(proxied.extra))
        return "\n\n".join(part.rstrip("\n") for part in parts)

    def extra(self, text: str) -> str:
        for name in ("call", "call_plain", "Block", "Stream", "hosted", "runner_of", "ModelReader"):
            if re.search(rf"\b{name}\b", text):
                self.face_import(name)
        for name in ("entered", "served", "as_is"):
            if re.search(rf"\b{name}\b", text):
                self.use(name, f"from proctor.bridge.adapters import {name}")
        for name, proxied in NAMES.items():
            if re.search(rf"(?<![\w.]){name}\b", text) and proxied.home != self.name:
                self._need(name, "proctor")
        words = {**self.words, "result": "Awaitable[Answer]" if self.face == "aio" else "Answer"}
        for word, value in words.items():
            text = text.replace(f"{{{word}}}", value)
        return text.strip("\n").replace("{{", "{").replace("}}", "}")

    def _base(self, proxied: Proxied, members: dict[str, Member]) -> str:
        if proxied.items:
            self.face_import("Stream")
            if proxied.items == "AnyEvent":
                self.use("AnyEvent", "from proctor.protocols.vocabulary import AnyEvent")
            return f"Stream[{proxied.items}]"
        if "__aenter__" in members:
            self.face_import("Opened")
            return "Opened"
        self.use("Proxy", "from proctor.bridge.proxies import Proxy")
        return f"Proxy[_{proxied.source.__name__}]"

    def _item(self, proxied: Proxied) -> str:
        if proxied.items not in NAMES:
            return ""
        self.use("Any", "from typing import Any")
        return f"    def _item(self, item: Any) -> {proxied.items}:\n        return {proxied.items}.around(item, self._thread)"

    def _init(self, name: str, members: dict[str, Member]) -> str:
        if (member := members.get("__init__")) is None:
            return f"    def __init__(self) -> None:\n        self._target = _{name}()"
        self.use("unwrapped", "from proctor.bridge.proxies import unwrapped")
        arguments = self.passed(member)
        return f"    def __init__({self.parameters(member, member.node)}) -> None:\n        self._target = _{name}({arguments})"

    def _property(self, klass: str, name: str, text: str) -> str:
        doc = f'        """See `{klass}`."""\n'
        return f"    @property\n    def {name}(self) -> {text}:\n{doc}        value: {text} = self._target.{name}\n        return value"

    def _method(self, proxied: Proxied, member: Member) -> str:
        name, target = member.name, f"self._target.{member.name}"
        if "property" in member.decorators and name not in proxied.plain.split():
            returns, wrap = self.wrapped(member.returns, member.module)
            doc = f'        """{member.line}"""\n' if member.line else ""
            made = f"{wrap}({target}, self._thread)" if wrap else target
            body = f"        value: {_any_of(returns, self)} = {made}\n        return value"
            return f"    @property\n    def {name}(self) -> {returns}:\n{doc}{body}"
        if "classmethod" in member.decorators:
            return self._made(proxied, member)
        if "property" in member.decorators:
            target = f"lambda: {target}"
        kind = kind_of(proxied, member)
        return self.function(member, target, "self._thread", kind=kind, indent="    ")

    def _made(self, proxied: Proxied, member: Member) -> str:
        self.use("unwrapped", "from proctor.bridge.proxies import unwrapped")
        source = proxied.source.__name__
        passed = ", ".join(
            re.sub(r"(^|=)(\w+)$", r"\1unwrapped(\2)", one) for one in self.passed(member).split(", ")
        )
        head, doc = self.parameters(member, member.node), f'        """{member.line}"""\n'
        return f"    @classmethod\n    def {member.name}({head}) -> {source}:\n{doc}        return cls.around(_{source}.{member.name}({passed}))"


def _imported(statement: str, alias: str) -> object:
    names: dict[str, object] = {}
    exec(statement, names)  # noqa: S102  # a line of an import
    return names[alias]


PROTECTED = ("messaging", "processes", "supervision")


def home_of(source: type) -> str:
    """The module to import a class from: packages of the runtime are imported from their face."""
    parts = source.__module__.split(".")
    return ".".join(parts[:3]) if parts[1] == "runtime" and parts[2] in PROTECTED else source.__module__


def _any_of(returns: str, module: Module) -> str:
    """The type of a local variable: a generic one without its parameter takes any."""
    if returns == "Answer":
        module.use("Any", "from typing import Any")
        return "Answer[Any]"
    return returns


def _indented(text: str, indent: str) -> str:
    return "\n".join(indent + line for line in text.splitlines())


def kind_of(proxied: Proxied, member: Member) -> str:
    """The way in which a method is carried over. Raises KeyError for one of which the tables do not say it."""
    if member.given:
        return "block"
    if member.is_async:
        return "call"
    for kind in ("plain", "direct"):
        if member.name in getattr(proxied, kind).split():
            return kind
    raise KeyError(
        f"{proxied.source.__name__}.{member.name}: is it direct, plain or hidden? (tests/faces/columns.py)"
    )


def module_of(face: str, name: str) -> str:
    """The text of one module."""
    module = Module(face, name)
    for function, home in columns.FUNCTIONS.items():
        if home == name:
            module.parts.append(_function(module, function))
    for proxied in CLASSES:
        if proxied.home == name:
            module.parts.append(module.klass(proxied))
    if name == "specs":
        _specs(module)
    if name == "agents":
        module.use_all(templates.BATCH_IMPORTS)
        module.face_import("Block")
        module.parts.append(templates.BATCH.strip("\n"))
    if name == "serving":
        module.use_all(
            "from proctor.actors.serving.pool import pool_spec as _pool_spec\nfrom proctor.bridge.proxies import unwrapped\nfrom proctor import ChildSpec\nfrom typing import Any"
        )
        module.parts.append(templates.POOL_SPEC.strip("\n"))
    if name == "client":
        module.parts.append(module.extra(REMOTE_APPROVALS))
        module.use_all("from typing import Any")
    text = "\n\n\n".join(module.parts)
    if re.search(r"\bT\b", text):
        module.use("TypeVar", "from typing import TypeVar")
        text = 'T = TypeVar("T")\n\n\n' + text
    head = templates.HEADS[face].format(templates.TOPICS[name])
    return (
        f"{head}\n\nfrom __future__ import annotations\n\n"
        + "\n".join(sorted(set(module.imports.values())))
        + "\n\n"
        + text
        + "\n"
    )


REMOTE_APPROVALS = '''
class RemoteApprovals(Stream[RemoteApproval]):
    """The approvals of an agent of a fleet, as they come."""

    def _item(self, item: Any) -> RemoteApproval:
        return RemoteApproval.around(item, self._thread)
'''


def _function(module: Module, name: str) -> str:
    member = function_of(columns.value_of(name))
    module.use(f"_{name}", f"from {member.module} import {name} as _{name}")
    module.use("current_thread", "from proctor.bridge.trio_thread import current_thread")
    if member.given:
        return module.function(member, f"_{name}", "None", kind="block")
    return module.function(member, f"_{name}", "current_thread()", kind="call")


def _specs(module: Module) -> None:
    module.use_all(templates.SPEC_IMPORTS)
    text = (templates.TOOL_OVERLOADS + templates.SPEC_PARTS.lstrip("\n")).strip("\n")
    module.face_import("hosted")
    for word, value in module.words.items():
        text = text.replace(f"{{{word}}}", value)
    module.parts.append(text)


def init_of(face: str) -> str:
    """The text of its `__init__`, which imports each name when it is first used."""
    homes: dict[str, str] = {name: f"proctor.{face}.{one.home}" for name, one in NAMES.items()}
    homes |= {name: f"proctor.{face}.{home}" for name, home in columns.FUNCTIONS.items()}
    homes |= {name: f"proctor.{face}.{home}" for name, home in columns.WRITTEN.items() if home}
    homes |= dict.fromkeys(BRIDGE, "proctor.bridge")
    homes |= dict.fromkeys(columns.data(), "proctor")
    homes |= dict.fromkeys(columns.SPECS, "proctor")
    if face == "sync":
        homes["timeout"] = "proctor.bridge.sync_face"
    by_module: dict[str, list[str]] = {}
    for name in sorted(homes):
        by_module.setdefault(homes[name], []).append(name)
    imports = "\n".join(
        f"    from {module} import {name} as {name}"
        for module, names in sorted(by_module.items())
        for name in names
    )
    table = "\n".join(
        f'    "{module}": """\n{_filled(names)}\n    """,' for module, names in sorted(by_module.items())
    )
    return INIT.format(head=HEADS[face], imports=imports, table=table)


def _filled(names: list[str]) -> str:
    lines, line = list[str](), "       "
    for name in names:
        if len(line) + len(name) > 100:
            lines, line = [*lines, line], "       "
        line += f" {name}"
    return "\n".join([*lines, line])


BRIDGE = ("BridgeClosed", "BridgeError", "CallerGone", "TrioThread", "WrongFace")

HEADS = {
    "aio": """proctor for asyncio programs: the names of `proctor`, awaited in any asyncio loop.

Agents run in a Trio thread beside the loop. Functions of yours (tools, hooks, policies, models) run in the loop that opened the agents.
Written by `python -m tests.faces` from the names of `proctor`; docs/reference/faces.md has them in a table.""",
    "sync": """proctor for plain code: the names of `proctor`, which block until they have their result.

Agents run in a Trio thread. Functions of yours (tools, hooks, policies, models) are plain ones, and run in worker threads; `timeout` bounds
what is called in its block. Written by `python -m tests.faces` from the names of `proctor`; docs/reference/faces.md has them in a table.""",
}

INIT = '''"""{head}
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __all__: tuple[str, ...]
{imports}

_NAMES: Mapping[str, str] = {{
{table}
}}
"""Module → the names that it has."""


if not TYPE_CHECKING:
    _HOMES: Mapping[str, str] = {{name: module for module, names in _NAMES.items() for name in names.split()}}
    __all__ = tuple(sorted(_HOMES))

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value  # found without this function from now on
        return value

    def __dir__() -> list[str]:
        return sorted({{*globals(), *__all__}})
'''


def files() -> Iterator[tuple[Path, str]]:
    """Every file of the two faces, and its text before it is formatted."""
    for face in FACES:
        folder = ROOT / "src" / "proctor" / face
        yield folder / "__init__.py", init_of(face)
        for name in templates.TOPICS:
            yield folder / f"{name}.py", module_of(face, name)


def write(folder: Path) -> None:
    """Write them below `folder`, formatted."""
    paths = list[str]()
    for path, text in files():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        paths.append(str(target))
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", "-q"]
    subprocess.run([*ruff, "check", *config, "--select", "I,F401,UP", "--fix", *paths], check=True)
    subprocess.run([*ruff, "format", *config, *paths], check=True)
