"""The promises of docs/explanation/semantics.md: each program on the page runs as it stands and asserts what its section says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "semantics.md").read_text()
SECTIONS = {section.split("\n")[0]: section for section in PAGE.split("\n## ")[1:]}
PROGRAMS = {
    title: code
    for title, section in SECTIONS.items()
    for code in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
}


def promised(section: str) -> set[int]:
    return {int(number) for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE)}


def shown(code: str) -> set[int]:
    """The sentences that a program's comments name beside what shows them."""
    named = re.findall(r"#(?: |.* )?((?:\d+, )*\d+)(?:: .*)?$", code, re.MULTILINE)
    return {int(number) for numbers in named for number in numbers.split(", ")}


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_section_holds_its_promises(title: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAMS[title]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_section_that_promises_has_a_program_that_asserts() -> None:
    assert [title for title, section in SECTIONS.items() if promised(section)] == list(PROGRAMS)
    assert all("assert " in code for code in PROGRAMS.values())
    assert {title: shown(code) for title, code in PROGRAMS.items()} == {
        title: promised(SECTIONS[title]) for title in PROGRAMS
    }
