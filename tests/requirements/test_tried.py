"""What can be tried without a key, a network or an installed agent; and what that leaves in a home."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.actors.scripted.launch import PROGRAM
from tests.runtime.programs import installed

ROOT = Path(__file__).parents[2]
COMPARISON = ROOT / "examples" / "three_clis.py"
STAND_INS = {"PROCTOR_CLAUDE": "claude", "PROCTOR_CODEX": "codex", "PROCTOR_OPENCODE": "opencode"}
ALONE = """
import sys, types
package = types.ModuleType("proctor")
package.__path__ = ["{src}/proctor"]
sys.modules["proctor"] = package
import proctor.protocols.{name}
others = [c for c in ("claude", "codex", "opencode", "acp") if c not in ("{name}", {{"opencode": "acp"}}.get("{name}"))]
print([n for n in sys.modules if n == "trio" or n.startswith(tuple(f"proctor.protocols.{{c}}" for c in others))])
"""
USERS = {".claude.json": '{"mcpServers": {}}', ".codex/config.toml": "# mine\n", ".bashrc": "export A=1\n"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with files of its user's in it."""
    for name, text in USERS.items():
        path = tmp_path / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "home"


def run(*argv: str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": str(home / "nothing-is-installed"),
        "HOME": str(home),
        "XDG_STATE_HOME": str(home.parent / "state"),
        "PYTHONPATH": str(ROOT / "src"),
        **more,
    }
    return subprocess.run(
        [sys.executable, *argv], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def lines_of_code(path: Path) -> int:
    """Lines with a statement on them, but for docstrings."""
    tree = ast.parse(path.read_text())
    words = [
        node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    told = {line for node in words for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    lines = enumerate(path.read_text().splitlines(), 1)
    return sum(bool(text.strip()) and number not in told for number, text in lines)


@pytest.mark.covers("P10")
def test_a_script_compares_three_command_lines_in_few_lines(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.ndjson"
    script.write_text('{"reply": "You said: {prompt}", "cost": 0.5}\n')
    named = dict[str, str]()
    for variable, voice in STAND_INS.items():
        words = f"{sys.executable} -I -S {PROGRAM} --script={script} --dialect={voice}"
        named[variable] = str(installed(tmp_path / voice, f'exec {words} "$@"'))
    done = run(str(COMPARISON), "one", "two", home=home, **named)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted((row[0], row[-1]) for row in rows) == [
        (cli, prompt) for cli in ("claude", "codex", "opencode") for prompt in ("one", "two")
    ]
    assert all(("ok:" in row, row[2], float(row[1]) >= 0) == (True, "s", True) for row in rows), done.stdout
    assert {row[3] for row in rows if row[0] == "claude"} == {"$0.5000"}
    assert lines_of_code(COMPARISON) <= 20


@pytest.mark.covers("R188")
@pytest.mark.parametrize("words", [("run", "scripted:{script}", "hi"), ("doctor",), ("run", "claude", "hi")])
def test_nothing_in_a_home_changes_by_itself(words: tuple[str, ...], home: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.ndjson"
    script.write_text('{"reply": "hello"}\n')
    done = run("-m", "proctor", *(word.format(script=script) for word in words), home=home)
    assert "Traceback" not in done.stderr
    assert contents(home) == USERS


@pytest.mark.covers("R002")
def test_one_command_line_can_be_used_without_what_serves_agents(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.ndjson"
    script.write_text('{"reply": "You said: {prompt}"}\n')
    program = (
        "import sys, trio\n"
        "from proctor.actors.plan.plan import scripted_plan\n"
        "from proctor.actors.runs import ask\n"
        f"print(trio.run(ask, scripted_plan('a', {str(script)!r}, {{'home': 'private'}}), 'hi').text)\n"
        "above = ('gateways', 'operations', 'serving', 'setup', 'web_server')\n"
        "print(sorted(name for name in sys.modules if name.startswith(tuple(f'proctor.actors.{a}' for a in above))))\n"
        "print(sorted({'mcp', 'starlette', 'h11', 'pydantic', 'httpx'} & set(sys.modules)))\n"
    )
    done = run("-c", program, home=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["You said: hi", "[]", "[]"]


@pytest.mark.covers("R002")
@pytest.mark.parametrize("name", ["claude", "codex", "opencode", "acp"])
def test_one_protocol_can_be_used_without_an_event_loop_or_the_others(name: str, home: Path) -> None:
    done = run("-c", ALONE.format(name=name, src=ROOT / "src"), home=home)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "[]\n")
