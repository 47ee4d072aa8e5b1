from __future__ import annotations

from pathlib import Path

import pytest

from tests.proctor.scripts import Fleet, Script


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes a script of these lines and gives the agent that plays it."""

    def write(*lines: str, name: str = "agent") -> str:
        path = tmp_path / f"{name}.ndjson"
        path.write_text("".join(f"{line}\n" for line in lines))
        return f"scripted:{path}"

    return write


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Writes a fleet file of these parts, and scripts by name beside it."""

    def write(*parts: str, **scripts: tuple[str, ...]) -> Path:
        for name, lines in scripts.items():
            (tmp_path / f"{name}.ndjson").write_text("".join(f"{line}\n" for line in lines))
        path = tmp_path / "fleet.toml"
        path.write_text("\n".join(parts))
        return path

    return write
