from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("script", "arguments", "rows"),
    [
        (
            "bench.spawn",
            ["--programs=4", "--guarded=1", "--at-once=2"],
            {"start, 1": 8, "start, 2": 8, "guarded start, 1": 2, "longest delay of the loop, 2 at once": 1},
        ),
        ("bench.restart", ["--kills=2", "--at-once=3"], {"restart, 1": 9, "restart, 3": 9}),
    ],
)
def test_a_script_about_processes_prints_its_tables(
    script: str, arguments: list[str], rows: dict[str, int]
) -> None:
    command = [sys.executable, "-m", script, "--rounds=1", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    first = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("|")]
    assert {name: first.count(name) for name in rows} == rows
    assert done.stderr == ""
