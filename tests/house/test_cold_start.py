"""The modules that a command imports: what it does not need costs its user time at every call."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.house.tree import ROOT

SCRIPT = ROOT / "examples" / "hello.ndjson"
SERVERS = frozenset({"h11", "uvicorn", "prometheus_client", "tomlkit"})
ALL = (
    frozenset(
        {"mcp", "mcp_types", "pydantic", "starlette", "httpx", "asyncio", "jsonschema_rs", "opentelemetry"}
    )
    | SERVERS
)
LIBRARIES = frozenset({"trio", "attr", "msgspec", "cyclopts", "rich", "trio_util"}) | ALL
"""Packages outside the standard library that take long to import."""

# command: its arguments, and the packages that it does not need
COMMANDS: dict[str, tuple[tuple[str, ...], Collection[str]]] = {
    "--version": (("--version",), LIBRARIES),
    "run": (("run", f"scripted:{SCRIPT}", "hello", "--no-record"), ALL),
    "serve": (("serve", "--agents", f"scripted:{SCRIPT}"), ALL - {"jsonschema_rs"}),
}


def imported(home: Path, *arguments: str) -> set[str]:
    """The packages and modules that `proctor` with these arguments imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "proctor", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-1000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_no_package_that_it_does_not_need(command: str, tmp_path: Path) -> None:
    arguments, unneeded = COMMANDS[command]
    names = imported(tmp_path, *arguments)
    assert "proctor.cli" in names
    assert sorted({name.split(".")[0] for name in names} & set(unneeded)) == []


def test_the_version_is_printed_without_the_library(tmp_path: Path) -> None:
    names = {name for name in imported(tmp_path, "--version") if name.startswith("proctor.")}
    assert names <= {"proctor.cli", "proctor.cli.exit_status", "proctor.cli.loading", "proctor.__main__"}


def test_a_run_imports_neither_mailboxes_nor_supervisors(tmp_path: Path) -> None:
    names = imported(tmp_path, *COMMANDS["run"][0])
    trees = ("proctor.runtime.messaging", "proctor.runtime.supervision", "proctor.runtime.events")
    assert sorted(name for name in names if name.startswith(trees)) == []


def test_the_name_proctor_alone_imports_no_module_of_the_library(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, proctor; print([n for n in sys.modules if 'proctor' in n])"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['proctor']\n"
