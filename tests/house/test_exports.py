"""The faces: packages with an `__all__`, or with imports of the form `name as name`. Their names are pinned by the reference page, which is written from them."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import proctor
from tests.house.tree import ROOT, listed
from tests.reference.page import PAGE, names
from tests.tables import each_row


def faces() -> list[str]:
    """Every package that exports names."""
    packages = [
        name for _, name, is_package in pkgutil.walk_packages(proctor.__path__, "proctor.") if is_package
    ]
    return [name for name in ("proctor", *packages) if exported(importlib.import_module(name))]


def exported(module: ModuleType) -> tuple[str, ...]:
    if hasattr(module, "__all__"):
        return tuple(module.__all__)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return tuple(each.name for node in imports for each in node.names if each.asname == each.name)


FACES = faces()


def test_the_names_of_a_face_are_those_of_the_reference() -> None:
    assert {"proctor", "proctor.runtime", "proctor.runtime.messaging", "proctor.testing"} <= set(FACES)
    assert "\n".join(names()) in (ROOT / PAGE).read_text(encoding="utf-8"), "python -m tests.reference"


@each_row("name", FACES)
def test_a_face_exports_each_name_once_and_has_it_and_no_other(name: str) -> None:
    module = importlib.import_module(name)
    exports = exported(module)
    assert len(set(exports)) == len(exports)
    assert [missing for missing in exports if not hasattr(module, missing)] == []
    public = {
        key for key, value in vars(module).items() if not key.startswith("_") and not _is_incidental(value)
    }
    assert public - set(exports) == set()


def _is_incidental(value: object) -> bool:
    """A submodule, what `from __future__` leaves, and the standard library's names."""
    origin = getattr(value, "__module__", "")
    return isinstance(value, ModuleType) or not str(origin).startswith("proctor")


@pytest.mark.parametrize("name", ["proctor", "proctor.runtime", "proctor.aio", "proctor.sync"])
def test_a_name_that_is_imported_when_it_is_used_is_the_one_that_type_checkers_see(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    homes = {each.name: node.module or "" for node in imports for each in node.names}
    assert set(exported(module)) <= set(homes)
    for key in exported(module):
        assert getattr(module, key) is getattr(importlib.import_module(homes[key]), key), key
    assert set(exported(module)) <= set(dir(module))


@pytest.mark.covers("R193")
@each_row("name", FACES)
def test_every_public_method_is_documented(name: str) -> None:
    module = importlib.import_module(name)
    classes = [value for key in exported(module) if inspect.isclass(value := getattr(module, key))]
    places = [method for cls in classes for method in undocumented_methods(cls)]
    assert places == [], listed(places)


SERVING = ("gateways", "operations", "serving", "setup", "web_server")
EXTRAS = (
    "mcp",
    "starlette",
    "h11",
    "pydantic",
    "httpx",
    "jsonschema_rs",
    "prometheus_client",
    "opentelemetry",
    "textual",
)
NAMED = """
import sys, proctor
before = set(sys.modules)
for name in proctor.__all__:
    getattr(proctor, name)
print(sorted(name for name in before if name.split(".")[2:3] and name.split(".")[2] in {serving!r}))
print(sorted(set(sys.modules) & set({extras!r})))
"""


def test_what_serves_agents_is_loaded_when_it_is_named_and_no_extra_by_any_name() -> None:
    program = NAMED.format(serving=SERVING, extras=EXTRAS)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n[]\n"), done.stderr


def undocumented_methods(cls: type) -> Iterator[str]:
    for name, value in vars(cls).items():
        own = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
        if own and not name.startswith("_") and not any(_documents(above, name) for above in cls.__mro__):
            yield f"{cls.__module__}.{cls.__qualname__}.{name}"


def _documents(cls: type, name: str) -> bool:
    return bool(getattr(vars(cls).get(name), "__doc__", None))


def test_a_documented_base_method_documents_the_override() -> None:
    class Above:
        def serve(self) -> None:
            """Serve."""

    class Below(Above):
        def serve(self) -> None:
            pass

        def rest(self) -> None:
            pass

    assert [name.rpartition(".")[2] for name in undocumented_methods(Below)] == ["rest"]
