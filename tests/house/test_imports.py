"""What the import contracts of pyproject.toml (`make imports`) cannot say: by file, by call, by package."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping

import grimp
import pytest

from tests.house.tree import FLOORS, dotted, everywhere, floor, imports, listed, name_of, programs, sources

COMMAND_LINES = ("claude", "codex", "acp", "opencode")
SERVING = ("h11", "starlette", "mcp", "jsonschema_rs", "prometheus_client", "opentelemetry")

# floor: the packages it may stand on, besides the standard library
PACKAGES: Mapping[str, frozenset[str]] = {
    "protocols": frozenset({"attrs", "msgspec"}),
    # typing_extensions here and below: for type checkers alone, which have stubs of it
    "runtime": frozenset({"attrs", "trio", "trio_util", "outcome", "typing_extensions"}),
    "actors": frozenset(
        # outcome is Trio's own, with which a task is woken
        {"attrs", "cattrs", "httpx", "msgspec", "trio", "trio_util", "outcome", *SERVING, "typing_extensions"}
    ),
}


def module_of(name: str) -> str:
    """`proctor.runtime.retry` for runtime/retry.py."""
    parts = name.removesuffix(".py").removeprefix("src/proctor/").split("/")
    return ".".join(("proctor", *parts)).removesuffix(".__init__")


def foreign(packages: frozenset[str], tree: ast.Module) -> set[str]:
    roots = {name.split(".")[0] for _, name in imports(tree)}
    return roots - packages - set(sys.stdlib_module_names) - {"proctor"}


def outside(own: Collection[str], tree: ast.Module) -> Iterator[str]:
    """What is imported from the library, but not from these modules."""
    for statement, name in imports(tree):
        if name.split(".")[0] == "proctor" and not {name, name.rpartition(".")[0]} & set(own):
            yield f"{statement.lineno} {name}"


def chance(tree: ast.Module) -> list[str]:
    """Draws from the shared source of chance; one's own `random.Random(seed)` is a parameter."""
    drawn = (dotted(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [name for name in drawn if name.startswith("random.") and name != "random.Random"]


@pytest.mark.covers("R001")
def test_the_contracts_see_every_file_behind_the_links() -> None:
    seen = grimp.build_graph("proctor", cache_dir=None).modules
    assert seen == {module_of(name_of(path)).removesuffix(".__init__") or "proctor" for path in sources()}


@pytest.mark.parametrize("name", ["supervision.decide", "spec", "exits"])
def test_a_decision_reaches_no_event_loop_when_it_runs(name: str) -> None:
    graph = grimp.build_graph(
        "proctor", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )
    assert "trio" in graph.modules
    assert graph.find_shortest_chain(f"proctor.runtime.{name}", "trio") is None


@pytest.mark.parametrize("name", FLOORS)
def test_a_floor_stands_on_its_own_packages_only(name: str) -> None:
    places = everywhere(lambda tree: foreign(PACKAGES[name], tree), floor(name))
    assert places == [], listed(places)


@pytest.mark.covers("R005")
def test_the_mcp_gateway_names_no_command_line() -> None:
    gateway = [path for path in floor("actors") if name_of(path).startswith("actors/gateways/mcp")]
    named = re.compile("|".join(COMMAND_LINES), re.IGNORECASE)
    assert gateway
    assert [name_of(path) for path in gateway if named.search(path.read_text())] == []


def test_chance_is_passed_in() -> None:
    places = everywhere(chance)
    assert places == [], listed(places)


def test_a_program_run_by_itself_imports_the_standard_library_and_its_own_modules_only() -> None:
    own = {module_of(name_of(path)) for path in programs()}
    places = everywhere(lambda tree: [*foreign(frozenset(), tree), *outside(own, tree)], programs())
    assert places == [], listed(places)


def test_the_searches_find() -> None:
    tree = ast.parse("import numpy\nrandom.random()\nrandom.Random(1)\nfrom proctor.a import launch, cli\n")
    assert foreign(PACKAGES["runtime"], tree) == {"numpy"}
    assert chance(tree) == ["random.random"]
    assert list(outside({"proctor.a.cli"}, tree)) == ["4 proctor.a.launch"]
