"""The import contracts of pyproject.toml, run, and shown to bite; below them what a contract cannot say.

A contract speaks of whole modules, so the rules by file and by call are tables here.
Every contract is broken once in a made-up tree, so that one that matches nothing cannot look kept.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import grimp
import pytest

from tests.house.tree import (
    FLOORS,
    ROOT,
    dotted,
    everywhere,
    floor,
    imports,
    listed,
    name_of,
    programs,
    sources,
    syntax,
)

LINT = "from importlinter.cli import lint_imports_command as c; c()"

# contract: (the file that breaks it, what it imports)
VIOLATIONS: Mapping[str, tuple[str, str]] = {
    "R001 the floors stand in their order": ("protocols/framing.py", "proctor.runtime.exits"),
    "protocols know no clock, no I/O, no event loop": ("protocols/dialect.py", "random"),
    "runtime knows no JSON and no wire": ("runtime/supervision/supervisor.py", "json"),
    "decisions are made without an event loop": ("runtime/supervision/decide.py", "trio"),
    "no floor imports the face": ("actors/agent/agent.py", "proctor"),
    "one command line's wire knows no other's, but OpenCode speaks ACP": (
        "protocols/codex/wire.py",
        "proctor.protocols.claude.wire",
    ),
    "what all command lines share knows none of them": ("protocols/lenient.py", "proctor.protocols.claude"),
    "the packages of actors stand in their order": ("actors/runs.py", "proctor.actors.serving.pool"),
    "the packages of runtime stand in their order": (
        "runtime/errors.py",
        "proctor.runtime.messaging",
    ),
    "no modules of runtime import each other in a circle": (
        "runtime/messaging/mailbox.py",
        "proctor.runtime.messaging.refs",
    ),
    "messaging is imported from its face": ("actors/specs.py", "proctor.runtime.messaging.refs"),
    "processes is imported from its face": ("actors/replay.py", "proctor.runtime.processes.process"),
    "supervision is imported from its face": ("runtime/retry.py", "proctor.runtime.supervision.loop"),
    "gateways know nothing of each other": ("actors/gateways/http.py", "proctor.actors.gateways.control"),
    "R005 the MCP gateway names no command line": ("actors/gateways/mcp.py", "proctor.protocols.claude"),
    "library code never imports what is for tests": (
        "runtime/processes/process.py",
        "proctor.runtime.testing",
    ),
    "library code never imports test tools": ("runtime/messaging/monitors.py", "hypothesis"),
}

COMMAND_LINES = ("claude", "codex", "acp", "opencode")

ACTORS = (
    *(
        "agent",
        "fleet",
        "limits",
        "opencode_server",
        "operations",
        "plan",
        "process",
        "recording",
        "scripted",
    ),
    *("serving", "setup", "structured", "tools", "transport", "web_server"),
)

SKELETON: Mapping[str, tuple[str, ...]] = {
    "protocols": ("conversation", "dialect", "errors", "framing", "lenient", "phases", "vocabulary"),
    **{f"protocols/{name}": ("dialect", "wire") for name in COMMAND_LINES},
    "runtime": (
        *(
            "addresses",
            "error_facts",
            "errors",
            "events",
            "exits",
            "protected",
            "retry",
            "run",
            "spec",
            "task_status",
        ),
        *("testing", "tracebacks"),
    ),
    "runtime/supervision": ("decide", "loop", "supervisor"),
    "runtime/messaging": ("mailbox", "monitors", "refs"),
    "runtime/processes": ("process",),
    "actors": (
        *("delivery", "disk", "durations", "error_kinds", "errors", "expense", "outcomes"),
        *("replay", "runs", "specs"),
    ),
    **{f"actors/{name}": ("module",) for name in ACTORS},
    "actors/agent": ("agent",),
    "actors/serving": ("pool",),
    "actors/gateways": ("mcp", "http", "control"),
}

ALLOWED: Mapping[str, tuple[str, str]] = {
    "proctor.cli": ("src/proctor/cli.py", "import proctor.actors.agent.agent\n"),
    "proctor.testing": ("src/proctor/testing.py", "import proctor.runtime.testing\n"),
    "a module knows the one below": (
        "runtime/messaging/refs.py",
        "import proctor.runtime.messaging.mailbox\n",
    ),
    "opencode speaks acp": ("protocols/opencode/dialect.py", "import proctor.protocols.acp\n"),
}


def lint(checkout: Path) -> dict[str, str]:
    """Each contract's verdict in this checkout, and all that was said under `report`."""
    done = subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--no-logo"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src"), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = dict(re.findall(r"^(.+) (KEPT|BROKEN)\b", done.stdout, re.MULTILINE))
    assert set(verdicts) == set(contracts()), done.stdout + done.stderr
    return verdicts | {"report": done.stdout}


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    face = tmp_path / "src" / "proctor"
    face.mkdir(parents=True)
    (face / "__init__.py").touch()
    for folder, modules in SKELETON.items():
        (tmp_path / folder).mkdir()
        for module in ("__init__", *modules):
            (tmp_path / folder / f"{module}.py").touch()
    for name in FLOORS:
        (face / name).symlink_to(Path("..", "..", name), target_is_directory=True)
    for path, source in ALLOWED.values():
        (tmp_path / path).write_text(source)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def module_of(path: Path) -> str:
    """`proctor.runtime.supervision.child` for runtime/supervision/child.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    inside = parts[2:] if parts[0] == "src" else parts
    return ".".join(("proctor", *inside)).removesuffix(".__init__")


def contracts() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return [contract["name"] for contract in settings["contracts"]]


# R001
def test_the_library_keeps_every_contract() -> None:
    verdicts = lint(ROOT)
    assert [name for name in contracts() if verdicts[name] != "KEPT"] == [], verdicts["report"]


def test_the_contracts_see_every_file_behind_the_links() -> None:
    seen = grimp.build_graph("proctor", cache_dir=None).modules
    assert seen == {module_of(path) for path in sources()}


def test_a_tree_with_every_room_and_no_violation_keeps_every_contract(skeleton: Path) -> None:
    verdicts = lint(skeleton)
    assert [name for name in contracts() if verdicts[name] != "KEPT"] == [], verdicts["report"]


# R001
def test_each_contract_finds_its_violation(skeleton: Path) -> None:
    assert set(VIOLATIONS) == set(contracts())
    for path, imported in VIOLATIONS.values():
        (skeleton / path).write_text(f"import {imported}\n")
    verdicts = lint(skeleton)
    assert [name for name in contracts() if verdicts[name] != "BROKEN"] == [], verdicts["report"]


@pytest.mark.parametrize(
    "name", ["R001 the floors stand in their order", "decisions are made without an event loop"]
)
def test_a_violation_inside_a_function_is_found_too(skeleton: Path, name: str) -> None:
    path, imported = VIOLATIONS[name]
    (skeleton / path).write_text(f"def f():\n    import {imported}\n")
    assert lint(skeleton)[name] == "BROKEN"


# floor: the packages it may stand on, besides the standard library
SERVING = (
    "hypercorn",
    "starlette",
    "mcp",
    "jsonschema_rs",
    "prometheus_client",
)  # of the extras: `gateways` and what they stand on

PACKAGES: Mapping[str, frozenset[str]] = {
    "protocols": frozenset({"attrs", "msgspec"}),
    "runtime": frozenset({"attrs", "trio", "trio_util", "outcome"}),
    "actors": frozenset(
        # the last for type checkers alone, which have stubs of it: it need not be installed
        {"attrs", "cattrs", "httpx", "msgspec", "trio", "trio_util", *SERVING, "typing_extensions"}
    ),
}

PROGRAMS = tuple(name_of(path) for path in programs())

# module of the standard library: the files that may import it
BY_FILE: Mapping[str, tuple[str, ...]] = {
    "subprocess": (
        "runtime/processes/process.py",
        "runtime/processes/spawning.py",
        "runtime/processes/orphans.py",
        *PROGRAMS,
    ),
    "signal": (
        *(
            "runtime/processes/process.py",
            "runtime/processes/group.py",
            "runtime/supervision/program.py",
            "runtime/processes/stopping.py",
            "runtime/processes/orphans.py",
            *PROGRAMS,
        ),
        *(
            "runtime/supervision/supervisor.py",
            "runtime/run.py",
            "src/proctor/cli/*.py",
        ),  # Ctrl-C becomes an orderly stop (T5)
    ),
    "_signal": ("runtime/processes/guard.py",),
    "_ctypes": ("runtime/processes/guard.py",),
    "time": (
        *PROGRAMS,
        "runtime/supervision/schedule.py",  # a time of the day is the wall clock's
        "actors/recording/recording.py",
        "actors/limits/admission.py",
        "actors/limits/account_book.py",  # what was spent is kept by its moments
        "actors/setup/config_file.py",
        "actors/gateways/openai/responses.py",
        "src/proctor/cli/*.py",
    ),  # the wall clock
    # what msgspec refuses stands in the files of others: half a pair of surrogates
    "json": ("protocols/*.py", "actors/setup/jsonc.py", "src/proctor/cli/*.py", *PROGRAMS),
    "asyncio": (),
    "multiprocessing": (),
    "logging": ("runtime/retry.py", "actors/*.py", "src/proctor/cli/*.py"),
    "random": ("runtime/*.py", "actors/*.py", "src/proctor/testing/__init__.py"),
}


def misplaced(file: str, tree: ast.Module) -> Iterator[str]:
    for statement, name in imports(tree):
        allowed = BY_FILE.get(name.split(".")[0])
        if allowed is not None and not any(fnmatch.fnmatch(file, pattern) for pattern in allowed):
            yield f"{file}:{statement.lineno} {name}"


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


@pytest.mark.parametrize("name", ["supervision.decide", "spec", "exits"])
def test_a_decision_reaches_no_event_loop_when_it_runs(name: str) -> None:
    graph = grimp.build_graph(
        "proctor", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )
    chain = graph.find_shortest_chain(f"proctor.runtime.{name}", "trio") if "trio" in graph.modules else None
    assert chain is None


def test_the_standard_library_is_imported_only_where_its_effect_belongs() -> None:
    places = [place for path in sources() for place in misplaced(name_of(path), syntax(path))]
    assert places == [], listed(places)


@pytest.mark.parametrize("name", FLOORS)
def test_a_floor_stands_on_its_own_packages_only(name: str) -> None:
    places = everywhere(lambda tree: foreign(PACKAGES[name], tree), floor(name))
    assert places == [], listed(places)


def test_the_mcp_gateway_says_no_command_lines_name() -> None:  # R005
    gateway = [path for path in floor("actors") if name_of(path).startswith("actors/gateways/mcp")]
    named = re.compile("|".join(COMMAND_LINES), re.IGNORECASE)
    assert [name_of(path) for path in gateway if named.search(path.read_text())] == []


def test_chance_comes_in_by_the_door() -> None:
    places = everywhere(chance)
    assert places == [], listed(places)


def test_a_program_run_by_itself_imports_the_standard_library_only() -> None:
    places = everywhere(lambda tree: foreign(frozenset(), tree), programs())
    assert places == [], listed(places)


def test_a_program_run_by_itself_imports_no_module_of_ours_but_its_own() -> None:
    own = {module_of(path) for path in programs()}
    places = everywhere(lambda tree: outside(own, tree), programs())
    assert places == [], listed(places)


def test_every_module_postpones_its_annotations() -> None:
    postponed = "from __future__ import annotations\n"
    places = [
        name_of(path)
        for path in sources()
        if path.name != "__init__.py" and postponed not in path.read_text()
    ]
    assert places == [], listed(places)


def test_the_searches_find() -> None:
    tree = ast.parse(
        "import subprocess\nfrom time import sleep\nimport numpy\nrandom.random()\nrandom.Random(1)\n"
    )
    assert list(misplaced("runtime/supervision/child.py", tree)) == [
        "runtime/supervision/child.py:1 subprocess",
        "runtime/supervision/child.py:2 time.sleep",
    ]
    assert foreign(PACKAGES["runtime"], tree) == {"numpy"}
    assert chance(tree) == ["random.random"]


@pytest.mark.parametrize(
    ("statement", "places"),
    [
        ("from proctor.a.cli import main", 0),
        ("from proctor.a import cli", 0),
        ("import proctor.a.cli", 0),
        ("import os", 0),
        ("from proctor.a import launch", 1),
        ("from proctor.a.launch import start", 1),
        ("import proctor", 1),
    ],
)
def test_the_search_finds_a_module_outside(statement: str, places: int) -> None:
    assert len(list(outside({"proctor.a.cli"}, ast.parse(statement)))) == places
