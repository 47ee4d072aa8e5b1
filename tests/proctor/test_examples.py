from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.actors.fleet.fleet import load_fleet
from tests.proctor.command import python_process

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def block(page: str) -> str:
    """The one program of a page."""
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return str(code)


def run(example: str, home: Path) -> list[str]:
    """The lines it writes, run as it stands in a home of its own and with nothing installed."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    argv = [sys.executable, str(EXAMPLES / example)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_embedding_example_runs_as_it_stands(tmp_path: Path) -> None:
    lines = run("embed.py", tmp_path)
    assert lines[0].startswith("reader: ok, $")
    assert "phoenix: its process ended (killed_by_system)" in lines
    assert lines[-1] == "phoenix: ok, 2 processes"


def test_the_example_of_answers_in_a_shape_runs_as_it_stands(tmp_path: Path) -> None:
    lines = run("bills.py", tmp_path)
    assert sorted(lines) == [f"page {page}: bill B-1 of 5.00 after 2 attempts" for page in range(1, 5)]


def test_the_example_of_a_validator_runs_as_it_stands(tmp_path: Path) -> None:
    lines = run("validate.py", tmp_path)
    assert lines[0] == "accepted: There is a README."
    assert "refused at the stage 'meaning': it names a secret" in lines
    assert lines[-1] == "failed: a validator refused it: the answer names a secret"


def test_the_example_of_agents_behind_another_command_runs_as_it_stands(tmp_path: Path) -> None:
    lines = run("elsewhere.py", tmp_path)
    assert lines == ["jailed: ok, All is well, jailed", "remote: ok, All is well, remote"]


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.toml")))
def test_a_fleet_file_among_the_examples_is_read_without_a_fault(name: str) -> None:
    fleet = load_fleet(EXAMPLES / name)
    assert len(list(fleet.members(fleet.name))) == 3


def test_every_example_is_run_or_read_by_a_test() -> None:
    tests = "".join(path.read_text() for path in ROOT.glob("tests/*/*.py"))
    own = [path.stem for path in EXAMPLES.iterdir() if path.suffix == ".py"]
    assert len(own) > 3
    assert [name for name in own if not re.search(rf'"{name}(\.py)?"|\bexamples[./]{name}\b', tests)] == []


ASKS = """
class Counter(r.Actor):
    async def handle_call(self, msg, from_):
        return msg


async def main() -> None:
    async with r.open_supervisor([r.ChildSpec("counter", Counter, name="counter")]) as sup:
        counter = sup.name("counter")
        counter.kill()
        print(await value(counter))
        await sup.terminate_child("counter")
        try:
            await value(counter)
        except r.NoProc:
            print("none is due")


r.run(main)
"""
PROGRAMS = {
    "explanation/supervision": ("", "", ["15", "[0, 1, 2]", "killed"]),
    "explanation/messages": ("from proctor import runtime as r\n", ASKS, ["value", "none is due"]),
    "guides/dynamic-children": (
        "",
        "",
        ["cache: hello", "2: hello", "ONE", "TaskResult(value='TWO')", "TaskExit(item='', reason="],
    ),
    "guides/run-programs": ("", "", ["() ()", "ChildCounts(specs=1, active=1, supervisors=0, workers=1)"]),
}
"""Page with a program of the runtime → code before and after it, and how the lines of its output begin."""


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_program_of_a_page_runs_as_it_stands(page: str) -> None:
    before, after, expected = PROGRAMS[page]
    done = python_process(before + block(f"docs/{page}.md") + after)
    assert done.status == 0, done.err
    printed = done.out.splitlines()
    assert [line[: len(start)] for line, start in zip(printed, expected, strict=False)] == expected, printed
