from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import proctor

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/supervision.md")


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_embedding_example_runs_as_it_stands(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "embed.py")],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("reader: ok, $")
    assert "phoenix: its process ended (killed_by_system)" in lines
    assert lines[-1] == "phoenix: ok, 2 processes"


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_names_only_what_there_is(page: str) -> None:
    found = blocks(page)
    assert found
    for code in found:
        for node in ast.walk(ast.parse(code)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "proctor"
            ):
                assert hasattr(proctor, node.attr), f"{page}: proctor.{node.attr}"


PRINTED = (
    ["15", "[0, 1, 2]", "killed"],
    ["cache: hello", "2: hello", "ONE", "TaskResult(value='TWO')", "TaskExit(item='', reason="],
    ["() ()", "ChildCounts(specs=1, active=1, supervisors=0, workers=1)"],
)


@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_the_code_of_the_supervision_page_runs_as_it_stands(number: int) -> None:
    codes = blocks("docs/supervision.md")
    assert len(codes) == len(PRINTED)
    done = subprocess.run(
        [sys.executable, "-c", codes[number]], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert [line.startswith(wanted) for line, wanted in zip(printed, PRINTED[number], strict=False)] == (
        [True] * len(PRINTED[number])
    ), printed
